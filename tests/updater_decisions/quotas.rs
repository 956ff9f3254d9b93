//! Evictions near a ResourceQuota: the replacement pod is created while the evicted one still counts.

use plimsoll_core::{
    sizing::quota::Quota,
    types::compat::Compat,
    updater::{SkipReason, replica_group::DesiredReplicas},
};

use super::{PassCase, pod, recommended, steps};
use crate::sizing::list;

/// Pods that request one CPU and have this target, in a namespace with a quota of 10 CPUs.
fn near_its_quota(used: &str, target: &str, owner: &str) -> PassCase {
    let mut case = PassCase::new(Compat::Plimsoll, "Recreate", 4);
    case.recommendation = Some(recommended(&[&format!("cpu {target}, memory 200M")]));
    case.pods = (0..4).map(|number| pod(number, &["cpu 1, memory 200M"])).collect();
    for pod in &mut case.pods {
        if let Some(reference) = &mut pod.status.owner {
            reference.kind = owner.into();
        }
    }
    case.wanted = DesiredReplicas::Known(4);
    let amounts = |cpu: &str| list(&format!("requests.cpu {cpu}"));
    let quota =
        Quota { name: "all".into(), hard: amounts("10"), used: amounts(used), scopes: Vec::new() };
    case.quotas = vec![quota];
    case
}

fn is_held(case: &PassCase) -> bool {
    matches!(case.skip_reasons(), Some(SkipReason::QuotaExceeded(_)))
}

#[test]
fn a_pod_is_not_evicted_if_the_quota_leaves_its_replacement_unsized() {
    assert!(is_held(&near_its_quota("9", "1500m", "ReplicaSet")), "1 is left: fits 1, not 1.5");
    assert!(is_held(&near_its_quota("9", "1500m", "Job")));
    assert!(!is_held(&near_its_quota("9", "1500m", "StatefulSet")), "its old pod is gone by then");
    assert!(!is_held(&near_its_quota("8500m", "1500m", "ReplicaSet")), "the quota fits both");
    assert!(!is_held(&near_its_quota("9", "800m", "ReplicaSet")), "a smaller pod fits");
    assert!(!is_held(&near_its_quota("9400m", "1500m", "ReplicaSet")), "it is refused until then");
    assert!(is_held(&near_its_quota("9600m", "1500m", "ReplicaSet")), "not even afterwards");
    assert!(!is_held(&near_its_quota("10", "800m", "ReplicaSet")), "a full namespace can shrink");
}

#[test]
fn a_resize_needs_quota_only_for_the_difference() {
    let mut case = near_its_quota("9", "1500m", "ReplicaSet");
    case.spec = super::spec("InPlaceOrRecreate");
    let decision = case.decide();
    assert!(steps(&decision, "resize") > 0, "{:?}", decision.pod_outcomes);
    assert_eq!(steps(&decision, "evict"), 0);
    case.can_resize = false;
    assert!(is_held(&case), "only an eviction is left");
}

#[test]
fn a_second_replica_is_not_started_beyond_a_quota() {
    let mut case = near_its_quota("9", "1500m", "ReplicaSet");
    case.pods.truncate(1);
    case.wanted = DesiredReplicas::Known(1);
    case.settings.guards.surge = true;
    assert!(is_held(&case));
    case.quotas.clear();
    assert_eq!(case.decide().steps[0].0.action.into_str(), "surge");
}
