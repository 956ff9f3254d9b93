//! What the recommender knows, behind one lock: the index of the cluster and the fleet of histories, kept
//! in step with each other. Locks are short: a change, or a page of VPAs.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use plimsoll_core::types::{Time, VpaKey};

use super::fetching::Fetching;
use crate::{
    observe::{
        eviction::Eviction,
        index::{Index, Put, Target, Vpa},
        nodes::Nodes,
        pod::{Kill, KillSource, Part},
        slim::{SlimNode, SlimPod},
        target::Outcome,
        watch::Change,
    },
    run::annotations::bad_for_writers,
};
use plimsoll_core::{
    api::vpa::{Condition, VerticalPodAutoscaler},
    recommender::{
        Amounts, Directives, Fleet, HistoryState, OomKill, Reason, Recommendation,
        conditions::{self, Circumstances},
        room::{self, Limit, Limits, Room},
        shapes::{Shapes, Toleration},
        status::Reported,
    },
};

/// So many VPAs are looked at before the lock is given back.
const PAGE: usize = 256;

/// The state behind its lock.
#[derive(Debug)]
pub struct State(Mutex<Core>);

/// Index and fleet.
#[derive(Debug)]
pub struct Core {
    /// The cluster.
    pub index: Index,
    /// The histories.
    pub fleet: Fleet,
    /// Statuses that were sent and not answered yet, as they will be when they are stored.
    pub sent: HashMap<VpaKey, Reported>,
    /// Who waits for long.
    pub fetching: Fetching,
    /// The nodes, where recommendations are kept within one of them.
    nodes: Option<Nodes>,
    /// What the nodes have left, and the operator's limit, as of the latest pass.
    shapes: Shapes,
    cap: Amounts,
    /// Whether init containers that keep running are recommended for.
    sidecars: bool,
}

/// What is to be written about a VPA, all of one moment.
#[derive(Debug)]
pub struct Verdict {
    /// What its containers should request.
    pub said: Recommendation,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// What its containers may request together.
    pub limits: Limits,
}

impl State {
    /// Nothing is known yet. `nodes`: whether recommendations are kept within one of them.
    pub fn new(index: Index, fleet: Fleet, sidecars: bool, nodes: bool) -> Self {
        let (sent, nodes) = (HashMap::new(), nodes.then(Nodes::default));
        let (shapes, cap) = (Shapes::default(), Amounts::default());
        let fetching = Fetching::default();
        Self(Mutex::new(Core { index, fleet, sent, fetching, nodes, shapes, cap, sidecars }))
    }

    /// Takes the lock. Nothing that waits may be done while it is held.
    pub fn lock(&self) -> MutexGuard<'_, Core> {
        // A panic would have ended the process.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Visits all VPAs in order, a page at a time: others get their turn between two pages.
    pub fn each_page(&self, mut visit: impl FnMut(&mut Core, &[VpaKey])) {
        let mut after: Option<VpaKey> = None;
        loop {
            let mut core = self.lock();
            let page: Vec<VpaKey> =
                core.fleet.keys_after(after.as_ref()).take(PAGE).cloned().collect();
            visit(&mut core, &page);
            drop(core);
            after = page.into_iter().next_back();
            if after.is_none() {
                return;
            }
        }
    }
}

impl Core {
    /// A VPA appeared, changed or went. Answers whether its workload or its history is to be found: most
    /// changes are the writes of this very process.
    pub fn change_vpa(&mut self, change: Change<VerticalPodAutoscaler>) -> bool {
        match change {
            Change::Restart => self.index.restart_vpas(),
            Change::Put(vpa) => return self.put_vpa(&vpa),
            Change::Unreadable { namespace, name, .. } => self.index.keep_vpa(&namespace, &name),
            Change::Gone { namespace, name, .. } => {
                self.forget(&VpaKey::new(namespace, name));
            }
            Change::Complete => {
                for key in self.index.complete_vpas() {
                    self.fleet.untrack(&key);
                    self.sent.remove(&key);
                }
                return true;
            }
        }
        false
    }

