//! Startup boosts: golden vectors 95 to 113, 120 to 126 and 308.

use std::collections::BTreeMap;

use plimsoll_core::types::Time;
use plimsoll_core::{
    admission::{AdmissionSettings, patch_pod},
    api::VerticalPodAutoscaler,
    sizing::{NamespaceLimitRanges, Pod, SizingError, SizingRules, SizingSpec, boost},
    types::{compat::Compat, quantity::Quantity},
};
use serde_json::{Value, json};

use crate::sizing::{pod, quantity, ranges, vpa};

const BOTH: [Compat; 2] = [Compat::Upstream, Compat::Plimsoll];

fn boost_by_factor(factor: i32) -> Value {
    json!({"cpu": {"type": "Factor", "factor": factor}})
}

fn boost_by_quantity(amount: &str) -> Value {
    json!({"cpu": {"type": "Quantity", "quantity": amount}})
}

struct Row {
    name: &'static str,
    current: &'static str,
    recommended: &'static str,
    boost: Value,
    policy: Value,
    mode: &'static str,
    max: &'static str,
    /// `request; limit`, or `-` if the container is not boosted.
    upstream: &'static str,
    /// What Plimsoll does, if it differs.
    plimsoll: &'static str,
}

fn row(
    name: &'static str,
    current: &'static str,
    recommended: &'static str,
    boost: Value,
    upstream: &'static str,
) -> Row {
    let (policy, mode, max, plimsoll) = (json!({}), "Recreate", "0", "");
    Row { name, current, recommended, boost, policy, mode, max, upstream, plimsoll }
}

fn admit_row(
    row: &Row,
    compat: Compat,
    ranges: &NamespaceLimitRanges,
) -> Result<String, SizingError> {
    let mut policy = row.policy.clone();
    policy["containerName"] = json!("c1");
    let recommended = format!("c1: {}", row.recommended);
    let recommended: &[&str] = if row.recommended.is_empty() { &[] } else { &[&recommended] };
    let mut vpa = vpa(json!([policy]), recommended);
    vpa.spec.startup_boost = serde_json::from_value(row.boost.clone()).expect("a boost");
    vpa.spec.update_policy =
        serde_json::from_value(json!({"updateMode": row.mode})).expect("valid policy");
    let pod = Pod { annotations: Some(BTreeMap::new()), ..pod(&[row.current]) };
    let max: Quantity = quantity(row.max);
    let admission = AdmissionSettings {
        rules: SizingRules::for_compat(compat),
        startup_boost: true,
        max_boosted_cpu: max,
    };
    let admitted = patch_pod(&pod, &SizingSpec::from_vpa(&vpa), Some(ranges), &admission)?;
    if admitted.sized_containers[0].is_empty() {
        assert_eq!(
            super::format_operations(&admitted.operations),
            ["vpaObservedContainers c1"],
            "{}",
            row.name
        );
        return Ok("-".into());
    }
    if !admitted.boosted_containers.is_empty() {
        assert_eq!(admitted.operations[0].path, "/metadata/annotations/vpaCpuStartupBoost~1c1");
    }
    let amount = |list: &plimsoll_core::api::ResourceList| list.cpu().map(|cpu| cpu.to_string());
    let size = &admitted.sized_containers[0];
    Ok(format!(
        "{}; {}",
        amount(&size.requests).unwrap_or_default(),
        amount(&size.limits).unwrap_or_default()
    ))
}

