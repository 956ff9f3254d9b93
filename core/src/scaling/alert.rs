//! The state of an alert that holds replicas while it is firing.

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Alert {
    Firing,
    NotFiring,
    Unknown(String),
}
