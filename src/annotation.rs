//! Annotations that users set: the one table of them, and what is said of a value that makes no sense.
//!
//! Who reads one has its parser; the documentation is made from this.

use std::collections::BTreeMap;

use serde::Serialize;

/// An annotation that is ours but makes no sense. It is ignored, and the VPA says so in a condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("annotation {key}: `{value}` is not {wanted}; it is ignored")]
pub struct BadAnnotation {
    /// Key of the annotation.
    pub key: &'static str,
    /// What it says.
    pub value: String,
    /// What it should say.
    pub wanted: &'static str,
}

/// An annotation that a user may set on a VPA.
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
        let bad = || BadAnnotation { key: self.name, value: value.clone(), wanted: self.wanted };
        parse(value.trim()).map(Some).ok_or_else(bad)
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
    wanted: "change windows such as `0 22 * * mon-fri for 6h in +01:00`, separated by `;`",
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

/// All of them.
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
    }
}
