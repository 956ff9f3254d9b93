//! Tests of the annotations of an object: values, and what is rejected.

use super::*;
use crate::{
    api::hpa_annotations::{HOLD_WHILE, HPA_KEYS},
    hpa::{pause::PausedDirection, tolerance_option::ToleranceAmount},
};

const PERIOD: Duration = Duration::from_secs(15);

fn read(pairs: &[(&str, &str)]) -> (HpaOptions, Vec<InvalidAnnotation>) {
    let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    HpaOptions::from_annotations(&annotations.collect(), PERIOD)
}

fn metric(name: &str, query: &str, target: Target) -> Metric {
    let metric = MetricId { name: name.to_owned(), selector: None };
    let source = Source::Prometheus { metric, query: query.to_owned(), target };
    Metric { type_name: "Prometheus".to_owned(), source }
}

#[test]
fn unset_options_change_nothing() {
    assert_eq!(read(&[]), (NO_OPTIONS.clone(), Vec::new()));
    assert_eq!(NO_OPTIONS, HpaOptions::default());
    let defaults = [
        ("plimsoll.dev/partial-metrics", "upscale"),
        ("plimsoll.dev/scale-to-zero", "false"),
        ("plimsoll.dev/missing-pods", "0%"),
    ];
    assert_eq!(read(&defaults), (HpaOptions::default(), Vec::new()));
    assert_eq!(NO_OPTIONS.config(&Config::default()), Config::default());
    for fixes in [Fixes::UPSTREAM, Fixes::ALL] {
        assert_eq!(NO_OPTIONS.fixes(fixes), fixes);
    }
}

#[test]
fn all_options_are_read() {
    let pairs = [
        ("plimsoll.dev/sync-period", "30s"),
        ("plimsoll.dev/cpu-initialization", "10m"),
        ("plimsoll.dev/initial-readiness", "0s"),
        ("plimsoll.dev/tolerance", "up 1 pod, down 0.2"),
        ("plimsoll.dev/pods", "selected"),
        ("plimsoll.dev/utilization-of", "limit"),
        ("plimsoll.dev/schedule", "0 8 * * mon-fri, 10h, 5, 20"),
        ("plimsoll.dev/paused", "down at 5"),
        ("plimsoll.dev/missing-pods", "10%"),
        ("plimsoll.dev/partial-metrics", "hold"),
        // Periods are those of the object.
        ("plimsoll.dev/fallback-replicas", "8 after 20"),
        ("plimsoll.dev/scale-to-zero", "true"),
        ("query.plimsoll.dev/rps", " sum(rate(requests[1m])) "),
        ("target.plimsoll.dev/rps", "100"),
        ("query.plimsoll.dev/lag", "max(lag)"),
        ("target.plimsoll.dev/lag", "value: 2500m"),
    ];
    let (lag, rps) = (
        Target { type_name: "Value".to_owned(), value: Some(2500), ..Target::default() },
        Target {
            type_name: "AverageValue".to_owned(),
            average_value: Some(100_000),
            ..Target::default()
        },
    );
    let expected = HpaOptions {
        sync_period: Some(Duration::from_secs(30)),
        cpu_initialization: Some(Duration::from_mins(10)),
        initial_readiness: Some(Duration::ZERO),
        tolerance: ToleranceOption {
            up: Some(ToleranceAmount::Pods(1.0)),
            down: Some(ToleranceAmount::Share(0.2)),
        },
        pods: Some(CountedPods::Selected),
        utilization_of: Some(UtilizationOf::Limit),
        schedule: "0 8 * * mon-fri, 10h, 5, 20".parse().expect("a schedule"),
        pause: Some(Pause { direction: PausedDirection::Down, at: Some(5), until: None }),
        missing_pods_percent: 10,
        partial_metrics_hold: true,
        fallback: Some(Fallback { replicas: 8, after: Duration::from_mins(10) }),
        scale_to_zero: true,
        metrics: vec![
            metric("lag", "max(lag)", lag),
            metric("rps", "sum(rate(requests[1m]))", rps),
        ],
    };
    assert_eq!(read(&pairs), (expected, Vec::new()));
}

#[test]
fn utilization_is_relative_to_what_the_object_says() {
    for (text, expected) in [
        ("request", UtilizationOf::Request),
        ("limit", UtilizationOf::Limit),
        (" template ", UtilizationOf::Template),
    ] {
        let (options, invalid) = read(&[("plimsoll.dev/utilization-of", text)]);
        assert_eq!((options.utilization_of, invalid), (Some(expected), Vec::new()), "{text}");
    }
}

