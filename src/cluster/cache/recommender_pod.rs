//! A pod as the VPA index stores it: about 200 bytes instead of the 100 kB of the API object.

use std::sync::Arc;

use k8s_openapi::api::core::v1;
use plimsoll_core::types::{Time, interner::Interner};
use strum::{IntoStaticStr, VariantArray};

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

const OOM_KILLED: &str = "OOMKilled";

#[derive(Clone, Debug)]
pub struct RecommenderPod {
    /// The UID: unique over all pods that ever had this name.
    pub uid: Box<str>,
    /// When it was created; the epoch if unknown.
    pub created: Time,
    pub labels: Labels,
    /// Its containers, ordered by name.
    pub containers: Box<[Container]>,
    pub node: Option<Arc<str>>,
    /// Tolerations beyond those that every pod has. Few pods have any, and the pods of a workload share them.
    pub tolerations: Option<Arc<[Toleration]>>,
    pub is_daemon_set_pod: bool,
    /// Whether it has terminated: its phase is `Succeeded` or `Failed`.
    pub is_finished: bool,
    pub startup_boost: Option<Box<PodStartupBoost>>,
}

#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_field_names, reason = "type is a keyword")]
pub struct Container {
    pub name: Arc<str>,
    pub container_type: ContainerType,
    pub requests: Requests,
    /// OOM kills in the pod's status: few containers have any.
    pub oom_kills: Option<Box<PodOomKills>>,
}

