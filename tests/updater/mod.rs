//! The updater as a role on a real control plane.

mod evictions;
mod in_place;
mod rights;
pub mod stage;
