//! Decisions about usage that was computed from series: the same as with a metrics server, and nothing is removed because of
//! series that are missing or wrong.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::fixture::{Case, NOW, ago, container_cpu, cpu, pods, reason};
use crate::hpa::pod::{Container, Pod, Resources};
use crate::hpa::pod_usage::pod_samples;
use crate::hpa::samples::PodMetrics;
use crate::hpa::{Decision, Fixes};
use crate::scaling::pod_usage::{PodUsage, Resource, UsageSeries};
use crate::types::{Quantity, Time};

const CONTAINERS: [&str; 2] = ["app", "side"];

/// Points each 15 seconds from ten minutes ago until the given number of seconds ago.
fn points(until: i64, value: impl Fn(f64) -> f64) -> Vec<(Time, f64)> {
    let seconds = (until..600).step_by(15);
    seconds.map(|seconds| (ago(seconds), value((600 - seconds) as f64))).collect()
}

/// The usage of pods each of whose containers has used this many cores, until the given number of seconds ago.
fn usage(pods: &[(&str, f64, i64)]) -> HashMap<String, PodUsage> {
    let mut series = UsageSeries::new(Resource::Cpu, NOW);
    for &(pod, cores, until) in pods {
        for container in CONTAINERS {
            series.add(pod, container, points(until, |seconds| 1e6 + seconds * cores));
        }
    }
    series.into_usage()
}

/// The decision of a case whose usage is computed from series.
fn decide(case: &Case, usage: &HashMap<String, PodUsage>) -> Decision {
    let usage = pod_samples(&case.pods, usage, Resource::Cpu);
    case.clone().change(|case| case.usage = Ok(usage)).decide()
}

#[test]
fn samples_of_a_pod_have_all_its_containers() {
    let container = |name: &str| Container { name: name.to_owned(), ..Container::default() };
    let mut pod = Pod {
        name: "web".to_owned(),
        start_time: Some(ago(400)),
        containers: vec![container("app"), container("side")],
        init_containers: vec![
            container("setup"),
            Container { is_restartable: true, ..container("proxy") },
        ],
        ..Pod::default()
    };
    let (known, unknown) = (Some(Quantity::ZERO), None);
    let usage = |names: &[(&str, Option<Quantity>)]| {
        let containers = names.iter().map(|&(name, amount)| (name.into(), amount)).collect();
        let usage = PodUsage { at: ago(300), window: Duration::from_mins(1), containers };
        HashMap::from([("web".to_owned(), usage)])
    };
    let sample = |pod: &Pod, usage: &HashMap<String, PodUsage>| {
        let sample = pod_samples(std::slice::from_ref(pod), usage, Resource::Memory).pop();
        sample.map(|sample| {
            let containers = sample.containers.into_iter();
            containers.map(|(name, of)| (name, of.contains_key("memory"))).collect::<Vec<_>>()
        })
    };
    let named = |containers: &[(&str, bool)]| {
        Some(containers.iter().map(|&(name, known)| (name.to_owned(), known)).collect::<Vec<_>>())
    };
    for (series, expected) in [
        (
            &[("app", known), ("proxy", known), ("side", known)][..],
            &[("app", true), ("proxy", true), ("side", true)][..],
        ),
        // A container whose series is missing is unknown, and one that was added for debugging counts.
        (
            &[("app", known), ("debugger", known), ("side", unknown)],
            &[("app", true), ("debugger", true), ("proxy", false), ("side", false)],
        ),
        // An init container has ended before the others started.
        (&[("setup", known)], &[("app", false), ("proxy", false), ("side", false)]),
    ] {
        assert_eq!(sample(&pod, &usage(series)), named(expected), "{series:?}");
    }
    let all = usage(&[("app", known), ("proxy", known), ("side", known)]);
    pod.start_time = Some(ago(299));
    assert_eq!(sample(&pod, &all), None, "the usage is that of another pod of the same name");
    pod.start_time = None;
    assert!(sample(&pod, &all).is_some());
    pod.name = "other".to_owned();
    assert_eq!(sample(&pod, &all), None);
}

#[test]
fn a_container_without_a_series_makes_its_pod_missing_only_for_metrics_of_all_containers() {
    let with_app_alone = |case: Case| {
        let mut series = UsageSeries::new(Resource::Cpu, NOW);
        for pod in ["p0", "p1", "p2", "p3"] {
            series.add(pod, "app", points(0, |seconds| seconds * 0.1));
        }
        decide(&case, &series.into_usage())
    };
    // 10 % of a target of 50 %: a single container scales down, and the sum is unknown.
    assert_eq!(with_app_alone(Case::new(4, container_cpu(50))).desired, Some(2));
    let decision = with_app_alone(Case::new(4, cpu(50)));
    assert_eq!((decision.desired, decision.write), (None, None));
    assert_eq!(reason(&decision, "ScalingActive"), "FailedGetResourceMetric");
}

