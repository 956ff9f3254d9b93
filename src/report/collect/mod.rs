//! Reads from a cluster and a Prometheus what reports show.

pub mod doctor;
pub mod status;
pub mod vpa;
pub mod wpa;
