//! What annotations change in a decision.

use serde_json::{Value, json};

use super::fixture::{Case, NOW, ago, container_cpu, cpu, external, requests};
use crate::hpa::hpa_state::Recommendation;
use crate::hpa::{Decision, Fix, Fixes, MetricRequest, Zone, metric_requests};
use crate::scaling::Restriction::{
    BuiltinActs, Fallback, HoldWhile, Max, Min, PartialMetrics, Paused, ScaleDownLimit,
};
use crate::{
    hpa::{PausedDirection, assist},
    scaling::Restriction,
};

/// Four pods that use this much of their request in percent, with a target of 50 %.
fn using(percent: i64) -> Case {
    Case::new(4, cpu(50)).bounds(2, 10).using(&[percent * 10; 4])
}

fn two_metrics() -> Value {
    json!([cpu(50)[0], external("AverageValue", "3")[0]])
}

fn is_restricted(decision: &Decision, restriction: Restriction) -> bool {
    decision.restrictions.contains(&restriction)
}

fn later(seconds: i64) -> crate::types::Time {
    ago(-seconds)
}

#[test]
fn a_paused_object_holds_its_direction_within_bounds() {
    for (text, percent, desired, paused) in [
        ("up", 100, 4, true),
        ("up", 25, 2, false),
        ("up at 6", 100, 6, true),
        ("up at 9", 100, 8, false),
        ("up at 3", 100, 4, true),
        ("down", 25, 4, true),
        ("down", 100, 8, false),
        ("down at 3", 25, 3, true),
        ("all", 100, 4, true),
        ("all", 25, 4, true),
        ("all", 50, 4, false),
        ("all at 3", 100, 3, true),
        ("all at 7", 25, 7, true),
        ("all at 99", 50, 10, true),
        ("all at 1", 50, 2, true),
        // NOW is 13:46:40.
        ("all until 1970-01-12T13:46:41Z", 100, 4, true),
        ("all until 1970-01-12T13:46:40Z", 100, 8, false),
    ] {
        let decision = using(percent).annotated(&[("plimsoll.dev/paused", text)]).decide();
        assert_eq!(decision.desired, Some(desired), "{text} at {percent} %");
        assert_eq!(decision.write, (desired != 4).then_some(desired), "{text} at {percent} %");
        assert_eq!(is_restricted(&decision, Paused), paused, "{text} at {percent} %");
    }
    let decision = using(100).annotated(&[("plimsoll.dev/paused", "all at 3")]).written();
    let message = &decision.events[0].message;
    assert_eq!(message, "New size: 3; reason: scaling is paused at 3 replicas");
    // The bounds of the spec apply.
    for (replicas, desired) in [(12, 10), (1, 2), (0, 0)] {
        for text in ["all", "up", "down"] {
            let case = Case::new(replicas, cpu(50)).bounds(2, 10);
            let decision = case.annotated(&[("plimsoll.dev/paused", text)]).decide();
            assert_eq!(decision.desired, Some(desired), "{text} at {replicas}");
        }
    }
}

#[test]
fn a_pause_that_sets_replicas_needs_no_metric_and_others_add_nothing_without_one() {
    for (text, desired) in [
        ("all at 3", Some(3)),
        ("all at 8", Some(8)),
        ("all", None),
        ("down at 8", None),
        ("up at 2", None),
    ] {
        let case = using(25).change(|case| case.usage = Err("away".to_owned()));
        let decision = case.annotated(&[("plimsoll.dev/paused", text)]).decide();
        assert_eq!(decision.desired, desired, "{text}");
        assert!(decision.error.is_some() && is_restricted(&decision, Restriction::MetricUnknown));
    }
    // A workload that something else scaled to zero stays there.
    let zero = Case::new(0, cpu(50)).annotated(&[("plimsoll.dev/paused", "all at 3")]).decide();
    assert_eq!((zero.zone, zero.desired), (Zone::Disabled, Some(0)));
}

