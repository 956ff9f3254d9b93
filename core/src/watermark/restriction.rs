//! Why a workload has not the replicas that its metrics ask for: a closed list, the same words in metrics, conditions and
//! explanations.

/// What keeps replicas where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Restriction {
    /// All metrics are between their marks.
    WithinBounds,
    /// More replicas would be added at once than may be.
    UpscaleCapping,
    /// More replicas would be removed at once than may be.
    DownscaleCapping,
    /// The last change was too short a while ago.
    ForbiddenWindow,
    /// The value was not outside for long enough.
    Delay,
    /// There are as few replicas as may be.
    Min,
    /// There are as many replicas as may be.
    Max,
    /// Nothing is changed, because that is wanted so.
    DryRun,
    /// A metric says nothing.
    MetricUnknown,
    /// Too few pods are ready.
    Availability,
    /// Something that has to be well is not.
    Lifecycle,
    /// The workload is scaled to nothing.
    Disabled,
}

impl Restriction {
    /// All of them.
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

    /// The word for it.
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