#[test]
fn an_invalid_annotation_is_reported_and_the_others_apply() {
    // An alert is read where Prometheus is queried.
    for key in HPA_KEYS.into_iter().filter(|key| *key != HOLD_WHILE) {
        let name = key.key_of("rps");
        let (options, invalid) = read(&[(&name, "(nonsense)"), ("plimsoll.dev/x", "y")]);
        assert_eq!(options, HpaOptions::default(), "{name}");
        assert_eq!(invalid.iter().map(|invalid| invalid.key).collect::<Vec<_>>(), [key.name]);
        let line = invalid[0].to_string();
        assert!(line.lines().count() == 1 && line.contains("(nonsense)"), "{line}");
        assert!(line.contains(key.expected), "{line}");
    }
    for (key, values) in [
        ("sync-period", &["4s", "61m", "15", "-15s", ""][..]),
        ("cpu-initialization", &["-1s", "2h", "5"]),
        ("initial-readiness", &["-1s", "2h", "5"]),
        ("pods", &["all", "Own", ""]),
        ("utilization-of", &["limits", "Template", ""]),
        ("missing-pods", &["10", "51%", "-1%", "+1%", "1.5%", "%", "ten%"]),
        ("partial-metrics", &["block", ""]),
        ("scale-to-zero", &["yes", "1"]),
        ("fallback-replicas", &["8", "0 after 3", "8 after 0", "-1 after 3", "8 after 2m"]),
        ("paused", &["true", "all at 0", "up until noon"]),
        ("tolerance", &["10%", "2", "1 node"]),
        ("schedule", &["always", "0 8 * * *, 10h, 5, 4"]),
    ] {
        for value in values {
            let key = format!("plimsoll.dev/{key}");
            let (options, invalid) = read(&[(&key, value), ("plimsoll.dev/x", "y")]);
            assert_eq!(options, HpaOptions::default(), "{key}: {value}");
            assert_eq!(invalid.len(), 1, "{key}: {value}");
        }
    }
    let (options, invalid) = read(&[
        ("plimsoll.dev/sync-period", "1s"),
        ("plimsoll.dev/fallback-replicas", "8 after 2"),
    ]);
    assert_eq!(options.fallback.map(|fallback| fallback.after), Some(2 * PERIOD));
    assert_eq!(
        invalid[0].to_string(),
        "annotation plimsoll.dev/sync-period: `1s` is not a duration from 5s to 1h; it is ignored"
    );
}

#[test]
fn a_metric_needs_a_query_and_a_target() {
    let key = |pairs: &[(&str, &str)]| {
        let (options, invalid) = read(pairs);
        assert_eq!((options.metrics.len(), invalid.len()), (0, 1), "{pairs:?}");
        (invalid[0].key, invalid[0].value.clone())
    };
    let (query, target) = ("query.plimsoll.dev/<metric>", "target.plimsoll.dev/<metric>");
    let named = |key, text: &str| (key, text.to_owned());
    assert_eq!(
        key(&[("query.plimsoll.dev/rps", "sum(x)")]),
        named(query, "query.plimsoll.dev/rps: sum(x)")
    );
    assert_eq!(
        key(&[("target.plimsoll.dev/rps", "5")]),
        named(target, "target.plimsoll.dev/rps: 5")
    );
    assert_eq!(
        key(&[("query.plimsoll.dev/rps", " "), ("target.plimsoll.dev/rps", "5")]),
        named(query, "query.plimsoll.dev/rps:  ")
    );
    for amount in ["0", "-1", "many", "value:", "value: 0", "average: 5", "1n"] {
        let pairs = [("query.plimsoll.dev/rps", "sum(x)"), ("target.plimsoll.dev/rps", amount)];
        let expected = named(target, &format!("target.plimsoll.dev/rps: {amount}"));
        if amount == "1n" {
            // A thousandth is the smallest unit, and amounts are rounded up.
            assert_eq!(read(&pairs).1, []);
            continue;
        }
        assert_eq!(key(&pairs), expected);
    }
    // One that is too much is reported.
    let metrics = (0..=MAX_EXTRA_METRICS).map(|index| format!("m{index:02}"));
    let pairs = metrics.flat_map(|name| {
        [(EXTRA_QUERY.key_of(&name), "x".to_owned()), (EXTRA_TARGET.key_of(&name), "1".to_owned())]
    });
    let (options, invalid) = HpaOptions::from_annotations(&pairs.collect(), PERIOD);
    assert_eq!((options.metrics.len(), invalid.len()), (MAX_EXTRA_METRICS, 1));
    assert_eq!(invalid[0].value, "query.plimsoll.dev/m16: x");
}

#[test]
fn flags_and_fixes_are_those_of_the_object() {
    let (options, _) = read(&[
        ("plimsoll.dev/cpu-initialization", "1m"),
        ("plimsoll.dev/initial-readiness", "2m"),
        ("plimsoll.dev/pods", "own"),
    ]);
    let config = Config {
        cpu_initialization_period: Duration::from_mins(1),
        initial_readiness_delay: Duration::from_mins(2),
        ..Config::default()
    };
    assert_eq!(options.config(&Config::default()), config);
    assert_eq!(options.fixes(Fixes::UPSTREAM), Fixes::UPSTREAM.with(Fix::OnlyOwnPodsCount));
    let (options, _) = read(&[("plimsoll.dev/pods", "selected")]);
    assert_eq!(options.fixes(Fixes::ALL), Fixes::ALL.without(Fix::OnlyOwnPodsCount));
}

#[test]
fn a_workload_is_not_scaled_to_zero_if_nothing_could_bring_it_back() {
    let query = [("query.plimsoll.dev/rps", "sum(rps)"), ("target.plimsoll.dev/rps", "100")];
    let zero = ("plimsoll.dev/scale-to-zero", "true");
    for (annotations, ignored, expected) in [
        (vec![zero], true, false),
        ([&query[..], &[zero]].concat(), false, true),
        (query.to_vec(), false, false),
    ] {
        let (mut options, _) = read(&annotations);
        assert_eq!(options.require_query_for_zero(), ignored);
        assert_eq!(options.scale_to_zero, expected);
    }
}