#[test]
fn a_schedule_raises_the_minimum_for_its_whole_duration() {
    let schedule = "40 13 * * *, 10m, 5";
    for (seconds, desired) in [(-401, 4), (-400, 5), (0, 5), (199, 5), (200, 4)] {
        let case = using(50).change(|case| case.now = later(seconds));
        let decision = case.annotated(&[("plimsoll.dev/schedule", schedule)]).decide();
        assert_eq!(decision.desired, Some(desired), "{seconds}");
        let bounds = if desired == 5 { (5, 10) } else { (2, 10) };
        assert_eq!((decision.bounds, is_restricted(&decision, Min)), (bounds, desired == 5));
    }
    let decision = using(50).annotated(&[("plimsoll.dev/schedule", schedule)]).written();
    let reason = "New size: 5; reason: Current number of replicas below 5 of the schedule";
    assert_eq!(decision.events[0].message, reason);
    // Metrics remove no more than that, whether they are available or not.
    let low = Case::new(6, cpu(50)).bounds(2, 10).using(&[100; 6]);
    let annotated = low.annotated(&[("plimsoll.dev/schedule", schedule)]);
    assert_eq!(annotated.decide().desired, Some(5));
    assert_eq!(annotated.change(|case| case.usage = Err("away".to_owned())).decide().desired, None);
    for (min, max, expected) in [(2, 4, (4, 4)), (7, 10, (7, 10))] {
        let case = using(50).bounds(min, max).annotated(&[("plimsoll.dev/schedule", schedule)]);
        assert_eq!(case.decide().bounds, expected, "never outside of the bounds of the spec");
    }
    let paused = [("plimsoll.dev/schedule", schedule), ("plimsoll.dev/paused", "all")];
    assert_eq!(using(50).annotated(&paused).decide().desired, Some(4), "a pause comes first");
}

#[test]
fn a_scheduled_maximum_removes_replicas_only_if_metrics_are_available() {
    let of_eight = |percent: i64| {
        let case = Case::new(8, cpu(50)).bounds(2, 10).using(&[percent * 10; 8]);
        case.annotated(&[("plimsoll.dev/schedule", "0 13 * * *, 1h, 3, 5")])
    };
    for (percent, desired, is_max) in [(100, 5, true), (50, 5, true), (25, 4, false), (1, 3, false)]
    {
        let decision = of_eight(percent).decide();
        assert_eq!(decision.desired, Some(desired), "{percent}");
        assert_eq!(is_restricted(&decision, Max), is_max, "{percent}");
        let limited = decision.limited.expect("metrics were used");
        assert_eq!(limited.wanted > limited.replicas, is_max, "{percent}");
    }
    let unknown = of_eight(50).change(|case| case.usage = Err("away".to_owned()));
    assert_eq!((unknown.decide().desired, unknown.decide().zone), (None, Zone::Metrics));
    let partial = of_eight(50).change(|case| {
        case.spec["metrics"] = two_metrics();
        case.external = Ok(vec!["27"]);
        case.usage = Err("away".to_owned());
    });
    assert_eq!(partial.decide().desired, Some(8), "the available metric asks for 9");
    let slow = of_eight(50).change(|case| {
        case.spec["behavior"] = json!({"scaleDown": {"policies":
            [{"type": "Pods", "value": 1, "periodSeconds": 60}]}});
    });
    let decision = slow.decide();
    assert_eq!((decision.desired, is_restricted(&decision, ScaleDownLimit)), (Some(7), true));
}

#[test]
fn the_fallback_only_adds_and_only_after_its_periods() {
    let annotated = [("plimsoll.dev/fallback-replicas", "7 after 2")];
    let mut case =
        using(50).change(|case| case.usage = Err("away".to_owned())).annotated(&annotated);
    let first = case.decide();
    assert_eq!((first.desired, first.memory.failing_since), (None, Some(NOW)));
    case.memory = first.memory;
    for (seconds, desired) in [(29, None), (30, Some(7)), (3000, Some(7))] {
        case.now = later(seconds);
        let decision = case.decide();
        assert_eq!(decision.desired, desired, "{seconds}");
        assert_eq!(is_restricted(&decision, Fallback), desired.is_some());
        assert!(decision.error.is_some());
    }
    let message = &case.written().events[1].message;
    let reason = "metrics are not available, scaling to the fallback of 7 replicas";
    assert_eq!(message, &format!("New size: 7; reason: {reason}"));
    // Neither more replicas nor zero are changed.
    for (replicas, desired) in [(7, None), (9, None), (0, Some(0)), (3, Some(6))] {
        let scale = |case: &mut Case| {
            if let Ok(scale) = &mut case.scale {
                scale.replicas = replicas;
            }
        };
        assert_eq!(case.clone().change(scale).decide().desired, desired, "{replicas}");
    }
    // One pass with all metrics resets the count, and so does a deleted annotation.
    let memory = case.memory.clone();
    let good = using(50).annotated(&annotated).change(|case| case.memory = memory.clone());
    assert_eq!(good.decide().memory.failing_since, None);
    let untold = using(50).change(|case| {
        case.memory = memory;
        case.usage = Err("away".to_owned());
    });
    assert_eq!(untold.decide().memory.failing_since, None);
}

