//! The real updater in the virtual cluster: its passes evict and resize pods, and new pods are sized as by the admission
//! controller.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    cluster::{Cluster, MINUTE},
    pod,
    step::ContainerMinute,
    workload::{ContainerResources, ResourceAmounts, ResourceLimits, Workload},
};
use crate::{
    api::{
        ResourceList, ResourceName, VerticalPodAutoscalerSpec,
        vpa::{self, TargetRef, UpdateMode, UpdatePolicy},
    },
    sizing::{
        self, ContainerRef, LimitPolicy, NamespaceLimitRanges, Resources, SizedContainer,
        SizingRules, SizingSpec, pod_annotations,
    },
    types::{
        ObjectKey, Time,
        compat::Compat,
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
    updater::{
        self, Action, DesiredReplicas, PassContext, PersistedState, PodOwner, PodSizing, PodStatus,
        Readiness, StepResult, UpdatePass, VpaWithPods,
        guard::{RecommenderHeartbeat, WindowState, disruption_budget::PodCounts},
        pod_status::{ContainerStatus, Phase, Termination},
    },
};

/// The updater of one workload.
#[derive(Clone, Debug)]
pub struct Updater {
    settings: updater::Settings,
    key: ObjectKey,
    spec: VerticalPodAutoscalerSpec,
    template: Vec<(Arc<str>, ContainerResources)>,
    state: PersistedState,
    ranges: NamespaceLimitRanges,
    /// When each container of each pod started, and its last OOM kill.
    runs: BTreeMap<(Arc<str>, Arc<str>), Run>,
    /// The pods that were sized when they were created.
    sized: BTreeSet<Arc<str>>,
    /// How often pods were resized.
    resizes: BTreeMap<Arc<str>, i64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Run {
    started: Option<Time>,
    restarts: u32,
    last_kill: Option<(Time, Time)>,
}

/// How many pods a pass changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassChanges {
    /// Pods that were evicted and replaced.
    pub evicted: u32,
    /// Pods that were resized in place.
    pub resized: u32,
}

impl Updater {
    /// The updater of a Deployment.
    pub fn new(workload: &Workload, settings: updater::Settings, mode: UpdateMode) -> Self {
        let spec = VerticalPodAutoscalerSpec {
            target_ref: TargetRef {
                api_version: None,
                kind: "Deployment".to_owned(),
                name: workload.name.to_string(),
            },
            update_policy: Some(UpdatePolicy {
                update_mode: Some(mode),
                ..UpdatePolicy::default()
            }),
            resource_policy: None,
            recommenders: Vec::new(),
            startup_boost: None,
        };
        let template = workload.containers.iter().map(|of| (of.name.clone(), of.resources));
        Self {
            settings,
            key: ObjectKey::new(workload.namespace.clone(), workload.name.clone()),
            spec,
            template: template.collect(),
            state: PersistedState::default(),
            ranges: NamespaceLimitRanges::default(),
            runs: BTreeMap::new(),
            sized: BTreeSet::new(),
            resizes: BTreeMap::new(),
        }
    }

    /// Takes what the status of a pod shows after a minute.
    pub fn observe(&mut self, step: &ContainerMinute) {
        if step.namespace != self.key.namespace || step.workload != self.key.name || !step.running {
            return;
        }
        let run = self.runs.entry((step.pod.clone(), step.container.clone())).or_default();
        let started = *run.started.get_or_insert(step.at.earlier(MINUTE));
        run.restarts = step.restarts;
        if step.oom_killed {
            run.last_kill = Some((started, step.at));
            run.started = None;
            run.restarts += 1;
        }
    }

    /// Runs a pass, and makes its changes.
    pub fn pass(
        &mut self,
        cluster: &mut Cluster,
        recommendation: &vpa::Recommendation,
    ) -> PassChanges {
        let now = cluster.now();
        let key = self.key.clone();
        let objects: Vec<updater::Pod> =
            cluster.pods(&key).map(|(created, pod)| self.object(pod, created, now)).collect();
        let actions = self.decide(&objects, recommendation, now);
        let mut changes = PassChanges::default();
        for (index, action) in actions {
            match action {
                Action::Evict { .. } => {
                    let resources = self.sized(recommendation);
                    if let Some(name) = cluster.replace_pod(&key, index, &resources) {
                        self.sized.insert(name);
                    }
                    changes.evicted += 1;
                }
                Action::Resize { sized_containers, .. } => {
                    let name = objects[index].spec.name.clone();
                    cluster.resize_pod(&key, index, |container, resources| {
                        let place = ContainerRef::Main(container);
                        let own = sized_containers.iter().find(|own| own.container == place);
                        own.map_or(resources, |own| with_sizes(resources, own))
                    });
                    *self.resizes.entry(name).or_default() += 1;
                    changes.resized += 1;
                }
                Action::RemoveBoost { .. } | Action::Surge | Action::EndSurge => {}
            }
        }
        let exists = |name: &Arc<str>| cluster.pods(&key).any(|(_, pod)| pod.name == *name);
        self.runs.retain(|(name, _), _| exists(name));
        self.sized.retain(exists);
        self.resizes.retain(|name, _| exists(name));
        changes
    }

    fn decide(
        &mut self,
        pods: &[updater::Pod],
        recommendation: &vpa::Recommendation,
        now: Time,
    ) -> Vec<(usize, Action)> {
        let state = std::mem::take(&mut self.state);
        let count = pods.len() as u32;
        let desired = |_: &PodOwner| DesiredReplicas::Known(count);
        let context = PassContext {
            desired_replicas: &desired,
            pod_counts: PodCounts { cluster: count, namespace: count },
            heartbeat: RecommenderHeartbeat::Fresh { history_loaded: true },
            is_admission_ready: true,
            can_resize: true,
            now,
        };
        let sizing = PodSizing {
            spec: self.sizing_spec(recommendation),
            limit_ranges: Some(&self.ranges),
            quotas: &[],
            rules: SizingRules::for_compat(Compat::Plimsoll),
        };
        let subject = VpaWithPods {
            vpa: &self.key,
            generation: None,
            sizing,
            maintenance_window: WindowState::Open,
            is_planned: false,
            surges: false,
            pods,
        };
        let mut pass = UpdatePass::new(subject, context, &self.settings, state);
        let mut actions = Vec::new();
        while let Some(step) = pass.next() {
            pass.record_result(StepResult::Done);
            actions.push((step.pod, step.action));
        }
        self.state = pass.finish().state;
        actions
    }

    fn sizing_spec<'a>(&'a self, recommendation: &'a vpa::Recommendation) -> SizingSpec<'a> {
        SizingSpec {
            vpa: &self.key.name,
            spec: &self.spec,
            recommendation: Some(recommendation),
            limit_policy: LimitPolicy::Ratio,
            managed_sidecars: &[],
            shared_requests: &[],
        }
    }

    /// The resources of a new pod.
    fn sized(&self, recommendation: &vpa::Recommendation) -> Vec<ContainerResources> {
        let pod = self.sizing_pod("", self.template.iter().map(|(_, resources)| *resources));
        let spec = self.sizing_spec(recommendation);
        let rules = SizingRules::for_compat(Compat::Plimsoll);
        // Without LimitRanges every pod can be sized.
        let sizes = sizing::size_containers(&pod, &spec, Some(&self.ranges), rules);
        let sizes = sizes.unwrap_or_default();
        let containers = self.template.iter().enumerate();
        let resources = containers.map(|(index, (_, resources))| {
            let own = sizes.iter().find(|own| own.container == ContainerRef::Main(index));
            own.map_or(*resources, |own| with_sizes(*resources, own))
        });
        resources.collect()
    }

    fn sizing_pod(
        &self,
        name: &str,
        resources: impl Iterator<Item = ContainerResources>,
    ) -> sizing::Pod {
        let containers = self.template.iter().zip(resources);
        let containers = containers.map(|((name, _), resources)| sizing::Container {
            name: name.clone(),
            spec: resource_lists(resources),
            ..sizing::Container::default()
        });
        sizing::Pod {
            namespace: self.key.namespace.clone(),
            name: name.into(),
            uid: name.into(),
            containers: containers.collect(),
            ..sizing::Pod::default()
        }
    }

    fn object(&self, pod: &pod::Pod, created: Time, now: Time) -> updater::Pod {
        let mut spec = self.sizing_pod(&pod.name, pod.resources());
        if self.sized.contains(&pod.name) {
            let mark = (pod_annotations::UPDATES.to_owned(), "sized".to_owned());
            spec.annotations = Some(BTreeMap::from([mark]));
        }
        let ready_at = created.later(MINUTE);
        let is_ready = ready_at <= now;
        spec.ready_since = is_ready.then_some(ready_at);
        let containers = self.template.iter().map(|(container, _)| {
            let run = self.runs.get(&(pod.name.clone(), container.clone()));
            let run = run.copied().unwrap_or_default();
            let termination =
                |(started, finished)| Termination { out_of_memory: true, started, finished };
            ContainerStatus {
                name: container.clone(),
                restarts: run.restarts,
                backing_off: false,
                last_termination: run.last_kill.map(termination),
            }
        });
        let readiness =
            if is_ready { Readiness::Ready(ready_at) } else { Readiness::Unready(created) };
        let status = PodStatus {
            owner: Some(PodOwner { kind: "ReplicaSet".into(), name: self.key.name.clone() }),
            phase: Phase::Running,
            created,
            started: Some(created),
            readiness,
            generation: Some(1 + self.resizes.get(&pod.name).copied().unwrap_or_default()),
            resize_pending: None,
            resize_in_progress: None,
            containers: containers.collect(),
        };
        updater::Pod { spec, status }
    }
}

fn resource_lists(resources: ContainerResources) -> Resources {
    let list = |cpu: Option<MilliCpu>, memory: Option<Bytes>| {
        let list =
            ResourceList::cpu_and_memory(cpu.map(Quantity::cpu), memory.map(Quantity::memory));
        (!list.is_empty()).then_some(list)
    };
    let ContainerResources { request, limit } = resources;
    Resources {
        requests: list(Some(request.cpu), Some(request.memory)),
        limits: list(limit.cpu, limit.memory),
    }
}

/// With the amounts that a sized container sets.
fn with_sizes(resources: ContainerResources, sizes: &SizedContainer) -> ContainerResources {
    let cpu = |list: &ResourceList| list.get(&ResourceName::Cpu).map(Quantity::to_cpu);
    let memory = |list: &ResourceList| list.get(&ResourceName::Memory).map(Quantity::to_memory);
    let ContainerResources { request, limit } = resources;
    ContainerResources {
        request: ResourceAmounts {
            cpu: cpu(&sizes.requests).unwrap_or(request.cpu),
            memory: memory(&sizes.requests).unwrap_or(request.memory),
        },
        limit: ResourceLimits {
            cpu: cpu(&sizes.limits).or(limit.cpu),
            memory: memory(&sizes.limits).or(limit.memory),
        },
    }
}
