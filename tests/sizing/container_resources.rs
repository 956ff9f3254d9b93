//! Requests and limits of whole pods: golden vectors 67 to 82, and the other vectors that cover both.

use plimsoll_core::{
    sizing::{NamespaceLimitRanges, SizedContainer, SizingError, SizingRules, SizingSpec},
    types::compat::Compat,
};
use serde_json::{Value, json};

use super::{pod, ranges, reason_items, resources, size, text, vpa};

const BOTH: [Compat; 2] = [Compat::Upstream, Compat::Plimsoll];

fn policy(min: &str, max: &str, values: &str) -> Value {
    let amounts = |text: &str| {
        let (cpu, memory) = text.split_once('/')?;
        Some(json!({"cpu": cpu, "memory": memory}))
    };
    let mut policy = json!({"containerName": "c1"});
    for (field, list) in [("minAllowed", amounts(min)), ("maxAllowed", amounts(max))] {
        if let Some(list) = list {
            policy[field] = list;
        }
    }
    if !values.is_empty() {
        policy["controlledValues"] = json!(values);
    }
    json!([policy])
}

fn line(size: &SizedContainer) -> String {
    format!("{}; {}", text(&size.requests), text(&size.limits))
}

/// Pod resources, policy, target; the resulting requests and limits; and the annotations for them.
type Row<'a> = (&'a str, &'a str, (&'a str, &'a str, &'a str), &'a str, &'a str, &'a [&'a str]);

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn a_container_gets_the_resources_that_upstream_computes() {
    let base = ("1/100Mi", "3/1Gi", "");
    let only = ("1/100Mi", "3/1Gi", "RequestsOnly");
    let target = "cpu 2, memory 200Mi";
    let to_limit = ["cpu capped to container limit", "memory capped to container limit"];
    let lost = [
        "cpu: failed to keep limit to request ratio; capping limit to int64",
        "memory: failed to keep limit to request ratio; capping limit to int64",
    ];
    let raised = ["cpu capped to minAllowed", "memory capped to minAllowed"];
    let lowered = ["cpu capped to maxAllowed", "memory capped to maxAllowed"];
    let rows: [Row<'_>; 13] = [
        ("67", "", base, "cpu 2, memory 200Mi,  5", "cpu 2, memory 200Mi; ", &[]),
        (
            "68",
            "",
            ("4/300Mi", "5/1Gi", ""),
            "cpu 3, memory 150Mi",
            "cpu 4, memory 300Mi; ",
            &raised,
        ),
        ("69", "", ("4/300Mi", "5/1Gi", ""), "cpu 7, memory 2Gi", "cpu 5, memory 1Gi; ", &lowered),
        (
            "70",
            "cpu 2, memory 100Mi",
            ("1/100Mi", "3/3Gi", ""),
            "cpu 2, memory 1000Mi",
            "cpu 2, memory 1000Mi; ",
            &[],
        ),
        (
            "72",
            "cpu 2, memory 200Mi; cpu 2, memory 200Mi",
            base,
            target,
            "cpu 2, memory 200Mi; cpu 2, memory 200Mi",
            &[],
        ),
        (
            "73",
            "; cpu 2, memory 200Mi",
            base,
            target,
            "cpu 2, memory 200Mi; cpu 2, memory 200Mi",
            &[],
        ),
        (
            "74",
            "cpu 1, memory 100Mi; cpu 2, memory 200Mi",
            base,
            target,
            "cpu 2, memory 200Mi; cpu 4, memory 400Mi",
            &[],
        ),
        (
            "75",
            "cpu 1, memory 100Mi; cpu 2, memory 200Mi",
            only,
            target,
            "cpu 2, memory 200Mi; ",
            &[],
        ),
        (
            "76",
            "cpu 1, memory 100Mi; cpu 2, memory 200Mi",
            only,
            "cpu 3, memory 500Mi",
            "cpu 2, memory 200Mi; ",
            &to_limit,
        ),
        (
            "77",
            "cpu 1, memory 100Mi; cpu 10, memory 1000Mi",
            ("1/100Mi", "1Ei/1Ei", ""),
            "cpu 1Ei, memory 1Ei",
            "cpu 1Ei, memory 1Ei; cpu 9223372036854775807m, memory 9223372036854775807",
            &lost,
        ),
        (
            "80",
            "cpu 1, memory 1M; cpu 10, memory 3M",
            ("", "", ""),
            "cpu 3, memory 2M",
            "cpu 3, memory 2M; cpu 30, memory 6M",
            &[],
        ),
        (
            "81",
            "cpu 1, memory 1M; cpu 10, memory 10M",
            ("", "", ""),
            "cpu 2",
            "cpu 2; cpu 20",
            &["memory: limit NOT set since recommendedRequest is nil or 0"],
        ),
        (
            "82",
            "cpu 1, memory 1M; cpu 10, memory 10M",
            ("", "", ""),
            "memory 2M",
            "memory 2M; memory 20M",
            &["cpu: limit NOT set since recommendedRequest is nil or 0"],
        ),
    ];
    for (name, current, (min, max, values), target, expected, reasons) in rows {
        let vpa = vpa(policy(min, max, values), &[&format!("c1: {target}")]);
        let mut pod = pod(&[current]);
        if name == "80" {
            pod.containers[0].status = Some(resources(current));
            pod.containers[0].spec = resources("");
        }
        for compat in BOTH {
            let sizes = size(&pod, &vpa, &NamespaceLimitRanges::default(), compat).expect(name);
            let expected = match (name, compat) {
                // A pod whose requests are below its limits must not become Guaranteed.
                ("75" | "76", Compat::Plimsoll) => "cpu 1999m, memory 200Mi; ",
                _ => expected,
            };
            assert_eq!(line(&sizes[0]), expected, "{name} {compat:?}");
            assert_eq!(reason_items(&sizes[0].reasons), reasons, "{name} {compat:?}");
        }
    }
}

