//! The target utilization that keeps the scale point while requests change, for an HPA that another controller acts on.

use super::{
    ScalePoint,
    request_range::{MAX_TARGET_PERCENT, MIN_TARGET_PERCENT},
    scaled,
};

/// The target in percent that belongs to a mean request of the pods.
pub fn target_percent(scale_point: ScalePoint, mean_request: i64) -> i32 {
    let percent = moved_percent(100, scale_point.milli, mean_request);
    let (min, max) = (i64::from(MIN_TARGET_PERCENT), i64::from(MAX_TARGET_PERCENT));
    i32::try_from(percent.clamp(min, max)).unwrap_or(MAX_TARGET_PERCENT)
}

/// The target in percent of the request `to` that means the same usage as this one of the request `from`, rounded to the
/// nearest.
pub fn moved_percent(percent: i64, from: i64, to: i64) -> i64 {
    scaled(percent, from, to)
}

/// The target to write before a step of a wave changes the mean request. It belongs to the lower of the two means: the
/// higher target of the two. So a step never adds replicas, and what it could remove is delayed by the stabilization window
/// until the next step corrects the target.
pub fn target_for_step(scale_point: ScalePoint, mean_before: i64, mean_after: i64) -> i32 {
    target_percent(scale_point, mean_before.min(mean_after))
}
