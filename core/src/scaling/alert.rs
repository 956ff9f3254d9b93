//! The state of an alert that holds replicas while it is firing.

/// The result of querying an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alert {
    Firing,
    NotFiring,
    /// The query failed.
    Unknown(String),
}
