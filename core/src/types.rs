//! Basic types: amounts with their unit, Kubernetes quantities, points in time.

pub mod compat;
pub mod interner;
pub mod key;
pub mod quantity;
pub mod recurring_window;
mod resource;
pub mod time;
pub mod units;

pub use key::{ContainerKey, ObjectKey};
pub use quantity::Quantity;
pub use recurring_window::RecurringWindow;
pub use resource::{PerResource, Resource};
pub use time::Time;
pub use units::{Bytes, MilliCpu};
