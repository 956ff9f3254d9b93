//! Turns the samples of workloads into recommendations, and drops each history as soon as it is complete.

use std::{collections::HashMap, sync::Arc};

use plimsoll_core::{
    history::{Sample, SampleBatch, Sink, Snapshot},
    recommender::{HistoryBootstrap, HistoryBuilder, Recommendation, VpaRegistry, VpaSettings},
    rightsizing::survey::ContainerRole,
    types::{ContainerKey, ObjectKey, Time, units::Bytes},
};
use plimsoll_storage::prometheus::history::ThrottlingReport;

use super::{
    ContainerResult, ContainerUsage, HistoryModel, HistoryWorkload, NodeGroupHistory,
    WorkloadHistory,
};
use crate::report::recommend::node_groups::NodeGroups;

/// Separates the name of a workload from the index of a group of nodes. It is not part of any name.
const GROUP_SEPARATOR: char = '\n';

/// Builds recommendations from samples.
pub(super) struct RecommendationSink<'a> {
    model: HistoryModel<'a>,
    node_groups: &'a NodeGroups<'a>,
    throttling: &'a ThrottlingReport,
    progress: &'a mut (dyn FnMut(usize) + Send),
    workloads: HashMap<&'a ObjectKey, &'a HistoryWorkload>,
    bootstrap: HistoryBootstrap,
    registry: VpaRegistry,
    /// Workloads whose history is being read.
    in_progress: HashMap<ObjectKey, InProgress>,
    finished: HashMap<ObjectKey, WorkloadHistory>,
    last_sample: Option<Time>,
}

/// A workload whose history is being read.
#[derive(Debug, Default)]
struct InProgress {
    usage: Vec<(Arc<str>, ContainerUsage)>,
    /// The keys of its groups of nodes.
    groups: Vec<(usize, ObjectKey)>,
}

impl<'a> RecommendationSink<'a> {
    pub(super) fn new(
        workloads: &'a [HistoryWorkload],
        model: HistoryModel<'a>,
        node_groups: &'a NodeGroups<'a>,
        throttling: &'a ThrottlingReport,
        progress: &'a mut (dyn FnMut(usize) + Send),
    ) -> Self {
        Self {
            model,
            node_groups,
            throttling,
            progress,
            workloads: workloads.iter().map(|workload| (&workload.key, workload)).collect(),
            bootstrap: HistoryBootstrap::new(model.settings, model.now),
            registry: VpaRegistry::new(model.settings.clone(), model.compat),
            in_progress: HashMap::new(),
            finished: HashMap::new(),
            last_sample: None,
        }
    }

    /// The finished workloads, and the time of the latest sample. Workloads that are incomplete are missing.
    pub(super) fn into_finished(self) -> (HashMap<ObjectKey, WorkloadHistory>, Option<Time>) {
        (self.finished, self.last_sample)
    }

    /// The number of histories that are held in memory.
    #[cfg(test)]
    pub(super) fn histories_in_memory(&self) -> usize {
        self.registry.len() + self.in_progress.len()
    }

    /// The usage of a container; `None` if the workload is not wanted.
    fn usage(&mut self, key: &ContainerKey) -> Option<&mut ContainerUsage> {
        let workload = *self.workloads.get(&key.vpa)?;
        if !self.in_progress.contains_key(&key.vpa) {
            self.in_progress.insert(key.vpa.clone(), InProgress::default());
        }
        let progress = self.in_progress.get_mut(&key.vpa)?;
        let position = progress.usage.binary_search_by(|(name, _)| (**name).cmp(&key.container));
        let index = position.unwrap_or_else(|index| {
            let container = workload.containers.iter().find(|known| *known.name == *key.container);
            let request = container.and_then(|container| container.cpu_request);
            let usage = ContainerUsage::new(request, self.model.strategy.distribution());
            progress.usage.insert(index, (Arc::clone(&key.container), usage));
            index
        });
        Some(&mut progress.usage[index].1)
    }

    /// The key of the history of the pods on a pod's group of nodes, if there are groups.
    fn group_key(&mut self, key: &ContainerKey, pod: &str) -> Option<ContainerKey> {
        let index = self.node_groups.index_of(&key.vpa, pod)?;
        let progress = self.in_progress.get_mut(&key.vpa)?;
        let known = progress.groups.iter().find(|(known, _)| *known == index);
        let group = if let Some((_, group)) = known {
            group.clone()
        } else {
            let name = format!("{}{GROUP_SEPARATOR}{index}", key.vpa.name);
            let group = ObjectKey::new(Arc::clone(&key.vpa.namespace), name);
            progress.groups.push((index, group.clone()));
            group
        };
        Some(ContainerKey::new(group, Arc::clone(&key.container)))
    }

