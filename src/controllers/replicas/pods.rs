//! The pods that a target's selector matches, with whether the target owns them.
//!
//! A pod is owned by the target if the target is anywhere in its owner chain, compared by uid. For a Deployment the
//! pod itself is enough: names of its ReplicaSets consist of its name and the pod template hash that the pods are
//! labelled with. For other kinds the owners in between are read, once per ReplicaSet and not per pod. Where they may
//! not be read, names decide, as in upstream.

use std::collections::HashMap;

use super::Workloads;
use crate::cluster::{
    cache::{
        replica_pod::{CachedPod, OwnerRef},
        selector::Selector,
    },
    target::scale::ScaleState,
};
use plimsoll_core::{api::scale_target::ScaleTarget, scaling::pod_readiness::is_owner_by_name};

/// The label that a Deployment's ReplicaSet sets on its pods, and that is part of its own name.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// How to determine whether a workload owns a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controllers) enum OwnershipRule {
    /// The selector of the scale decides alone.
    Selector,
    /// The owner's name decides, by upstream's rule.
    OwnerName,
    OwnerChain,
}

/// What a pod alone reveals about its ownership.
enum Ownership {
    Known(bool),
    ThroughOwners(Box<[OwnerRef]>),
}

/// Maps the pods that the scale's selector matches, with whether the target owns each.
pub(in crate::controllers) async fn matching_pods<P: CachedPod, R>(
    workloads: &Workloads<P>,
    namespace: &str,
    target: &ScaleTarget,
    scale: &ScaleState,
    rule: OwnershipRule,
    mut map: impl FnMut(&P) -> R,
) -> Vec<(R, bool)> {
    let selector = match &scale.selector {
        Ok(selector) => selector.clone(),
        // Upstream treats an empty selector as one that matches everything, and relies on owners.
        Err(_) => Selector::everything(),
    };
    // Without a uid only names are left.
    let by_name = rule == OwnershipRule::OwnerName || scale.uid.is_empty();
    let ownership_of = |pod: &P| {
        if rule == OwnershipRule::Selector {
            return Ownership::Known(true);
        }
        if by_name {
            return Ownership::Known(owner_name_matches(pod.owners(), &target.name));
        }
        classify(pod, &scale.uid, &target.kind, &target.name)
    };
    let matching = workloads.scopes.pods(namespace, &selector, |pod| (ownership_of(pod), map(pod)));
    // Results of lookups by UID: many pods share an owner.
    let mut looked_up: HashMap<Box<str>, bool> = HashMap::new();
    let mut pods = Vec::with_capacity(matching.len());
    for (ownership, pod) in matching {
        let mut owned_by_target = matches!(ownership, Ownership::Known(true));
        if let Ownership::ThroughOwners(owners) = ownership {
            for owner in owners {
                if let Some(is_owned) = looked_up.get(&owner.uid) {
                    owned_by_target |= is_owned;
                    continue;
                }
                let chains = &workloads.scales.owners;
                let in_chain = chains.contains(&scale.uid, namespace, &owner).await;
                let by_name = || is_owner_by_name(&owner.kind, &owner.name, &target.name);
                let is_owned = in_chain.unwrap_or_else(by_name);
                looked_up.insert(owner.uid, is_owned);
                owned_by_target |= is_owned;
            }
        }
        pods.push((pod, owned_by_target));
    }
    pods
}

fn owner_name_matches(owners: &[OwnerRef], target: &str) -> bool {
    owners.iter().any(|owner| is_owner_by_name(&owner.kind, &owner.name, target))
}

fn classify(pod: &impl CachedPod, uid: &str, kind: &str, name: &str) -> Ownership {
    let owners = pod.owners();
    if owners.is_empty() || owners.iter().any(|owner| *owner.uid == *uid) {
        return Ownership::Known(!owners.is_empty());
    }
    let is_replica_set =
        |owner: &OwnerRef| &*owner.kind == "ReplicaSet" && owner.api_version.starts_with("apps/");
    if kind == "Deployment"
        && owners.iter().all(is_replica_set)
        && let Some(hash) = pod.labels().get(POD_TEMPLATE_HASH)
    {
        let is_current_replica_set = |owner: &OwnerRef| {
            let rest = owner.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            rest == Some(hash)
        };
        if owners.iter().any(is_current_replica_set) {
            return Ownership::Known(true);
        }
    }
    Ownership::ThroughOwners(owners.into())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::cache::replica_pod::{PartialReplicaPod, ReplicaPod};

    fn pod(labels: &Value, owners: &Value) -> ReplicaPod {
        let metadata = json!({
            "name": "web-5d9c-abcde", "namespace": "shop", "labels": labels, "ownerReferences": owners,
        });
        let pod: PartialReplicaPod =
            serde_json::from_value(json!({"metadata": metadata})).expect("a pod");
        pod.into_replica_pod()
    }

    fn ownership(kind: &str, labels: &Value, owners: &Value) -> Option<bool> {
        match classify(&pod(labels, owners), "target", kind, "web") {
            Ownership::Known(is_own) => Some(is_own),
            Ownership::ThroughOwners(_) => None,
        }
    }

    #[test]
    fn labels_and_owners_tell_whether_a_pod_belongs_to_a_deployment() {
        let set = |name: &str| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "rs"}]);
        let hash = json!({"pod-template-hash": "5d9c"});
        for (kind, labels, owners, expected) in [
            ("Deployment", &hash, set("web-5d9c"), Some(true)),
            // A ReplicaSet that was adopted, one of a Deployment with the same prefix, and one of a Rollout of the
            // same name.
            ("Deployment", &hash, set("web-7777"), None),
            ("Deployment", &hash, set("web-api-5d9c"), None),
            ("Deployment", &json!({"rollouts-pod-template-hash": "5d9c"}), set("web-5d9c"), None),
            ("Deployment", &json!({}), set("web-5d9c"), None),
            ("Rollout", &hash, set("web-5d9c"), None),
            ("Deployment", &hash, json!([]), Some(false)),
        ] {
            assert_eq!(ownership(kind, labels, &owners), expected, "{kind} {labels} {owners}");
        }
        let direct = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "target"}]);
        assert_eq!(ownership("StatefulSet", &json!({}), &direct), Some(true));
        let other = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "before"}]);
        assert_eq!(ownership("StatefulSet", &json!({}), &other), None, "by name it would match");
    }
}
