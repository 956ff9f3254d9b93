//! The one integration-test binary; each module is a topic.

mod bed;
mod bed_nodes;
mod bed_peers;
mod bed_processes;
mod bed_usage;
mod crds;
mod demo;
mod differential;
mod docs;
mod house;
mod model;
mod quantity;
mod schema;
mod sim;
mod storage;
#[allow(
    dead_code,
    unused_imports,
    reason = "the testbed offers what tests of later roles need too"
)]
mod support;
