//! The table of annotations that users may set, and the error for an invalid value.
//!
//! Values are parsed where they are read. The documentation is generated from this table.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::condition_message::truncate;

/// The longest quote of a value, in bytes.
pub const MAX_QUOTED_BYTES: usize = 256;

/// An annotation with an invalid value. It is ignored, and a condition of the object reports it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("annotation {key}: `{}` is not {wanted}; it is ignored", truncate(value, MAX_QUOTED_BYTES))]
pub struct InvalidAnnotation {
    pub key: &'static str,
    /// The value, truncated.
    pub value: String,
    /// Describes valid values.
    pub wanted: &'static str,
}

/// The longest value that is read. The annotations of an object may have 256 KiB, and are parsed whenever it is read.
pub const MAX_VALUE_BYTES: usize = 16 * 1024;

/// An annotation that a user may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnotationKey {
    pub name: &'static str,
    /// Describes valid values.
    pub expected: &'static str,
    /// Describes the effect.
    pub effect: &'static str,
    /// The flags that the annotation overrides.
    pub overridden_flags: &'static [&'static str],
    /// The components that read it.
    pub applied_by: &'static [&'static str],
}

impl AnnotationKey {
    /// Parses the annotation of an object. Returns `None` if it is not set.
    pub fn read<T>(
        &self,
        annotations: &BTreeMap<String, String>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, InvalidAnnotation> {
        let Some(value) = annotations.get(self.name) else { return Ok(None) };
        let parsed = if value.len() > MAX_VALUE_BYTES { None } else { parse(value.trim()) };
        parsed.map(Some).ok_or_else(|| self.invalid(value))
    }

    /// The error for an invalid value.
    pub fn invalid(&self, value: &str) -> InvalidAnnotation {
        InvalidAnnotation {
            key: self.name,
            value: truncate(value, MAX_QUOTED_BYTES).into_owned(),
            wanted: self.expected,
        }
    }

    /// The part of a key that `<metric>` stands for in the name; `None` if it is another annotation.
    pub fn metric_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(self.name.strip_suffix("<metric>")?)
    }

    /// The key of a metric, whose name `<metric>` stands for.
    pub fn key_of(&self, metric: &str) -> String {
        self.name.replace("<metric>", metric)
    }
}

/// What the annotations that these components read have in common. They override no flag, unless they say so.
pub(super) const fn read_by(applied_by: &'static [&'static str]) -> AnnotationKey {
    AnnotationKey { name: "", expected: "", effect: "", overridden_flags: &[], applied_by }
}

const PERCENTILE: &str = "a number from 0 to 1";
const NON_NEGATIVE_QUANTITY: &str = "a quantity of at least 0";
const RECOMMENDER: AnnotationKey = read_by(&["recommender"]);
const ADMISSION_AND_UPDATER: AnnotationKey = read_by(&["admission controller", "updater"]);

pub const PROFILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/profile",
    expected: "`vpa`, `steady`, `balanced`, `tide`, `latency`, `batch` or `cost`",
    effect: "percentiles and margin of a named profile, or a profile of planned requests",
    overridden_flags: &[
        "profile",
        "target-cpu-percentile",
        "target-memory-percentile",
        "recommendation-margin-fraction",
    ],
    ..RECOMMENDER
};

pub const CPU_PERCENTILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/cpu-percentile",
    expected: PERCENTILE,
    effect: "share of the CPU samples that the target covers",
    overridden_flags: &["target-cpu-percentile"],
    ..RECOMMENDER
};

pub const MEMORY_PERCENTILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/memory-percentile",
    expected: PERCENTILE,
    effect: "share of the memory peaks that the target covers",
    overridden_flags: &["target-memory-percentile"],
    ..RECOMMENDER
};

pub const MARGIN: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/margin",
    expected: "a number from 0 to 10",
    effect: "share added to every percentile",
    overridden_flags: &["recommendation-margin-fraction"],
    ..RECOMMENDER
};

pub const HALF_LIFE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/half-life",
    expected: "a duration from 1h to 2400h",
    effect: "time after which a sample counts half",
    overridden_flags: &["cpu-histogram-decay-half-life", "memory-histogram-decay-half-life"],
    ..RECOMMENDER
};

pub const CPU_FLOOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/cpu-floor",
    expected: NON_NEGATIVE_QUANTITY,
    effect: "minimum CPU of each container, instead of its share of the pod's floor",
    overridden_flags: &["pod-recommendation-min-cpu-millicores"],
    ..RECOMMENDER
};

pub const MEMORY_FLOOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/memory-floor",
    expected: NON_NEGATIVE_QUANTITY,
    effect: "minimum memory of each container, instead of its share of the pod's floor",
    overridden_flags: &["pod-recommendation-min-memory-mb"],
    ..RECOMMENDER
};

pub const LIMIT_POLICY: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/limit-policy",
    expected: "`ratio`, `requestsOnly`, `max`, or `fixed:FACTOR` with a factor from 1 to 1000",
    effect: "how limits are set, unless the container policy excludes them",
    overridden_flags: &["limit-policy"],
    ..ADMISSION_AND_UPDATER
};

pub const CHANGE_WINDOW: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/change-window",
    expected: "at most 32 change windows such as `0 22 * * mon-fri for 6h in +01:00`, separated by `;`, in at most 4 KiB",
    effect: "when running pods may be changed",
    overridden_flags: &["change-window"],
    ..read_by(&["updater"])
};

