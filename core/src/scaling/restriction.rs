//! Why a workload does not have the replicas that its metrics ask for: a closed list, with the same names in metrics,
//! conditions and `explain`.

use serde::{Serialize, Serializer};

/// A reason why replicas are not changed as proposed. Each kind of autoscaler uses some of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
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
    /// The replicas are at the minimum.
    Min,
    /// The replicas are at the maximum.
    Max,
    /// The object is in dry-run mode.
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
    /// The scale-down rate limits the change.
    ScaleDownLimit,
    /// Some metrics failed, which blocks scaling down.
    PartialMetrics,
    /// The scale cannot be read.
    NoScale,
    /// The scale's selector is missing or invalid.
    InvalidSelector,
    /// Another autoscaler selects the same pods.
    AmbiguousSelector,
}

impl Restriction {
    /// The name used in labels, conditions and `explain`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::WithinBounds => "within_bounds",
            Self::UpscaleCapping => "upscale_capping",
            Self::DownscaleCapping => "downscale_capping",
            Self::ForbiddenWindow => "forbidden_window",
            Self::Delay => "delay",
            Self::Min => "min",
            Self::Max => "max",
            Self::DryRun => "dry_run",
            Self::MetricUnknown => "metric_unknown",
            Self::Availability => "availability",
            Self::Lifecycle => "lifecycle",
            Self::Disabled => "disabled",
            Self::WithinTolerance => "within_tolerance",
            Self::Padding => "padding",
            Self::StabilizedUp => "stabilized_up",
            Self::StabilizedDown => "stabilized_down",
            Self::ScaleUpLimit => "scale_up_limit",
            Self::ScaleDownLimit => "scale_down_limit",
            Self::PartialMetrics => "partial_metrics",
            Self::NoScale => "no_scale",
            Self::InvalidSelector => "invalid_selector",
            Self::AmbiguousSelector => "ambiguous_selector",
        }
    }
}

impl Serialize for Restriction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
