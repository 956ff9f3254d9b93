//! Parses policies of the command line: `cost`, or `slow=profile=default,half-life=96h,margin=0.1,apply=weekly`.

use std::{collections::BTreeMap, str::FromStr};

use strum::VariantNames;

use super::{ApplyMode, Policy, PolicyRule};
use crate::{
    api::annotations::{
        AnnotationKey, CPU_FLOOR, CPU_PERCENTILE, HALF_LIFE, MARGIN, MEMORY_FLOOR,
        MEMORY_PERCENTILE,
    },
    recommender::tuning_annotations::Tuning,
};

/// A policy that does not parse. The text names what would.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidPolicy {
    /// There is no such rule.
    #[error("policy `{policy}`: there is no policy `{name}`; did you mean `{nearest}`? Known are {}", PolicyRule::NAMES.join(", "))]
    UnknownRule {
        /// The policy as it was written.
        policy: String,
        name: String,
        nearest: &'static str,
    },
    /// There is no such key.
    #[error("policy `{policy}`: there is no setting `{key}`; did you mean `{nearest}`?")]
    UnknownKey {
        policy: String,
        key: String,
        /// The key that is nearest to it.
        nearest: &'static str,
    },
    /// The rule has no such setting.
    #[error(
        "policy `{policy}`: the rule `{rule}` has no setting `{key}`; it has profile and apply"
    )]
    NotOfRule { policy: String, rule: PolicyRule, key: &'static str },
    #[error("policy `{policy}`: `{value}` is no value of `{key}`; use {expected}")]
    InvalidValue {
        policy: String,
        key: &'static str,
        value: String,
        /// What it should be.
        expected: String,
    },
    /// A setting is not `key=value`, or the name is missing.
    #[error("policy `{0}`: write a name, or name='key=value,...'")]
    Malformed(String),
    /// A key has two values.
    #[error("policy `{policy}`: `{key}` is set twice")]
    Repeated { policy: String, key: &'static str },
}

/// The settings of our model, by the annotations that set them for a VPA.
const TUNING: [(&str, AnnotationKey); 6] = [
    ("half-life", HALF_LIFE),
    ("margin", MARGIN),
    ("cpu-percentile", CPU_PERCENTILE),
    ("memory-percentile", MEMORY_PERCENTILE),
    ("cpu-floor", CPU_FLOOR),
    ("memory-floor", MEMORY_FLOOR),
];

const PROFILE: &str = "profile";
const APPLY: &str = "apply";
const IN_PLACE: &str = "in-place";

fn keys() -> impl Iterator<Item = &'static str> {
    [PROFILE, APPLY, IN_PLACE].into_iter().chain(TUNING.iter().map(|(key, _)| *key))
}

impl FromStr for Policy {
    type Err = InvalidPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let Some((name, settings)) = text.split_once('=') else {
            return rule_named(text, text).map(Self::new);
        };
        let name = name.trim();
        if name.is_empty() || name.contains([',', ' ']) {
            return Err(InvalidPolicy::Malformed(text.to_owned()));
        }
        let values = read_settings(name, settings)?;
        let rule = match values.get(PROFILE) {
            Some(&profile) => rule_named(name, profile)?,
            // Settings alone change the policy of that name, or our default.
            None => name.parse().unwrap_or(PolicyRule::Plimsoll),
        };
        let mut policy = Self { name: name.into(), ..Self::new(rule) };
        if let Some(&value) = values.get(APPLY) {
            policy.apply = value.parse().map_err(|_| {
                invalid(name, APPLY, value, <ApplyMode as VariantNames>::VARIANTS.join(", "))
            })?;
        }
        if let Some(&value) = values.get(IN_PLACE) {
            let parsed =
                value.parse().map_err(|_| invalid(name, IN_PLACE, value, "true or false".into()));
            policy.in_place = Some(parsed?);
        }
        policy.tuning = read_tuning(name, rule, &values)?;
        let is_own = |key: &&str| !matches!(*key, PROFILE | APPLY);
        let written = values.keys().copied().filter(is_own);
        let written: Vec<String> = written.map(|key| format!("{key}={}", values[key])).collect();
        let of_rule = (*policy.name != *rule.as_str()).then(|| format!("profile={rule}"));
        policy.settings = of_rule.into_iter().chain(written).collect::<Vec<_>>().join(",").into();
        Ok(policy)
    }
}

/// The values by key.
fn read_settings<'a>(
    name: &str,
    settings: &'a str,
) -> Result<BTreeMap<&'static str, &'a str>, InvalidPolicy> {
    let mut values = BTreeMap::new();
    for setting in settings.split(',').filter(|setting| !setting.trim().is_empty()) {
        let (key, value) = setting
            .split_once('=')
            .ok_or_else(|| InvalidPolicy::Malformed(format!("{name}={settings}")))?;
        let (key, value) = (key.trim(), value.trim());
        let known = keys().find(|known| *known == key);
        let known = known.ok_or_else(|| InvalidPolicy::UnknownKey {
            policy: name.to_owned(),
            key: key.to_owned(),
            nearest: nearest(key, keys()),
        })?;
        if values.insert(known, value).is_some() {
            return Err(InvalidPolicy::Repeated { policy: name.to_owned(), key: known });
        }
    }
    Ok(values)
}

fn rule_named(policy: &str, name: &str) -> Result<PolicyRule, InvalidPolicy> {
    if name == "default" {
        return Ok(PolicyRule::Plimsoll);
    }
    name.parse().map_err(|_| InvalidPolicy::UnknownRule {
        policy: policy.to_owned(),
        name: name.to_owned(),
        nearest: nearest(name, PolicyRule::NAMES.iter().copied()),
    })
}

