//! ResourceQuotas, and the total resources of a pod.

use plimsoll_core::{
    api::ResourceName,
    sizing::{
        ContainerRef, Pod, SizedContainer,
        pod_totals::PodTotals,
        quota::{PodOperation, Quota, Scope, ensure_quota, exceeded_quotas},
    },
};
use serde_json::json;

use super::{list, pod, text};

fn size(index: usize, requests: &str, limits: &str) -> SizedContainer {
    SizedContainer {
        requests: list(requests),
        limits: list(limits),
        ..SizedContainer::unchanged(ContainerRef::Main(index))
    }
}

#[test]
fn a_pod_requests_the_sum_of_its_containers_or_the_largest_init_container() {
    let container = |name: &str, stays: bool, cpu: &str| {
        let mut container = json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        if stays {
            container["restartPolicy"] = json!("Always");
        }
        container
    };
    for (inits, expected) in [
        (json!([]), "cpu 3100m"),
        (json!([container("setup", false, "2")]), "cpu 3100m"),
        (json!([container("setup", false, "5")]), "cpu 5100m"),
        (json!([container("setup", false, "2"), container("more", false, "4")]), "cpu 4100m"),
        (json!([container("setup", false, "4"), container("more", false, "2")]), "cpu 4100m"),
        (json!([container("proxy", true, "500m")]), "cpu 3600m"),
        (json!([container("proxy", true, "500m"), container("setup", false, "5")]), "cpu 5600m"),
        (json!([container("setup", false, "5"), container("proxy", true, "500m")]), "cpu 5100m"),
    ] {
        let object = json!({"spec": {
            "containers": [container("a", false, "1"), container("b", false, "2")],
            "initContainers": inits,
            "overhead": {"cpu": "100m"},
        }});
        let pod: Pod = serde_json::from_value(object).expect("valid pod");
        assert_eq!(text(&PodTotals::new(&pod, &[]).requests), expected, "{inits}");
    }
    let limited = pod(&["; cpu 1", "cpu 1; cpu 2"]);
    let demand = PodTotals::new(&limited, &[size(1, "cpu 3", "cpu 4")]);
    assert_eq!((text(&demand.requests), text(&demand.limits)), ("cpu 4".into(), "cpu 5".into()));
}

#[test]
fn a_quota_fits_or_reports_what_is_missing() {
    let pod = pod(&["cpu 1, memory 1Gi; cpu 2, memory 2Gi"]);
    let quota = |hard: &str, used: &str| Quota {
        name: "q".into(),
        hard: list(hard),
        used: list(used),
        scopes: Vec::new(),
    };
    let sizes = [size(0, "cpu 2", "cpu 4")];
    for (name, hard, used, change, expected) in [
        (
            "fits",
            "requests.cpu 10, limits.cpu 10",
            "requests.cpu 8, limits.cpu 6",
            PodOperation::Create,
            &[][..],
        ),
        (
            "is short",
            "cpu 10, limits.cpu 10",
            "cpu 9, limits.cpu 7",
            PodOperation::Create,
            &["cpu 2 1", "limits.cpu 4 3"],
        ),
        ("grows only", "requests.cpu 10", "requests.cpu 9", PodOperation::Resize, &[]),
        (
            "grows too far",
            "limits.cpu 10",
            "limits.cpu 9",
            PodOperation::Resize,
            &["limits.cpu 2 1"],
        ),
        ("stays", "memory 1Gi", "memory 3Gi", PodOperation::Resize, &[]),
        ("is another", "pods 1, requests.storage 1", "pods 1", PodOperation::Create, &[]),
    ] {
        let found = exceeded_quotas(&[quota(hard, used)], &pod, &sizes, change);
        let lines: Vec<String> = found
            .iter()
            .map(|exceeded| format!("{} {} {}", exceeded.resource, exceeded.wanted, exceeded.left))
            .collect();
        assert_eq!(lines, expected, "{name}");
    }
    assert_eq!(
        list("cpu 1").get(&ResourceName::Cpu).map(|amount| amount.to_string()).as_deref(),
        Some("1")
    );
}

#[test]
fn a_quota_counts_only_pods_in_its_scopes() {
    let with = |scopes: Vec<Scope>| Quota {
        name: "q".into(),
        hard: list("requests.cpu 1"),
        used: list("requests.cpu 0"),
        scopes,
    };
    let mut asks_for_nothing = pod(&[""]);
    asks_for_nothing.priority_class = Some("high".into());
    asks_for_nothing.has_deadline = true;
    let too_much = [size(0, "cpu 2", "")];
    for (scopes, counts) in [
        (vec![], true),
        (vec![Scope::BestEffort(true)], false),
        // The pod has requests once it is sized.
        (vec![Scope::BestEffort(false)], true),
        (vec![Scope::Terminating(true)], true),
        (vec![Scope::Terminating(false)], false),
        (vec![Scope::PriorityIn(vec!["high".into()])], true),
        (vec![Scope::PriorityNotIn(vec!["high".into()])], false),
        (vec![Scope::HasPriority(true), Scope::Terminating(true)], true),
        (vec![Scope::HasPriority(true), Scope::Terminating(false)], false),
        (vec![Scope::Unknown], false),
    ] {
        let quotas = [with(scopes)];
        let found = exceeded_quotas(&quotas, &asks_for_nothing, &too_much, PodOperation::Create);
        assert_eq!(!found.is_empty(), counts, "{:?}", quotas[0].scopes);
    }
}

#[test]
fn resources_are_rejected_for_a_quota_only_if_it_accepts_the_unchanged_pod() {
    let quota = |used: &str| Quota {
        name: "team".into(),
        hard: list("requests.cpu 4"),
        used: list(used),
        scopes: Vec::new(),
    };
    let pod = pod(&["cpu 1"]);
    let sizes = [size(0, "cpu 2", "")];
    let check = |used: &str| {
        ensure_quota(&[quota(used)], &pod, &sizes, PodOperation::Create)
            .map_err(|why| (why.into_str(), why.to_string()))
    };
    assert_eq!(check("requests.cpu 2"), Ok(()));
    let (name, why) = check("requests.cpu 3").expect_err("only 1 is left");
    assert_eq!(name, "quota_exceeded");
    assert_eq!(
        why,
        "ResourceQuota team would be exceeded: 2 more requests.cpu needed, 1 left: the pod is not changed"
    );
    // The pod is rejected either way, so leaving it unchanged gains nothing.
    assert_eq!(check("requests.cpu 4"), Ok(()));
}
