//! The storage backends: the suite that all must pass, and what `local` makes of damage, kills and full disks.

mod backends;
mod broken;
mod codec;
mod damage;
mod faults;
mod growth;
pub mod kill;
pub mod place;
