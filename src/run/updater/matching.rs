//! Which pods belong to which VPA: each pod to the one that names its topmost controller, the older one of several.

use std::{collections::HashMap, sync::Arc};

use kube::ResourceExt as _;
use plimsoll_storage::VpaKey;

use super::Role;
use crate::{
    api::{VerticalPodAutoscaler, vpa::UpdateMode},
    compat::Compat,
    observe::{
        controllers::Owner,
        running::RunningPod,
        scale::ObjectKey,
        selector::Selector,
        target::{Outcome, Top},
    },
    run::admission::{goes_before, has_boost, is_off},
    update::{self, Wanted},
};

/// A VPA with its pods.
#[derive(Debug)]
pub(super) struct Workload {
    /// The VPA.
    pub vpa: Arc<VerticalPodAutoscaler>,
    /// Its key.
    pub key: VpaKey,
    /// Its topmost controller: kind and name.
    pub target: (Box<str>, Box<str>),
    /// Its live pods, those that are being deleted left out.
    pub pods: Vec<Arc<RunningPod>>,
    /// How many pods their owners are to have.
    pub wanted: HashMap<update::Owner, Wanted>,
}

/// A VPA whose target was found.
struct Candidate {
    vpa: Arc<VerticalPodAutoscaler>,
    selector: Selector,
}

/// Kind and name.
pub(super) type Target = (Box<str>, Box<str>);

impl Role {
    /// All VPAs with their pods, in order of namespace and name. VPAs without pods are among them.
    pub(super) async fn workloads(&self) -> Vec<Workload> {
        let mut workloads = Vec::new();
        for namespace in self.seen.namespaces() {
            if self.config.scope.includes(&namespace) {
                let counted = |vpa: &VerticalPodAutoscaler| self.is_counted(vpa);
                workloads.append(&mut self.workloads_of(&namespace, counted).await);
            }
        }
        workloads
    }

    /// Those of one namespace whose pods have a boost. Upstream asks all its VPAs, whatever their mode.
    pub(super) async fn boosted_of(&self, namespace: &str) -> Vec<Workload> {
        let mut workloads = self.workloads_of(namespace, |_| true).await;
        workloads.retain(|workload| workload.pods.iter().any(|pod| pod.is_boosted()));
        workloads
    }

    async fn workloads_of(
        &self,
        namespace: &str,
        counts: impl Fn(&VerticalPodAutoscaler) -> bool,
    ) -> Vec<Workload> {
        let mut candidates: HashMap<Target, Vec<Candidate>> = HashMap::new();
        let mut workloads: Vec<Workload> = Vec::new();
        for vpa in self.seen.vpas(namespace) {
            if !counts(&vpa) {
                continue;
            }
            // Each may take as long as a request: the pass goes on all the same.
            self.pulse.beat();
            let target = &vpa.spec.target_ref;
            match self.targets.resolve(namespace, target).await {
                Outcome::Found { selector, .. } => {
                    let target: Target = (target.kind.as_str().into(), target.name.as_str().into());
                    workloads.push(Workload {
                        vpa: Arc::clone(&vpa),
                        key: vpa_key(&vpa),
                        target: target.clone(),
                        pods: Vec::new(),
                        wanted: HashMap::new(),
                    });
                    candidates.entry(target).or_default().push(Candidate { vpa, selector });
                }
                Outcome::Unsupported { message } | Outcome::Unavailable { message } => {
                    let name = vpa.name_any();
                    tracing::debug!(namespace, name, %message, "the target of a VPA cannot be followed");
                }
            }
        }
        if candidates.is_empty() {
            return workloads;
        }
        let mut tops: HashMap<ObjectKey, Option<Target>> = HashMap::new();
        for pod in self.seen.pods(namespace) {
            let Some(owner) = owner_of(namespace, &pod) else { continue };
            if pod.is_terminating() {
                continue;
            }
            if !tops.contains_key(&owner) {
                self.pulse.beat();
                let top = self.top(&owner).await;
                tops.insert(owner.clone(), top);
            }
            let Some(Some(top)) = tops.get(&owner) else { continue };
            let Some(found) = candidates.get(top) else { continue };
            let matching = found.iter().filter(|one| one.selector.matches(&pod.labels));
            let chosen = matching
                .reduce(|one, other| if goes_before(&other.vpa, &one.vpa) { other } else { one });
            let Some(chosen) = chosen else { continue };
            let workload = workloads.iter_mut().find(|one| Arc::ptr_eq(&one.vpa, &chosen.vpa));
            let Some(workload) = workload else { continue };
            if let Some(direct) = &pod.life.owner
                && !workload.wanted.contains_key(direct)
            {
                let wanted = self.targets.wanted(&owner).await;
                workload.wanted.insert(direct.clone(), wanted);
            }
            workload.pods.push(pod);
        }
        workloads
    }

    /// Whether a VPA has a say about running pods. Upstream forgets the older one of two if that one leaves running pods
    /// alone, and so updates pods that will come up by the other one.
    pub(super) fn is_counted(&self, vpa: &VerticalPodAutoscaler) -> bool {
        match self.config.settings.compat {
            Compat::Plimsoll => !is_off(vpa),
            Compat::Upstream => {
                let passive =
                    matches!(vpa.spec.update_mode(), UpdateMode::Off | UpdateMode::Initial);
                !passive || has_boost(vpa)
            }
        }
    }

    /// The topmost of the controllers of something that this one owns, if it can be followed.
    pub(super) async fn top(&self, owner: &ObjectKey) -> Option<Target> {
        // Nodes own their mirror pods, and nobody scales those.
        if &*owner.kind == "Node" {
            return None;
        }
        match self.targets.topmost(owner).await {
            Top::Found(top) => Some((top.kind, top.name)),
            Top::None => None,
            Top::Broken(why) | Top::Unavailable(why) => {
                let ObjectKey { namespace, kind, name, .. } = owner;
                tracing::debug!(%namespace, %kind, %name, %why, "the controller of a pod cannot be followed");
                None
            }
        }
    }
}

/// What a VPA is called.
pub(super) fn vpa_key(vpa: &VerticalPodAutoscaler) -> VpaKey {
    VpaKey { namespace: vpa.namespace().unwrap_or_default().into(), name: vpa.name_any().into() }
}

/// The direct controller of a pod.
pub(super) fn owner_of(namespace: &str, pod: &RunningPod) -> Option<ObjectKey> {
    let references = pod.metadata.owner_references.as_deref()?;
    // Of several controllers the last one counts, as upstream has it.
    let last = references.last().map(std::slice::from_ref)?;
    Some(ObjectKey::of_owner(namespace, Owner::of(last)?))
}