    /// Takes in a VPA as it is now. Answers whether its workload or its history is to be found.
    pub fn put_vpa(&mut self, vpa: &VerticalPodAutoscaler) -> bool {
        let (key, put) = self.index.put_vpa(vpa);
        match put {
            Put::Ignored => {
                self.fleet.untrack(&key);
                self.sent.remove(&key);
                return false;
            }
            Put::Old => return false,
            Put::New | Put::Changed { .. } => {}
        }
        let policies =
            vpa.spec.resource_policy.iter().flat_map(|policy| &policy.container_policies);
        let annotations = vpa.metadata.annotations.as_ref();
        let none = std::collections::BTreeMap::new();
        let annotations = annotations.unwrap_or(&none);
        let mut directives = Directives::new(policies.map(Into::into).collect(), annotations);
        if !self.fleet.settings().per_vpa_tuning {
            // Nobody reads these, so nothing is wrong with them.
            directives.bad_annotations.clear();
        }
        directives.bad_annotations.extend(bad_for_writers(annotations));
        let created = self.index.vpa(&key).map_or(Time::EPOCH, |known| known.created);
        self.fleet.track(&key, directives, created);
        let status = vpa.status.as_ref();
        let recommended = status.and_then(|status| status.recommendation.as_ref());
        if recommended.is_some_and(|said| !said.container_recommendations.is_empty()) {
            self.fleet.was_advised(&key);
        }
        self.is_waiting(&key)
            || self.index.vpa(&key).is_some_and(|known| *known.target() == Target::Unknown)
    }

    /// A VPA is gone.
    pub fn forget(&mut self, key: &VpaKey) {
        self.index.remove_vpa(key);
        self.fleet.untrack(key);
        self.sent.remove(key);
    }

    /// A pod appeared, changed or went.
    pub fn change_pod(&mut self, change: Change<SlimPod>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.see_pod(&change, self.index.scope());
        }
        match change {
            Change::Restart => self.index.restart_pods(),
            Change::Put(pod) => self.index.put_pod(&pod),
            Change::Unreadable { namespace, name, .. } => self.index.keep_pod(&namespace, &name),
            Change::Gone { namespace, name, .. } => self.index.remove_pod(&namespace, &name),
            Change::Complete => self.index.complete_pods(),
        }
    }

    /// A node appeared, changed or went.
    pub fn change_node(&mut self, change: Change<SlimNode>) {
        if let Some(nodes) = &mut self.nodes {
            nodes.change(change);
        }
    }

    /// A node under memory pressure evicted a pod.
    pub fn add_eviction(&mut self, eviction: &Eviction) {
        let namespace = self.index.namespace(&eviction.namespace).cloned();
        let Some(namespace) = namespace else { return };
        for blamed in &eviction.blamed {
            self.index.add_kill(Kill {
                namespace: Arc::clone(&namespace),
                pod: Arc::from(&*eviction.pod),
                container: Arc::from(&*blamed.container),
                at: eviction.at,
                kill: OomKill { request: blamed.usage, limit: None, usage: Some(blamed.usage) },
                source: KillSource::Eviction,
                vpas: Vec::new(),
            });
        }
    }

    /// The search for a VPA's workload came to an end.
    pub fn take_outcome(&mut self, key: &VpaKey, outcome: Outcome) {
        if let Some(known) = self.index.vpa(key).map(Vpa::target) {
            note_target(key, known, &outcome);
        }
        match outcome {
            Outcome::Found { selector, owner } => {
                self.index.set_target(key, Target::Found, Some(selector));
                self.fleet.set_owner(key, &owner);
            }
            Outcome::Unsupported { message } => {
                let nothing = crate::observe::selector::Selector::nothing();
                self.index.set_target(key, Target::Unsupported(message.into()), Some(nothing));
            }
            // What was found last still holds.
            Outcome::Unavailable { message } => {
                self.index.set_target(key, Target::Unavailable(message.into()), None);
            }
        }
    }

    /// Registers the containers of the pods of a VPA, so that each has a history. Finished pods keep no container alive.
    pub fn see_containers(&mut self, key: &VpaKey, now: Time) {
        // Replicas have the same containers, so the list stays short.
        let mut containers: Vec<(Arc<str>, bool)> = Vec::new();
        for (_, pod) in self.index.pods_of(key) {
            let is_live = !pod.is_finished;
            for container in pod.containers.iter().filter(|one| self.counts(one.part)) {
                match containers.iter_mut().find(|(name, _)| *name == container.name) {
                    Some((_, known)) => *known |= is_live,
                    None => containers.push((Arc::clone(&container.name), is_live)),
                }
            }
        }
        for (name, is_live) in containers {
            if is_live {
                self.fleet.see_container(key, &name, now);
            } else {
                self.fleet.see_finished_container(key, &name, now);
            }
        }
    }

    /// Notes what nodes have left now, and the operator's limit.
    pub fn survey(&mut self, cap: Amounts) {
        self.cap = cap;
        if let Some(nodes) = &self.nodes {
            self.shapes = nodes.shapes(self.index.pods());
        }
    }

    /// What a pod of this VPA may have: on the nodes that take all of its pods, and by the operator's limit.
    fn room(&self, key: &VpaKey) -> Room {
        let mut tolerated: Vec<&[Toleration]> = Vec::new();
        if !self.shapes.take_all() {
            for (_, pod) in self.index.pods_of(key).filter(|(_, pod)| !pod.is_finished) {
                // Replicas share one list.
                let of_pod = pod.tolerations.as_deref().unwrap_or_default();
                if !tolerated.iter().any(|known| std::ptr::eq(*known, of_pod)) {
                    tolerated.push(of_pod);
                }
            }
        }
        Room { cap: self.cap, shapes: self.shapes.for_pods(&tolerated) }
    }

    /// Whether usage of this container counts: what runs before the others and ends does not.
    pub fn counts(&self, part: Part) -> bool {
        match part {
            Part::Main => true,
            Part::Sidecar => self.sidecars,
            Part::Init => false,
        }
    }

    /// Whether the stored history of a VPA is still to be read.
    pub fn is_waiting(&self, key: &VpaKey) -> bool {
        self.fleet.get(key).is_some_and(|known| known.state() == HistoryState::Waiting)
    }

    /// When the status of a VPA was last written, for those who write the stalest first.
    pub fn last_written(&self, key: &VpaKey) -> Option<Time> {
        self.index.vpa(key)?.last_written
    }

    /// A status was written. If somebody else has written the VPA since, and the watch was faster than the response, what
    /// the watch brought stays.
    pub fn status_written(
        &mut self,
        key: &VpaKey,
        sent: Option<Reported>,
        resource_version: &str,
        now: Time,
    ) {
        let Some(vpa) = self.index.vpa_mut(key) else { return };
        vpa.last_written = Some(now);
        if let Some(sent) = sent.filter(|_| !vpa.is_after(resource_version)) {
            vpa.reported = sent;
            vpa.resource_version = resource_version.into();
        }
    }

    /// The annotation that explains a status was written; what the watch brought since stays here, too.
    pub fn explanation_written(
        &mut self,
        key: &VpaKey,
        explained: Option<u64>,
        resource_version: &str,
    ) {
        let vpa = self.index.vpa_mut(key).filter(|vpa| !vpa.is_after(resource_version));
        if let Some(vpa) = vpa {
            vpa.explained = explained;
            vpa.resource_version = resource_version.into();
        }
    }

    /// What is to be said about a VPA now. `None` while its history is not loaded, or while its workload is
    /// still looked for: what was true of another one must not be said of this.
    pub fn judge(&self, key: &VpaKey, now: Time) -> Option<Verdict> {
        let vpa = self.index.vpa(key)?;
        let watched = self.fleet.get(key)?;
        let mut said = self.fleet.recommend(key, now)?;
        let unsupported = match vpa.target() {
            Target::Found => None,
            Target::Unknown => return None,
            Target::Unsupported(message) | Target::Unavailable(message) => Some(&**message),
        };
        let upstream = self.fleet.is_upstream();
        let ignored = if upstream { &[] } else { &*watched.directives().bad_annotations };
        let limits = room::fit(&mut said, &self.room(key));
        let by: Vec<&str> = room::restricted_by(&said).map(Reason::name).collect();
        let words = (!by.is_empty()).then(|| (by.join(","), describe(limits)));
        let circumstances = Circumstances {
            pods: vpa.pod_count(),
            recommended: !said.containers.is_empty(),
            unsupported,
            ignored,
            room: words.as_ref().map(|(by, words)| (&**by, &**words)),
            fetching: (!upstream)
                .then(|| self.fetching.is_on() && watched.state() == HistoryState::Missing),
            not_found: watched.is_without_history(now),
        };
        let conditions = conditions::merge(&vpa.reported.conditions, now, &circumstances);
        Some(Verdict { said, conditions, limits })
    }
}

