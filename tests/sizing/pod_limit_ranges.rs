//! LimitRanges of type Pod: golden vectors 46 to 66 and 304 to 307, each with the correct result.

use plimsoll_core::{
    api::VerticalPodAutoscaler,
    sizing::{Pod, SizingError, SizingRules, SizingSpec, cap_recommendation},
    types::compat::Compat,
};
use serde_json::{Value, json};

use super::{pod, process, ranges, targets, vpa};

/// Pod resources, recommendation, LimitRange of type Pod; upstream's targets, and Plimsoll's where they differ.
type Row<'a> = (&'a str, &'a [&'a str], &'a [&'a str], Value, &'a [&'a str], &'a [&'a str]);

const SAME: &[&str] = &[];
const CRASH: &[&str] = &["crash"];

fn pod_range(fields: &Value) -> Value {
    let mut item = fields.clone();
    item["type"] = json!("Pod");
    json!([item])
}

fn found(pod: &Pod, vpa: &VerticalPodAutoscaler, range: &Value, compat: Compat) -> Vec<String> {
    match process(pod, vpa, &ranges(pod_range(range)), compat) {
        Ok(found) => targets(&found),
        Err(SizingError::CrashesUpstream { .. }) => vec!["crash".into()],
        Err(other) => panic!("{other}"),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "one table")]
fn sums_are_capped_to_the_pod_limit_range_by_one_factor() {
    let max = |resource: &str, amount: &str| json!({"max": {resource: amount}});
    let min = |resource: &str, amount: &str| json!({"min": {resource: amount}});
    let four_to_ten = || json!({"min": {"memory": "4G"}, "max": {"memory": "10G"}});
    let rows: Vec<Row<'_>> = vec![
        (
            "46",
            &["cpu 1; cpu 1"; 2],
            &["c1: cpu 1", "c2: cpu 1"],
            max("cpu", "1"),
            &["c1: cpu 500m", "c2: cpu 500m"],
            SAME,
        ),
        (
            "47",
            &["memory 1; memory 1"; 2],
            &["c1: memory 1G", "c2: memory 1G"],
            min("memory", "4G"),
            &["c1: memory 2G", "c2: memory 2G"],
            SAME,
        ),
        (
            "48",
            &["memory 1; memory 2"; 2],
            &["c1: memory 1G", "c2: memory 1G"],
            four_to_ten(),
            &["c1: memory 2G", "c2: memory 2G"],
            SAME,
        ),
        // Upstream's function alone, without the step that always precedes it, returns 2G and notes that the sum is wrong.
        (
            "49",
            &["memory 1G; memory 2G"; 2],
            &["c1: memory 1G"],
            four_to_ten(),
            &["c1: memory 2G", "c2: memory 2G"],
            &["c1: memory 3G"],
        ),
        (
            "51",
            &["cpu 1m; cpu 1m"; 2],
            &["c1: cpu 15m", "c2: cpu 100m"],
            min("cpu", "150m"),
            &["c1: cpu 20m", "c2: cpu 131m"],
            SAME,
        ),
        (
            "52",
            &["cpu 1m; cpu 1m"; 2],
            &["c1: cpu 15m", "c2: cpu 100m"],
            max("cpu", "90m"),
            &["c1: cpu 11m", "c2: cpu 78m"],
            SAME,
        ),
        (
            "55",
            &["cpu 1, memory 50M; cpu 1, memory 100M"; 2],
            &["c1: cpu 1, memory 200M"],
            min("memory", "500M"),
            &["c1: cpu 1, memory 400M", "c2: cpu 1, memory 100M"],
            &["c1: cpu 1, memory 450M"],
        ),
        (
            "56",
            &["cpu 1, memory 50M; cpu 1, memory 100M"; 2],
            &["c1: cpu 1, memory 200M", "c2: cpu 1, memory 200M"],
            min("memory", "500M"),
            &["c1: cpu 1, memory 250M", "c2: cpu 1, memory 250M"],
            SAME,
        ),
        (
            "57",
            &["memory 50M; memory 50M"; 2],
            &["c1: memory 1Gi", "c2: memory 2Gi"],
            max("memory", "1Gi"),
            &["c1: memory 357913941", "c2: memory 715827882"],
            SAME,
        ),
        (
            "58",
            &["memory 50M; memory 50M"; 2],
            &["c1: memory 1Gi", "c2: memory 2Gi"],
            min("memory", "4Gi"),
            &["c1: memory 1431655765", "c2: memory 2863311530"],
            &["c1: memory 1431655766", "c2: memory 2863311531"],
        ),
        (
            "59",
            &["cpu 100m; cpu 200m", "cpu 100m; cpu 100m"],
            &["c1: cpu 600m", "c2: cpu 300m"],
            max("cpu", "1"),
            &["c1: cpu 400m", "c2: cpu 200m"],
            SAME,
        ),
        (
            "60",
            &["cpu 100m"],
            &["c1: cpu 600m"],
            min("cpu", "2"),
            &["c1: cpu 600m"],
            &["c1: cpu 2"],
        ),
        ("61", &["cpu 100m; cpu 200m"], &["c1: cpu 600m"], min("cpu", "1"), &["c1: cpu 1"], SAME),
        (
            "62",
            &["memory 1Gi; memory 1Gi"; 2],
            &["c1: memory 2Gi", "c2: cpu 1"],
            max("memory", "1Gi"),
            &["c1: memory 1Gi", "c2: cpu 1, memory -1"],
            &["c1: memory 2Gi", "c2: cpu 1"],
        ),
        (
            "63",
            &["cpu 1; cpu 1"; 2],
            &["c1: cpu 2", "c2: memory 1Gi"],
            max("cpu", "1"),
            &["c1: cpu 1", "c2: cpu 0, memory 1Gi"],
            &["c1: cpu 2", "c2: memory 1Gi"],
        ),
        (
            "64",
            &["memory 1Gi; memory 1Gi", ""],
            &["c1: memory 2Gi"],
            max("memory", "1Gi"),
            CRASH,
            &["c1: memory 1Gi"],
        ),
        (
            "65",
            &["memory 1Gi; memory 1Gi", "memory 100Mi; memory 100Mi"],
            &["c1: memory 512Mi | | memory 4Gi"],
            max("memory", "1Gi"),
            CRASH,
            &["c1: memory 512Mi"],
        ),
        (
            "304",
            &["memory 1Gi; memory 1Gi", "memory 100Mi; memory 100Mi"],
            &["c1: memory 2Gi | memory 256Mi | memory 4Gi"],
            min("memory", "1Gi"),
            CRASH,
            &["c1: memory 2Gi"],
        ),
        (
            "305",
            &["memory 1Gi; memory 1Gi"; 2],
            &["c1: memory 3Gi"],
            max("memory", "2Gi"),
            &["c1: memory 1536Mi", "c2: memory 512Mi"],
            &["c1: memory 1Gi"],
        ),
    ];
    for (name, current, recommended, range, upstream, plimsoll) in rows {
        let (pod, vpa) = (pod(current), vpa(Value::Null, recommended));
        assert_eq!(found(&pod, &vpa, &range, Compat::Upstream), upstream, "{name}, upstream");
        let ours = if plimsoll.is_empty() { upstream } else { plimsoll };
        assert_eq!(found(&pod, &vpa, &range, Compat::Plimsoll), ours, "{name}, ours");
    }
}

