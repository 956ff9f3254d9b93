//! Matches pods to VPAs: a pod belongs to the VPA whose targetRef names its topmost controller; if several do, the oldest
//! VPA wins.

use std::{
    collections::{HashMap, HashSet, hash_map},
    sync::Arc,
};

use kube::ResourceExt as _;

use super::owner_lookups::PassLookups;
use crate::{
    cluster::{
        cache::{
            controllers::{Owner, WellKnown},
            selector::Selector,
            updater_pod::UpdaterPod,
        },
        target::{TargetResolution, TargetResolver, TopOwner, scale::ObjectReference},
    },
    telemetry::UpdatedVpa,
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    types::ObjectKey,
    updater::{self, DesiredReplicas},
    vpa_match,
};

/// VPAs and pods to process before yielding to other tasks of the thread.
const YIELD_EVERY: usize = 256;

/// A VPA with its pods.
#[derive(Debug)]
pub(crate) struct Workload {
    pub vpa: Arc<VerticalPodAutoscaler>,
    pub key: ObjectKey,
    /// The topmost controller.
    pub target: Target,
    /// Live pods, without those that are terminating.
    pub pods: Vec<Arc<UpdaterPod>>,
    pub desired_replicas: HashMap<updater::PodOwner, DesiredReplicas>,
}

impl Workload {
    /// The workload of a VPA, without pods yet.
    pub fn new(vpa: Arc<VerticalPodAutoscaler>) -> Self {
        let (key, target) = (vpa_key(&vpa), &vpa.spec.target_ref);
        let target = (target.kind.as_str().into(), target.name.as_str().into());
        Self { vpa, key, target, pods: Vec::new(), desired_replicas: HashMap::new() }
    }

    pub fn metric_labels(&self) -> UpdatedVpa<'_> {
        let mode = self.vpa.spec.update_mode().into_str();
        UpdatedVpa { vpa: &self.key, mode, pods: self.pods.len() }
    }

    pub fn desired_replicas_of(&self, owner: &updater::PodOwner) -> DesiredReplicas {
        self.desired_replicas.get(owner).copied().unwrap_or(DesiredReplicas::Unknown)
    }
}

/// VPAs with their pods.
#[derive(Debug, Default)]
pub(crate) struct MatchedWorkloads {
    /// Sorted by namespace and name, including VPAs without pods.
    pub workloads: Vec<Workload>,
    /// VPAs whose target is temporarily unreadable.
    pub unavailable: HashSet<ObjectKey>,
}

/// A VPA whose target was resolved.
struct Candidate {
    workload_index: usize,
    selector: Selector,
}

/// Kind and name of a controller.
pub(crate) type Target = (Box<str>, Box<str>);

type Candidates = HashMap<Box<str>, HashMap<Target, Vec<Candidate>>>;

/// Matches pods to VPAs, with lookups of their owners.
pub(crate) struct WorkloadMatcher<'a> {
    targets: &'a TargetResolver,
    lookups: PassLookups<'a>,
}

impl<'a> WorkloadMatcher<'a> {
    /// A matcher that looks owners up once.
    pub fn new(targets: &'a TargetResolver, lookups: PassLookups<'a>) -> Self {
        Self { targets, lookups }
    }

    /// The workloads of these VPAs. `pods` returns the running pods of a namespace, sorted by name.
    pub async fn match_pods(
        mut self,
        vpas: Vec<Arc<VerticalPodAutoscaler>>,
        pods: impl Fn(&str) -> Vec<Arc<UpdaterPod>>,
    ) -> MatchedWorkloads {
        let outcomes = self.resolve_targets(&vpas).await;
        let (mut matched, mut candidates) = (MatchedWorkloads::default(), Candidates::new());
        for (vpa, outcome) in vpas.into_iter().zip(outcomes) {
            let workload = Workload::new(vpa);
            match outcome {
                Some(TargetResolution::Found { selector, .. }) => {
                    let namespace = (*workload.key.namespace).into();
                    let of_namespace = candidates.entry(namespace).or_default();
                    let workload_index = matched.workloads.len();
                    let candidate = Candidate { workload_index, selector };
                    of_namespace.entry(workload.target.clone()).or_default().push(candidate);
                    matched.workloads.push(workload);
                }
                Some(TargetResolution::Unsupported { message }) => {
                    Self::log_unresolved_target(&workload.key, &message);
                }
                Some(TargetResolution::Unavailable { message }) => {
                    Self::log_unresolved_target(&workload.key, &message);
                    matched.unavailable.insert(workload.key);
                }
                None => {
                    let message = "request to the API server timed out";
                    Self::log_unresolved_target(&workload.key, message);
                    matched.unavailable.insert(workload.key);
                }
            }
        }
        self.assign_pods(&mut matched.workloads, &candidates, pods).await;
        matched
    }

    fn log_unresolved_target(key: &ObjectKey, message: &str) {
        let ObjectKey { namespace, name } = key;
        tracing::debug!(%namespace, %name, message, "failed to resolve targetRef of VPA");
    }

    /// Resolves the targets of these VPAs. The result is `None` if the API server does not respond in time.
    async fn resolve_targets(
        &mut self,
        vpas: &[Arc<VerticalPodAutoscaler>],
    ) -> Vec<Option<TargetResolution>> {
        let targets = self.targets;
        let resolve = |index: usize| async move {
            let vpa = &vpas[index];
            let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
            (index, targets.resolve(namespace, &vpa.spec.target_ref).await)
        };
        let (mut outcomes, mut requests) = (vec![None; vpas.len()], Vec::new());
        for (index, vpa) in vpas.iter().enumerate() {
            yield_periodically(index).await;
            let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
            match targets.resolve_known(namespace, &vpa.spec.target_ref) {
                Ok(outcome) => outcomes[index] = Some(outcome),
                Err(object) => requests.push((object, index)),
            }
        }
        for (index, outcome) in self.lookups.run_all(requests, resolve).await {
            outcomes[index] = Some(outcome);
        }
        outcomes
    }

