//! Compares the reduced set of owners with a complete one.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn owner(text: &str) -> OwnerRef {
    OwnerRef::parse(text).expect("an owner")
}

#[test]
fn owner_series_take_precedence_over_names() {
    let mut proof = OwnerSeries::default();
    let (web, other) = (owner("Deployment/web"), owner("DaemonSet/web-bcdf4"));
    for (pod, parent) in [
        ("web-7d5f9c4b6d-x2x4z", "ReplicaSet/web-7d5f9c4b6d"),
        ("web-5d4f9c4b6d-x2x4z", "ReplicaSet/web-5d4f9c4b6d"),
        ("web-bcdf4-x2x4z", "DaemonSet/web-bcdf4"),
        ("web-odd", "ReplicaSet/web-7d5f9c4b6d"),
    ] {
        proof.pods.insert(pod.into(), vec![owner(parent)]);
    }
    proof.add_intermediate(&[&web], owner("ReplicaSet/web-7d5f9c4b6d"), Some(web.clone()));
    assert_eq!(proof.is_owned_by("web-7d5f9c4b6d-x2x4z", &web), Some(true));
    assert_eq!(proof.is_owned_by("web-5d4f9c4b6d-x2x4z", &web), Some(true), "by the set's name");
    assert!(web.matches("web-bcdf4-x2x4z"));
    assert_eq!(proof.is_owned_by("web-bcdf4-x2x4z", &web), Some(false), "it has another owner");
    assert_eq!(proof.is_owned_by("web-bcdf4-x2x4z", &other), Some(true));
    assert_eq!(
        proof.is_owned_by("web-odd", &web),
        Some(true),
        "although its name does not indicate it"
    );
    assert!(proof.has_unexpected_pod_names(&web));
    assert_eq!(proof.is_owned_by("web-77777-bbbbb", &web), None);
    let rollout = owner("Rollout/web");
    proof.add_intermediate(&[&rollout], owner("ReplicaSet/web-7d5f9c4b6d"), Some(web.clone()));
    assert_eq!(proof.is_owned_by("web-7d5f9c4b6d-x2x4z", &rollout), Some(false));
    let thing = owner("Thing/web");
    assert_eq!(proof.is_owned_by("web-7d5f9c4b6d-x2x4z", &thing), None, "unknown");
    proof.add_intermediate(&[&web], owner("ReplicaSet/web-5d4f9c4b6d"), None);
    assert_eq!(proof.is_owned_by("web-5d4f9c4b6d-x2x4z", &web), Some(false), "it has no owner");
}

#[test]
fn owners_that_follow_from_names_are_not_stored() {
    let owners = ["CronJob/night", "StatefulSet/db", "Deployment/web"].map(owner);
    let owners: Vec<&OwnerRef> = owners.iter().collect();
    let mut proof = OwnerSeries::default();
    for number in 0..1000 {
        let (job, set) = (format!("night-{}", 28_000_000 + number), "web-7d5f9c4b6d");
        let of = |kind: &str, name: &str| owner(&format!("{kind}/{name}"));
        proof.add_pod(&owners, &format!("{job}-x2x4z"), of("Job", &job));
        proof.add_intermediate(&owners, of("Job", &job), Some(owners[0].clone()));
        proof.add_pod(&owners, &format!("db-{number}"), of("StatefulSet", "db"));
        proof.add_pod(&owners, &format!("{set}-x2x4z"), of("ReplicaSet", set));
        // Pods of other workloads, as their names indicate.
        proof.add_pod(&owners, &format!("web-api-{number}"), of("StatefulSet", "web-api"));
        proof.add_pod(&owners, "web-api-7d5f9c4b6d-x2x4z", of("ReplicaSet", "web-api-7d5f9c4b6d"));
    }
    assert_eq!(
        (proof.size_in_points, proof.pods(), proof.has_intermediate),
        (0, 5000, [true, true])
    );
    // Owners that contradict the names are kept.
    proof.add_intermediate(&owners, owner("Job/night-28000007"), Some(owner("CronJob/other")));
    proof.add_pod(&owners, "web-5d4f9-x2x4z", owner("DaemonSet/web-5d4f9"));
    assert!(proof.size_in_points > 0);
    let claim =
        |pod: &str| workload_of(owners.iter().copied(), proof.timeline_of(pod).as_ref(), pod);
    let claims = ["night-28000006-x2x4z", "night-28000007-x2x4z", "db-7", "web-5d4f9-x2x4z"];
    assert_eq!(claims.map(claim), [Some(0), None, Some(1), None]);
}

