//! Capping of single containers: golden vectors 17 to 39.

use plimsoll_core::{
    api::VerticalPodAutoscaler,
    sizing::{NamespaceLimitRanges, SizingRules, SizingSpec},
    types::compat::Compat,
};
use serde_json::{Value, json};

use super::{pod, process, ranges, reason_items, resources, targets, text, vpa};

const BOTH: [Compat; 2] = [Compat::Upstream, Compat::Plimsoll];

fn container(fields: Value) -> Value {
    let mut item = fields;
    item["type"] = json!("Container");
    item
}

fn pair(amount: &str) -> Value {
    json!({"cpu": amount, "memory": amount})
}

/// Golden vectors 17 to 23.
#[test]
fn limit_ranges_merge_to_the_lowest_maximum_and_the_highest_minimum() {
    let range = |items: Value| ranges(items).container;
    assert_eq!(range(json!([])), None);
    assert_eq!(range(json!([{"type": "PersistentVolumeClaim", "max": {"storage": "1"}}])), None);
    for (items, max, default, min) in [
        (json!([{"max": pair("2")}]), "2", "-", "-"),
        (json!([{"default": pair("2")}]), "-", "2", "-"),
        (json!([{"min": pair("2")}]), "-", "-", "2"),
        (json!([{"max": pair("2"), "default": pair("1.5"), "min": pair("1")}]), "2", "1500m", "1"),
        (json!([{"max": pair("1.5")}, {"max": pair("2")}]), "1500m", "-", "-"),
        (json!([{"min": pair("1.5")}, {"min": pair("1")}]), "-", "-", "1500m"),
    ] {
        let items: Vec<Value> =
            items.as_array().into_iter().flatten().cloned().map(container).collect();
        let merged = range(json!(items)).expect("valid range");
        for (list, expected) in [(&merged.max, max), (&merged.default, default), (&merged.min, min)]
        {
            let expected = match expected {
                "-" => String::new(),
                amount => format!("cpu {amount}, memory {amount}"),
            };
            assert_eq!(text(list), expected, "{items:?}");
        }
    }
}

struct Row {
    name: &'static str,
    current: &'static str,
    range: Value,
    policy: Value,
    target: &'static str,
    upstream: &'static str,
    plimsoll: &'static str,
    items: &'static [&'static str],
}

const ROW: Row = Row {
    name: "",
    current: "",
    range: Value::Null,
    policy: Value::Null,
    target: "",
    upstream: "",
    plimsoll: "",
    items: &[],
};

const FIT_MAX: &str = "capped to fit Max in container LimitRange";
const FIT_MIN: &str = "capped to fit Min in container LimitRange";

/// Golden vectors 24 to 32.
#[test]
fn a_container_is_capped_by_limit_range_policy_and_limit_in_this_order() {
    let requests_only = || json!([{"containerName": "*", "controlledValues": "RequestsOnly"}]);
    let rows = [
        Row {
            name: "24",
            current: "cpu 1, memory 1G; cpu 1, memory 1G",
            range: json!({"max": {"cpu": "1"}, "min": {"memory": "500M"}}),
            target: "cpu 2, memory 200M",
            upstream: "cpu 1, memory 500M",
            items: &["cpu FIT_MAX", "memory FIT_MIN"],
            ..ROW
        },
        Row {
            name: "25",
            current: "cpu 1, memory 50M; cpu 1, memory 600M",
            range: json!({"min": {"memory": "500M"}}),
            target: "cpu 1, memory 200M",
            upstream: "cpu 1, memory 500M",
            items: &["memory FIT_MIN"],
            ..ROW
        },
        Row {
            name: "26",
            current: "cpu 1, memory 50M; cpu 1, memory 100M",
            range: json!({"min": {"memory": "500M"}}),
            policy: requests_only(),
            target: "cpu 1, memory 200M",
            upstream: "cpu 1, memory 100M",
            plimsoll: "cpu 999m, memory 100M", // would turn Guaranteed
            items: &["memory FIT_MIN", "memory capped to container limit"],
        },
        Row {
            name: "27",
            current: "cpu 500m, memory 1G; memory 2G",
            range: json!({"max": {"memory": "3G"}}),
            target: "cpu 1, memory 2G",
            upstream: "cpu 1, memory 1500M",
            items: &["memory FIT_MAX"],
            ..ROW
        },
        Row {
            name: "28",
            current: "memory 50M; memory 600M",
            range: json!({"min": {"memory": "500M"}}),
            target: "memory 200M",
            upstream: "memory 500M",
            items: &["memory FIT_MIN"],
            ..ROW
        },
        Row {
            name: "29",
            current: "cpu 250m",
            range: json!({"max": {"cpu": "1"}, "default": {"cpu": "500m"}}),
            target: "cpu 2",
            upstream: "cpu 500m",
            items: &["cpu FIT_MAX"],
            ..ROW
        },
        Row {
            name: "31",
            current: "memory 1G; memory 2G",
            range: json!({"max": {"memory": "3G"}}),
            policy: json!([{"containerName": "c1", "minAllowed": {"memory": "2G"}}]),
            target: "memory 2G",
            upstream: "memory 2G",
            items: &["memory FIT_MAX", "memory capped to minAllowed"],
            ..ROW
        },
        Row {
            name: "32",
            current: "memory 1G; memory 1G",
            range: json!({"min": {"memory": "2G"}, "max": {"memory": "1G"}}),
            target: "memory 1500M",
            upstream: "memory 1G",
            items: &["memory FIT_MIN", "memory FIT_MAX"],
            ..ROW
        },
    ];
    for row in rows {
        let range = if row.range.is_null() { json!([]) } else { json!([container(row.range)]) };
        let recommended = format!("c1: {}", row.target);
        for compat in BOTH {
            let (pod, vpa) = (pod(&[row.current]), vpa(row.policy.clone(), &[&recommended]));
            let found = process(&pod, &vpa, &ranges(range.clone()), compat).expect("processed");
            let different = compat == Compat::Plimsoll && !row.plimsoll.is_empty();
            let expected = if different { row.plimsoll } else { row.upstream };
            assert_eq!(targets(&found), [format!("c1: {expected}")], "{} {compat:?}", row.name);
            let named = |item: &&str| item.replace("FIT_MAX", FIT_MAX).replace("FIT_MIN", FIT_MIN);
            let wanted: Vec<String> = row.items.iter().map(named).collect();
            assert_eq!(reason_items(&found[0].reasons), wanted, "{} {compat:?}", row.name);
        }
    }
}

