//! Reads the cluster: what is watched and fetched becomes plain data for those who decide.

pub mod answers;
pub mod controllers;
pub mod eviction;
pub mod external;
pub mod feed;
pub mod guard;
pub mod index;
mod items;
pub mod labelled;
pub mod limit_range;
pub mod lookup;
pub mod mirror;
pub mod nodes;
pub mod pod;
pub mod resource_quota;
pub mod running;
pub mod scale;
pub mod scaled_pod;
pub mod selector;
pub mod series;
pub mod server_time;
pub mod slim;
pub mod source;
pub mod startup;
pub mod target;
pub mod usage;
pub mod watch;
