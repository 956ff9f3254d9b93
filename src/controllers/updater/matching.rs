//! Which pods belong to which VPA: each pod to the one that names its topmost controller, the older one of several.

use std::{
    collections::{HashMap, HashSet, hash_map},
    sync::Arc,
};

use kube::ResourceExt as _;
use plimsoll_core::types::ObjectKey;

use super::{Updater, owner_lookups::PassLookups};
use crate::cluster::{
    cache::{
        controllers::{Owner, WellKnown},
        selector::Selector,
        updater_pod::UpdaterPod,
    },
    target::{TargetResolution, TopOwner, scale::ObjectReference},
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    updater::{self, DesiredReplicas},
    vpa_match,
};

/// VPAs and pods that are looked at before other tasks of the thread have their turn.
const YIELD_EVERY: usize = 256;

/// A VPA with its pods.
#[derive(Debug)]
pub(super) struct Workload {
    /// The VPA.
    pub vpa: Arc<VerticalPodAutoscaler>,
    /// Its key.
    pub key: ObjectKey,
    /// Its topmost controller: kind and name.
    pub target: (Box<str>, Box<str>),
    /// Its live pods, those that are being deleted left out.
    pub pods: Vec<Arc<UpdaterPod>>,
    /// How many pods their owners are to have.
    pub desired_replicas: HashMap<updater::PodOwner, DesiredReplicas>,
}

/// All VPAs that count, with their pods.
#[derive(Debug, Default)]
pub(super) struct MatchedWorkloads {
    /// In order of namespace and name. VPAs without pods are among them.
    pub workloads: Vec<Workload>,
    /// VPAs whose target cannot be read at the moment.
    pub unavailable: HashSet<ObjectKey>,
}

/// A VPA whose target was found.
struct Candidate {
    /// Its place among the workloads.
    workload_index: usize,
    selector: Selector,
}

/// Kind and name.
pub(super) type Target = (Box<str>, Box<str>);

/// VPAs by namespace and target.
type Candidates = HashMap<Box<str>, HashMap<Target, Vec<Candidate>>>;

impl Updater {
    /// All VPAs with their pods. Whatever the API server does not answer in time is left out.
    pub(super) async fn workloads(&self) -> MatchedWorkloads {
        let mut namespaces = self.stores.namespaces();
        namespaces.retain(|namespace| self.config.scope.includes(namespace));
        let mut questions = self.owner_lookups.start_pass(Some(&self.loop_watchdog));
        self.match_workloads(&namespaces, |vpa| self.is_active(vpa), &mut questions).await
    }

    /// Those of one namespace whose pods have a boost. Upstream asks all its VPAs, whatever their mode.
    pub(super) async fn boosted_workloads(&self, namespace: &str) -> Vec<Workload> {
        let mut questions = self.boost_owner_lookups.start_pass(None);
        let mut found =
            self.match_workloads(&[namespace.into()], |_| true, &mut questions).await.workloads;
        found.retain(|workload| workload.pods.iter().any(|pod| pod.is_boosted()));
        found
    }

    async fn match_workloads(
        &self,
        namespaces: &[Box<str>],
        counts: impl Fn(&VerticalPodAutoscaler) -> bool,
        questions: &mut PassLookups<'_>,
    ) -> MatchedWorkloads {
        let mut vpas: Vec<Arc<VerticalPodAutoscaler>> = Vec::new();
        for namespace in namespaces {
            vpas.extend(self.stores.vpas(namespace).into_iter().filter(|vpa| counts(vpa)));
        }
        let outcomes = self.resolve_targets(&vpas, questions).await;
        let (mut found, mut candidates) = (MatchedWorkloads::default(), Candidates::new());
        for (vpa, outcome) in vpas.into_iter().zip(outcomes) {
            let (key, target) = (vpa_key(&vpa), &vpa.spec.target_ref);
            match outcome {
                Some(TargetResolution::Found { selector, .. }) => {
                    let target: Target = (target.kind.as_str().into(), target.name.as_str().into());
                    let of_namespace = candidates.entry((*key.namespace).into()).or_default();
                    let place = found.workloads.len();
                    let candidate = Candidate { workload_index: place, selector };
                    of_namespace.entry(target.clone()).or_default().push(candidate);
                    let (pods, wanted) = (Vec::new(), HashMap::new());
                    found.workloads.push(Workload {
                        vpa,
                        key,
                        target,
                        pods,
                        desired_replicas: wanted,
                    });
                }
                Some(TargetResolution::Unsupported { message }) => {
                    Self::log_unresolved_target(&key, &message);
                }
                Some(TargetResolution::Unavailable { message }) => {
                    Self::log_unresolved_target(&key, &message);
                    found.unavailable.insert(key);
                }
                None => {
                    Self::log_unresolved_target(&key, "the API server did not answer in time");
                    found.unavailable.insert(key);
                }
            }
        }
        self.assign_pods(&mut found.workloads, &candidates, questions).await;
        found
    }

