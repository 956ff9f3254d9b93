//! The one integration-test binary; each module is a topic.

mod act;
mod admit;
mod bed;
mod boards;
mod command_line;
mod crds;
mod day;
mod demo;
mod deploy;
mod differential;
mod docs;
mod explain;
mod feed;
mod fit;
mod hostile;
mod house;
mod liveness;
mod metrics;
mod model;
mod prometheus;
mod quantity;
mod recommender;
mod rules;
mod scaling;
mod schema;
mod serve;
mod several;
mod sim;
mod sources;
mod status;
mod storage;
#[allow(
    dead_code,
    unused_imports,
    reason = "the testbed offers what tests of later roles need too"
)]
mod support;
mod target;
mod update;
mod updater;
mod watermark;
mod webhook;