#[test]
fn the_fallback_is_the_minimum_of_what_available_metrics_ask_for() {
    let failing = |queue: &'static str| {
        let case = Case::new(4, two_metrics()).bounds(2, 20);
        let mut case = case.annotated(&[("plimsoll.dev/fallback-replicas", "6 after 2")]);
        case.usage = Err("away".to_owned());
        case.external = Ok(vec![queue]);
        case.memory.failing_since = Some(ago(30));
        case
    };
    for (queue, desired, is_fallback) in [("3", 6, true), ("15", 6, true), ("24", 8, false)] {
        let decision = failing(queue).decide();
        assert_eq!(decision.desired, Some(desired), "{queue}");
        assert_eq!(is_restricted(&decision, Fallback), is_fallback, "{queue}");
        assert!(is_restricted(&decision, PartialMetrics));
    }
}

#[test]
fn partial_metrics_hold_if_told_to() {
    for (annotated, desired) in [("upscale", Some(8)), ("hold", None)] {
        let mut case = Case::new(4, two_metrics()).bounds(2, 20);
        case = case.annotated(&[("plimsoll.dev/partial-metrics", annotated)]);
        case.usage = Err("away".to_owned());
        case.external = Ok(vec!["24"]);
        let decision = case.decide();
        assert_eq!(decision.desired, desired, "{annotated}");
        assert!(is_restricted(&decision, PartialMetrics));
        // With all metrics there is no difference.
        assert_eq!(case.using(&[500; 4]).decide().desired, Some(8), "{annotated}");
    }
}

#[test]
fn a_tolerance_is_a_share_or_what_some_pods_do() {
    for (annotated, queue, desired) in [
        ("0.1", "44", 10),
        ("0", "44", 11),
        ("0", "40", 10),
        ("1 pod", "44", 10),
        ("1 pod", "45", 12),
        ("0.5 pods", "44", 11),
        ("2 pods", "48", 10),
        ("2 pods", "32", 10),
        ("2 pods", "31", 8),
        ("up 0", "36", 10),
        ("down 0", "36", 9),
        ("down 0", "44", 10),
    ] {
        let case = Case::new(10, external("AverageValue", "4")).bounds(1, 40);
        let mut case = case.annotated(&[("plimsoll.dev/tolerance", annotated)]);
        case.external = Ok(vec![queue]);
        // The annotation goes before the spec, which would tolerate everything.
        for behavior in [None, Some(json!({"scaleUp": {"tolerance": "0.1"}}))] {
            if let Some(behavior) = behavior {
                case.spec["behavior"] = behavior;
            }
            let (decision, record) = case.decide_and_record();
            assert_eq!(decision.desired, Some(desired), "{annotated}: {queue}");
            let position = record.metrics[0].position.map(Into::<&str>::into);
            assert_eq!(position == Some("inside"), desired == 10, "{annotated}: {queue}");
        }
    }
}

#[test]
fn only_own_pods_count_or_all_that_are_selected() {
    for (fixes, annotated, desired) in [
        (Fixes::UPSTREAM, None, 2),
        (Fixes::UPSTREAM, Some("own"), 4),
        (Fixes::ALL, None, 4),
        (Fixes::ALL, Some("own"), 4),
        (Fixes::ALL, Some("selected"), 2),
    ] {
        let case = Case::new(2, cpu(50)).using(&[1000, 1000, 0, 0]).with(fixes);
        let case = case.change(|case| {
            case.pods = super::fixture::pods(4);
            for pod in &mut case.pods[2..] {
                pod.is_foreign = true;
            }
        });
        let annotated: Vec<_> =
            annotated.map(|annotated| ("plimsoll.dev/pods", annotated)).into_iter().collect();
        assert_eq!(case.annotated(&annotated).decide().desired, Some(desired), "{annotated:?}");
    }
}

