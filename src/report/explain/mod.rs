//! `plimsoll explain`: the steps behind every number of an object, as JSON and as text.
//!
//! ```text
//!   stored history and status, recomputed by the recommender's code ──▶ VpaReport ─┬─▶ text
//!                                                                                  └─▶ JSON
//! ```
//!
//! Nothing is decided here: numbers and reasons come from `plimsoll_core::recommender`, and those about a pod from
//! `plimsoll_core::updater`.

pub(crate) mod report_parts;
pub(crate) mod suggestions;

/// `plimsoll explain vpa`: how a recommendation was computed from the stored history.
pub mod vpa {
    pub(crate) mod compare;
    pub(crate) mod estimate_steps;
    pub(crate) mod plan_text;
    pub(crate) mod report;
    pub(crate) mod resource_text;
    pub mod text;
}

/// `plimsoll explain pod`: what the updater would do with a pod and why.
pub mod pod {
    pub(crate) mod report;
    pub mod text;
}

/// `plimsoll explain hpa`: the decision of the HPA controller about an object, repeated on what the cluster has now.
pub mod hpa {
    pub(crate) mod report;
    pub mod text;
}

/// `plimsoll explain wpa`: the watermark controller's last decision about an object, which is read from the object's status,
/// because past metric values cannot be queried again.
pub mod wpa {
    pub(crate) mod report;
    pub mod text;
}

pub use hpa::report::HpaReport;
pub use pod::report::PodReport;
pub use report_parts::Finding;
pub use vpa::report::{Agreement, VpaReport};
pub use wpa::report::WpaReport;
