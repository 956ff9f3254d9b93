//! The webhook as API servers and other clients see it.

mod certificate_rotation;
pub mod cluster;
mod connection_limits;
mod differential;
pub mod endless_requests;
mod fixture;
mod horizontal;
mod pod_shapes;
mod quotas;
mod rbac;
mod registration;
mod tls;
mod vpa_annotations;
mod watermark;
pub mod webhook_client;
mod webhook_lease;