/// Golden vectors 33 to 36.
#[test]
fn all_three_numbers_are_capped_and_only_the_caps_of_the_target_are_reported() {
    let recommended = "c1: cpu 20, memory 80000 | | cpu 100, memory 90000";
    for (name, policy, status, expected, reasons) in [
        ("34", Value::Null, "", "cpu 20, memory 80000 | cpu 100, memory 90000", &[][..]),
        (
            "34, said",
            json!([{"containerName": "c1", "controlledValues": "RequestsAndLimits"}]),
            "",
            "cpu 20, memory 80000 | cpu 100, memory 90000",
            &[],
        ),
        (
            "35",
            json!([{"containerName": "c1", "controlledValues": "RequestsOnly"}]),
            "",
            "cpu 20, memory 70k | cpu 30, memory 70k",
            &["memory capped to container limit"],
        ),
        (
            "36",
            json!([{"containerName": "c1", "controlledValues": "RequestsOnly"}]),
            "; cpu 2.5, memory 60000",
            "cpu 2500m, memory 60k | cpu 2500m, memory 60k",
            &["cpu capped to container limit", "memory capped to container limit"],
        ),
    ] {
        let mut pod = pod(&["; cpu 30, memory 70000"]);
        if !status.is_empty() {
            pod.containers[0].status = Some(resources(status));
        }
        let found = process(
            &pod,
            &vpa(policy, &[recommended]),
            &NamespaceLimitRanges::default(),
            Compat::Upstream,
        )
        .expect(name);
        let numbers = format!(
            "{} | {}",
            text(&found[0].recommendation.target),
            text(&found[0].recommendation.upper_bound)
        );
        let expected = expected.replace("80000", "80k").replace("90000", "90k");
        assert_eq!(numbers, expected, "{name}");
        assert_eq!(reason_items(&found[0].reasons), reasons, "{name}");
    }
    let policy = json!([{
        "containerName": "c1",
        "minAllowed": {"cpu": "400", "memory": "40000"},
        "maxAllowed": {"cpu": "450", "memory": "45000"},
    }]);
    let recommended = "c1: cpu 300, memory 50000 | cpu 200, memory 43000 | cpu 500, memory 55000";
    for compat in BOTH {
        let found = process(
            &pod(&[""]),
            &vpa(policy.clone(), &[recommended]),
            &NamespaceLimitRanges::default(),
            compat,
        )
        .expect("33");
        let recommended = &found[0].recommendation;
        assert_eq!(text(&recommended.target), "cpu 400, memory 45k");
        assert_eq!(text(&recommended.lower_bound), "cpu 400, memory 43k");
        assert_eq!(text(&recommended.upper_bound), "cpu 450, memory 45k");
        assert_eq!(
            reason_items(&found[0].reasons),
            ["cpu capped to minAllowed", "memory capped to maxAllowed"]
        );
    }
}

/// Golden vectors 37 and 39; 38 cannot be expressed here.
#[test]
fn containers_missing_in_the_pod_are_skipped_and_no_recommendation_gives_nothing() {
    for compat in BOTH {
        let stranger = vpa(Value::Null, &["c2: cpu 100m, memory 50000Mi"]);
        let found =
            process(&pod(&[""]), &stranger, &NamespaceLimitRanges::default(), compat).expect("37");
        assert_eq!(found, []);
        let silent = VerticalPodAutoscaler { status: None, ..stranger };
        let (pod, ranges) = (pod(&[""]), NamespaceLimitRanges::default());
        let found = plimsoll_core::sizing::cap_recommendation(
            &pod,
            &SizingSpec::from_vpa(&silent),
            &ranges,
            SizingRules::for_compat(compat),
        );
        assert_eq!(found, Ok(None));
    }
}
