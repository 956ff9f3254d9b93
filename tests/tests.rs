//! The one integration-test binary; each module is a topic.

mod bed;
mod bed_nodes;
<<<<<<< HEAD
mod crds;
mod model;
=======
mod bed_usage;
>>>>>>> 67a534b (Serve usage through the real API server, with faults on demand)
mod quantity;
#[allow(
    dead_code,
    unused_imports,
    reason = "the testbed offers what tests of later roles need too"
)]
mod support;