const CLAIMS: [&str; 9] = [
    "Deployment/web",
    "Deployment/web-api",
    "Rollout/web",
    "ReplicaSet/web-7d5f9c4b6d",
    "StatefulSet/db",
    "CronJob/night",
    "Job/night-manual-1",
    "DaemonSet/log",
    "Thing/web",
];
const PARENTS: [&str; 12] = [
    "ReplicaSet/web-7d5f9c4b6d",
    "ReplicaSet/web-5d4f9c4b6d",
    "ReplicaSet/web-api-7d5f9c4b6d",
    "ReplicaSet/web-odd",
    "Job/night-28901234",
    "Job/night-manual-1",
    "StatefulSet/db",
    "StatefulSet/web",
    "DaemonSet/log",
    "DaemonSet/web-bcdf4",
    "CloneSet/web",
    "Thing/web",
];
/// Possible controllers of an intermediate owner; the empty one is none.
const MAKERS: [&str; 5] = ["Deployment/web", "Rollout/web", "CronJob/night", "CronJob/other", ""];

/// The name of a pod, as its parent would generate it or not.
fn pod(parent: &OwnerRef, number: usize) -> String {
    match number {
        0..4 => format!("{}-x2x4{}", parent.name, ["z", "b", "c", "d"][number]),
        4..6 => format!("{}-{number}", parent.name),
        _ => format!("odd-{number}"),
    }
}

proptest! {
    /// Each pod is assigned to the same workload as if all owners were kept.
    #[test]
    fn dropped_owners_would_not_change_the_workload_of_any_pod(
        claims in prop::sample::subsequence(CLAIMS.to_vec(), 1..=CLAIMS.len()),
        pods in prop::collection::vec((prop::sample::select(&PARENTS[..]), 0_usize..8), 1..20),
        makers in prop::collection::vec(prop::sample::select(&MAKERS[..]), PARENTS.len()),
    ) {
        let claims: Vec<OwnerRef> = claims.into_iter().map(owner).collect();
        let claims: Vec<&OwnerRef> = claims.iter().collect();
        let (mut reduced, mut complete) = (OwnerSeries::default(), OwnerSeries::default());
        let mut parents = BTreeMap::new();
        for (parent, number) in pods {
            let parent = owner(parent);
            // Each pod name is used once.
            parents.entry(pod(&parent, number)).or_insert(parent);
        }
        for (pod, parent) in &parents {
            reduced.add_pod(&claims, pod, parent.clone());
            complete.pods.insert(pod.as_str().into(), vec![parent.clone()]);
        }
        for (parent, maker) in PARENTS.iter().zip(makers) {
            let (object, controller) = (owner(parent), OwnerRef::parse(maker));
            if matches!(&*object.kind, "ReplicaSet" | "Job") {
                reduced.add_intermediate(&claims, object.clone(), controller.clone());
                complete.intermediate.entry(object.name.clone()).or_default().push(IntermediateOwner { object, controller });
            }
        }
        for pod in parents.keys() {
            let of = |proof: &OwnerSeries| {
                workload_of(claims.iter().copied(), proof.timeline_of(pod).as_ref(), pod)
            };
            prop_assert_eq!(of(&reduced), of(&complete), "{}", pod);
        }
        for claim in &claims {
            let is_found = reduced.has_unexpected_pod_names(claim);
            prop_assert!(is_found || !complete.has_unexpected_pod_names(claim), "pods of {} are not queried", claim);
        }
    }
}