#[test]
fn pods_without_a_sample_within_five_minutes_are_missing_and_remove_nothing() {
    for fixes in [Fixes::UPSTREAM, Fixes::ALL] {
        let case = Case::new(4, cpu(50)).with(fixes);
        let decide = |pods: &[(&str, f64, i64)]| decide(&case, &usage(pods)).write;
        let idle = [("p0", 0.1, 5), ("p1", 0.1, 20), ("p2", 0.1, 100), ("p3", 0.1, 270)];
        assert_eq!(decide(&idle), Some(2), "all are known");
        // Half of them: the others may need what they have.
        assert_eq!(decide(&[idle[0], idle[1], ("p2", 0.1, 300), ("p3", 0.1, 400)]), None);
        assert_eq!(decide(&idle[..2]), None);
        assert_eq!(decide(&[]), None, "an empty response");
        assert_eq!(decide(&[("q0", 0.1, 5), ("q1", 0.1, 5)]), None, "pods of another workload");
        assert_eq!(decide(&idle.map(|(pod, cores, _)| (pod, cores, 300))), None, "stale");
    }
    let away = Case::new(4, cpu(50)).change(|case| case.usage = Err("no response".to_owned()));
    let decision = away.decide();
    assert_eq!((decision.write, decision.desired), (None, None));
    assert_eq!(reason(&decision, "ScalingActive"), "FailedGetResourceMetric");
}

#[test]
fn wrong_values_remove_nothing() {
    let case = Case::new(4, cpu(50));
    for (name, value) in [
        ("not a number", f64::NAN),
        ("infinite", f64::INFINITY),
        ("negative", -1.0),
        // A counter that is reset with each sample.
        ("falling", -2.0),
    ] {
        let mut series = UsageSeries::new(Resource::Cpu, NOW);
        for (pod, container) in case.pods.iter().flat_map(|pod| CONTAINERS.map(|name| (pod, name)))
        {
            let of = |seconds: f64| if value == -2.0 { 1e6 - seconds } else { value };
            series.add(&pod.name, container, points(0, of));
        }
        assert_eq!(decide(&case, &series.into_usage()).write, None, "{name}");
    }
}

/// What a metrics server reports for this load: nanocores over the last 15 seconds.
fn reported(pod: &str, cores: f64) -> PodMetrics {
    let amount: Quantity = format!("{}n", (cores * 1e9).round()).parse().expect("a quantity");
    let used = || Resources::from([("cpu".to_owned(), amount)]);
    PodMetrics {
        pod: pod.to_owned(),
        timestamp: ago(5),
        window: Duration::from_secs(15),
        containers: CONTAINERS.map(|name| (name.to_owned(), used())).to_vec(),
    }
}

proptest! {
    /// With steady loads both sources give the same decision. Loads are in millicores and a bit, so that the precision of a
    /// counter does not decide how they are rounded.
    #[test]
    fn steady_loads_are_decided_as_with_a_metrics_server(
        loads in prop::collection::vec((0..2000_u32, any::<bool>()), 1..12),
        target in 10..150_i32,
        is_one_container in any::<bool>(),
        is_fixed in any::<bool>(),
    ) {
        let metrics = if is_one_container { container_cpu(target) } else { cpu(target) };
        let mut case = Case::new(i32::try_from(loads.len()).expect("a few"), metrics).bounds(1, 30);
        case.fixes = if is_fixed { Fixes::ALL } else { Fixes::UPSTREAM };
        case.pods = pods(loads.len());
        let names: Vec<_> = case.pods.iter().map(|pod| pod.name.clone()).collect();
        let known = names.iter().zip(&loads).filter(|(_, (_, is_known))| *is_known);
        let loads: Vec<_> = known.map(|(name, (milli, _))| (name.as_str(), (f64::from(*milli) + 0.5) / 1000.0)).collect();
        let series: Vec<_> = loads.iter().map(|&(name, cores)| (name, cores, 5)).collect();
        let ours = decide(&case, &usage(&series));
        case.usage = Ok(loads.iter().map(|&(name, cores)| reported(name, cores)).collect());
        let theirs = case.decide();
        prop_assert_eq!(ours.desired, theirs.desired);
        prop_assert_eq!(ours.write, theirs.write);
        prop_assert_eq!(json!(ours.status), json!(theirs.status));
        prop_assert_eq!(ours.restrictions, theirs.restrictions);
    }
}
