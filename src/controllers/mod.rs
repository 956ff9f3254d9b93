//! The controllers of this program, and the runtime that they share.

pub mod admission;
pub mod all_in_one;
pub mod horizontal;
pub mod recommender;
pub(crate) mod replicas;
pub mod runtime;
pub mod updater;
pub mod watermark;

pub use admission::config::AdmissionConfig;
pub use horizontal::config::HorizontalConfig;
pub use recommender::config::RecommenderConfig;
pub use replicas::ReplicaSettings;
pub use runtime::controller::{connect, run, start};
pub use updater::config::UpdaterConfig;
pub use watermark::config::WatermarkConfig;
