//! Collects the data of reports from a cluster and a Prometheus server.

pub(crate) mod doctor;
pub(crate) mod doctor_cluster;
pub(crate) mod hpa;
pub(crate) mod hpa_lint;
pub(crate) mod lookup;
pub(crate) mod object_names;
pub(crate) mod pod;
mod shared_requests;
pub(crate) mod status;
pub(crate) mod vpa;
pub mod wpa;
