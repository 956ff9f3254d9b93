//! The one integration-test binary; each module is a topic.

mod crds;
mod house;
mod model;
mod quantity;
