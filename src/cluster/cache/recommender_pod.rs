//! A pod as the index keeps it: some two hundred bytes in place of the API's hundred thousand.

use std::{collections::HashSet, sync::Arc};

use plimsoll_core::types::Time;

use super::{selector::Labels, startup_boost::PodStartupBoost};
use crate::cluster::watch::partial_objects::{self, PartialPod};
pub use plimsoll_core::sizing::ContainerType;
use plimsoll_core::{
    recommender::{OomKill, node_capacity::Toleration},
    types::{
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

/// The reason by which a kubelet says that a container was killed for its memory.
const OOM_KILLED: &str = "OOMKilled";

/// A pod.
#[derive(Clone, Debug)]
pub struct RecommenderPod {
    /// Unique over all pods that ever had this name.
    pub uid: Box<str>,
    /// When it was created; the epoch where that is not known.
    pub created: Time,
    /// Its labels.
    pub labels: Labels,
    /// Its containers, by name.
    pub containers: Box<[Container]>,
    /// The node it runs on.
    pub node: Option<Arc<str>>,
    /// Taints that it does not mind, beside those that every pod tolerates: few pods have any, and those of a
    /// workload share theirs.
    pub tolerations: Option<Arc<[Toleration]>>,
    /// Whether a DaemonSet owns it.
    pub is_daemon_set_pod: bool,
    /// Whether it ended for good.
    pub is_finished: bool,
    /// The boosts that it was created with, if any.
    pub startup_boost: Option<Box<PodStartupBoost>>,
}

/// A container of a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct Container {
    /// Its name.
    pub name: Arc<str>,
    /// Part that it plays.
    pub container_type: ContainerType,
    /// What it requests.
    pub requests: Requests,
    /// The latest kill for memory that its pod showed: few have one.
    pub last_oom_kill: Option<Box<(Time, OomKill)>>,
}

/// What a container requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    /// CPU.
    pub cpu: Option<MilliCpu>,
    /// Memory.
    pub memory: Option<Bytes>,
}

/// A kill for memory that a pod shows.
#[derive(Clone, Debug, PartialEq)]
pub struct ObservedOomKill {
    /// Namespace of the pod.
    pub namespace: Arc<str>,
    /// Name of the pod.
    pub pod: Arc<str>,
    /// Name of the container.
    pub container: Arc<str>,
    /// When it was killed.
    pub at: Time,
    /// What it had.
    pub kill: OomKill,
    /// Where it was read.
    pub source: OomKillSource,
    /// The VPAs that it is for, where these are not all that its pod has now: those that the pod had when it
    /// went, or one that was found to be its own later.
    pub vpas: Vec<Arc<str>>,
}

/// Where a kill was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OomKillSource {
    /// In the change of a pod that was known before.
    PodUpdate,
    /// In a pod that was seen for the first time: it may have happened before this process began.
    FirstObserved,
    /// In the event of an eviction.
    Eviction,
}

impl OomKillSource {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::PodUpdate, Self::FirstObserved, Self::Eviction];

    /// As metrics name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PodUpdate => "pod_update",
            Self::FirstObserved => "pod_first_sight",
            Self::Eviction => "eviction",
        }
    }
}

/// How often requests were read from where: `[status, init status, spec, init spec]`.
pub type RequestSourceCounts = [u64; 4];

/// Names that many objects share, each kept once.
#[derive(Debug, Default)]
pub struct StringInterner {
    strings: HashSet<Arc<str>>,
    tolerations: HashSet<Arc<[Toleration]>>,
    /// How many there are before those that nobody uses are looked for.
    prune_threshold: usize,
}

/// So few names are not worth a look.
const MIN_PRUNE_THRESHOLD: usize = 1024;

impl StringInterner {
    /// The shared copy of a name.
    pub fn intern(&mut self, name: &str) -> Arc<str> {
        if let Some(known) = self.strings.get(name) {
            return Arc::clone(known);
        }
        if self.strings.len() >= self.prune_threshold.max(MIN_PRUNE_THRESHOLD) {
            // Doubling keeps the cost of all looks within that of what was added between them.
            self.prune();
            self.prune_threshold = 2 * self.strings.len();
        }
        let name: Arc<str> = name.into();
        self.strings.insert(Arc::clone(&name));
        name
    }

    /// The shared copy of what a pod tolerates, if that is anything.
    fn intern_tolerations(
        &mut self,
        all: &[partial_objects::Toleration],
    ) -> Option<Arc<[Toleration]>> {
        let mut all: Vec<Toleration> = all
            .iter()
            .filter_map(|one| {
                let partial_objects::Toleration { key, operator, value, effect } = one;
                let [key, operator, value, effect] =
                    [key, operator, value, effect].map(Option::as_deref);
                Toleration::new(key, operator, value, effect)
            })
            .collect();
        if all.is_empty() {
            return None;
        }
        all.sort_unstable();
        all.dedup();
        if let Some(known) = self.tolerations.get(&*all) {
            return Some(Arc::clone(known));
        }
        if self.tolerations.len() >= MIN_PRUNE_THRESHOLD {
            self.tolerations.retain(|known| Arc::strong_count(known) > 1);
        }
        let all: Arc<[Toleration]> = all.into();
        self.tolerations.insert(Arc::clone(&all));
        Some(all)
    }

    /// Forgets the names that nobody uses any more.
    fn prune(&mut self) {
        self.strings.retain(|name| Arc::strong_count(name) > 1);
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.strings.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.strings.is_empty()
    }
}