#[test]
fn a_boost_raises_the_same_as_upstream() {
    let only = json!({"controlledValues": "RequestsOnly"});
    let rows = [
        row("95", "cpu 1m; cpu 1m", "cpu 100m", boost_by_factor(2), "200m; 200m"),
        row("96", "cpu 1m; cpu 1m", "cpu 100m", boost_by_quantity("500m"), "600m; 600m"),
        row("97", "cpu 400m; cpu 400m", "cpu 500m", boost_by_quantity("200m"), "700m; 700m"),
        Row {
            max: "40m",
            ..row("98", "cpu 1m; cpu 1m", "cpu 20m", boost_by_factor(3), "40m; 40m")
        },
        row("99", "cpu 100m; cpu 100m", "", boost_by_factor(2), "200m; 200m"),
        Row {
            policy: only.clone(),
            ..row("100", "cpu 100m; cpu 300m", "cpu 100m", boost_by_factor(2), "200m; ")
        },
        Row {
            policy: only,
            ..row("101", "cpu 100m; cpu 150m", "cpu 100m", boost_by_factor(2), "149m; ")
        },
        row("102", "cpu 100m; cpu 300m", "cpu 150m", boost_by_factor(2), "300m; 900m"),
        row("103", "cpu 100m", "cpu 150m", boost_by_factor(2), "300m; "),
        Row {
            policy: json!({"startupBoost": boost_by_factor(3)}),
            ..row("104", "cpu 1m; cpu 1m", "cpu 100m", boost_by_factor(2), "300m; 300m")
        },
        Row {
            policy: json!({"mode": "Off"}),
            plimsoll: "2; 2",
            ..row("105", "cpu 1; cpu 1", "", boost_by_factor(2), "-")
        },
        Row {
            mode: "Off",
            ..row(
                "109",
                "cpu 100m, memory 100Mi; cpu 300m, memory 150Mi",
                "cpu 25m",
                boost_by_factor(2),
                "200m; 600m",
            )
        },
        Row {
            mode: "Off",
            plimsoll: "-",
            ..row("110", "memory 100Mi", "", boost_by_factor(2), "0; ")
        },
        Row {
            max: "400m",
            ..row("111", "cpu 100m; cpu 300m", "cpu 250m", boost_by_factor(2), "400m; 1200m")
        },
        Row {
            max: "400m",
            plimsoll: "800m; ",
            ..row("308", "cpu 100m", "cpu 800m", boost_by_factor(2), "400m; ")
        },
    ];
    for row in rows {
        for compat in BOTH {
            let found = admit_row(&row, compat, &NamespaceLimitRanges::default()).expect(row.name);
            let differs = compat == Compat::Plimsoll && !row.plimsoll.is_empty();
            let expected = if differs { row.plimsoll } else { row.upstream };
            assert_eq!(found, expected, "{} {compat:?}", row.name);
        }
    }
    let defaults = ranges(json!([{"type": "Container", "default": {"cpu": "200m"}}]));
    let row = row("112", "cpu 100m", "cpu 100m", boost_by_factor(3), "300m; 200m");
    assert_eq!(admit_row(&row, Compat::Upstream, &defaults).as_deref(), Ok("300m; 200m"));
    assert_eq!(admit_row(&row, Compat::Plimsoll, &defaults).as_deref(), Ok("300m; 600m"));
}

/// Golden vectors 103, 106, 107 and 113; 108 does not parse as a VPA.
#[test]
fn an_empty_boost_is_rejected_and_a_disabled_one_is_ignored() {
    for compat in BOTH {
        for (name, bad) in [
            ("107", boost_by_factor(0)),
            ("no factor", json!({"cpu": {"type": "Factor"}})),
            ("no quantity", json!({"cpu": {"type": "Quantity"}})),
        ] {
            let found = admit_row(
                &row(name, "cpu 1; cpu 1", "cpu 1", bad, ""),
                compat,
                &NamespaceLimitRanges::default(),
            );
            assert!(matches!(found, Err(SizingError::InvalidBoost { .. })), "{name}: {found:?}");
        }
    }
    let empty = row("113", "cpu 1; cpu 1", "cpu 1", json!({}), "");
    let found = admit_row(&empty, Compat::Upstream, &NamespaceLimitRanges::default());
    assert!(matches!(found, Err(SizingError::InvalidBoost { .. })), "upstream crashes: {found:?}");
    assert_eq!(
        admit_row(&empty, Compat::Plimsoll, &NamespaceLimitRanges::default()).as_deref(),
        Ok("1; 1")
    );

    let mut vpa = vpa(Value::Null, &["c1: cpu 150m"]);
    vpa.spec.startup_boost = serde_json::from_value(boost_by_factor(2)).expect("a boost");
    let pod = pod(&["cpu 100m"]);
    for (boosts, first) in [
        (false, "c0/requests/cpu 150m"),
        (true, "vpaCpuStartupBoost~1c1 {\"requests\":{\"cpu\":\"100m\"},\"limits\":{}}"),
    ] {
        let admission =
            AdmissionSettings { startup_boost: boosts, ..super::admission(Compat::Upstream) };
        let found = super::patch(&pod, &vpa, &NamespaceLimitRanges::default(), admission)
            .expect("admitted");
        assert_eq!(found[1], first);
    }
}