#[test]
fn utilization_is_relative_to_limits_if_told_so() {
    let limited = |metrics: Value, app: i64, side: i64| {
        let mut case = Case::new(4, metrics).bounds(2, 10).using(&[1000; 4]);
        case = case.annotated(&[("plimsoll.dev/utilization-of", "limit")]);
        for pod in &mut case.pods {
            for (container, limit) in pod.containers.iter_mut().zip([app, side]) {
                if limit > 0 {
                    container.limits = requests(limit);
                }
            }
        }
        case
    };
    for (metrics, app, side, desired) in [
        (cpu(50), 2000, 2000, Some(4)),
        (cpu(50), 1000, 1000, Some(8)),
        (cpu(50), 4000, 4000, Some(2)),
        (container_cpu(50), 1000, 9000, Some(8)),
        (container_cpu(50), 0, 9000, None),
        (cpu(50), 2000, 0, None),
    ] {
        assert_eq!(limited(metrics, app, side).decide().desired, desired, "{app} {side}");
    }
    let error = limited(cpu(50), 2000, 0).decide().error.expect("a limit is missing");
    assert!(error.ends_with("missing limit for cpu in container side of Pod p0"), "{error}");
    let fix = Fixes::UPSTREAM.with(Fix::ContainersWithoutRequestAreLeftOut);
    assert_eq!(limited(cpu(50), 2000, 0).with(fix).decide().desired, Some(4));
    let name = &limited(cpu(50), 2000, 2000).decide().evaluations[0].name;
    assert_eq!(name, "cpu resource utilization (percentage of limit)");
    // Limits of the pod, with requests or without.
    let whole = limited(cpu(50), 0, 0).change(|case| {
        for pod in &mut case.pods {
            pod.limits = requests(2000);
        }
    });
    assert_eq!(whole.decide().desired, Some(8));
    let request =
        limited(cpu(50), 9000, 9000).annotated(&[("plimsoll.dev/utilization-of", "request")]);
    assert_eq!(request.decide().desired, Some(8), "as without the annotation");
}

#[test]
fn without_a_request_in_the_template_its_utilization_is_an_error_and_nothing_is_changed() {
    let ask = |metrics| {
        let case = Case::new(4, metrics).bounds(2, 10).using(&[1000; 4]);
        case.annotated(&[("plimsoll.dev/utilization-of", "template")]).decide()
    };
    // With one, the target is an average value instead.
    let average = json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "AverageValue", "averageValue": "500m"}}}]);
    assert_eq!(ask(average).desired, Some(8));
    for (metrics, expected) in [
        (cpu(50), "missing request for cpu in the pod template of the target"),
        (
            container_cpu(50),
            "missing request for cpu in container app of the pod template of the target",
        ),
    ] {
        let decision = ask(metrics);
        assert_eq!((decision.desired, decision.write), (None, None));
        let failed = decision.evaluations[0].outcome.as_ref().expect_err("no request");
        assert!(failed.error.to_string().ends_with(expected), "{}", failed.error);
    }
}

#[test]
fn some_pods_without_a_sample_count_like_the_others() {
    for (percent, samples, annotated, desired) in [
        // Of ten pods one has no sample: it counts as fully used on the way down, and as idle on the way up.
        (25, 9, "0%", 7),
        (25, 9, "9%", 7),
        (25, 9, "10%", 5),
        (25, 8, "10%", 8),
        (25, 8, "20%", 5),
        (100, 9, "0%", 18),
        (100, 9, "10%", 20),
        (50, 9, "10%", 10),
        // Without any sample nothing is known.
        (25, 0, "50%", 0),
    ] {
        let case = Case::new(10, cpu(50)).bounds(1, 40).using(&vec![percent * 10; samples]);
        let decision = case.annotated(&[("plimsoll.dev/missing-pods", annotated)]).decide();
        let expected = (samples > 0).then_some(desired);
        assert_eq!(decision.desired, expected, "{percent} % of {samples}, {annotated}");
    }
    // Pods that are not ready still count as idle on the way up.
    let case = Case::new(10, cpu(50)).bounds(1, 40).using(&[1000; 9]).state(&[(0, "unready")]);
    let decision = case.annotated(&[("plimsoll.dev/missing-pods", "10%")]).decide();
    assert_eq!(decision.desired, Some(18));
}