pub const MANAGED_SIDECARS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/managed-sidecars",
    expected: "names of containers, separated by commas",
    effect: "containers that are sized although another webhook injected them; by default injected containers are not sized",
    ..ADMISSION_AND_UPDATER
};

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

const WATERMARK: AnnotationKey = read_by(&["watermark"]);
pub(super) const DURATION_UP_TO_AN_HOUR: &str = "a duration from 0s to 1h";

pub const QUERY: AnnotationKey = AnnotationKey {
    name: "query.plimsoll.dev/<metric>",
    expected: "a PromQL query with a numeric result",
    effect: "query sent to the Prometheus server of `--prometheus-address` in place of that external metric; its samples are summed. It reads series of the object's own namespace, unless `--prometheus-unrestricted-namespaces` lists that namespace",
    ..read_by(&["watermark", "admission controller"])
};

pub const PARTIAL_METRICS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/partial-metrics",
    expected: "`hold` or `upscale`",
    effect: "whether replicas are added if some metrics ask for it while others are not available: by default they are not changed; none are removed either way",
    ..WATERMARK
};

pub const FALLBACK: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/fallback-replicas",
    expected: "`REPLICAS after PERIODS`, such as `8 after 20`",
    effect: "replicas that a workload is scaled to, within bounds, rate limits and windows, after its metrics were not available for this many periods: by default they are not changed",
    ..WATERMARK
};

pub const DELAYS: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/delays",
    expected: "`joint` or `each`",
    effect: "whether a delay runs while any metric is outside its watermarks (`joint`, the default), or replicas are added only once a single metric was above for the whole delay, and removed only once each was below for it (`each`)",
    ..WATERMARK
};

pub const SCALE_TO_ZERO: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/scale-to-zero",
    expected: "`true` or `false`",
    effect: "scales to zero, below `minReplicas`, when all external metrics or the recommender report zero, and back up when one reports more; without it, a workload with zero replicas is not scaled",
    ..WATERMARK
};

pub const MODULO: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/modulo",
    expected: "`proposal` or `result`",
    effect: "whether `replicaScalingAbsoluteModulo` applies to the proposal alone (the default), or also to the result after rate limits and bounds, rounded towards the current replicas",
    ..WATERMARK
};

pub const PENDING_COUNTS_FOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/pending-counts-for",
    expected: DURATION_UP_TO_AN_HOUR,
    effect: "how long a pending pod counts as ready, for external metrics and recommenders; in place of `readinessDelaySeconds`",
    ..WATERMARK
};

pub const STARTING_IGNORED_FOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/starting-ignored-for",
    expected: DURATION_UP_TO_AN_HOUR,
    effect: "how long the CPU usage of a pod is ignored after it became ready, for resource metrics; in place of `readinessDelaySeconds`",
    ..WATERMARK
};

pub const HOLD_WHILE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/hold-while",
    expected: "the name of a Prometheus alert, optionally with matchers, such as `CheckoutBroken{namespace=\"shop\"}`",
    effect: "replicas are not changed, except to stay within bounds, while that alert of the object's own namespace is firing in the Prometheus server of `--prometheus-address`; of any namespace if `--prometheus-unrestricted-namespaces` lists the object's",
    ..WATERMARK
};

pub const MONITOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/monitor",
    expected: "the name of a DatadogMonitor in the namespace",
    effect: "the monitor that `wpa.datadoghq.com/lifecycle-control.enabled` reads, in place of the one with the object's own name",
    ..WATERMARK
};

pub const UNKNOWN_GATE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/unknown-gate",
    expected: "`hold` or `follow`",
    effect: "whether replicas are not changed (the default) or scaling continues while the state of the monitor or the alert is unknown",
    ..WATERMARK
};

/// All annotations of a WatermarkPodAutoscaler.
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
    fn an_invalid_value_is_reported_with_the_valid_forms() {
        let annotations = |value: &str| [(MARGIN.name.to_owned(), value.to_owned())].into();
        let parse = |text: &str| text.parse::<f64>().ok();
        assert_eq!(MARGIN.read(&BTreeMap::new(), parse), Ok(None));
        assert_eq!(MARGIN.read(&annotations(" 0.5 "), parse), Ok(Some(0.5)));
        let error = MARGIN.read(&annotations("lots"), parse).expect_err("no number");
        assert_eq!(
            error.to_string(),
            "annotation plimsoll.dev/margin: `lots` is not a number from 0 to 10; it is ignored"
        );
        let long =
            MARGIN.read(&annotations(&"lots ".repeat(50_000)), parse).expect_err("no number");
        let text = long.to_string();
        assert!(text.len() < 400 && text.contains("… (250000 bytes)` is not a number"), "{text}");
    }

    #[test]
    fn a_value_that_is_too_long_is_not_parsed_and_only_its_beginning_is_shown() {
        let annotations = |value: String| [(MARGIN.name.to_owned(), value)].into();
        let parse = |text: &str| Some(text.len());
        let longest = "é".repeat(MAX_VALUE_BYTES / 2);
        assert_eq!(MARGIN.read(&annotations(longest.clone()), parse), Ok(Some(MAX_VALUE_BYTES)));
        let error = MARGIN.read(&annotations(longest + "é"), parse).expect_err("too long");
        assert!(error.value.len() <= MAX_QUOTED_BYTES, "{}", error.value);
        assert!(error.value.ends_with("… (16386 bytes)"), "{error}");
    }
}