    fn log_unresolved_target(key: &ObjectKey, message: &str) {
        let ObjectKey { namespace, name } = key;
        tracing::debug!(%namespace, %name, message, "the target of a VPA cannot be followed");
    }

    /// Where the targets of these VPAs lead; nothing of those of which the API server told nothing in time.
    async fn resolve_targets(
        &self,
        vpas: &[Arc<VerticalPodAutoscaler>],
        questions: &mut PassLookups<'_>,
    ) -> Vec<Option<TargetResolution>> {
        let resolve = |place: usize| async move {
            let vpa = &vpas[place];
            let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
            (place, self.targets.resolve(namespace, &vpa.spec.target_ref).await)
        };
        let (mut outcomes, mut asked) = (vec![None; vpas.len()], Vec::new());
        for (place, vpa) in vpas.iter().enumerate() {
            self.yield_periodically(place).await;
            let namespace = vpa.metadata.namespace.as_deref().unwrap_or_default();
            match self.targets.unresolved_scale_of(namespace, &vpa.spec.target_ref) {
                Some(question) => asked.push((question, place)),
                None => outcomes[place] = Some(resolve(place).await.1),
            }
        }
        for (place, outcome) in questions.run_all(asked, resolve).await {
            outcomes[place] = Some(outcome);
        }
        outcomes
    }

    /// Gives each pod to its workload.
    async fn assign_pods(
        &self,
        workloads: &mut [Workload],
        candidates: &Candidates,
        questions: &mut PassLookups<'_>,
    ) {
        let mut pods: Vec<(ObjectReference, Arc<UpdaterPod>)> = Vec::new();
        let mut namespaces: Vec<&str> = candidates.keys().map(|namespace| &**namespace).collect();
        namespaces.sort_unstable();
        for namespace in namespaces {
            let live = self.stores.pods(namespace).into_iter().filter(|pod| !pod.is_terminating());
            pods.extend(live.filter_map(|pod| Some((owner_of(namespace, &pod)?, pod))));
        }
        let tops = self.top_owners(pods.iter().map(|(owner, _)| owner), questions).await;
        let mut owners: HashMap<ObjectReference, Vec<(usize, updater::PodOwner)>> = HashMap::new();
        for (turn, (owner, pod)) in pods.into_iter().enumerate() {
            self.yield_periodically(turn).await;
            let Some(Some(top)) = tops.get(&owner) else { continue };
            let found = candidates.get(&owner.namespace).and_then(|targets| targets.get(top));
            let matching =
                found.into_iter().flatten().filter(|one| one.selector.matches(&pod.labels));
            let matching = matching.map(|candidate| candidate.workload_index);
            let selected = vpa_match::select(matching, |index| &*workloads[*index].vpa);
            let Some(place) = selected else { continue };
            if let Some(direct) = &pod.status.owner {
                let of_owner = owners.entry(owner).or_default();
                if !of_owner.iter().any(|(known, name)| *known == place && name == direct) {
                    of_owner.push((place, direct.clone()));
                }
            }
            workloads[place].pods.push(pod);
        }
        let wanted = self.desired_replicas(owners.keys(), questions).await;
        for (owner, places) in owners {
            let Some(wanted) = wanted.get(&owner) else { continue };
            for (place, direct) in places {
                workloads[place].desired_replicas.insert(direct, *wanted);
            }
        }
    }

