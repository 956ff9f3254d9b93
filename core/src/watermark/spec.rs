//! The spec of an object with its defaults.

use std::time::Duration;

use crate::types::Time;

use super::{options::WpaOptions, propose::ConvergeTowards, scale_rate::ReplicaLimits};
use crate::{
    api::wpa::WatermarkPodAutoscalerSpec,
    scaling::{ReadinessPolicy, pod_readiness::NamespacedName},
    types::{
        compat::Fixes,
        quantity::{Format, Quantity},
    },
};

const DEFAULT_TOLERANCE: Quantity = Quantity::from_milli(100, Format::DecimalSi);
const DEFAULT_UPSCALE_PERCENT: Quantity = Quantity::from_units(50, Format::DecimalSi);
const DEFAULT_DOWNSCALE_PERCENT: Quantity = Quantity::from_units(20, Format::DecimalSi);
const DEFAULT_UPSCALE_WINDOW: i32 = 60;
const DEFAULT_DOWNSCALE_WINDOW: i32 = 300;
const ABSOLUTE: &str = "absolute";
const AVERAGE: &str = "average";

/// The spec of an object with defaults applied.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EffectiveSpec {
    /// The minimum and maximum replicas, and how many may be added or removed at once.
    pub limits: ReplicaLimits,
    /// Whether metrics are divided by the ready pods before they are compared.
    pub is_average: bool,
    /// How far beyond a watermark still counts as inside, in thousandths of the watermark.
    pub tolerance: i64,
    /// How long after a change no replicas are added.
    pub upscale_window: Duration,
    /// How long after a change no replicas are removed.
    pub downscale_window: Duration,
    /// How long a metric has to be above its band before replicas are added.
    pub upscale_delay: Duration,
    /// How long metrics have to be below their bands before replicas are removed.
    pub downscale_delay: Duration,
    /// Proposals are rounded up to a multiple of this number.
    pub modulo: i32,
    /// The watermark to converge to while metrics are between the watermarks.
    pub converge_towards: Option<ConvergeTowards>,
    pub dry_run: bool,
    /// Whether a metric value of zero counts.
    pub tolerates_zero: bool,
    pub min_ready_percent: i32,
    /// How long a new pod may take to become ready.
    pub readiness_delay: Duration,
    /// The options set with annotations.
    pub options: WpaOptions,
}

pub fn target_name<'a>(
    namespace: &'a str,
    spec: &'a WatermarkPodAutoscalerSpec,
) -> NamespacedName<'a> {
    NamespacedName { namespace, name: &spec.scale_target_ref.name }
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

const fn or_default(value: i32, default: i32) -> i32 {
    if value == 0 { default } else { value }
}

impl EffectiveSpec {
    /// Builds the effective spec of an object, whether or not it was defaulted.
    pub fn from_spec(spec: &WatermarkPodAutoscalerSpec) -> Self {
        let tolerance =
            spec.tolerance.filter(|value| value.milli_value() != 0).unwrap_or(DEFAULT_TOLERANCE);
        Self {
            limits: ReplicaLimits {
                min: spec.min_replicas.unwrap_or(1),
                max: spec.max_replicas,
                upscale_percent: spec.scale_up_limit_factor.unwrap_or(DEFAULT_UPSCALE_PERCENT),
                downscale_percent: spec
                    .scale_down_limit_factor
                    .unwrap_or(DEFAULT_DOWNSCALE_PERCENT),
            },
            is_average: spec.algorithm == AVERAGE,
            tolerance: tolerance.milli_value(),
            upscale_window: seconds(or_default(
                spec.upscale_forbidden_window_seconds,
                DEFAULT_UPSCALE_WINDOW,
            )),
            downscale_window: seconds(or_default(
                spec.downscale_forbidden_window_seconds,
                DEFAULT_DOWNSCALE_WINDOW,
            )),
            upscale_delay: seconds(spec.upscale_delay_above_watermark_seconds),
            downscale_delay: seconds(spec.downscale_delay_below_watermark_seconds),
            modulo: spec.replica_scaling_absolute_modulo.unwrap_or(1).max(1),
            converge_towards: spec.converge_towards_watermark.parse().ok(),
            dry_run: spec.dry_run,
            tolerates_zero: spec.tolerate_zero,
            min_ready_percent: spec.min_available_replica_percentage,
            readiness_delay: seconds(spec.readiness_delay_seconds),
            options: WpaOptions::default(),
        }
    }