/// The values of the rule, replaced by those that are set.
fn read_tuning(
    name: &str,
    rule: PolicyRule,
    values: &BTreeMap<&'static str, &str>,
) -> Result<Tuning, InvalidPolicy> {
    let mut annotations = BTreeMap::new();
    for (key, annotation) in TUNING {
        let Some(&value) = values.get(key) else { continue };
        if rule.model().is_none() {
            return Err(InvalidPolicy::NotOfRule { policy: name.to_owned(), rule, key });
        }
        annotations.insert(annotation.name.to_owned(), value.to_owned());
    }
    let (own, bad) = Tuning::from_annotations(&annotations);
    if let Some(bad) = bad.into_iter().next() {
        let found = TUNING.iter().find(|(_, annotation)| annotation.name == bad.key);
        let key = found.map_or("", |(key, _)| *key);
        return Err(invalid(name, key, &bad.value, bad.wanted.to_owned()));
    }
    let base = rule.profile();
    Ok(Tuning {
        profile: own.profile.or(base.profile),
        cpu_percentile: own.cpu_percentile.or(base.cpu_percentile),
        memory_percentile: own.memory_percentile.or(base.memory_percentile),
        margin: own.margin.or(base.margin),
        half_life: own.half_life.or(base.half_life),
        cpu_floor: own.cpu_floor.or(base.cpu_floor),
        memory_floor: own.memory_floor.or(base.memory_floor),
    })
}

fn invalid(policy: &str, key: &'static str, value: &str, expected: String) -> InvalidPolicy {
    InvalidPolicy::InvalidValue {
        policy: policy.to_owned(),
        key,
        value: value.to_owned(),
        expected,
    }
}

/// The name with the fewest edits from `text`; the first of several.
pub(crate) fn nearest(text: &str, names: impl Iterator<Item = &'static str>) -> &'static str {
    names.min_by_key(|name| edits(text, name)).unwrap_or_default()
}

/// The number of letters to insert, remove or replace.
fn edits(from: &str, to: &str) -> usize {
    // A name on the command line can be as long as its limit; the names that it is compared with are short.
    let from: Vec<char> = from.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (line, wanted) in to.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], line + 1);
        for (column, found) in from.iter().enumerate() {
            let replaced = diagonal + usize::from(*found != wanted);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[from.len()]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_name_is_a_policy_with_the_defaults_of_its_rule() {
        for &name in PolicyRule::NAMES {
            let policy: Policy = name.parse().expect(name);
            assert_eq!((&*policy.name, policy.rule.as_str()), (name, name));
            assert_eq!(policy.apply, policy.rule.default_apply());
        }
        for name in Policy::DEFAULT_NAMES {
            assert!(name.parse::<Policy>().is_ok(), "{name}");
        }
    }

    #[test]
    fn settings_replace_those_of_the_profile() {
        let policy: Policy =
            "slow=profile=default,half-life=96h,margin=0.1,apply=weekly".parse().expect("parses");
        assert_eq!((&*policy.name, policy.rule), ("slow", PolicyRule::Plimsoll));
        assert_eq!(policy.apply, ApplyMode::Weekly);
        assert_eq!(policy.tuning.half_life, Some(Duration::from_hours(96)));
        assert_eq!(policy.tuning.margin, Some(0.1));
        assert_eq!(&*policy.settings, "profile=plimsoll,half-life=96h,margin=0.1");
        let cheap: Policy = "cost=margin=0.2".parse().expect("parses");
        assert_eq!((cheap.rule, cheap.tuning.margin), (PolicyRule::Cost, Some(0.2)));
        assert_eq!(cheap.tuning.cpu_percentile, Some(0.75), "the rest is as in the profile");
        let krr: Policy = "often=profile=krr-simple,apply=daily".parse().expect("parses");
        assert_eq!((krr.rule, krr.apply), (PolicyRule::KrrSimple, ApplyMode::Daily));
    }

    #[test]
    fn an_error_names_what_is_nearest() {
        for (text, message) in [
            (
                "krr-simpel",
                "policy `krr-simpel`: there is no policy `krr-simpel`; did you mean `krr-simple`? Known",
            ),
            (
                "slow=profil=cost",
                "policy `slow`: there is no setting `profil`; did you mean `profile`?",
            ),
            (
                "slow=half-live=96h",
                "policy `slow`: there is no setting `half-live`; did you mean `half-life`?",
            ),
            (
                "slow=half-life=9s",
                "policy `slow`: `9s` is no value of `half-life`; use a duration from 1h to 2400h",
            ),
            (
                "x=apply=monthly",
                "policy `x`: `monthly` is no value of `apply`; use updater, daily, weekly, instant",
            ),
            (
                "x=in-place=maybe",
                "policy `x`: `maybe` is no value of `in-place`; use true or false",
            ),
            (
                "x=profile=kubecost,margin=0.1",
                "policy `x`: the rule `kubecost` has no setting `margin`",
            ),
            ("x=margin=0.1,margin=0.2", "policy `x`: `margin` is set twice"),
            ("x=margin", "policy `x=margin`: write a name, or name='key=value,...'"),
            ("=margin=1", "policy `=margin=1`: write a name"),
        ] {
            let error = text.parse::<Policy>().expect_err(text).to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }

    #[test]
    fn the_distance_counts_edits() {
        for (from, to, expected) in
            [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("same", "same", 0)]
        {
            assert_eq!(edits(from, to), expected, "{from} {to}");
        }
    }
}
