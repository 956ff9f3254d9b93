//! Collects the data of reports from a cluster and a Prometheus server.

pub mod doctor;
pub mod lookup;
pub mod pod;
pub mod status;
pub mod vpa;
pub mod wpa;