    async fn assign_pods(
        &mut self,
        workloads: &mut [Workload],
        candidates: &Candidates,
        pods_in: impl Fn(&str) -> Vec<Arc<UpdaterPod>>,
    ) {
        let mut pods: Vec<(ObjectReference, Arc<UpdaterPod>)> = Vec::new();
        let mut namespaces: Vec<&str> = candidates.keys().map(|namespace| &**namespace).collect();
        namespaces.sort_unstable();
        for namespace in namespaces {
            let live = pods_in(namespace).into_iter().filter(|pod| !pod.is_terminating());
            pods.extend(live.filter_map(|pod| Some((owner_of(namespace, &pod)?, pod))));
        }
        let tops = self.top_owners(pods.iter().map(|(owner, _)| owner)).await;
        let mut owners: HashMap<ObjectReference, Vec<(usize, updater::PodOwner)>> = HashMap::new();
        for (count, (owner, pod)) in pods.into_iter().enumerate() {
            yield_periodically(count).await;
            let Some(Some(top)) = tops.get(&owner) else { continue };
            let found = candidates.get(&owner.namespace).and_then(|targets| targets.get(top));
            let matching =
                found.into_iter().flatten().filter(|one| one.selector.matches(&pod.labels));
            let matching = matching.map(|candidate| candidate.workload_index);
            let selected = vpa_match::select(matching, |index| &*workloads[*index].vpa);
            let Some(index) = selected else { continue };
            if let Some(direct) = &pod.status.owner {
                let of_owner = owners.entry(owner).or_default();
                if !of_owner.iter().any(|(known, name)| *known == index && name == direct) {
                    of_owner.push((index, direct.clone()));
                }
            }
            workloads[index].pods.push(pod);
        }
        let replicas = self.desired_replicas(owners.keys()).await;
        for (owner, indices) in owners {
            let Some(replicas) = replicas.get(&owner) else { continue };
            for (index, direct) in indices {
                workloads[index].desired_replicas.insert(direct, *replicas);
            }
        }
    }

    async fn top_owners(
        &mut self,
        owners: impl Iterator<Item = &ObjectReference>,
    ) -> HashMap<ObjectReference, Option<Target>> {
        let targets = self.targets;
        let (mut tops, mut requests) = (HashMap::new(), Vec::new());
        for (count, owner) in owners.enumerate() {
            yield_periodically(count).await;
            let hash_map::Entry::Vacant(top) = tops.entry(owner.clone()) else { continue };
            match targets.unresolved_scale_above(owner) {
                // Unknown until the lookup returns.
                Some(object) if &*owner.kind != "Node" => {
                    top.insert(None);
                    requests.push((object, owner.clone()));
                }
                _ => {
                    top.insert(top_owner(targets, owner).await);
                }
            }
        }
        let resolve =
            |owner: ObjectReference| async move { (top_owner(targets, &owner).await, owner) };
        for (top, owner) in self.lookups.run_all(requests, resolve).await {
            tops.insert(owner, top);
        }
        tops
    }

    async fn desired_replicas(
        &mut self,
        owners: impl Iterator<Item = &ObjectReference>,
    ) -> HashMap<ObjectReference, DesiredReplicas> {
        let targets = self.targets;
        let (mut replicas, mut requests) = (HashMap::new(), Vec::new());
        for owner in owners {
            if WellKnown::from_kind(&owner.kind).is_some() {
                replicas.insert(owner.clone(), targets.desired_replicas(owner).await);
            } else {
                requests.push((owner.clone(), owner.clone()));
            }
        }
        let fetch =
            |owner: ObjectReference| async move { (targets.desired_replicas(&owner).await, owner) };
        for (count, owner) in self.lookups.run_all(requests, fetch).await {
            replicas.insert(owner, count);
        }
        replicas
    }
}

/// Cached lookups never wait, so the loop has to yield to other tasks explicitly.
async fn yield_periodically(count: usize) {
    if count % YIELD_EVERY == YIELD_EVERY - 1 {
        tokio::task::yield_now().await;
    }
}

/// The topmost controller above an owner; `None` if there is none or it cannot be resolved.
pub(crate) async fn top_owner(targets: &TargetResolver, owner: &ObjectReference) -> Option<Target> {
    // Nodes own their mirror pods, which have no scalable controller.
    if &*owner.kind == "Node" {
        return None;
    }
    match targets.topmost(owner).await {
        TopOwner::Found(top) => Some((top.kind, top.name)),
        TopOwner::None => None,
        TopOwner::Invalid(why) | TopOwner::Unavailable(why) => {
            let ObjectReference { namespace, kind, name, .. } = owner;
            tracing::debug!(%namespace, %kind, %name, %why, "failed to resolve the controller of a pod");
            None
        }
    }
}

pub(super) fn vpa_key(vpa: &VerticalPodAutoscaler) -> ObjectKey {
    ObjectKey { namespace: vpa.namespace().unwrap_or_default().into(), name: vpa.name_any().into() }
}

pub(crate) fn owner_of(namespace: &str, pod: &UpdaterPod) -> Option<ObjectReference> {
    let references = pod.metadata.owner_references.as_deref()?;
    // If there are several owners, the last one counts, as in upstream.
    let last = references.last().map(std::slice::from_ref)?;
    Some(ObjectReference::from_owner(namespace, Owner::controller_of(last)?))
}