#[test]
fn queried_metrics_are_evaluated_besides_those_of_the_spec() {
    let queried = |percent: i64, target: &str, values: &[&'static str]| {
        let annotated =
            [("query.plimsoll.dev/rps", "sum(rate(x[1m]))"), ("target.plimsoll.dev/rps", target)];
        let mut case = using(percent).annotated(&annotated);
        case.queried = Ok(values.to_vec());
        case
    };
    for (percent, target, values, desired) in [
        (50, "100", &["700"][..], Some(7)),
        (50, "100", &["300", "400"], Some(7)),
        (100, "100", &["700"], Some(8)),
        (25, "100", &["100"], Some(2)),
        (25, "100", &["410"], Some(4)),
        (50, "value: 100", &["150"], Some(6)),
        (50, "value: 100", &["50"], Some(4)),
        // Without a value nothing is removed, but what the others ask for is added.
        (25, "100", &[], None),
        (100, "100", &[], Some(8)),
        (25, "100", &["-1"], None),
    ] {
        let case = queried(percent, target, values).with(Fixes::ALL);
        assert_eq!(case.decide().desired, desired, "{percent} {target} {values:?}");
    }
    // With upstream's rules neither, although they have no such metrics.
    for values in [&[][..], &["-1"]] {
        let case = queried(25, "100", values).with(Fixes::UPSTREAM);
        assert_eq!(case.decide().desired, None, "{values:?}");
    }
    let (decision, record) = queried(50, "100", &["700"]).decide_and_record();
    assert_eq!(decision.rescale_reason, "Prometheus metric rps above target");
    let metrics: Vec<_> = record.metrics.iter().map(|metric| &*metric.label).collect();
    assert_eq!(metrics, ["cpu", "rps"]);
    assert_eq!(record.metrics[1].bounds.map(|bounds| bounds.low), Some(100_000));
    let shown = queried(50, "100", &["700"]).written().status.current_metrics;
    let shown = shown.expect("the status has those of the spec");
    assert_eq!(shown.len(), 1, "{shown:?}");
    let away = queried(25, "100", &[]).change(|case| case.queried = Err("timeout".to_owned()));
    let error = away.decide().error.expect("it failed");
    let cause = "unable to get Prometheus metric rps: timeout";
    assert!(error.ends_with(cause), "{error}");
}

#[test]
fn a_query_is_requested_after_the_metrics_of_the_spec() {
    let annotated = [("query.plimsoll.dev/rps", "sum(x)"), ("target.plimsoll.dev/rps", "1")];
    let requests = using(50).annotated(&annotated).with_observed(metric_requests);
    assert!(matches!(&requests[..], [
        Some(MetricRequest::Resource { .. }),
        Some(MetricRequest::Prometheus { query })
    ] if query == "sum(x)"));
}

/// A workload with a queue of this length, which may be scaled to zero.
fn queue(replicas: i32, length: &'static str) -> Case {
    let case = Case::new(replicas, external("AverageValue", "3")).bounds(2, 6);
    let mut case = case.annotated(&[("plimsoll.dev/scale-to-zero", "true")]);
    case.external = Ok(vec![length]);
    case
}

#[test]
fn an_idle_workload_is_scaled_to_zero_and_back() {
    // First to the minimum, then to zero.
    for (replicas, length, desired) in
        [(5, "0", 2), (2, "0", 0), (2, "1", 2), (2, "9", 3), (5, "9", 3)]
    {
        assert_eq!(queue(replicas, length).decide().desired, Some(desired), "{replicas} {length}");
    }
    let zero = queue(2, "0").written().memory;
    assert!(zero.scaled_to_zero);
    let at_zero = |length| queue(0, length).change(|case| case.memory = zero.clone());
    for (length, desired) in [("0", 0), ("1", 2), ("12", 4)] {
        let decision = at_zero(length).decide();
        assert_eq!((decision.zone, decision.desired), (Zone::Metrics, Some(desired)), "{length}");
    }
    assert!(!at_zero("12").written().memory.scaled_to_zero);
    let unknown = at_zero("0").change(|case| case.external = Err("away".to_owned())).decide();
    assert_eq!(unknown.desired, None);
    // A zero that another client has set stays, and without the annotation there is none.
    assert_eq!(queue(0, "12").decide().zone, Zone::Disabled);
    assert_eq!(at_zero("12").annotated(&[]).decide().zone, Zone::Disabled);
    assert_eq!(queue(2, "0").annotated(&[]).decide().desired, Some(2));
}

