//! The one integration-test binary; each module is a topic.

mod admin_server;
mod admission;
mod all_in_one;
mod architecture;
mod boards;
mod cluster_reads;
mod cluster_writes;
mod command_line;
mod crds;
mod demo;
mod deploy;
mod docs;
mod explain;
mod hostile_tenant;
mod liveness;
mod metric_sources;
mod metrics;
mod prometheus;
mod quantity;
mod recommender;
mod recommender_differential;
mod recommender_model;
mod rules;
mod schema;
mod scripted_day;
mod sim;
mod sizing;
mod status;
mod storage;
#[allow(
    dead_code,
    unused_imports,
    reason = "the testbed offers what tests of later roles need too"
)]
mod support;
mod target_pods;
mod testbed;
mod updater;
mod updater_decisions;
mod watermark_controller;
mod watermark_decisions;
mod webhook;