/// The OOM kills that the pod's status has reported for a container.
#[derive(Clone, Debug, PartialEq)]
pub struct PodOomKills {
    pub last: (Time, OomKill),
    /// Times of the kills that are in the status now: in the last state and in the current one. A kill is new if its time is
    /// not among them, and not if it is later: a node with a wrong clock reports a time in the future, and kills after its
    /// clock was corrected are earlier than that.
    reported: [Option<Time>; 2],
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requests {
    pub cpu: Option<MilliCpu>,
    pub memory: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObservedOomKill {
    pub namespace: Arc<str>,
    pub pod: Arc<str>,
    pub container: Arc<str>,
    pub at: Time,
    /// Memory request and limit at the time.
    pub kill: OomKill,
    pub source: OomKillSource,
    /// The VPAs to record it for, if they differ from those that match the pod now: those that matched when the pod was
    /// deleted, or one that was found to match later.
    pub vpas: Vec<Arc<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum OomKillSource {
    /// In an update of a pod that was known before.
    PodUpdate,
    /// In a pod that was observed for the first time: the kill may predate this process.
    #[strum(serialize = "pod_first_sight")]
    FirstObserved,
    Eviction,
}

impl OomKillSource {
    pub const ALL: &'static [Self] = Self::VARIANTS;

    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// How often requests were read from each source: `[status, init status, spec, init spec]`.
pub type RequestSourceCounts = [u64; 4];

/// Strings and tolerations that many objects share.
#[derive(Debug, Default)]
pub struct PodInterner {
    pub names: Interner<str>,
    tolerations: Interner<[Toleration]>,
}

impl PodInterner {
    /// The shared copy of a pod's tolerations; `None` if it has none.
    fn intern_tolerations(&mut self, partial: &[v1::Toleration]) -> Option<Arc<[Toleration]>> {
        let mut tolerations: Vec<Toleration> = partial
            .iter()
            .filter_map(|toleration| {
                let v1::Toleration { key, operator, value, effect, .. } = toleration;
                let [key, operator, value, effect] =
                    [key, operator, value, effect].map(Option::as_deref);
                Toleration::new(key, operator, value, effect)
            })
            .collect();
        tolerations.sort_unstable();
        tolerations.dedup();
        (!tolerations.is_empty()).then(|| self.tolerations.intern(&tolerations))
    }
}

impl RecommenderPod {
    pub fn new(
        partial_pod: &PartialPod,
        interner: &mut PodInterner,
        sources: &mut RequestSourceCounts,
    ) -> Self {
        let PartialPod { metadata, spec, status } = partial_pod;
        let regular = spec.containers.iter().map(|container| (container, ContainerType::Main));
        let inits = spec.init_containers.iter().map(|container| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            (container, if is_sidecar { ContainerType::Sidecar } else { ContainerType::Init })
        });
        let mut containers: Vec<Container> = regular
            .chain(inits)
            .map(|(container, container_type)| {
                let is_init = usize::from(container_type != ContainerType::Main);
                let statuses = [&status.container_statuses, &status.init_container_statuses];
                let reported = find(statuses[is_init], &container.name)
                    .and_then(|status| status.resources.as_ref());
                sources[is_init + if reported.is_some() { 0 } else { 2 }] += 1;
                Container {
                    name: interner.names.intern(&container.name),
                    container_type,
                    requests: Requests::new(&reported.unwrap_or(&container.resources).requests),
                    oom_kills: None,
                }
            })
            .collect();
        containers.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            created: metadata.creation_timestamp.as_ref().map_or(Time::EPOCH, |at| at.0.into()),
            labels: metadata.labels.as_ref().map(Labels::from).unwrap_or_default(),
            containers: containers.into(),
            node: spec.node_name.as_deref().map(|node| interner.names.intern(node)),
            tolerations: interner.intern_tolerations(&spec.tolerations),
            is_daemon_set_pod: Self::is_owned_by_daemon_set(partial_pod),
            is_finished: matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")),
            startup_boost: PodStartupBoost::from_pod(partial_pod),
        }
    }

    pub fn is_owned_by_daemon_set(partial_pod: &PartialPod) -> bool {
        let owners = partial_pod.metadata.owner_references.iter().flatten();
        let mut controllers = owners.filter(|owner| owner.controller == Some(true));
        controllers.any(|owner| owner.kind == "DaemonSet")
    }

    pub fn container(&self, name: &str) -> Option<&Container> {
        let index =
            self.containers.binary_search_by(|container| (*container.name).cmp(name)).ok()?;
        Some(&self.containers[index])
    }

    /// The sum of the requests of all containers that run at the same time.
    pub fn requests(&self) -> (i64, i64) {
        let running = self
            .containers
            .iter()
            .filter(|container| container.container_type != ContainerType::Init);
        running.fold((0, 0), |(cpu, memory), container| {
            let Requests { cpu: container_cpu, memory: container_memory } = container.requests;
            (
                cpu + container_cpu.map_or(0, |cpu| cpu.0),
                memory + container_memory.map_or(0, |memory| memory.0),
            )
        })
    }

    /// Stores the OOM kills in a pod's status. Passes those to `found` that the previous version of the pod did not have.
    pub fn detect_oom_kills(
        &mut self,
        previous: Option<&Self>,
        partial_pod: &PartialPod,
        mut found: impl FnMut(&Container, Time, OomKill),
    ) {
        let PartialPod { spec, status, .. } = partial_pod;
        for container in &mut self.containers {
            let old = previous.and_then(|pod| pod.container(&container.name));
            container.oom_kills = old.and_then(|old| old.oom_kills.clone());
            let (specs, statuses) = match container.container_type {
                ContainerType::Main => (&spec.containers, &status.container_statuses),
                ContainerType::Sidecar => (&spec.init_containers, &status.init_container_statuses),
                ContainerType::Init => continue,
            };
            let Some(status) = find(statuses, &container.name) else { continue };
            let reported = status.resources.as_ref();
            let resources = reported.or_else(|| {
                Some(&specs.iter().find(|candidate| *candidate.name == *container.name)?.resources)
            });
            let limit =
                resources.and_then(|resources| resources.limits.memory).map(Quantity::to_memory);
            let oom_killed_at = |state: &partial_objects::ContainerState| {
                let terminated = state.terminated.as_ref()?;
                let oom_killed = terminated.reason.as_deref() == Some(OOM_KILLED);
                terminated.finished_at.filter(|_| oom_killed)
            };
            // The last state ran with the requests of the previous version of the pod, the current one with its own.
            let before = old.map_or(container.requests, |old| old.requests);
            let reported = [oom_killed_at(&status.last_state), oom_killed_at(&status.state)];
            for (at, requests) in reported.into_iter().zip([before, container.requests]) {
                let is_known =
                    |kills: &PodOomKills| at == Some(kills.last.0) || kills.reported.contains(&at);
                let Some(at) = at.filter(|_| !container.oom_kills.as_deref().is_some_and(is_known))
                else {
                    continue;
                };
                let request = requests.memory.unwrap_or(Bytes(0));
                let kill = OomKill { request, limit, usage: None };
                let known =
                    container.oom_kills.as_deref().map_or([None; 2], |kills| kills.reported);
                container.oom_kills =
                    Some(Box::new(PodOomKills { last: (at, kill), reported: known }));
                found(container, at, kill);
            }
            if let Some(kills) = container.oom_kills.as_deref_mut() {
                kills.reported = reported;
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
