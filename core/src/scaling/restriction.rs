//! Why a workload does not have the replicas that its metrics ask for: a closed list, with the same names in metrics,
//! conditions and `explain`.

use serde::{Serialize, Serializer};

macro_rules! restrictions {
    ($($(#[$doc:meta])* $reason:ident = $label:literal,)+) => {
        /// A reason why replicas are not changed as proposed. Each kind of autoscaler uses some of them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Restriction {
            $($(#[$doc])* $reason,)+
        }

        impl Restriction {
            /// The name used in labels, conditions and `explain`.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$reason => $label,)+
                }
            }
        }
    };
}

restrictions! {
    /// All metrics are within the bounds in which replicas do not change.
    WithinBounds = "within_bounds",
    /// The proposal adds more replicas at once than allowed.
    UpscaleCapping = "upscale_capping",
    /// The proposal removes more replicas at once than allowed.
    DownscaleCapping = "downscale_capping",
    /// The last change is within the forbidden window.
    ForbiddenWindow = "forbidden_window",
    /// The value has not been outside its bounds for long enough.
    Delay = "delay",
    /// The replicas are at the minimum.
    Min = "min",
    /// The replicas are at the maximum.
    Max = "max",
    /// The object is in dry-run mode.
    DryRun = "dry_run",
    /// The metrics that are needed are not available.
    MetricUnknown = "metric_unknown",
    /// Too few pods are ready.
    Availability = "availability",
    /// A monitor is not OK, or an alert is firing.
    Lifecycle = "lifecycle",
    /// The workload is scaled to zero.
    Disabled = "disabled",
    /// The ratio of value and target is within tolerance.
    WithinTolerance = "within_tolerance",
    /// Filling in missing or unready pods cancels the change.
    Padding = "padding",
    /// A lower recommendation in the stabilization window delays scaling up.
    StabilizedUp = "stabilized_up",
    /// A higher recommendation in the stabilization window delays scaling down.
    StabilizedDown = "stabilized_down",
    /// The scale-up rate limits the change.
    ScaleUpLimit = "scale_up_limit",
    /// The scale-down rate limits the change.
    ScaleDownLimit = "scale_down_limit",
    /// Some metrics failed, which blocks scaling down.
    PartialMetrics = "partial_metrics",
    /// The scale cannot be read.
    NoScale = "no_scale",
    /// The scale's selector is missing or invalid.
    InvalidSelector = "invalid_selector",
    /// Another autoscaler selects the same pods.
    AmbiguousSelector = "ambiguous_selector",
    /// Another controller acts on the same object and would undo the change.
    BuiltinActs = "builtin_acts",
    /// The object is paused in the direction of the change.
    Paused = "paused",
    /// An alert is firing, or its state is unknown.
    HoldWhile = "hold_while",
    /// The fallback applies, because metrics are not available.
    Fallback = "fallback",
    /// The pods of the workload are being resized or replaced for new resources.
    VpaWave = "vpa_wave",
    /// The target follows the requests that the pod template had, not those of the pods.
    AtScalePoint = "at_scale_point",
}

impl Serialize for Restriction {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}
