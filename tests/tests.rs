//! The one integration-test binary; each module is a topic.

mod crds;
mod model;
mod quantity;