/// Golden vectors 71, 78 and 79.
#[test]
fn no_recommendation_gives_nothing_and_unknown_limit_ranges_are_an_error() {
    let pod = pod(&["cpu 2, memory 100Mi"]);
    let defaults = ranges(json!([
        {"type": "Container", "default": {"cpu": "2", "memory": "100Mi"}},
    ]));
    for compat in BOTH {
        let base = policy("1/100Mi", "3/1Gi", "");
        let mut silent = vpa(base.clone(), &[]);
        let sizes =
            size(&pod, &silent, &NamespaceLimitRanges::default(), compat).expect("71, empty");
        assert!(sizes[0].is_empty());
        silent.status = None;
        let sizes =
            size(&pod, &silent, &NamespaceLimitRanges::default(), compat).expect("71, none");
        assert!(sizes[0].is_empty());

        let vpa = vpa(base, &["c1: cpu 2, memory 200Mi"]);
        let sizes = size(&pod, &vpa, &defaults, compat).expect("78");
        assert_eq!(line(&sizes[0]), "cpu 2, memory 200Mi; cpu 2, memory 200Mi");
        let refused = plimsoll_core::sizing::size_containers(
            &pod,
            &SizingSpec::from_vpa(&vpa),
            None,
            SizingRules::for_compat(compat),
        );
        assert_eq!(refused, Err(SizingError::LimitRangesUnknown), "79");
    }
}

/// Golden vectors 53, 54, 66 and 307.
#[test]
fn unchanged_limits_override_the_pod_limit_range() {
    let only = json!([{"containerName": "c1", "controlledValues": "RequestsOnly"}]);
    let process = |pod: &_, vpa: &_, range: Value| {
        let found = super::process(pod, vpa, &ranges(json!([range])), Compat::Upstream);
        let found = found.expect("processed");
        (text(&found[0].recommendation.target), reason_items(&found[0].reasons))
    };
    let vpa = vpa(only, &["c1: cpu 1, memory 200M"]);
    let plain = pod(&["cpu 1, memory 50M; cpu 1, memory 100M"]);
    let range = json!({"type": "Pod", "min": {"memory": "500M"}});
    let limited = "memory capped to container limit".to_owned();
    assert_eq!(process(&plain, &vpa, range), ("cpu 1, memory 100M".into(), vec![limited.clone()]));

    let mut resized = pod(&["cpu 10, memory 1G; cpu 10, memory 1G"]);
    resized.containers[0].status = Some(resources("cpu 5m, memory 50M; cpu 5m, memory 100M"));
    let range = json!({"type": "Pod", "min": {"cpu": "2", "memory": "500M"}});
    let both = vec!["cpu capped to container limit".to_owned(), limited];
    assert_eq!(process(&resized, &vpa, range), ("cpu 5m, memory 100M".into(), both));

    let policy = json!([{"containerName": "c1", "minAllowed": {"memory": "2G"}}]);
    let mut silent = super::vpa(policy, &[]);
    silent.status = None;
    let (pod, range) = (pod(&["memory 1G"]), json!({"type": "Pod", "max": {"memory": "1Gi"}}));
    let invented = process(&pod, &silent, range.clone());
    assert_eq!(
        invented,
        ("memory 2G".into(), vec!["memory capped to minAllowed".to_owned()]),
        "66"
    );
    let ranges = ranges(json!([range]));
    let ours = super::process(&pod, &silent, &ranges, Compat::Plimsoll).expect("66, ours");
    assert_eq!(ours, [], "nothing was recommended");
    for compat in BOTH {
        let sizes = size(&pod, &silent, &ranges, compat).expect("307");
        assert!(sizes[0].is_empty(), "307");
    }
}

/// Golden vector 305: the other half of the pair.
#[test]
fn only_upstream_writes_containers_without_a_recommendation() {
    let pod = pod(&["memory 1Gi; memory 1Gi"; 2]);
    let vpa = vpa(Value::Null, &["c1: memory 3Gi"]);
    let ranges = ranges(json!([{"type": "Pod", "max": {"memory": "2Gi"}}]));
    let lines = |compat| -> Vec<String> {
        size(&pod, &vpa, &ranges, compat).expect("305").iter().map(line).collect()
    };
    assert_eq!(
        lines(Compat::Upstream),
        ["memory 1536Mi; memory 1536Mi", "memory 512Mi; memory 512Mi"]
    );
    assert_eq!(lines(Compat::Plimsoll), ["memory 1Gi; memory 1Gi", "; "]);
}
