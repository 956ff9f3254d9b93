//! The outcome of a reconcile, and when the object is due next.

use std::time::Duration;

/// When an object is due next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// At its offset within the period.
    Periodic,
    /// After this time.
    After(Duration),
    /// Only when it changes.
    OnChange,
}

/// The outcome of a reconcile as a metric label, and when the object is due next.
pub type ReconcileResult = (&'static str, Requeue);

/// The outcome label of a reconcile that failed.
pub(in crate::controllers) const ERROR: &str = "error";
