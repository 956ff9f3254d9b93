//! Annotations have the same limits as flags: a value that a flag rejects is rejected, and an amount is clamped to the
//! flag's range.

use plimsoll::cli::{recommender_config, updater_config};
use plimsoll_core::{
    api::{ResourceList, vpa::ContainerPolicy},
    recommender::{ResourceAmounts, VpaSettings},
    sizing::VpaOptions,
    types::{compat::Compat, units::MAX_AMOUNT},
};

use super::{VpaFixture, minute};

/// Values that are too large or negative.
const NUMBERS: [&str; 22] = [
    "0",
    "-0",
    "0.5",
    ".5",
    "+0.5",
    "1",
    "1.0000001",
    "2",
    "10",
    "10.000001",
    "90",
    "1e2",
    "1e14",
    "1e400",
    "-0.1",
    "-1",
    "-1e400",
    "NaN",
    "inf",
    "-inf",
    "infinity",
    "0x1",
];

const SPANS: [&str; 14] = [
    "0s",
    "1ns",
    "1s",
    "59m59s",
    "1h",
    "24h",
    "2400h",
    "2400h1s",
    "87840h",
    "1000000000h",
    "-1h",
    "-2400h",
    "1",
    "8d",
];

const POLICIES: [&str; 14] = [
    "ratio",
    "requestsOnly",
    "max",
    "fixed:1",
    "fixed:1000",
    "fixed:0.999",
    "fixed:1000.001",
    "fixed:-2",
    "fixed:1e400",
    "fixed:NaN",
    "fixed:inf",
    "fixed:",
    "fixed",
    "fixed:0",
];

/// Whether an annotation may have this value.
fn is_accepted(key: &str, value: &str) -> bool {
    let annotations = [(key.to_owned(), value.to_owned())].into();
    VpaSettings::new(Vec::new(), &annotations).invalid_annotations.is_empty()
        && VpaOptions::from_annotations(&annotations).1.is_empty()
}

#[test]
fn annotations_reject_the_values_that_their_flags_reject() {
    for (key, flag) in [
        ("cpu-percentile", "target-cpu-percentile"),
        ("memory-percentile", "target-memory-percentile"),
        ("margin", "recommendation-margin-fraction"),
    ] {
        for value in NUMBERS {
            let by_flag = recommender_config(&[&format!("--{flag}={value}")]).is_ok();
            assert_eq!(
                is_accepted(&format!("plimsoll.dev/{key}"), value),
                by_flag,
                "{key}={value}"
            );
        }
    }
    for flag in ["cpu-histogram-decay-half-life", "memory-histogram-decay-half-life"] {
        let mut taken = Vec::new();
        for value in SPANS.into_iter().filter(|value| is_accepted("plimsoll.dev/half-life", value))
        {
            recommender_config(&[&format!("--{flag}={value}")]).expect(value);
            taken.push(value);
        }
        // With less than an hour, history would decay faster than it is collected.
        assert_eq!(taken, ["1h", "24h", "2400h"]);
    }
    for value in POLICIES {
        let flags = updater_config(&[&format!("--limit-policy={value}")], |_| String::new());
        assert_eq!(is_accepted("plimsoll.dev/limit-policy", value), flags.is_ok(), "{value}");
    }
    for key in ["cpu-floor", "memory-floor"] {
        for value in ["-1", "-1m", "-9E", "-1e30", "NaN", "inf", "1.5.2", ""] {
            assert!(!is_accepted(&format!("plimsoll.dev/{key}"), value), "{key}={value}");
        }
    }
}

#[test]
fn a_huge_minimum_is_limited_as_by_flags_and_capped_to_the_maximum() {
    let amount = |text: &str| Some(text.parse().expect("a quantity"));
    let most = ResourceAmounts { cpu: amount("4"), memory: amount("8Gi") };
    let recommended = |subject: &mut VpaFixture| {
        subject.cpu(minute(0), 100);
        subject.memory(minute(0), 50 << 20);
        (subject.cpu_numbers(minute(1)), subject.memory_numbers(minute(1)))
    };
    let mut by_flags = VpaFixture::new(Compat::Plimsoll);
    by_flags.settings = {
        let flags =
            ["cpu-millicores", "memory-mb"].map(|it| format!("--pod-recommendation-min-{it}=1e14"));
        recommender_config(&flags.each_ref().map(String::as_str)).expect("accepted").settings
    };
    let by_flags = recommended(&mut by_flags);
    assert_eq!(by_flags, ([MAX_AMOUNT; 3], [MAX_AMOUNT; 3]));

    for floor in
        ["100T", "8E", "9223372036854775807", "1e18", "1e400", "99999999999999999999999999"]
    {
        let annotations = [("plimsoll.dev/cpu-floor", floor), ("plimsoll.dev/memory-floor", floor)];
        let subject = |policy: bool, global: bool| {
            let mut subject = VpaFixture::annotated(Compat::Plimsoll, &annotations);
            assert!(subject.directives.invalid_annotations.is_empty(), "{floor}");
            subject.settings.per_vpa_tuning = true;
            subject.settings.round_millicores = 7;
            subject.settings.round_bytes = 1 << 20;
            if global {
                (subject.settings.max_cpu, subject.settings.max_memory) = (most.cpu, most.memory);
            }
            if policy {
                let policy = ContainerPolicy {
                    container_name: "*".into(),
                    max_allowed: ResourceList::cpu_and_memory(most.cpu, most.memory),
                    ..ContainerPolicy::default()
                };
                subject.directives.policies.push(policy);
            }
            subject
        };
        for (policy, global) in [(true, false), (false, true), (true, true)] {
            let found = recommended(&mut subject(policy, global));
            assert_eq!(found, ([4000; 3], [8 << 30; 3]), "{floor}, {policy}, {global}");
        }
        let mut unrounded = subject(false, false);
        (unrounded.settings.round_millicores, unrounded.settings.round_bytes) = (1, 1);
        assert_eq!(recommended(&mut unrounded), by_flags, "{floor}");
    }
}
