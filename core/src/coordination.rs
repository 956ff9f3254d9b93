//! How a VerticalPodAutoscaler and an autoscaler of replicas share one resource of one workload.
//!
//! A `Utilization` target is relative to the request, and the VPA derives the request from the usage per pod. Each follows
//! the other, and the replicas drift until a bound stops them. The rules here break the loop: replicas follow a *scale
//! point*, the usage per pod at which they are neither added nor removed, which does not depend on the current requests.
//!
//! ```text
//!   Observed (target, template, requests, recommendation, usage, replicas, wave, now) + State
//!        │
//!        ▼
//!   coordinate ──▶ Coordination: scale point, ratio rule, range of the request, change or why not, removal hold, findings
//! ```
//!
//! Amounts are in milli-units of the resource (millicores, thousandths of a byte), summed over the containers of a pod that
//! the metric counts.

pub mod at_max;
pub mod change_timing;
pub mod decide;
pub mod idle;
pub mod observed_replicas;
pub mod request_range;
pub mod retarget;
pub mod scale_point;
pub mod shared_request;
pub mod state;
pub mod target_record;
pub mod template_requests;
pub mod update_wave;
pub mod usage_per_pod;

pub use at_max::Measurement;
pub use change_timing::{ChangeReason, Hold, RequestChange};
pub use decide::{Coordination, Finding, Observed, RatioRule, ReplicaWriter, coordinate};
pub use observed_replicas::{ObservedReplicas, ReplicaStatus};
pub use request_range::RequestRange;
pub use scale_point::{ScalePoint, ScalePointSource};
pub use shared_request::{
    FollowedRequest, RequestFollower, Retargeting, SharedRequest, SharedRequestRule, SharingContext,
};
pub use state::State;
pub use target_record::{
    CurrentTarget, ObjectTargets, RecordedTarget, RetargetRefusal, Retargetable, TargetChange,
    TargetRecord,
};
pub use template_requests::{ContainerRequests, Template, TemplateRequests};
pub use update_wave::{PodUpdates, RemovalHold, UpdateWave};
pub use usage_per_pod::{RecentUsage, UsagePerPod};

pub use crate::types::Resource;

#[cfg(test)]
mod tests;

/// `amount * numerator / denominator`, rounded to the nearest milli-unit. Saturates.
fn scaled(amount: i64, numerator: i64, denominator: i64) -> i64 {
    let denominator = i128::from(denominator.max(1));
    let product = i128::from(amount) * i128::from(numerator);
    i64::try_from((product + denominator / 2).div_euclid(denominator)).unwrap_or(i64::MAX)
}