    #[must_use]
    pub const fn with_options(self, options: WpaOptions) -> Self {
        Self { options, ..self }
    }

    pub const fn may_be_zero(&self) -> bool {
        self.options.scale_to_zero
    }

    pub fn readiness_policy<'a>(
        &self,
        target: NamespacedName<'a>,
        now: Time,
        fixes: Fixes,
    ) -> ReadinessPolicy<'a> {
        let delay = self.readiness_delay;
        ReadinessPolicy {
            target,
            pending_counts_for: self.options.pending_counts_for.unwrap_or(delay),
            starting_ignored_for: self.options.starting_ignored_for.unwrap_or(delay),
            min_ready_percent: self.min_ready_percent,
            now,
            fixes,
        }
    }
}

/// Whether all fields are set that upstream defaults in the object.
pub fn has_defaults(spec: &WatermarkPodAutoscalerSpec) -> bool {
    with_defaults(spec) == *spec
}

/// The spec with the defaults that upstream writes into the object.
#[must_use]
pub fn with_defaults(spec: &WatermarkPodAutoscalerSpec) -> WatermarkPodAutoscalerSpec {
    let tolerance =
        spec.tolerance.filter(|value| value.milli_value() != 0).unwrap_or(DEFAULT_TOLERANCE);
    let mut filled = spec.clone();
    filled.min_replicas.get_or_insert(1);
    filled.replica_scaling_absolute_modulo.get_or_insert(1);
    filled.scale_up_limit_factor.get_or_insert(DEFAULT_UPSCALE_PERCENT);
    filled.scale_down_limit_factor.get_or_insert(DEFAULT_DOWNSCALE_PERCENT);
    filled.tolerance = Some(tolerance);
    if filled.algorithm.is_empty() {
        ABSOLUTE.clone_into(&mut filled.algorithm);
    }
    filled.upscale_forbidden_window_seconds =
        or_default(spec.upscale_forbidden_window_seconds, DEFAULT_UPSCALE_WINDOW);
    filled.downscale_forbidden_window_seconds =
        or_default(spec.downscale_forbidden_window_seconds, DEFAULT_DOWNSCALE_WINDOW);
    filled
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(fields: &serde_json::Value) -> WatermarkPodAutoscalerSpec {
        let mut whole =
            json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": 5});
        for (key, value) in fields.as_object().into_iter().flatten() {
            whole[key] = value.clone();
        }
        serde_json::from_value(whole).expect("a spec")
    }

    #[test]
    fn defaults_are_filled_in_and_do_not_change_the_meaning() {
        let bare = spec(&json!({}));
        let filled = with_defaults(&bare);
        assert!(!has_defaults(&bare) && has_defaults(&filled));
        assert_eq!(EffectiveSpec::from_spec(&bare), EffectiveSpec::from_spec(&filled));
        assert_eq!(
            serde_json::to_value(&filled).expect("JSON"),
            json!({
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "minReplicas": 1, "maxReplicas": 5, "algorithm": "absolute", "tolerance": "100m",
                "scaleUpLimitFactor": "50", "scaleDownLimitFactor": "20",
                "upscaleForbiddenWindowSeconds": 60, "downscaleForbiddenWindowSeconds": 300,
                "replicaScalingAbsoluteModulo": 1,
            })
        );
        assert_eq!(with_defaults(&filled), filled);
    }

    #[test]
    fn a_tolerance_of_zero_means_the_default_and_a_tiny_one_is_rounded_up() {
        for (text, expected) in [("0", 100), ("0.0", 100), ("1m", 1), ("100u", 1), ("0.05", 50)] {
            let rules = EffectiveSpec::from_spec(&spec(&json!({"tolerance": text})));
            assert_eq!(rules.tolerance, expected, "{text}");
        }
    }
}
