//! What an object asks for, with what it leaves out filled in.

use std::time::Duration;

use crate::types::Time;

use super::{converge::Direction, options::Options, propose::Question, velocity::Limits};
use crate::{
    api::wpa::WatermarkPodAutoscalerSpec,
    scaling::{Readiness, pods::Named},
    types::{
        compat::Fixes,
        quantity::{Format, Quantity},
    },
};

/// The tolerance of who says nothing of it: a tenth.
const TOLERANCE: Quantity = Quantity::milli(100, Format::DecimalSi);
/// The percentages of who says nothing of them.
const UP: Quantity = Quantity::whole(50, Format::DecimalSi);
const DOWN: Quantity = Quantity::whole(20, Format::DecimalSi);
/// The windows of who says nothing of them, in seconds.
const UP_WINDOW: i32 = 60;
const DOWN_WINDOW: i32 = 300;
const ABSOLUTE: &str = "absolute";
const AVERAGE: &str = "average";

/// What an object asks for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rules {
    /// The fewest and the most replicas, and how many may come or go at once.
    pub limits: Limits,
    /// Metrics are shared among the ready pods before they are compared.
    pub is_shared: bool,
    /// Thousandths of a mark that a metric may be beyond it.
    pub tolerance: i64,
    /// After a change none are added for so long.
    pub up_window: Duration,
    /// After a change none are removed for so long.
    pub down_window: Duration,
    /// A metric has to be above its band for so long.
    pub up_delay: Duration,
    /// Metrics have to be below their bands for so long.
    pub down_delay: Duration,
    /// Proposals are rounded up to a multiple of this.
    pub modulo: i32,
    /// Where to go between the marks.
    pub converge: Option<Direction>,
    /// Nothing is changed.
    pub dry_run: bool,
    /// A metric of zero counts.
    pub tolerates_zero: bool,
    /// Less than this percentage of ready pods is too little.
    pub least_percent: i32,
    /// How long a new pod gets to be ready.
    pub readiness_delay: Duration,
    /// What it asks for beyond its fields.
    pub options: Options,
}

/// The target of an object in this namespace.
pub fn target_of<'a>(namespace: &'a str, spec: &'a WatermarkPodAutoscalerSpec) -> Named<'a> {
    Named { namespace, name: &spec.scale_target_ref.name }
}

fn seconds(seconds: i32) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}

const fn or(value: i32, default: i32) -> i32 {
    if value == 0 { default } else { value }
}

impl Rules {
    /// Of an object, filled in or not.
    pub fn of(spec: &WatermarkPodAutoscalerSpec) -> Self {
        let tolerance = spec.tolerance.filter(|it| it.milli_value() != 0).unwrap_or(TOLERANCE);
        Self {
            limits: Limits {
                min: spec.min_replicas.unwrap_or(1),
                max: spec.max_replicas,
                up: spec.scale_up_limit_factor.unwrap_or(UP),
                down: spec.scale_down_limit_factor.unwrap_or(DOWN),
            },
            is_shared: spec.algorithm == AVERAGE,
            tolerance: tolerance.milli_value(),
            up_window: seconds(or(spec.upscale_forbidden_window_seconds, UP_WINDOW)),
            down_window: seconds(or(spec.downscale_forbidden_window_seconds, DOWN_WINDOW)),
            up_delay: seconds(spec.upscale_delay_above_watermark_seconds),
            down_delay: seconds(spec.downscale_delay_below_watermark_seconds),
            modulo: spec.replica_scaling_absolute_modulo.unwrap_or(1).max(1),
            converge: spec.converge_towards_watermark.parse().ok(),
            dry_run: spec.dry_run,
            tolerates_zero: spec.tolerate_zero,
            least_percent: spec.min_available_replica_percentage,
            readiness_delay: seconds(spec.readiness_delay_seconds),
            options: Options::default(),
        }
    }

    /// With what it asks for beyond its fields.
    #[must_use]
    pub const fn with(self, options: Options) -> Self {
        Self { options, ..self }
    }

    /// Whether the last replica may go.
    pub const fn may_be_zero(&self) -> bool {
        self.options.to_zero
    }

    /// What is asked about the pods of the target.
    pub fn readiness<'a>(&self, object: Named<'a>, now: Time, fixes: Fixes) -> Readiness<'a> {
        let delay = self.readiness_delay;
        Readiness {
            object,
            pending_counts: self.options.pending_counts.unwrap_or(delay),
            starting_ignored: self.options.starting_ignored.unwrap_or(delay),
            least_percent: self.least_percent,
            now,
            fixes,
        }
    }

    /// What is asked about each metric.
    pub fn question(&self, wanted: i32, ready: u32, fixes: Fixes) -> Question {
        Question {
            wanted,
            ready,
            is_shared: self.is_shared,
            modulo: self.modulo,
            converge: self.converge,
            min: self.limits.min,
            max: self.limits.max,
            fixes,
        }
    }
}

/// Whether nothing is left out that upstream writes into the object when it is.
pub fn is_filled_in(spec: &WatermarkPodAutoscalerSpec) -> bool {
    spec.min_replicas.is_some()
        && spec.replica_scaling_absolute_modulo.is_some()
        && !spec.algorithm.is_empty()
        && spec.tolerance.is_some_and(|tolerance| tolerance.milli_value() != 0)
        && spec.scale_up_limit_factor.is_some()
        && spec.scale_down_limit_factor.is_some()
        && spec.upscale_forbidden_window_seconds != 0
        && spec.downscale_forbidden_window_seconds != 0
}

/// The object as upstream writes it: with its gaps filled in.
#[must_use]
pub fn fill_in(spec: &WatermarkPodAutoscalerSpec) -> WatermarkPodAutoscalerSpec {
    let tolerance = spec.tolerance.filter(|it| it.milli_value() != 0).unwrap_or(TOLERANCE);
    let mut filled = spec.clone();
    filled.min_replicas.get_or_insert(1);
    filled.replica_scaling_absolute_modulo.get_or_insert(1);
    filled.scale_up_limit_factor.get_or_insert(UP);
    filled.scale_down_limit_factor.get_or_insert(DOWN);
    filled.tolerance = Some(tolerance);
    if filled.algorithm.is_empty() {
        ABSOLUTE.clone_into(&mut filled.algorithm);
    }
    filled.upscale_forbidden_window_seconds = or(spec.upscale_forbidden_window_seconds, UP_WINDOW);
    filled.downscale_forbidden_window_seconds =
        or(spec.downscale_forbidden_window_seconds, DOWN_WINDOW);
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
    fn what_is_left_out_is_filled_in_and_means_the_same_before_and_after() {
        let bare = spec(&json!({}));
        let filled = fill_in(&bare);
        assert!(!is_filled_in(&bare) && is_filled_in(&filled));
        assert_eq!(Rules::of(&bare), Rules::of(&filled));
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
        assert_eq!(fill_in(&filled), filled);
    }

    #[test]
    fn a_tolerance_of_nothing_cannot_be_said_and_a_little_is_rounded_up() {
        for (text, expected) in [("0", 100), ("0.0", 100), ("1m", 1), ("100u", 1), ("0.05", 50)] {
            let rules = Rules::of(&spec(&json!({"tolerance": text})));
            assert_eq!(rules.tolerance, expected, "{text}");
        }
    }
}
