//! History from Prometheus: all samples of the requested workloads, once, in order.

pub mod collecting_sink;
mod conformance;
mod cpu_throttling;
mod dialect;
mod gaps;
mod interrupted_reads;
mod live_pods;
mod matchers;
mod mixed_up_names;
mod oom_kills;
mod owners;
mod pod_labels;
mod recording_rules;
mod recording_transport;
mod upstream_queries;
