//! The real recommender at work in the virtual cluster: fed with steps as a metrics server would feed it,
//! asked for recommendations, saved and restored through any storage.

use std::sync::Arc;

use crate::{
    history::{Record, Sample, SkippedRecord, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};

use super::{
    step::ContainerMinute,
    workload::{OptionalAmounts, ResourceRecommendation},
};
use crate::{
    recommender::{
        ContainerHistory, ContainerRecommendation, History, OomKill, ResourceAmounts, Settings,
        VpaSettings, recommend,
    },
    types::quantity::Quantity,
};

/// Histories of the workloads that have a VPA.
#[derive(Clone, Debug)]
pub struct Recommender {
    settings: Settings,
    vpas: Vec<SimulatedVpa>,
}

/// One VPA; it has the name of its target.
#[derive(Clone, Debug)]
struct SimulatedVpa {
    key: ObjectKey,
    directives: VpaSettings,
    history: History,
}

/// A recommendation, and for which workload.
#[derive(Clone, Debug)]
pub struct WorkloadRecommendation {
    /// The workload, by the name of its VPA.
    pub workload: ObjectKey,
    /// The recommendation of one container.
    pub recommendation: ContainerRecommendation,
}

impl WorkloadRecommendation {
    /// The numbers alone.
    pub fn recommendation(&self) -> ResourceRecommendation {
        let figures = |amounts: ResourceAmounts| OptionalAmounts {
            cpu: amounts.cpu.map(Quantity::to_cpu),
            memory: amounts.memory.map(Quantity::to_memory),
        };
        let ContainerRecommendation { target, lower, upper, .. } = &self.recommendation;
        ResourceRecommendation {
            target: figures(*target),
            lower: figures(*lower),
            upper: figures(*upper),
        }
    }
}

impl Recommender {
    /// A recommender that knows nothing yet, for these VPAs.
    pub fn new(
        settings: Settings,
        vpas: impl IntoIterator<Item = (ObjectKey, VpaSettings)>,
    ) -> Self {
        let watched = vpas
            .into_iter()
            .map(|(key, directives)| SimulatedVpa { key, directives, history: History::default() })
            .collect();
        Self { settings, vpas: watched }
    }

    /// Sees what a metrics server and the pod's status would show after a minute: no usage of a container
    /// that was just killed, but the kill with the request and limit it had.
    pub fn observe(&mut self, step: &ContainerMinute) {
        if !step.running {
            return;
        }
        let settings = &self.settings;
        let Some(watched) = find(&mut self.vpas, &step.namespace, &step.workload) else {
            return;
        };
        let known = watched.history.get(&step.container);
        let rules = watched.directives.rules(known, settings);
        let container = watched.history.container_mut(&step.container, step.at, &rules);
        // Rejections are for samples out of order, which a virtual clock does not produce.
        if step.oom_killed {
            let kill = OomKill {
                request: step.share.request.memory,
                limit: step.share.limit.memory,
                usage: None,
            };
            let _ = container.record_oom(&step.pod, step.at, kill, &rules);
        } else {
            let _ = container.add_cpu(&step.pod, step.at, step.usage.cpu, &rules);
            let _ = container.add_memory(&step.pod, step.at, step.usage.memory, &rules);
        }
    }

    /// Forgets what was kept for single pods that are gone; what they used stays.
    pub fn retain_pods(&mut self, lives: impl Fn(&str) -> bool) {
        for watched in &mut self.vpas {
            for (_, container) in watched.history.iter_mut() {
                container.retain_replicas(&lives);
            }
        }
    }

    /// What it recommends now.
    pub fn recommend(&self, now: Time) -> Vec<WorkloadRecommendation> {
        self.vpas
            .iter()
            .flat_map(|watched| {
                let SimulatedVpa { key, directives, history } = watched;
                let said = recommend(directives, history, &self.settings, now);
                said.containers.into_iter().map(|recommendation| WorkloadRecommendation {
                    workload: key.clone(),
                    recommendation,
                })
            })
            .collect()
    }

    /// Everything it knows, to be saved.
    pub fn records(&self, now: Time) -> Vec<Record> {
        self.vpas
            .iter()
            .flat_map(|watched| {
                watched.history.iter().map(|(name, container)| {
                    let rules = watched.directives.rules(Some(container), &self.settings);
                    let key = ContainerKey::new(watched.key.clone(), Arc::clone(name));
                    Record::new(key, container.to_snapshot(now, &rules))
                })
            })
            .collect()
    }

    /// A place for a storage to load into.
    pub fn restore_sink(&mut self, now: Time) -> RestoreSink<'_> {
        RestoreSink { recommender: self, now, skipped: Vec::new() }
    }
}

fn find<'a>(
    watched: &'a mut [SimulatedVpa],
    namespace: &str,
    workload: &str,
) -> Option<&'a mut SimulatedVpa> {
    watched.iter_mut().find(|vpa| &*vpa.key.name == workload && &*vpa.key.namespace == namespace)
}

/// Takes what a storage remembers into a recommender.
pub struct RestoreSink<'a> {
    recommender: &'a mut Recommender,
    now: Time,
    /// What could not be taken, and why.
    pub skipped: Vec<SkippedRecord>,
}

impl crate::history::Sink for RestoreSink<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        let Recommender { settings, vpas: watched } = &mut *self.recommender;
        let Some(watched) = find(watched, &key.vpa.namespace, &key.vpa.name) else { return };
        let rules = watched.directives.rules(None, settings);
        match ContainerHistory::from_snapshot(&snapshot, self.now, &rules) {
            Ok(history) => {
                watched.history.restore(key.container, history, self.now, &rules);
            }
            Err(bad) => self
                .skipped
                .push(SkippedRecord { record: key.to_string(), reason: bad.to_string() }),
        }
    }

    fn sample(&mut self, key: &ContainerKey, _: Sample) {
        let why = "raw samples are not kept by any storage of the simulation".to_owned();
        self.skipped.push(SkippedRecord { record: key.to_string(), reason: why });
    }
}