    /// Computes a recommendation from samples, and drops them. Throttling is that of the workload.
    fn finish(&mut self, key: &ObjectKey, workload: &ObjectKey) -> Recommendation {
        let now = self.model.now;
        if let Some(builder) = self.bootstrap.take_builder(key) {
            self.registry.merge_history(key, builder, now);
        }
        if let Some(generation) = self.registry.load_generation(key) {
            self.registry.mark_loaded(key, generation);
        }
        let containers: Vec<Arc<str>> = self.registry.get(key).map_or_else(Vec::new, |vpa| {
            vpa.history.iter().map(|(name, _)| Arc::clone(name)).collect()
        });
        for container in containers {
            let measured = ContainerKey::new(workload.clone(), Arc::clone(&container));
            if let Some(throttling) = self.throttling.measured.get(&measured) {
                let of = ContainerKey::new(key.clone(), container);
                self.registry.ingest().set_throttling(&of, Some(*throttling), now);
            }
        }
        let recommendation = self.registry.recommend(key, now).unwrap_or_default();
        self.registry.untrack(key);
        recommendation
    }
}

/// Starts the history of a VPA, as the recommender does when it sees the first pods.
fn start_history(
    registry: &mut VpaRegistry,
    workload: &HistoryWorkload,
    vpa: &ObjectKey,
    now: Time,
) -> Option<HistoryBuilder> {
    registry.track(vpa, VpaSettings::default(), now);
    registry.set_owner(vpa, &workload.key.name);
    // Containers without samples count too: they share the minimum of the pod.
    let counts = |role: ContainerRole| role != ContainerRole::Init;
    let containers = workload.containers.iter().filter(|container| counts(container.role));
    for container in containers.filter(|_| workload.is_running) {
        registry.ingest().register_container(vpa, &container.name, now);
    }
    registry.start_history(vpa)
}

impl Sink for RecommendationSink<'_> {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        tracing::debug!(%key, "unexpected snapshot from Prometheus");
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        let Some(usage) = self.usage(key) else { return };
        usage.add_sample(&sample);
        let group = self.group_key(key, &sample.replica);
        let Self { bootstrap, registry, workloads, model, .. } = self;
        for of in [Some(key), group.as_ref()].into_iter().flatten() {
            bootstrap.add_sample(of, &sample, |vpa| {
                start_history(registry, workloads.get(&key.vpa)?, vpa, model.now)
            });
        }
    }

    fn batch(&mut self, key: &ContainerKey, batch: SampleBatch<'_>) {
        let Some(usage) = self.usage(key) else { return };
        usage.add_batch(batch);
        self.last_sample = self.last_sample.max(batch.points.last().map(|(at, _)| *at));
        let group = self.group_key(key, batch.replica);
        let Self { bootstrap, registry, workloads, model, .. } = self;
        for of in [Some(key), group.as_ref()].into_iter().flatten() {
            bootstrap.add_batch(of, batch, |vpa| {
                start_history(registry, workloads.get(&key.vpa)?, vpa, model.now)
            });
        }
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        if !self.workloads.contains_key(vpa) {
            return;
        }
        let InProgress { usage, groups } = self.in_progress.remove(vpa).unwrap_or_default();
        let mut recommendation = self.finish(vpa, vpa);
        let node_groups: Vec<NodeGroupHistory> = groups
            .into_iter()
            .map(|(group, key)| {
                let recommendations = self.finish(&key, vpa).containers;
                NodeGroupHistory { group, recommendations }
            })
            .collect();
        let replaced = self.model.replaced.get(vpa).map_or(&[][..], |names| &**names);
        let containers = usage
            .into_iter()
            .map(|(name, mut usage)| {
                let known = &mut recommendation.containers;
                let position = known.iter().position(|known| known.container == name);
                let recommendation = position.map(|position| known.swap_remove(position));
                let strategy = self.model.strategy;
                let recommendation = recommendation.map(|by| strategy.apply(by, &usage));
                usage.distribution = None;
                let memory = recommendation.as_ref().and_then(|known| known.target.memory);
                let memory_target = memory.map(|memory| Bytes(memory.value()));
                // Targets by group of nodes need that of all pods.
                let is_replaced = node_groups.is_empty() && replaced.contains(&name);
                let recommendation = recommendation.filter(|_| !is_replaced).map(Box::new);
                ContainerResult { name, recommendation, memory_target, is_replaced, usage }
            })
            .collect();
        self.finished.insert(vpa.clone(), WorkloadHistory { containers, node_groups });
        (self.progress)(self.finished.len());
    }
}
