//! Exact messages of conditions and events, which other tools parse.

use serde_json::{Value, json};

use super::fixture::{Case, NOW, container_cpu, cpu, external, object, per_pod};
use crate::hpa::decision::{EventStage, EventType};
use crate::hpa::{Decision, ScaleError, Selector};

fn message(decision: &Decision, kind: &str) -> String {
    let mut conditions = decision.status.conditions.iter().flatten();
    let condition = conditions.find(|condition| condition.type_ == kind);
    condition.and_then(|condition| condition.message.clone()).unwrap_or_default()
}

fn events(decision: &Decision) -> Vec<(&str, &str)> {
    decision.events.iter().map(|event| (event.reason, event.message.as_str())).collect()
}

#[test]
fn a_scale_that_cannot_be_read_or_written_is_reported_with_the_reason() {
    let decision = Case::new(3, cpu(50))
        .change(|case| {
            case.scale = Err(ScaleError::Failed("deployments.apps \"web\" not found".to_owned()));
        })
        .decide();
    assert_eq!(
        message(&decision, "AbleToScale"),
        "the HPA controller was unable to get the target's current scale: deployments.apps \"web\" not found"
    );
    assert_eq!(events(&decision), [("FailedGetScale", "deployments.apps \"web\" not found")]);
    let mut decision = Case::new(3, cpu(50)).using(&[1000; 3]).decide();
    decision.record_write(Err("no"), NOW);
    assert_eq!(
        message(&decision, "AbleToScale"),
        "the HPA controller was unable to update the target scale: no"
    );
    let event = decision.events.last().expect("an event");
    assert_eq!((event.kind, event.stage), (EventType::Warning, EventStage::Scale));
    assert_eq!(
        event.message,
        "New size: 6; reason: cpu resource utilization (percentage of request) above target; error: no"
    );
    assert_eq!((decision.desired, decision.status.desired_replicas), (None, 0));
}

#[test]
fn a_pass_that_scales_reports_what_it_did() {
    let decision = Case::new(3, cpu(50)).using(&[1000; 3]).written();
    assert_eq!(
        message(&decision, "AbleToScale"),
        "the HPA controller was able to update the target scale to 6"
    );
    assert_eq!(
        message(&decision, "ScalingActive"),
        "the HPA was able to successfully calculate a replica count from cpu resource utilization (percentage of request)"
    );
    assert_eq!(
        message(&decision, "ScalingLimited"),
        "the desired count is within the acceptable range"
    );
    let down = Case::new(6, cpu(50)).using(&[250; 6]).written();
    assert_eq!(
        events(&down),
        [("SuccessfulRescale", "New size: 3; reason: All metrics below target")]
    );
    assert_eq!(down.status.last_scale_time.map(|time| time.0.into()), Some(NOW));
}

#[test]
fn each_limit_has_a_message() {
    for (used, min, max, text) in [
        (1000, 2, 4, "the desired replica count is more than the maximum replica count"),
        (1, 3, 6, "the desired replica count is less than the minimum replica count"),
        (9000, 2, 99, "the desired replica count is increasing faster than the maximum scale rate"),
    ] {
        let decision = Case::new(3, cpu(50)).using(&[used; 3]).bounds(min, max).written();
        assert_eq!(message(&decision, "ScalingLimited"), text);
    }
}

#[test]
fn a_failed_metric_has_its_own_message_and_a_combined_one() {
    let described = "unable to get metric hits: Service on shop front/unable to fetch metrics from custom metrics API: no such object";
    let queue = "unable to get external metric shop/queue/nil: no metrics returned from external metrics API";
    let in_container = |change: fn(&mut Case)| {
        Case::new(1, container_cpu(50)).bounds(1, 6).using(&[100]).change(change)
    };
    let rows: Vec<(Case, &str, String)> = vec![
        (
            Case::new(3, cpu(50)),
            "failed to get cpu utilization: unable to get metrics for resource cpu: no metrics returned from resource metrics API",
            "failed to get cpu resource metric value: ".to_owned(),
        ),
        (
            in_container(|case| case.pods[0].containers[0].requests.clear()),
            "failed to get cpu utilization: missing request for cpu in container app of Pod p0",
            "failed to get app container metric value: ".to_owned(),
        ),
        (
            in_container(|case| case.pods[0].containers.clear()),
            "failed to get cpu utilization: container app not found in Pod p0",
            "failed to get app container metric value: ".to_owned(),
        ),
        (
            Case::new(3, per_pod("1")),
            "unable to get metric rps: no metrics returned from custom metrics API",
            "failed to get pods metric value: ".to_owned(),
        ),
        (
            Case::new(3, object("Value", "1")),
            described,
            "failed to get object metric value: ".to_owned(),
        ),
        (
            Case::new(3, object("AverageValue", "1")),
            described,
            "failed to get object metric value: failed to get hits object metric: ".to_owned(),
        ),
        (
            Case::new(3, external("Value", "1")),
            queue,
            "failed to get queue external metric value: failed to get external metric queue: "
                .to_owned(),
        ),
        (
            Case::new(3, external("AverageValue", "1")),
            queue,
            "failed to get queue external metric value: failed to get queue external metric: "
                .to_owned(),
        ),
        (
            Case::new(3, json!([{"type": "Magic"}])),
            "unknown metric source type \"Magic\"",
            String::new(),
        ),
        (
            Case::new(
                3,
                json!([{"type": "External", "external": {"metric": {"name": "q"}, "target": {"type": "Value"}}}]),
            ),
            "invalid external metric source: neither a value target nor an average value target was set",
            "failed to get q external metric value: ".to_owned(),
        ),
    ];
    for (case, bare, around) in rows {
        let decision = case.decide();
        let found = events(&decision);
        assert_eq!(found[0].1, bare);
        let combined =
            format!("invalid metrics (1 invalid out of 1), first error is: {around}{bare}");
        assert_eq!(found[1], ("FailedComputeMetricsReplicas", combined.as_str()));
        assert_eq!(decision.events[1].stage, EventStage::AfterStatus);
        assert_eq!(
            message(&decision, "ScalingActive"),
            format!("the HPA was unable to compute the replica count: {bare}")
        );
    }
}

