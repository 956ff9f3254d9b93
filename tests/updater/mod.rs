//! The updater as a role on a real control plane.

mod conditions;
mod differential;
mod evictions;
mod faults;
mod guards;
mod in_place;
mod kinds;
mod logged;
pub mod process;
mod referee;
mod resizes;
mod rights;
pub mod stage;
mod storm;
pub mod way;
mod webhook;
