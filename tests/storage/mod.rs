//! The storage backends: the suite that all must pass, what `local` makes of damage, kills and full disks, and
//! `checkpoint` of other writers.

mod annotated;
mod backends;
mod broken;
mod checkpoints;
mod churn;
mod codec;
mod contended;
mod damage;
mod faults;
mod growth;
pub mod kill;
pub mod objects;
pub mod place;
mod read_only;
mod readers;