impl Core {
    /// The conditions of a VPA that has waited long for its history: nothing but that is said of it.
    pub fn waiting_conditions(&self, key: &VpaKey, now: Time) -> Option<Vec<Condition>> {
        if !self.is_waiting(key) || !self.fetching.is_long(key, now) {
            return None;
        }
        Some(conditions::note_fetching(&self.index.vpa(key)?.reported.conditions, now))
    }
}

/// What a pod may have, and by whom.
fn describe(limits: Limits) -> String {
    let text = |limit: Option<Limit>| {
        limit.map_or("any".to_owned(), |it| format!("{} ({})", it.amount, it.by.name()))
    };
    let (cpu, memory) = (text(limits.cpu), text(limits.memory));
    format!("A pod may have CPU: {cpu}, memory: {memory}")
}

/// One line when a target breaks, and one when it is whole again.
fn note_target(key: &VpaKey, known: &Target, outcome: &Outcome) {
    match (known, outcome) {
        (Target::Unsupported(known), Outcome::Unsupported { message }) if **known == **message => {}
        (_, Outcome::Unsupported { message }) => {
            tracing::warn!(vpa = %key, why = %message, "the workload cannot be found; what is known of it stays");
        }
        (Target::Unsupported(_), Outcome::Found { .. }) => {
            tracing::info!(vpa = %key, "the workload was found");
        }
        _ => {}
    }
}
