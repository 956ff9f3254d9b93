//! Faults of metrics remove no replicas, whatever the source is and in whichever mode the object is scaled.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::{
    Case, ago, container_cpu, cpu, external, object, per_pod, pod_value, requests, usage,
};
use crate::hpa::{Decision, Fixes, HpaOptions, assist, pod_usage::pod_samples};
use crate::scaling::{
    Restriction,
    pod_usage::{Resource, UsageSeries},
};

/// What is wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Away,
    Slow,
    Half,
    Empty,
    NotANumber,
    Stale,
    OtherSeries,
    Negative,
}

const FAULTS: [Fault; 8] = [
    Fault::Away,
    Fault::Slow,
    Fault::Half,
    Fault::Empty,
    Fault::NotANumber,
    Fault::Stale,
    Fault::OtherSeries,
    Fault::Negative,
];

const REPLICAS: usize = 4;
/// The load of each source in percent of its target, and the replicas that it asks for.
const LOADS: [(usize, i32); 3] = [(50, 2), (100, 4), (200, 8)];

/// The sources: their metric, which is none for a query in an annotation.
fn sources() -> [(&'static str, Value); 9] {
    let average = json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "AverageValue", "averageValue": "1"}}}]);
    [
        ("utilization", cpu(50)),
        ("average usage", average),
        ("container", container_cpu(50)),
        ("pods", per_pod("500m")),
        ("value of an object", object("Value", "10")),
        ("average of an object", object("AverageValue", "500m")),
        ("value of an external metric", external("Value", "10")),
        ("average of an external metric", external("AverageValue", "500m")),
        ("query", json!([])),
    ]
}

/// A workload whose only source has this load in percent of its target, and which is scaled at once.
fn loaded(metrics: &Value, percent: usize) -> Case {
    let milli = 5 * i64::try_from(percent).expect("a small number");
    let total = match (percent, metrics.to_string().contains("\"Value\"")) {
        (50, true) => "5",
        (100, true) => "10",
        (200, true) => "20",
        (50, false) => "1",
        (100, false) => "2",
        (200, false) => "4",
        other => panic!("no amount for {other:?}"),
    };
    let mut case = Case::new(i32::try_from(REPLICAS).expect("a few"), metrics.clone())
        .bounds(1, 10)
        .with(Fixes::ALL)
        .using(&[milli; REPLICAS])
        .valued(&[milli; REPLICAS]);
    // Without metrics in the spec the API server adds one.
    case.no_defaults = true;
    let rules = json!({"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies":
        [{"type": "Percent", "value": 100, "periodSeconds": 15}]});
    case.spec["behavior"] = json!({"scaleUp": rules, "scaleDown": rules});
    (case.object, case.external, case.queried) = (Ok(total), Ok(vec![total]), Ok(vec![total]));
    if metrics.as_array().is_some_and(Vec::is_empty) {
        let query =
            [("query.plimsoll.dev/load", "sum(load)"), ("target.plimsoll.dev/load", "500m")];
        case = case.annotated(&query);
    }
    case
}

/// A value without an age, or a part of a value, is an error of the client.
fn rejected<T>() -> Result<T, String> {
    Err("the response is not used".to_owned())
}

/// What a source and its client make of a fault.
fn with_fault(mut case: Case, fault: Fault) -> Case {
    let error = match fault {
        Fault::Away => Some("HTTP 503: the server is currently unable to handle the request"),
        Fault::Slow => Some("no response within 15s"),
        Fault::NotANumber => Some("the value is not a number"),
        _ => None,
    };
    if let Some(error) = error.map(str::to_owned) {
        (case.usage, case.values) = (Err(error.clone()), Err(error.clone()));
        (case.object, case.external, case.queried) =
            (Err(error.clone()), Err(error.clone()), Err(error));
        return case;
    }
    match fault {
        Fault::Half | Fault::Stale => {
            (case.object, case.external, case.queried) = (rejected(), rejected(), rejected());
        }
        Fault::Negative => {
            (case.object, case.external, case.queried) =
                (Ok("-7"), Ok(vec!["7", "-8"]), Ok(vec!["7", "-8"]));
        }
        _ => {
            (case.object, case.external, case.queried) = (rejected(), Ok(vec![]), Ok(vec![]));
        }
    }
    let (Ok(usage), Ok(values)) = (&mut case.usage, &mut case.values) else { unreachable!() };
    match fault {
        Fault::Half => {
            usage.truncate(REPLICAS / 2);
            values.truncate(REPLICAS / 2);
        }
        Fault::Empty => {
            usage.clear();
            values.clear();
        }
        Fault::Stale => {
            for usage in usage {
                usage.timestamp = ago(301);
            }
            case.values = rejected();
        }
        Fault::OtherSeries => {
            for pod in usage.iter_mut().map(|usage| &mut usage.pod) {
                pod.insert(0, 'q');
            }
            for pod in values.iter_mut().map(|value| &mut value.pod) {
                pod.insert(0, 'q');
            }
        }
        Fault::Negative => {
            usage[0].containers[0].1 = requests(-1);
            values[0] = pod_value("p0", -1);
        }
        _ => unreachable!("{fault:?} is an error"),
    }
    case
}

