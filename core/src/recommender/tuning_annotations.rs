//! Annotations that tune the model for one VPA: a named profile, or single values.

use std::{collections::BTreeMap, time::Duration};

use super::plan::RequestProfile;
use crate::{
    api::annotations::{
        AnnotationKey, CPU_FLOOR, CPU_PERCENTILE, HALF_LIFE, InvalidAnnotation, MARGIN,
        MEMORY_FLOOR, MEMORY_PERCENTILE, PROFILE,
    },
    types::{
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// The tuning of a VPA. Single values override its profile, and both override flags.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tuning {
    /// How requests are determined.
    pub profile: Option<RequestProfile>,
    pub cpu_percentile: Option<f64>,
    pub memory_percentile: Option<f64>,
    /// Fraction that is added to every percentile.
    pub margin: Option<f64>,
    pub half_life: Option<Duration>,
    pub cpu_floor: Option<MilliCpu>,
    pub memory_floor: Option<Bytes>,
}

type AnnotationReader = fn(&str, &mut Tuning) -> Option<()>;

/// All tuning annotations. The profile is read first, so that single values override it.
const READERS: [(AnnotationKey, AnnotationReader); 7] = [
    (PROFILE, |text, tuning| {
        if let Ok(profile) = text.parse::<RequestProfile>() {
            return set(&mut tuning.profile, Some(profile));
        }
        let profile = PROFILES.iter().find(|profile| profile.name == text)?;
        *tuning = profile.tuning;
        set(&mut tuning.profile, Some(RequestProfile::Vpa))
    }),
    (CPU_PERCENTILE, |text, tuning| set(&mut tuning.cpu_percentile, share(text))),
    (MEMORY_PERCENTILE, |text, tuning| set(&mut tuning.memory_percentile, share(text))),
    (MARGIN, |text, tuning| set(&mut tuning.margin, number(text, 10.0))),
    (HALF_LIFE, |text, tuning| set(&mut tuning.half_life, half_life(text))),
    (CPU_FLOOR, |text, tuning| set(&mut tuning.cpu_floor, amount(text).map(Quantity::to_cpu))),
    (MEMORY_FLOOR, |text, tuning| {
        set(&mut tuning.memory_floor, amount(text).map(Quantity::to_memory))
    }),
];

pub fn keys() -> impl Iterator<Item = &'static str> {
    READERS.iter().map(|(key, _)| key.name)
}

/// A named set of values.
#[derive(Clone, Copy, Debug)]
pub struct Profile {
    pub name: &'static str,
    /// The workloads that it is meant for.
    pub meant_for: &'static str,
    pub tuning: Tuning,
}

pub const PROFILES: [Profile; 3] = [
    Profile {
        name: "latency",
        meant_for: "latency-sensitive services: headroom for the busiest 1 %",
        tuning: Tuning {
            cpu_percentile: Some(0.99),
            memory_percentile: Some(0.98),
            margin: Some(0.25),
            ..Tuning::NONE
        },
    },
    Profile {
        name: "batch",
        meant_for: "batch jobs that may take longer: CPU near the median, memory near the peak",
        tuning: Tuning {
            cpu_percentile: Some(0.5),
            memory_percentile: Some(0.95),
            margin: Some(0.1),
            ..Tuning::NONE
        },
    },
    Profile {
        name: "cost",
        meant_for: "workloads that must be cheap and tolerate throttling",
        tuning: Tuning {
            cpu_percentile: Some(0.75),
            memory_percentile: Some(0.9),
            margin: Some(0.05),
            ..Tuning::NONE
        },
    },
];

impl Tuning {
    pub const NONE: Self = Self {
        profile: None,
        cpu_percentile: None,
        memory_percentile: None,
        margin: None,
        half_life: None,
        cpu_floor: None,
        memory_floor: None,
    };

    /// Reads the annotations of a VPA. Returns invalid ones separately and ignores them.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
    ) -> (Self, Vec<InvalidAnnotation>) {
        let (mut tuning, mut invalid) = (Self::NONE, Vec::new());
        for (key, read) in &READERS {
            if let Err(error) = key.read(annotations, |text| read(text, &mut tuning)) {
                invalid.push(error);
            }
        }
        // Single values are reported before the profile.
        invalid.reverse();
        (tuning, invalid)
    }
}

fn set<T>(field: &mut Option<T>, value: Option<T>) -> Option<()> {
    *field = Some(value?);
    Some(())
}

fn number(text: &str, max: f64) -> Option<f64> {
    text.parse().ok().filter(|number| (0.0..=max).contains(number))
}

fn share(text: &str) -> Option<f64> {
    number(text, 1.0)
}

fn half_life(text: &str) -> Option<Duration> {
    let span: jiff::SignedDuration = text.parse().ok()?;
    let span = Duration::try_from(span).ok()?;
    (Duration::from_hours(1)..=Duration::from_hours(2400)).contains(&span).then_some(span)
}

fn amount(text: &str) -> Option<Quantity> {
    text.parse().ok().filter(|quantity: &Quantity| !quantity.is_negative())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn annotations(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn single_values_override_the_profile() {
        let annotations = annotations(&[
            ("plimsoll.dev/profile", "latency"),
            ("plimsoll.dev/margin", "0.5"),
            ("plimsoll.dev/half-life", "48h"),
            ("plimsoll.dev/memory-floor", "64Mi"),
            ("unrelated.example.com/margin", "7"),
        ]);
        let (tuning, invalid) = Tuning::from_annotations(&annotations);
        assert!(invalid.is_empty(), "{invalid:?}");
        assert_eq!(tuning.cpu_percentile, Some(0.99));
        assert_eq!(tuning.margin, Some(0.5));
        assert_eq!(tuning.half_life, Some(Duration::from_hours(48)));
        assert_eq!(tuning.memory_floor, Some(Bytes(64 << 20)));
    }

    #[test]
    fn a_profile_of_percentiles_is_not_planned_and_the_others_are() {
        let profile = |name| {
            let (tuning, invalid) =
                Tuning::from_annotations(&annotations(&[("plimsoll.dev/profile", name)]));
            assert!(invalid.is_empty(), "{invalid:?}");
            tuning.profile
        };
        for (name, expected) in [
            ("vpa", RequestProfile::Vpa),
            ("cost", RequestProfile::Vpa),
            ("steady", RequestProfile::Steady),
            ("balanced", RequestProfile::Balanced),
            ("tide", RequestProfile::Tide),
        ] {
            assert_eq!(profile(name), Some(expected), "{name}");
        }
    }

    #[test]
    fn invalid_values_are_ignored_and_reported() {
        for (key, value) in [
            ("plimsoll.dev/profile", "fastest"),
            ("plimsoll.dev/cpu-percentile", "90"),
            ("plimsoll.dev/memory-percentile", "NaN"),
            ("plimsoll.dev/margin", "-0.1"),
            ("plimsoll.dev/half-life", "1s"),
            ("plimsoll.dev/half-life", "soon"),
            ("plimsoll.dev/cpu-floor", "-5m"),
            ("plimsoll.dev/memory-floor", "64 MB"),
        ] {
            let (tuning, invalid) = Tuning::from_annotations(&annotations(&[(key, value)]));
            assert_eq!(tuning, Tuning::NONE, "{key}={value}");
            let line = invalid.first().expect("is named").to_string();
            assert!(line.contains(key) && line.contains(value), "{line}");
        }
    }
}
