//! Proof of what is read of a real cluster: watches, usage and evictions, and what becomes of them when something breaks.

mod deleted;
mod events;
mod memory;
mod mirror;
mod silence;
mod sweeps;
mod together;
mod usage;
mod watches;
