//! Quotas, and what a pod asks for as a whole.

use plimsoll::{
    api::ResourceName,
    fit::{
        Place, Pod, Size,
        demand::Demand,
        quota::{Change, Quota, excesses},
    },
};
use serde_json::json;

use super::{list, pod, text};

fn size(index: usize, requests: &str, limits: &str) -> Size {
    Size { requests: list(requests), limits: list(limits), ..Size::none(Place::Main(index)) }
}

#[test]
fn a_pod_asks_for_what_runs_together_or_for_what_it_takes_to_start() {
    let container = |name: &str, stays: bool, cpu: &str| {
        let mut one = json!({"name": name, "resources": {"requests": {"cpu": cpu}}});
        if stays {
            one["restartPolicy"] = json!("Always");
        }
        one
    };
    for (inits, expected) in [
        (json!([]), "cpu 3100m"),
        (json!([container("setup", false, "2")]), "cpu 3100m"),
        (json!([container("setup", false, "5")]), "cpu 5100m"),
        (json!([container("proxy", true, "500m")]), "cpu 3600m"),
        (json!([container("proxy", true, "500m"), container("setup", false, "5")]), "cpu 5600m"),
        (json!([container("setup", false, "5"), container("proxy", true, "500m")]), "cpu 5100m"),
    ] {
        let object = json!({"spec": {
            "containers": [container("a", false, "1"), container("b", false, "2")],
            "initContainers": inits,
            "overhead": {"cpu": "100m"},
        }});
        let pod: Pod = serde_json::from_value(object).expect("a pod");
        assert_eq!(text(&Demand::of(&pod, &[]).requests), expected, "{inits}");
    }
    let limited = pod(&["; cpu 1", "cpu 1; cpu 2"]);
    let demand = Demand::of(&limited, &[size(1, "cpu 3", "cpu 4")]);
    assert_eq!((text(&demand.requests), text(&demand.limits)), ("cpu 4".into(), "cpu 5".into()));
}

#[test]
fn a_quota_has_room_or_says_what_is_missing() {
    let pod = pod(&["cpu 1, memory 1Gi; cpu 2, memory 2Gi"]);
    let quota =
        |hard: &str, used: &str| Quota { name: "q".into(), hard: list(hard), used: list(used) };
    let sizes = [size(0, "cpu 2", "cpu 4")];
    for (what, hard, used, change, expected) in [
        (
            "fits",
            "requests.cpu 10, limits.cpu 10",
            "requests.cpu 8, limits.cpu 6",
            Change::Creation,
            &[][..],
        ),
        (
            "is short",
            "cpu 10, limits.cpu 10",
            "cpu 9, limits.cpu 7",
            Change::Creation,
            &["cpu 2 1", "limits.cpu 4 3"],
        ),
        ("grows only", "requests.cpu 10", "requests.cpu 9", Change::Resize, &[]),
        ("grows too far", "limits.cpu 10", "limits.cpu 9", Change::Resize, &["limits.cpu 2 1"]),
        ("stays", "memory 1Gi", "memory 3Gi", Change::Resize, &[]),
        ("is another", "pods 1, requests.storage 1", "pods 1", Change::Creation, &[]),
    ] {
        let found = excesses(&[quota(hard, used)], &pod, &sizes, change);
        let lines: Vec<String> =
            found.iter().map(|it| format!("{} {} {}", it.resource, it.wanted, it.left)).collect();
        assert_eq!(lines, expected, "{what}");
    }
    assert_eq!(
        list("cpu 1").get(&ResourceName::Cpu).map(|it| it.to_string()).as_deref(),
        Some("1")
    );
}