impl RecommenderPod {
    /// From what the API says.
    pub fn new(
        slim: &PartialPod,
        names: &mut StringInterner,
        sources: &mut RequestSourceCounts,
    ) -> Self {
        let PartialPod { metadata, spec, status } = slim;
        let mains = spec.containers.iter().map(|container| (container, ContainerType::Main));
        let inits = spec.init_containers.iter().map(|container| {
            let stays = container.restart_policy.as_deref() == Some("Always");
            (container, if stays { ContainerType::Sidecar } else { ContainerType::Init })
        });
        let mut containers: Vec<Container> = mains
            .chain(inits)
            .map(|(container, part)| {
                let is_init = usize::from(part != ContainerType::Main);
                let statuses = [&status.container_statuses, &status.init_container_statuses];
                let reported = find(statuses[is_init], &container.name)
                    .and_then(|status| status.resources.as_ref());
                sources[is_init + if reported.is_some() { 0 } else { 2 }] += 1;
                Container {
                    name: names.intern(&container.name),
                    container_type: part,
                    requests: Requests::new(&reported.unwrap_or(&container.resources).requests),
                    last_oom_kill: None,
                }
            })
            .collect();
        containers.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            created: metadata.creation_timestamp.as_ref().map_or(Time::EPOCH, |at| at.0.into()),
            labels: metadata.labels.as_ref().map(Labels::from).unwrap_or_default(),
            containers: containers.into(),
            node: spec.node_name.as_deref().map(|node| names.intern(node)),
            tolerations: names.intern_tolerations(&spec.tolerations),
            is_daemon_set_pod: Self::is_owned_by_daemon_set(slim),
            is_finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            startup_boost: PodStartupBoost::from_pod(slim),
        }
    }

    /// Whether a DaemonSet owns it.
    pub fn is_owned_by_daemon_set(slim: &PartialPod) -> bool {
        let owners = slim.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        controllers.any(|owner| owner.kind == "DaemonSet")
    }

    /// One of its containers.
    pub fn container(&self, name: &str) -> Option<&Container> {
        let index = self.containers.binary_search_by(|known| (*known.name).cmp(name)).ok()?;
        Some(&self.containers[index])
    }

    /// What all of its containers that run side by side request.
    pub fn requests(&self) -> (i64, i64) {
        let steady = self
            .containers
            .iter()
            .filter(|container| container.container_type != ContainerType::Init);
        steady.fold((0, 0), |(cpu, memory), container| {
            let Requests { cpu: of_cpu, memory: of_memory } = container.requests;
            (cpu + of_cpu.map_or(0, |cpu| cpu.0), memory + of_memory.map_or(0, |memory| memory.0))
        })
    }

    /// Notes the kills that a pod shows, and hands out those that its former self did not.
    pub fn detect_oom_kills(
        &mut self,
        former: Option<&Self>,
        slim: &PartialPod,
        mut found: impl FnMut(&Container, Time, OomKill),
    ) {
        let PartialPod { spec, status, .. } = slim;
        for container in &mut self.containers {
            let old = former.and_then(|former| former.container(&container.name));
            container.last_oom_kill = old.and_then(|old| old.last_oom_kill.clone());
            let (specs, statuses) = match container.container_type {
                ContainerType::Main => (&spec.containers, &status.container_statuses),
                ContainerType::Sidecar => (&spec.init_containers, &status.init_container_statuses),
                ContainerType::Init => continue,
            };
            let Some(status) = find(statuses, &container.name) else { continue };
            let reported = status.resources.as_ref();
            let resources = reported.or_else(|| {
                Some(&specs.iter().find(|one| *one.name == *container.name)?.resources)
            });
            let limit = resources.and_then(|one| one.limits.memory).map(Quantity::to_memory);
            let ended = |state: &partial_objects::ContainerState| {
                let ended = state.terminated.as_ref()?;
                let killed = ended.reason.as_deref() == Some(OOM_KILLED);
                ended.finished_at.as_ref().filter(|_| killed).map(|at| Time::from(at.0))
            };
            // What ran before had what the pod's former self says; what ended just now has what it says now.
            let before = old.map_or(container.requests, |old| old.requests);
            for (at, requests) in
                [(ended(&status.last_state), before), (ended(&status.state), container.requests)]
            {
                let known = container.last_oom_kill.as_deref().map(|(last, _)| *last);
                let Some(at) = at.filter(|at| known.is_none_or(|last| *at > last)) else {
                    continue;
                };
                let request = requests.memory.unwrap_or(Bytes(0));
                let kill = OomKill { request, limit, usage: None };
                container.last_oom_kill = Some(Box::new((at, kill)));
                found(container, at, kill);
            }
        }
    }
}

impl Requests {
    fn new(amounts: &partial_objects::ResourceAmounts) -> Self {
        Self {
            cpu: amounts.cpu.map(Quantity::to_cpu),
            memory: amounts.memory.map(Quantity::to_memory),
        }
    }
}

fn find<'a>(
    statuses: &'a [partial_objects::ContainerStatus],
    name: &str,
) -> Option<&'a partial_objects::ContainerStatus> {
    statuses.iter().find(|status| *status.name == *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nobody_uses_any_more_are_forgotten() {
        let mut names = StringInterner::default();
        let kept: Vec<_> = (0..100).map(|n| names.intern(&format!("kept-{n}"))).collect();
        for n in 0..50 * MIN_PRUNE_THRESHOLD {
            names.intern(&format!("gone-{n}"));
        }
        assert!(names.len() <= MIN_PRUNE_THRESHOLD, "{} names", names.len());
        for name in &kept {
            assert!(Arc::ptr_eq(&names.intern(name), name), "{name} is still the one copy");
        }
    }
}
