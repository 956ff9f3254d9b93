//! Reads the cluster, and decides nothing: watches, metrics APIs and eviction events.

pub mod eviction;
pub mod external;
pub mod feed;
pub mod guard;
mod items;
pub mod slim;
pub mod usage;
pub mod watch;
