//! Annotations that users set: the one table of them, and what is said of a value that makes no sense.
//!
//! Who reads one has its parser; the documentation is made from this.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::message::truncate;

/// Bytes of a value that are quoted.
pub const MAX_QUOTED_BYTES: usize = 256;

/// An annotation that is ours but makes no sense. It is ignored, and the object says so in a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("annotation {key}: `{}` is not {wanted}; it is ignored", truncate(value, MAX_QUOTED_BYTES))]
pub struct InvalidAnnotation {
    /// Key of the annotation.
    pub key: &'static str,
    /// What it says, shortened.
    pub value: String,
    /// What it should say.
    pub wanted: &'static str,
}

/// The longest value that is read. Annotations of an object may have 256 KiB, and are read whenever the object is.
pub const MAX_VALUE_BYTES: usize = 16 * 1024;

/// The longest value that a controller writes to keep its state.
pub const MAX_STATE_BYTES: usize = 32 * 1024;

/// An annotation that a user may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationKey {
    /// Its key.
    pub name: &'static str,
    /// What it should say.
    pub expected: &'static str,
    /// What it does.
    pub effect: &'static str,
    /// The flags that it goes before.
    pub overridden_flags: &'static [&'static str],
    /// The roles that do as it says.
    pub applied_by: &'static [&'static str],
}

impl AnnotationKey {
    /// What an object says, if it says anything that makes sense.
    pub fn read<T>(
        &self,
        annotations: &BTreeMap<String, String>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, InvalidAnnotation> {
        let Some(value) = annotations.get(self.name) else { return Ok(None) };
        let bad = || InvalidAnnotation {
            key: self.name,
            value: truncate(value, MAX_QUOTED_BYTES).into_owned(),
            wanted: self.expected,
        };
        let parsed = if value.len() > MAX_VALUE_BYTES { None } else { parse(value.trim()) };
        parsed.map(Some).ok_or_else(bad)
    }
}

const PERCENTILE: &str = "a number from 0 to 1";
const NON_NEGATIVE_QUANTITY: &str = "a quantity of at least 0";
const RECOMMENDER: &[&str] = &["recommender"];
const ADMISSION_AND_UPDATER: &[&str] = &["admission controller", "updater"];

/// A profile of the model.
pub const PROFILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/profile",
    expected: "`latency`, `batch` or `cost`",
    effect: "percentiles and margin of a named profile",
    overridden_flags: &[
        "target-cpu-percentile",
        "target-memory-percentile",
        "recommendation-margin-fraction",
    ],
    applied_by: RECOMMENDER,
};

/// A percentile of CPU.
pub const CPU_PERCENTILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/cpu-percentile",
    expected: PERCENTILE,
    effect: "share of the CPU samples that the target covers",
    overridden_flags: &["target-cpu-percentile"],
    applied_by: RECOMMENDER,
};

/// A percentile of memory.
pub const MEMORY_PERCENTILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/memory-percentile",
    expected: PERCENTILE,
    effect: "share of the memory peaks that the target covers",
    overridden_flags: &["target-memory-percentile"],
    applied_by: RECOMMENDER,
};

/// A margin.
pub const MARGIN: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/margin",
    expected: "a number from 0 to 10",
    effect: "share added to every percentile",
    overridden_flags: &["recommendation-margin-fraction"],
    applied_by: RECOMMENDER,
};

/// A half-life.
pub const HALF_LIFE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/half-life",
    expected: "a duration from 1h to 2400h",
    effect: "time after which a sample counts half",
    overridden_flags: &["cpu-histogram-decay-half-life", "memory-histogram-decay-half-life"],
    applied_by: RECOMMENDER,
};

/// A floor of CPU.
pub const CPU_FLOOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/cpu-floor",
    expected: NON_NEGATIVE_QUANTITY,
    effect: "least CPU of each container, in place of its share of the pod's floor",
    overridden_flags: &["pod-recommendation-min-cpu-millicores"],
    applied_by: RECOMMENDER,
};

/// A floor of memory.
pub const MEMORY_FLOOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/memory-floor",
    expected: NON_NEGATIVE_QUANTITY,
    effect: "least memory of each container, in place of its share of the pod's floor",
    overridden_flags: &["pod-recommendation-min-memory-mb"],
    applied_by: RECOMMENDER,
};

/// What becomes of limits.
pub const LIMIT_POLICY: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/limit-policy",
    expected: "`ratio`, `requestsOnly`, `max`, or `fixed:FACTOR` with a factor from 1 to 1000",
    effect: "what becomes of limits, where the policy of a container does not leave them alone",
    overridden_flags: &["limit-policy"],
    applied_by: ADMISSION_AND_UPDATER,
};

/// When pods may be changed.
pub const CHANGE_WINDOW: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/change-window",
    expected: "at most 32 change windows such as `0 22 * * mon-fri for 6h in +01:00`, separated by `;`, in at most 4 KiB",
    effect: "when running pods may be changed",
    overridden_flags: &["change-window"],
    applied_by: &["updater"],
};

/// Injected containers that are sized all the same.
pub const MANAGED_SIDECARS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/managed-sidecars",
    expected: "names of containers, separated by commas",
    effect: "containers that are sized although another webhook put them into the pod: without it those are its own",
    overridden_flags: &[],
    applied_by: ADMISSION_AND_UPDATER,
};

/// All of them that a VPA has.
pub const VPA_KEYS: [AnnotationKey; 10] = [
    PROFILE,
    CPU_PERCENTILE,
    MEMORY_PERCENTILE,
    MARGIN,
    HALF_LIFE,
    CPU_FLOOR,
    MEMORY_FLOOR,
    LIMIT_POLICY,
    CHANGE_WINDOW,
    MANAGED_SIDECARS,
];

