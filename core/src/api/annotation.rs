//! Annotations that users set: the one table of them, and what is said of a value that makes no sense.
//!
//! Who reads one has its parser; the documentation is made from this.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::api::message::shorten;

/// Bytes of a value that are quoted.
pub const LONGEST_QUOTE: usize = 256;

/// An annotation that is ours but makes no sense. It is ignored, and the object says so in a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("annotation {key}: `{}` is not {wanted}; it is ignored", shorten(value, LONGEST_QUOTE))]
pub struct BadAnnotation {
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
pub struct Key {
    /// Its key.
    pub name: &'static str,
    /// What it should say.
    pub wanted: &'static str,
    /// What it does.
    pub effect: &'static str,
    /// The flags that it goes before.
    pub flags: &'static [&'static str],
    /// The roles that do as it says.
    pub readers: &'static [&'static str],
}

impl Key {
    /// What an object says, if it says anything that makes sense.
    pub fn read<T>(
        &self,
        annotations: &BTreeMap<String, String>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, BadAnnotation> {
        let Some(value) = annotations.get(self.name) else { return Ok(None) };
        let bad = || BadAnnotation {
            key: self.name,
            value: shorten(value, LONGEST_QUOTE).into_owned(),
            wanted: self.wanted,
        };
        let parsed = if value.len() > MAX_VALUE_BYTES { None } else { parse(value.trim()) };
        parsed.map(Some).ok_or_else(bad)
    }
}

const PERCENTILE: &str = "a number from 0 to 1";
const AMOUNT: &str = "a quantity of at least 0";
const RECOMMENDER: &[&str] = &["recommender"];
const WRITERS: &[&str] = &["admission controller", "updater"];

/// A profile of the model.
pub const PROFILE: Key = Key {
    name: "plimsoll.dev/profile",
    wanted: "`latency`, `batch` or `cost`",
    effect: "percentiles and margin of a named profile",
    flags: &["target-cpu-percentile", "target-memory-percentile", "recommendation-margin-fraction"],
    readers: RECOMMENDER,
};

/// A percentile of CPU.
pub const CPU_PERCENTILE: Key = Key {
    name: "plimsoll.dev/cpu-percentile",
    wanted: PERCENTILE,
    effect: "share of the CPU samples that the target covers",
    flags: &["target-cpu-percentile"],
    readers: RECOMMENDER,
};

/// A percentile of memory.
pub const MEMORY_PERCENTILE: Key = Key {
    name: "plimsoll.dev/memory-percentile",
    wanted: PERCENTILE,
    effect: "share of the memory peaks that the target covers",
    flags: &["target-memory-percentile"],
    readers: RECOMMENDER,
};

/// A margin.
pub const MARGIN: Key = Key {
    name: "plimsoll.dev/margin",
    wanted: "a number from 0 to 10",
    effect: "share added to every percentile",
    flags: &["recommendation-margin-fraction"],
    readers: RECOMMENDER,
};

/// A half-life.
pub const HALF_LIFE: Key = Key {
    name: "plimsoll.dev/half-life",
    wanted: "a duration from 1h to 2400h",
    effect: "time after which a sample counts half",
    flags: &["cpu-histogram-decay-half-life", "memory-histogram-decay-half-life"],
    readers: RECOMMENDER,
};

/// A floor of CPU.
pub const CPU_FLOOR: Key = Key {
    name: "plimsoll.dev/cpu-floor",
    wanted: AMOUNT,
    effect: "least CPU of each container, in place of its share of the pod's floor",
    flags: &["pod-recommendation-min-cpu-millicores"],
    readers: RECOMMENDER,
};

/// A floor of memory.
pub const MEMORY_FLOOR: Key = Key {
    name: "plimsoll.dev/memory-floor",
    wanted: AMOUNT,
    effect: "least memory of each container, in place of its share of the pod's floor",
    flags: &["pod-recommendation-min-memory-mb"],
    readers: RECOMMENDER,
};

/// What becomes of limits.
pub const LIMIT_POLICY: Key = Key {
    name: "plimsoll.dev/limit-policy",
    wanted: "`ratio`, `requestsOnly`, `max`, or `fixed:FACTOR` with a factor from 1 to 1000",
    effect: "what becomes of limits, where the policy of a container does not leave them alone",
    flags: &["limit-policy"],
    readers: WRITERS,
};

/// When pods may be changed.
pub const CHANGE_WINDOW: Key = Key {
    name: "plimsoll.dev/change-window",
    wanted: "at most 32 change windows such as `0 22 * * mon-fri for 6h in +01:00`, separated by `;`, in at most 4 KiB",
    effect: "when running pods may be changed",
    flags: &["change-window"],
    readers: &["updater"],
};

/// Injected containers that are sized all the same.
pub const MANAGED_SIDECARS: Key = Key {
    name: "plimsoll.dev/managed-sidecars",
    wanted: "names of containers, separated by commas",
    effect: "containers that are sized although another webhook put them into the pod: without it those are its own",
    flags: &[],
    readers: WRITERS,
};

/// All of them that a VPA has.
pub const KEYS: [Key; 10] = [
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
const UP_TO_AN_HOUR: &str = "a duration from 0s to 1h";

/// Queries in place of external metrics: the name of the metric stands behind it.
pub const QUERY: Key = Key {
    name: "query.plimsoll.dev/<metric>",
    wanted: "a PromQL query that answers numbers",
    effect: "what is asked of the Prometheus of `--prometheus-address` in place of that external metric; its samples are added up. It reads series of the object's own namespace, unless `--prometheus-unrestricted-namespaces` lists that",
    flags: &[],
    readers: &["watermark", "admission controller"],
};

/// What becomes of an object of which some metrics say nothing.
pub const PARTIAL_METRICS: Key = Key {
    name: "plimsoll.dev/partial-metrics",
    wanted: "`hold` or `upscale`",
    effect: "whether replicas are added where some metrics ask for it while others say nothing: by default they stay; none are removed either way",
    flags: &[],
    readers: WATERMARK,
};

/// Replicas of a workload of whose metrics nothing is known.
pub const FALLBACK: Key = Key {
    name: "plimsoll.dev/fallback-replicas",
    wanted: "`REPLICAS after PERIODS`, such as `8 after 20`",
    effect: "replicas that a workload goes to, within bounds, velocity and windows, when for so many periods its metrics said nothing: by default they stay",
    flags: &[],
    readers: WATERMARK,
};

/// What delays are counted by.
pub const DELAYS: Key = Key {
    name: "plimsoll.dev/delays",
    wanted: "`joint` or `each`",
    effect: "whether a delay runs while any metric is outside (`joint`, the default), or replicas are added only once one and the same metric was above for the whole delay, and removed only once each was below for it (`each`)",
    flags: &[],
    readers: WATERMARK,
};

/// Whether a workload may have no replicas.
pub const SCALE_TO_ZERO: Key = Key {
    name: "plimsoll.dev/scale-to-zero",
    wanted: "`true` or `false`",
    effect: "the last `minReplicas` go too when all external metrics or the recommender say zero, and come back when one says more; without it, a workload of no replicas is left alone",
    flags: &[],
    readers: WATERMARK,
};

/// What is made a multiple.
pub const MODULO: Key = Key {
    name: "plimsoll.dev/modulo",
    wanted: "`proposal` or `result`",
    effect: "whether `replicaScalingAbsoluteModulo` is met by the proposal alone (the default), or also by what velocity and bounds make of it, rounded towards the replicas that there are",
    flags: &[],
    readers: WATERMARK,
};

/// Pods that count before they run.
pub const PENDING_COUNTS_FOR: Key = Key {
    name: "plimsoll.dev/pending-counts-for",
    wanted: UP_TO_AN_HOUR,
    effect: "how long a pod that is pending counts as ready, for external metrics and recommenders; in place of `readinessDelaySeconds`",
    flags: &[],
    readers: WATERMARK,
};

/// Pods whose CPU does not count yet.
pub const STARTING_IGNORED_FOR: Key = Key {
    name: "plimsoll.dev/starting-ignored-for",
    wanted: UP_TO_AN_HOUR,
    effect: "how long the CPU of a pod that became ready does not count, for metrics of pods; in place of `readinessDelaySeconds`",
    flags: &[],
    readers: WATERMARK,
};

/// An alert that holds replicas.
pub const HOLD_WHILE: Key = Key {
    name: "plimsoll.dev/hold-while",
    wanted: "the name of a Prometheus alert, with matchers or without, such as `CheckoutBroken{namespace=\"shop\"}`",
    effect: "replicas stay, but for bounds, while that alert of the object's own namespace fires in the Prometheus of `--prometheus-address`; of any namespace where `--prometheus-unrestricted-namespaces` lists the object's",
    flags: &[],
    readers: WATERMARK,
};

/// The monitor that has to be well.
pub const MONITOR: Key = Key {
    name: "plimsoll.dev/monitor",
    wanted: "the name of a DatadogMonitor of the namespace",
    effect: "which monitor `wpa.datadoghq.com/lifecycle-control.enabled` asks, in place of that of the object's own name",
    flags: &[],
    readers: WATERMARK,
};

/// What holds while nobody knows how a gate stands.
pub const UNKNOWN_GATE: Key = Key {
    name: "plimsoll.dev/unknown-gate",
    wanted: "`hold` or `follow`",
    effect: "whether replicas stay (the default) while nobody can tell how the monitor or the alert stands",
    flags: &[],
    readers: WATERMARK,
};

/// All of them that a WatermarkPodAutoscaler has.
pub const WPA_KEYS: [Key; 11] = [
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
        assert!(bad.value.len() <= LONGEST_QUOTE, "{}", bad.value);
        assert!(bad.value.ends_with("… (16386 bytes)"), "{bad}");
    }
}