#[test]
fn invalid_and_missing_selectors_are_reported_with_the_reason() {
    let with = |selector: &str| {
        Case::new(1, cpu(50)).bounds(1, 6).using(&[100]).change(|case| {
            if let Ok(scale) = &mut case.scale {
                selector.clone_into(&mut scale.selector);
            }
        })
    };
    let decision = with("").decide();
    assert_eq!(
        events(&decision),
        [
            ("SelectorRequired", "selector is required"),
            ("FailedComputeMetricsReplicas", "selector is required")
        ]
    );
    assert_eq!(message(&decision, "ScalingActive"), "the HPA target's scale is missing a selector");
    for (text, why) in [
        ("app in", "unable to parse requirement: found '' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a==b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        (
            "/z=1",
            "unable to parse requirement: <nil>: Invalid value: \"/z\": prefix part must be non-empty",
        ),
    ] {
        let expected = format!(
            "couldn't convert selector into a corresponding internal selector object: {why}"
        );
        assert_eq!(message(&with(text).decide(), "ScalingActive"), expected);
    }
    let other = Selector::parse("app").expect("a selector");
    let decision = with("app in (web,old)")
        .change(|case| case.others = vec![("a".to_owned(), other)])
        .decide();
    assert_eq!(
        message(&decision, "ScalingActive"),
        "pods by selector app in (web,old) are controlled by multiple HPAs: [shop/a shop/web]"
    );
}

#[test]
fn metrics_have_upstreams_names() {
    let selector = json!({"matchLabels": {"z": "a", "b": "c"},
        "matchExpressions": [{"key": "x", "operator": "In", "values": ["q", "p"]}, {"key": "y", "operator": "Exists"}]});
    let mut selected: Value = external("Value", "1");
    selected[0]["external"]["metric"]["selector"] = selector;
    let of_memory = json!([{"type": "Resource", "resource": {"name": "memory",
        "target": {"type": "AverageValue", "averageValue": "1Mi"}}}]);
    for (metrics, name) in [
        (cpu(50), "cpu resource utilization (percentage of request)"),
        (container_cpu(50), "cpu container resource utilization (percentage of request)"),
        (of_memory, "memory resource"),
        (per_pod("1"), "pods metric rps"),
        (object("Value", "1"), "Service metric hits"),
        (object("AverageValue", "1"), "external metric hits(nil)"),
        (external("Value", "1"), "external metric queue(nil)"),
        (
            selected,
            "external metric queue(&LabelSelector{MatchLabels:map[string]string{b: c,z: a,},MatchExpressions:\
             []LabelSelectorRequirement{LabelSelectorRequirement{Key:x,Operator:In,Values:[q p],},\
             LabelSelectorRequirement{Key:y,Operator:Exists,Values:[],},},})",
        ),
    ] {
        assert_eq!(Case::new(3, metrics).decide().evaluations[0].name, name);
    }
}

#[test]
fn a_status_keeps_the_notation_of_values() {
    let of = |resource: &str, target: Value| json!([{"type": "Resource", "resource": {"name": resource, "target": target}}]);
    let average = |amount: &str| json!({"type": "AverageValue", "averageValue": amount});
    let shown =
        |case: Case| serde_json::to_value(case.written().status.current_metrics).expect("JSON");
    let memory = Case::new(3, of("memory", average("100Mi"))).using(&[0; 3]).change(|case| {
        if let Ok(usage) = &mut case.usage {
            for (_, amounts) in usage.iter_mut().flat_map(|pod| &mut pod.containers) {
                amounts.insert("memory".to_owned(), super::fixture::quantity("50Mi"));
            }
        }
    });
    assert_eq!(
        shown(memory),
        json!([{"type": "Resource", "resource": {"name": "memory", "current": {"averageValue": "100Mi"}}}])
    );
    let utilization = Case::new(3, cpu(50)).using(&[250; 3]);
    assert_eq!(
        shown(utilization),
        json!([{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageValue": "500m", "averageUtilization": 25}}}])
    );
    let two = json!([object("Value", "10")[0], external("AverageValue", "10")[0]]);
    let two = Case::new(3, two).change(|case| case.external = Ok(vec!["20"]));
    assert_eq!(
        shown(two),
        json!([{"type": ""}, {"type": "External",
            "external": {"metric": {"name": "queue"}, "current": {"averageValue": "6667m"}}}])
    );
}