/// The decisions in the modes `drive` and `assist`.
fn in_each_mode(case: &Case) -> [(&'static str, Decision); 2] {
    let native = case.clone().change(|case| {
        (case.fixes, case.options) = (Fixes::UPSTREAM, HpaOptions::default());
        case.spec["behavior"]["scaleDown"]["selectPolicy"] = json!("Disabled");
    });
    let driven = case.decide();
    [("assist", assist(&driven, &native.decide())), ("drive", driven)]
}

#[test]
fn without_a_fault_each_source_asks_for_what_its_load_needs() {
    for (source, metrics) in sources() {
        for (load, replicas) in LOADS {
            let decision = loaded(&metrics, load).decide();
            assert_eq!(decision.desired, Some(replicas), "{source} at {load} %");
        }
    }
}

#[test]
fn no_fault_of_any_source_removes_replicas_in_any_mode() {
    for (source, metrics) in sources() {
        for (load, replicas) in LOADS {
            for fault in FAULTS {
                let case = with_fault(loaded(&metrics, load), fault);
                for (mode, decision) in in_each_mode(&case) {
                    let what = format!("{source} at {load} % with {fault:?} in {mode}");
                    let known_half = fault == Fault::Half && decision.error.is_none();
                    // What is known of half of the pods removes no more than the whole would.
                    let least = if known_half { replicas.min(4) } else { 4 };
                    let desired = decision.desired.unwrap_or(4);
                    assert!(desired >= least, "{what}: {desired}");
                    if known_half {
                        continue;
                    }
                    let why = &decision.restrictions;
                    assert!(why.contains(&Restriction::MetricUnknown), "{what}: {why:?}");
                    // The HPA controller takes some of these values, and adds replicas because of them.
                    assert!(mode == "assist" || decision.desired.is_none(), "{what}: {desired}");
                }
            }
        }
    }
}

#[test]
fn a_source_with_a_fault_prevents_that_another_removes_replicas_but_not_that_it_adds_them() {
    for (source, metrics) in sources() {
        for fault in FAULTS.into_iter().filter(|fault| *fault != Fault::Half) {
            for (queried, expected) in [("1", None), ("4", Some(8))] {
                // The other source is a query, unless that is the one with the fault.
                let mut case = with_fault(loaded(&metrics, 50), fault);
                if metrics == json!([]) {
                    case.spec["metrics"] = cpu(50);
                    let milli = if expected.is_some() { 1000 } else { 250 };
                    case = case.using(&[milli; REPLICAS]);
                } else {
                    case = case.annotated(&[
                        ("query.plimsoll.dev/load", "sum(load)"),
                        ("target.plimsoll.dev/load", "500m"),
                    ]);
                    case.queried = Ok(vec![queried]);
                }
                let [(_, assisted), (_, driven)] = in_each_mode(&case);
                assert_eq!(driven.write, expected, "{source} with {fault:?}");
                // The HPA controller adds replicas because of some of these values.
                let least = expected.unwrap_or(4);
                let write = assisted.write.unwrap_or(4);
                assert!(write >= least, "{source} with {fault:?} in assist: {write}");
            }
        }
    }
}

/// Usage from Prometheus, with a fault of its series.
fn from_series(case: &Case, fault: Fault, cores: f64) -> Case {
    let mut series = UsageSeries::new(Resource::Cpu, ago(0));
    let (pods, newest) = match fault {
        Fault::Half => (REPLICAS / 2, 0),
        Fault::Empty => (0, 0),
        Fault::Stale => (REPLICAS, 300),
        _ => (REPLICAS, 0),
    };
    let value = |seconds: f64| match fault {
        Fault::NotANumber => f64::NAN,
        Fault::Negative => -seconds * cores,
        _ => 1e6 + seconds * cores,
    };
    for index in 0..pods {
        let pod =
            if fault == Fault::OtherSeries { format!("q{index}") } else { format!("p{index}") };
        for container in ["app", "side"] {
            let seconds = (newest..600).step_by(15);
            let points = seconds.map(|seconds| (ago(seconds), value((600 - seconds) as f64)));
            series.add(&pod, container, points.collect::<Vec<_>>());
        }
    }
    let usage = pod_samples(&case.pods, &series.into_usage(), Resource::Cpu);
    case.clone().change(|case| case.usage = Ok(usage))
}

#[test]
fn no_fault_of_usage_from_prometheus_removes_replicas_in_any_mode() {
    for metrics in [cpu(50), container_cpu(50)] {
        for (load, replicas) in LOADS {
            let cores = load as f64 / 200.0;
            for fault in FAULTS {
                let is_sent = !matches!(fault, Fault::Away | Fault::Slow);
                let case = if is_sent {
                    from_series(&loaded(&metrics, load), fault, cores)
                } else {
                    with_fault(loaded(&metrics, load), fault)
                };
                for (mode, decision) in in_each_mode(&case) {
                    let least = if fault == Fault::Half { replicas.min(4) } else { 4 };
                    let desired = decision.desired.unwrap_or(4);
                    assert!(desired >= least, "{load} % with {fault:?} in {mode}: {desired}");
                }
            }
        }
    }
}

proptest! {
    /// Pods that a response lacks count as fully used, or as at their target. While none of them needs more than that, half a
    /// response keeps at least what a complete one would.
    #[test]
    fn half_a_response_removes_no_more_than_a_complete_one(
        known in prop::collection::vec(0..2000_i64, 1..8),
        missing in prop::collection::vec(0..=500_i64, 1..8),
        is_utilization in any::<bool>(),
        is_fixed in any::<bool>(),
    ) {
        let metrics = if is_utilization { cpu(50) } else { per_pod("500m") };
        let all: Vec<i64> = known.iter().chain(&missing).copied().collect();
        let count = i32::try_from(all.len()).expect("a few");
        let mut case = Case::new(count, metrics).bounds(1, 100).using(&all).valued(&all);
        case.fixes = if is_fixed { Fixes::ALL } else { Fixes::UPSTREAM };
        let complete = case.decide().desired.expect("all is known");
        case.usage = Ok(known.iter().enumerate().map(|(index, milli)| usage(&format!("p{index}"), *milli)).collect());
        let case = case.valued(&known);
        let half = case.decide().desired.expect("half is known");
        prop_assert!(half >= complete.min(count), "{half} of {complete}");
    }

    /// Whatever is wrong with single samples, an error of the metric or the assumptions about missing pods hold.
    #[test]
    fn a_mixture_of_faults_removes_nothing_from_a_workload_at_its_target(
        faults in prop::collection::vec(prop::sample::select(vec!["fine", "stale", "gone", "negative", "other"]), 1..10),
        is_utilization in any::<bool>(),
    ) {
        let count = faults.len();
        let metrics = if is_utilization { cpu(50) } else { container_cpu(50) };
        let mut case = Case::new(i32::try_from(count).expect("a few"), metrics).bounds(1, 100);
        case = case.with(Fixes::ALL).using(&vec![500; count]);
        let usage = case.usage.as_mut().expect("usage");
        for (usage, fault) in usage.iter_mut().zip(&faults) {
            match *fault {
                "stale" => (usage.timestamp, usage.containers) = (ago(400), vec![("app".to_owned(), requests(0)), ("side".to_owned(), requests(0))]),
                "negative" => usage.containers[0].1 = requests(-500),
                "other" => (usage.pod, usage.containers[0].1) = (format!("q{}", usage.pod), requests(0)),
                _ => {}
            }
        }
        let mut at = faults.iter();
        usage.retain(|_| at.next() != Some(&"gone"));
        for (mode, decision) in in_each_mode(&case) {
            prop_assert!(decision.write.is_none(), "{mode}: {:?}", decision.write);
        }
    }
}
