//! Why a workload does not have the replicas that its metrics ask for: a closed list, with the same names in metrics,
//! conditions and `explain`.

use serde::Serialize;
use strum::IntoStaticStr;

/// A reason why replicas are not changed as proposed. Each kind of autoscaler uses some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Restriction {
    /// All metrics are within the bounds in which replicas do not change.
    WithinBounds,
    /// The proposal adds more replicas at once than allowed.
    UpscaleCapping,
    /// The proposal removes more replicas at once than allowed.
    DownscaleCapping,
    /// The last change is within the forbidden window.
    ForbiddenWindow,
    /// The value has not been outside its bounds for long enough.
    Delay,
    Min,
    Max,
    DryRun,
    /// The metrics that are needed are not available.
    MetricUnknown,
    /// Too few pods are ready.
    Availability,
    /// A monitor is not OK, or an alert is firing.
    Lifecycle,
    /// The workload is scaled to zero.
    Disabled,
    /// The ratio of value and target is within tolerance.
    WithinTolerance,
    /// Filling in missing or unready pods cancels the change.
    Padding,
    /// A lower recommendation in the stabilization window delays scaling up.
    StabilizedUp,
    /// A higher recommendation in the stabilization window delays scaling down.
    StabilizedDown,
    /// The scale-up rate limits the change.
    ScaleUpLimit,
    ScaleDownLimit,
    /// Some metrics failed, which blocks scaling down.
    PartialMetrics,
    NoScale,
    /// The scale's selector is missing or invalid.
    InvalidSelector,
    /// Another autoscaler selects the same pods.
    AmbiguousSelector,
    /// Another controller acts on the same object and would undo the change.
    BuiltinActs,
    /// The object is paused in the direction of the change.
    Paused,
    /// An alert is firing, or its state is unknown.
    HoldWhile,
    /// The fallback applies, because metrics are not available.
    Fallback,
    /// The pods of the workload are being resized or replaced for new resources.
    VpaWave,
    /// The target follows the requests that the pod template had, not those of the pods.
    AtScalePoint,
}