    /// The topmost controllers above these.
    async fn top_owners(
        &self,
        owners: impl Iterator<Item = &ObjectReference>,
        questions: &mut PassLookups<'_>,
    ) -> HashMap<ObjectReference, Option<Target>> {
        let (mut tops, mut asked) = (HashMap::new(), Vec::new());
        for (turn, owner) in owners.enumerate() {
            self.yield_periodically(turn).await;
            let hash_map::Entry::Vacant(top) = tops.entry(owner.clone()) else { continue };
            match self.targets.unresolved_scale_above(owner) {
                // Until it is answered.
                Some(question) if &*owner.kind != "Node" => {
                    top.insert(None);
                    asked.push((question, owner.clone()));
                }
                _ => {
                    top.insert(self.top_owner(owner).await);
                }
            }
        }
        let ask = |owner: ObjectReference| async move { (self.top_owner(&owner).await, owner) };
        for (top, owner) in questions.run_all(asked, ask).await {
            tops.insert(owner, top);
        }
        tops
    }

    /// How many pods these controllers are to have.
    async fn desired_replicas(
        &self,
        owners: impl Iterator<Item = &ObjectReference>,
        questions: &mut PassLookups<'_>,
    ) -> HashMap<ObjectReference, DesiredReplicas> {
        let (mut wanted, mut asked) = (HashMap::new(), Vec::new());
        for owner in owners {
            if WellKnown::from_kind(&owner.kind).is_some() {
                wanted.insert(owner.clone(), self.targets.desired_replicas(owner).await);
            } else {
                asked.push((owner.clone(), owner.clone()));
            }
        }
        let ask = |owner: ObjectReference| async move {
            (self.targets.desired_replicas(&owner).await, owner)
        };
        for (pods, owner) in questions.run_all(asked, ask).await {
            wanted.insert(owner, pods);
        }
        wanted
    }

    /// What is known without asking is found without waiting, so nobody else would have a turn.
    async fn yield_periodically(&self, turn: usize) {
        if turn % YIELD_EVERY == YIELD_EVERY - 1 {
            tokio::task::yield_now().await;
        }
    }

    /// Whether a VPA competes for running pods.
    pub(super) fn is_active(&self, vpa: &VerticalPodAutoscaler) -> bool {
        vpa_match::changes_running_pods(vpa, self.config.settings.compat)
    }

    /// The topmost of the controllers of something that this one owns, if it can be followed.
    pub(super) async fn top_owner(&self, owner: &ObjectReference) -> Option<Target> {
        // Nodes own their mirror pods, and nobody scales those.
        if &*owner.kind == "Node" {
            return None;
        }
        match self.targets.topmost(owner).await {
            TopOwner::Found(top) => Some((top.kind, top.name)),
            TopOwner::None => None,
            TopOwner::Invalid(why) | TopOwner::Unavailable(why) => {
                let ObjectReference { namespace, kind, name, .. } = owner;
                tracing::debug!(%namespace, %kind, %name, %why, "the controller of a pod cannot be followed");
                None
            }
        }
    }
}

/// What a VPA is called.
pub(super) fn vpa_key(vpa: &VerticalPodAutoscaler) -> ObjectKey {
    ObjectKey { namespace: vpa.namespace().unwrap_or_default().into(), name: vpa.name_any().into() }
}

/// The direct controller of a pod.
pub(super) fn owner_of(namespace: &str, pod: &UpdaterPod) -> Option<ObjectReference> {
    let references = pod.metadata.owner_references.as_deref()?;
    // Of several controllers the last one counts, as upstream has it.
    let last = references.last().map(std::slice::from_ref)?;
    Some(ObjectReference::from_owner(namespace, Owner::controller_of(last)?))
}