#[test]
fn sums_are_capped_by_the_resulting_limits_and_never_to_zero() {
    for (current, recommended, limits, max, expected) in [
        // The proportional limit would be 2, and the request a seventh of this.
        ("cpu 100m; cpu 2", "c1: cpu 100m", "fixed:1.5", "300m", "c1: cpu 100m"),
        ("cpu 100m; cpu 2", "c1: cpu 100m", "ratio", "300m", "c1: cpu 15m"),
        ("cpu 100m; cpu 2", "c1: cpu 400m", "fixed:1.5", "300m", "c1: cpu 200m"),
        // A share of 1m rounds down to zero, and without a request the limit would not change.
        ("cpu 1m; cpu 20m", "c1: cpu 1m", "fixed:1.5", "1m", "c1: cpu 1m"),
        ("cpu 3m; cpu 4m", "c1: cpu 3m", "ratio", "1m", "c1: cpu 1m"),
    ] {
        let (pod, vpa) = (pod(&[current]), vpa(Value::Null, &[recommended]));
        let plan = SizingSpec {
            limit_policy: limits.parse().expect("valid policy"),
            ..SizingSpec::from_vpa(&vpa)
        };
        let ranges = ranges(json!([{"type": "Pod", "max": {"cpu": max}}]));
        let found =
            cap_recommendation(&pod, &plan, &ranges, SizingRules::for_compat(Compat::Plimsoll));
        let found = found.expect("possible").expect("has a recommendation");
        assert_eq!(targets(&found), [expected], "{current}, {recommended}, {limits}, {max}");
    }
}
