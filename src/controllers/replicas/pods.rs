//! The pods of a target: those that its selector finds, with whether they are its own.
//!
//! A pod is its target's own when the target stands at any place above it, by uid. Of a Deployment that is told by the pod
//! alone: its ReplicaSets are called after it and after the hash that their pods carry. Of all others the owners on the way
//! are asked for, once for each ReplicaSet and not for each pod; where they may not be read, names tell, as upstream has it.

use super::Workloads;
use crate::cluster::{
    cache::{
        replica_pod::{OwnerRef, ReplicaPod},
        selector::Selector,
    },
    target::scale::{ScaleClient, ScaleState},
};
use plimsoll_core::{
    api::scale_target::ScaleTarget,
    scaling::{Pod, pod_readiness::is_owner_by_name},
};

/// What a Deployment's ReplicaSet calls its pods and itself after.
const POD_TEMPLATE_HASH: &str = "pod-template-hash";

/// How it is told whether a pod is a workload's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::controllers) enum OwnershipRule {
    /// The selector of the scale is trusted alone.
    Selector,
    /// An owner's name tells, by upstream's rule.
    OwnerName,
    /// What stands above it tells.
    OwnerChain,
}

/// What can be told of a pod by itself.
enum Ownership {
    Known(bool),
    /// It hangs on what stands above these.
    ThroughOwners(Box<[OwnerRef]>),
}

impl Workloads {
    /// The pods that the scale's selector finds, with whose they are.
    pub(in crate::controllers) async fn matching_pods(
        &self,
        namespace: &str,
        target: &ScaleTarget,
        told: &ScaleState,
        belonging: OwnershipRule,
    ) -> Vec<Pod> {
        let selector = match &told.selector {
            Ok(selector) => selector.clone(),
            // Upstream takes a selector of nothing for one of everything, and asks owners who is meant.
            Err(_) => Selector::everything(),
        };
        // A scale that does not say whose it is leaves only names.
        let by_name = belonging == OwnershipRule::OwnerName || told.uid.is_empty();
        let own = |pod: &ReplicaPod| {
            if belonging == OwnershipRule::Selector {
                return Ownership::Known(true);
            }
            if by_name {
                return Ownership::Known(owner_name_matches(&pod.owners, &target.name));
            }
            classify(pod, &told.uid, &target.kind, &target.name)
        };
        let found = self.scopes.pods(namespace, &selector, |pod| (own(pod), pod.pod.clone()));
        let mut asked =
            OwnerLookups { target_name: &target.name, target_uid: &told.uid, results: Vec::new() };
        let mut pods = Vec::with_capacity(found.len());
        for (own, pod) in found {
            let is_own = match own {
                Ownership::Known(is_own) => is_own,
                Ownership::ThroughOwners(owners) => {
                    let mut is_own = false;
                    for owner in owners {
                        is_own |= asked.is_owned_by_target(&self.scales, namespace, owner).await;
                    }
                    is_own
                }
            };
            pods.push(Pod { owned_by_target: is_own, ..pod });
        }
        pods
    }
}

/// Owners that were asked about in this look: many pods have the same one.
struct OwnerLookups<'a> {
    target_name: &'a str,
    target_uid: &'a str,
    results: Vec<(Box<str>, bool)>,
}

impl OwnerLookups<'_> {
    async fn is_owned_by_target(
        &mut self,
        scales: &ScaleClient,
        namespace: &str,
        owner: OwnerRef,
    ) -> bool {
        if let Some((_, answer)) = self.results.iter().find(|(known, _)| *known == owner.uid) {
            return *answer;
        }
        let above = scales.is_in_owner_chain(self.target_uid, namespace, &owner).await;
        let answer =
            above.unwrap_or_else(|| is_owner_by_name(&owner.kind, &owner.name, self.target_name));
        self.results.push((owner.uid, answer));
        answer
    }
}

fn owner_name_matches(owners: &[OwnerRef], target: &str) -> bool {
    owners.iter().any(|owner| is_owner_by_name(&owner.kind, &owner.name, target))
}

fn classify(pod: &ReplicaPod, uid: &str, kind: &str, name: &str) -> Ownership {
    if pod.owners.is_empty() || pod.owners.iter().any(|owner| *owner.uid == *uid) {
        return Ownership::Known(!pod.owners.is_empty());
    }
    let is_replica_set =
        |owner: &OwnerRef| &*owner.kind == "ReplicaSet" && owner.api_version.starts_with("apps/");
    if kind == "Deployment"
        && pod.owners.iter().all(is_replica_set)
        && let Some(hash) = pod.labels.get(POD_TEMPLATE_HASH)
    {
        let is_it = |owner: &OwnerRef| {
            let rest = owner.name.strip_prefix(name).and_then(|rest| rest.strip_prefix('-'));
            rest == Some(hash)
        };
        if pod.owners.iter().any(is_it) {
            return Ownership::Known(true);
        }
    }
    Ownership::ThroughOwners(pod.owners.clone())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cluster::cache::replica_pod::PartialReplicaPod;

    fn pod(labels: &Value, owners: &Value) -> ReplicaPod {
        let metadata = json!({
            "name": "web-5d9c-abcde", "namespace": "shop", "labels": labels, "ownerReferences": owners,
        });
        let pod: PartialReplicaPod =
            serde_json::from_value(json!({"metadata": metadata})).expect("a pod");
        pod.into_replica_pod()
    }

    fn told(kind: &str, labels: &Value, owners: &Value) -> Option<bool> {
        match classify(&pod(labels, owners), "target", kind, "web") {
            Ownership::Known(is_own) => Some(is_own),
            Ownership::ThroughOwners(_) => None,
        }
    }

    #[test]
    fn a_pod_tells_itself_whether_it_is_of_a_deployment() {
        let set = |name: &str| json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "rs"}]);
        let hash = json!({"pod-template-hash": "5d9c"});
        for (kind, labels, owners, expected) in [
            ("Deployment", &hash, set("web-5d9c"), Some(true)),
            // Taken over from somebody else, of a Deployment whose name begins the same, and of a Rollout of the same name.
            ("Deployment", &hash, set("web-7777"), None),
            ("Deployment", &hash, set("web-api-5d9c"), None),
            ("Deployment", &json!({"rollouts-pod-template-hash": "5d9c"}), set("web-5d9c"), None),
            ("Deployment", &json!({}), set("web-5d9c"), None),
            ("Rollout", &hash, set("web-5d9c"), None),
            ("Deployment", &hash, json!([]), Some(false)),
        ] {
            assert_eq!(told(kind, labels, &owners), expected, "{kind} {labels} {owners}");
        }
        let direct = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "target"}]);
        assert_eq!(told("StatefulSet", &json!({}), &direct), Some(true));
        let other = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web", "uid": "before"}]);
        assert_eq!(told("StatefulSet", &json!({}), &other), None, "by name it would be");
    }
}
