//! The storage backends: the conformance suite, `local` with damage, kills and full disks, and `checkpoint` with
//! concurrent writers.

mod backends;
mod checkpoint_annotation;
pub mod checkpoint_objects;
mod checkpoints;
mod churn;
mod codec;
pub mod conformance;
mod corruption;
mod defective_backend;
mod defective_reader;
mod faults;
mod file_damage;
mod file_growth;
pub mod process_kill;
mod read_only;
pub mod temp_store;
mod write_conflicts;