const WATERMARK: &[&str] = &["watermark"];
const DURATION_UP_TO_AN_HOUR: &str = "a duration from 0s to 1h";

/// Queries in place of external metrics: the name of the metric stands behind it.
pub const QUERY: AnnotationKey = AnnotationKey {
    name: "query.plimsoll.dev/<metric>",
    expected: "a PromQL query that answers numbers",
    effect: "what is asked of the Prometheus of `--prometheus-address` in place of that external metric; its samples are added up. It reads series of the object's own namespace, unless `--prometheus-unrestricted-namespaces` lists that",
    overridden_flags: &[],
    applied_by: &["watermark", "admission controller"],
};

/// What becomes of an object of which some metrics say nothing.
pub const PARTIAL_METRICS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/partial-metrics",
    expected: "`hold` or `upscale`",
    effect: "whether replicas are added where some metrics ask for it while others say nothing: by default they stay; none are removed either way",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// Replicas of a workload of whose metrics nothing is known.
pub const FALLBACK: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/fallback-replicas",
    expected: "`REPLICAS after PERIODS`, such as `8 after 20`",
    effect: "replicas that a workload goes to, within bounds, velocity and windows, when for so many periods its metrics said nothing: by default they stay",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// What delays are counted by.
pub const DELAYS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/delays",
    expected: "`joint` or `each`",
    effect: "whether a delay runs while any metric is outside (`joint`, the default), or replicas are added only once one and the same metric was above for the whole delay, and removed only once each was below for it (`each`)",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// Whether a workload may have no replicas.
pub const SCALE_TO_ZERO: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/scale-to-zero",
    expected: "`true` or `false`",
    effect: "the last `minReplicas` go too when all external metrics or the recommender say zero, and come back when one says more; without it, a workload of no replicas is left alone",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// What is made a multiple.
pub const MODULO: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/modulo",
    expected: "`proposal` or `result`",
    effect: "whether `replicaScalingAbsoluteModulo` is met by the proposal alone (the default), or also by what velocity and bounds make of it, rounded towards the replicas that there are",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// Pods that count before they run.
pub const PENDING_COUNTS_FOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/pending-counts-for",
    expected: DURATION_UP_TO_AN_HOUR,
    effect: "how long a pod that is pending counts as ready, for external metrics and recommenders; in place of `readinessDelaySeconds`",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// Pods whose CPU does not count yet.
pub const STARTING_IGNORED_FOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/starting-ignored-for",
    expected: DURATION_UP_TO_AN_HOUR,
    effect: "how long the CPU of a pod that became ready does not count, for metrics of pods; in place of `readinessDelaySeconds`",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// An alert that holds replicas.
pub const HOLD_WHILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/hold-while",
    expected: "the name of a Prometheus alert, with matchers or without, such as `CheckoutBroken{namespace=\"shop\"}`",
    effect: "replicas stay, but for bounds, while that alert of the object's own namespace fires in the Prometheus of `--prometheus-address`; of any namespace where `--prometheus-unrestricted-namespaces` lists the object's",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// The monitor that has to be well.
pub const MONITOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/monitor",
    expected: "the name of a DatadogMonitor of the namespace",
    effect: "which monitor `wpa.datadoghq.com/lifecycle-control.enabled` asks, in place of that of the object's own name",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// What holds while nobody knows how a gate stands.
pub const UNKNOWN_GATE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/unknown-gate",
    expected: "`hold` or `follow`",
    effect: "whether replicas stay (the default) while nobody can tell how the monitor or the alert stands",
    overridden_flags: &[],
    applied_by: WATERMARK,
};

/// All of them that a WatermarkPodAutoscaler has.
pub const WPA_KEYS: [AnnotationKey; 11] = [
    QUERY,
    PARTIAL_METRICS,
    FALLBACK,
    DELAYS,
    SCALE_TO_ZERO,
    MODULO,
    PENDING_COUNTS_FOR,
    STARTING_IGNORED_FOR,
    HOLD_WHILE,
    MONITOR,
    UNKNOWN_GATE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_makes_no_sense_is_named_with_what_would() {
        let said = |value: &str| [(MARGIN.name.to_owned(), value.to_owned())].into();
        let parse = |text: &str| text.parse::<f64>().ok();
        assert_eq!(MARGIN.read(&BTreeMap::new(), parse), Ok(None));
        assert_eq!(MARGIN.read(&said(" 0.5 "), parse), Ok(Some(0.5)));
        let bad = MARGIN.read(&said("lots"), parse).expect_err("no number");
        assert_eq!(
            bad.to_string(),
            "annotation plimsoll.dev/margin: `lots` is not a number from 0 to 10; it is ignored"
        );
        let long = MARGIN.read(&said(&"lots ".repeat(50_000)), parse).expect_err("no number");
        let text = long.to_string();
        assert!(text.len() < 400 && text.contains("… (250000 bytes)` is not a number"), "{text}");
    }

    #[test]
    fn a_value_that_is_too_long_is_not_read_and_only_its_beginning_is_shown() {
        let said = |value: String| [(MARGIN.name.to_owned(), value)].into();
        let parse = |text: &str| Some(text.len());
        let most = "é".repeat(MAX_VALUE_BYTES / 2);
        assert_eq!(MARGIN.read(&said(most.clone()), parse), Ok(Some(MAX_VALUE_BYTES)));
        let bad = MARGIN.read(&said(most + "é"), parse).expect_err("too long");
        assert!(bad.value.len() <= MAX_QUOTED_BYTES, "{}", bad.value);
        assert!(bad.value.ends_with("… (16386 bytes)"), "{bad}");
    }
}
