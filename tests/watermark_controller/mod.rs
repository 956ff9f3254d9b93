//! The watermark controller as a role on a real control plane: the controller-manager moves ReplicaSets, hollow nodes run
//! their pods, and metrics come from an aggregated API.

mod datadog_monitor;
mod exported_series;
pub mod fixture;
mod metric_outages;
mod metric_sources;
mod object_lifecycle;
mod options;
mod pod_owners;
mod rbac;
mod rolling_update;
mod scale_cache;
mod scenarios;
mod update_wave;