#[test]
fn a_workload_is_scaled_to_zero_only_if_everything_is_known_to_be_idle_for_the_whole_window() {
    let recent = queue(2, "0").change(|case| {
        case.memory.recommendations = Some(vec![Recommendation { replicas: 1, at: ago(100) }]);
    });
    assert_eq!(recent.decide().desired, Some(2));
    let both = |percent: i64, length| {
        let case = queue(2, length).using(&[percent * 10; 2]);
        case.change(|case| case.spec["metrics"] = two_metrics())
    };
    for (percent, length, desired) in [(5, "0", Some(0)), (100, "0", Some(4)), (5, "1", Some(2))] {
        assert_eq!(both(percent, length).decide().desired, desired, "{percent} {length}");
    }
    let unknown = both(5, "0").change(|case| case.usage = Err("away".to_owned()));
    assert_eq!(unknown.decide().desired, None);
    let unknown = both(5, "0").change(|case| case.external = Err("away".to_owned()));
    assert_eq!(unknown.decide().desired, None);
    // Above the minimum, usage counts as always.
    let above = queue(5, "0").using(&[400; 5]).change(|case| case.spec["metrics"] = two_metrics());
    assert_eq!(above.decide().desired, Some(4));
    // Usage exists with pods alone.
    let cpu_only = Case::new(2, cpu(50)).using(&[0; 2]);
    let annotated = [("plimsoll.dev/scale-to-zero", "true")];
    assert_eq!(cpu_only.annotated(&annotated).decide().desired, Some(2));
    // At zero, usage is not missed, and a metric that is not available starts nothing.
    let mut at_zero = both(0, "0");
    at_zero.scale = queue(0, "0").scale;
    at_zero.pods.clear();
    at_zero.memory.scaled_to_zero = true;
    assert_eq!(at_zero.decide().desired, Some(0));
    at_zero.external = Ok(vec!["9"]);
    assert_eq!(at_zero.decide().desired, Some(3));
}

#[test]
fn a_schedule_keeps_its_minimum_above_zero() {
    let annotated =
        [("plimsoll.dev/scale-to-zero", "true"), ("plimsoll.dev/schedule", "40 13 * * *, 10m, 1")];
    assert_eq!(queue(2, "0").annotated(&annotated).decide().desired, Some(2));
    let at_zero =
        queue(0, "0").annotated(&annotated).change(|case| case.memory.scaled_to_zero = true);
    assert_eq!((at_zero.decide().zone, at_zero.decide().desired), (Zone::BelowMin, Some(2)));
    let over = at_zero.change(|case| case.now = later(200));
    assert_eq!((over.decide().zone, over.decide().desired), (Zone::Metrics, Some(0)));
}

#[test]
fn a_held_decision_changes_nothing_in_that_direction_except_to_stay_within_bounds() {
    use PausedDirection::{All, Down, Up};
    for (percent, direction, desired) in
        [(100, All, 4), (100, Up, 4), (100, Down, 8), (25, All, 4), (25, Up, 2), (25, Down, 4)]
    {
        let mut decision = using(percent).decide();
        decision.hold(direction, HoldWhile);
        assert_eq!(decision.desired, Some(desired), "{direction:?} at {percent} %");
        assert_eq!(decision.write, (desired != 4).then_some(desired));
        assert_eq!(is_restricted(&decision, HoldWhile), desired == 4);
        let shown = decision.status.desired_replicas;
        assert_eq!(shown, if desired == 4 { 4 } else { 0 }, "a write completes the status");
    }
    let mut above = Case::new(12, cpu(50)).bounds(2, 10).decide();
    above.hold(All, HoldWhile);
    assert_eq!(above.write, Some(10));
}

#[test]
fn assisting_keeps_what_the_hpa_controller_would_propose() {
    let native = |percent: i64| {
        let no_down = json!({"scaleDown": {"selectPolicy": "Disabled"}});
        using(percent).change(|case| case.spec["behavior"] = no_down).decide()
    };
    for (ours, theirs, desired) in
        [(25, 25, 2), (25, 40, 4), (25, 50, 4), (100, 25, 8), (50, 100, 8), (25, 100, 8)]
    {
        let assisted = assist(&using(ours).decide(), &native(theirs));
        assert_eq!(assisted.desired, Some(desired), "{ours} {theirs}");
        assert_eq!(assisted.write, (desired != 4).then_some(desired), "{ours} {theirs}");
        let raised = using(ours).decide().desired != Some(desired);
        assert_eq!(is_restricted(&assisted, BuiltinActs), raised, "{ours} {theirs}");
    }
    let blind = using(25).change(|case| case.usage = Err("away".to_owned())).decide();
    assert_eq!(assist(&using(25).decide(), &blind).desired, Some(4), "unknown is not less");
    assert_eq!(assist(&blind, &native(25)).desired, None);
    assert_eq!(assist(&blind, &native(100)).desired, Some(8));
    // It leaves zero alone.
    let idle = queue(2, "0").decide();
    let upstream = queue(2, "0").annotated(&[]).decide();
    assert_eq!(assist(&idle, &upstream).desired, Some(0));
}
