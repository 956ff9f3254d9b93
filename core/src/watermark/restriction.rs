//! Why a workload does not have the replicas that its metrics ask for: a closed list, with the same names in metrics,
//! conditions and `explain`.

/// A reason why replicas are not changed as proposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Restriction {
    /// All metrics are between their watermarks.
    WithinBounds,
    /// The proposal adds more replicas at once than allowed.
    UpscaleCapping,
    /// The proposal removes more replicas at once than allowed.
    DownscaleCapping,
    /// The last change is within the forbidden window.
    ForbiddenWindow,
    /// The value has not been outside its band for long enough.
    Delay,
    /// The replicas are at the minimum.
    Min,
    /// The replicas are at the maximum.
    Max,
    /// The object is in dry-run mode.
    DryRun,
    /// A metric is not available.
    MetricUnknown,
    /// Too few pods are ready.
    Availability,
    /// A monitor is not OK, or an alert is firing.
    Lifecycle,
    /// The workload is scaled to zero.
    Disabled,
}

impl Restriction {
    /// All restrictions.
    pub const ALL: [Self; 12] = [
        Self::WithinBounds,
        Self::UpscaleCapping,
        Self::DownscaleCapping,
        Self::ForbiddenWindow,
        Self::Delay,
        Self::Min,
        Self::Max,
        Self::DryRun,
        Self::MetricUnknown,
        Self::Availability,
        Self::Lifecycle,
        Self::Disabled,
    ];

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
        }
    }
}