#[test]
fn calling_the_webhook_again_boosts_no_further() {
    let mut vpa = vpa(Value::Null, &["c1: cpu 150m, memory 2Gi"]);
    vpa.spec.startup_boost = serde_json::from_value(boost_by_factor(2)).expect("a boost");
    let first = pod(&["cpu 100m, memory 1Gi; cpu 300m, memory 2Gi"]);
    let admission = AdmissionSettings { startup_boost: true, ..super::admission(Compat::Plimsoll) };
    let admitted = |pod: &Pod| {
        patch_pod(
            pod,
            &SizingSpec::from_vpa(&vpa),
            Some(&NamespaceLimitRanges::default()),
            &admission,
        )
    };
    let once = admitted(&first).expect("admitted");
    let mut again = first;
    again.containers[0].spec = once.sized_containers[0].apply_to(&again.containers[0].spec);
    let key = boost::annotation_key("c1");
    let text =
        once.operations.iter().find(|operation| operation.path.contains("Boost")).expect("boosted");
    let text = text.value.as_str().expect("is text").to_owned();
    again.annotations = Some(BTreeMap::from([(key, text.clone())]));
    let twice = admitted(&again).expect("admitted again");
    assert_eq!(twice.sized_containers[0].requests, once.sized_containers[0].requests);
    assert_eq!(twice.sized_containers[0].limits, once.sized_containers[0].limits);
    assert_eq!(twice.operations[0].value, text);
}

fn vpa_with_boost_durations(
    vpa_level: Option<i32>,
    policies: &[(&str, i32)],
) -> VerticalPodAutoscaler {
    let boost =
        |seconds: i32| json!({"cpu": {"type": "Factor", "factor": 2, "durationSeconds": seconds}});
    let policies: Vec<Value> = policies
        .iter()
        .map(|(name, seconds)| json!({"containerName": name, "startupBoost": boost(*seconds)}))
        .collect();
    let mut vpa = vpa(json!(policies), &[]);
    vpa.spec.startup_boost =
        vpa_level.map(|seconds| serde_json::from_value(boost(seconds)).expect("a boost"));
    vpa
}

#[test]
#[expect(clippy::type_complexity, reason = "the rows of one table")]
fn a_boost_ends_its_duration_after_readiness() {
    let now = Time::from_secs(1_000_000);
    let rows: [(&str, VerticalPodAutoscaler, &[&str], Option<i64>, &[&str], Option<u64>); 7] = [
        ("120", vpa_with_boost_durations(Some(0), &[]), &["c1"], Some(120), &["c1"], None),
        ("121", vpa_with_boost_durations(Some(60), &[]), &["c1"], None, &[], None),
        ("122", vpa_with_boost_durations(Some(60), &[]), &["c1"], Some(120), &["c1"], None),
        ("123", vpa_with_boost_durations(Some(60), &[]), &["c1"], Some(0), &[], Some(60)),
        (
            "124",
            vpa_with_boost_durations(None, &[("c1", 180), ("c2", 60)]),
            &["c1", "c2"],
            Some(120),
            &["c2"],
            Some(60),
        ),
        (
            "125",
            vpa_with_boost_durations(None, &[("c1", 180), ("c2", 60)]),
            &["c1", "c2"],
            Some(240),
            &["c1", "c2"],
            None,
        ),
        (
            "126",
            vpa_with_boost_durations(Some(300), &[("c1", 180)]),
            &["c1"],
            Some(240),
            &["c1"],
            None,
        ),
    ];
    for (what, vpa, boosted, ready, expired, next) in rows {
        let keys = boosted.iter().map(|name| (boost::annotation_key(name), String::new()));
        let pod = Pod {
            annotations: Some(keys.collect()),
            ready_since: ready.map(|ago| Time::from_secs(1_000_000 - ago)),
            ..Pod::default()
        };
        let standing = boost::status(&pod, &SizingSpec::from_vpa(&vpa), now);
        assert_eq!(standing.expired, expired, "{what}");
        assert_eq!(standing.next_expiry.map(|next| next.as_secs()), next, "{what}");
    }
}
