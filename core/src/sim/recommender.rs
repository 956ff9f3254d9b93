//! The real recommender in the virtual cluster: it ingests steps as samples of a metrics server, recommends, and
//! is saved to and restored from any storage.

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
    api::vpa,
    recommender::{
        ContainerHistory, ContainerRecommendation, History, OomKill, ResourceAmounts, Settings,
        VpaSettings, plan::KnownRequests, published_status::to_object, recommend,
    },
    types::quantity::Quantity,
};

/// The histories of the workloads with a VPA.
#[derive(Clone, Debug)]
pub struct Recommender {
    settings: Settings,
    vpas: Vec<SimulatedVpa>,
}

/// A VPA with the name of its target.
#[derive(Clone, Debug)]
struct SimulatedVpa {
    key: ObjectKey,
    vpa_settings: VpaSettings,
    history: History,
}

#[derive(Clone, Debug)]
pub struct WorkloadRecommendation {
    /// The workload: the name of its VPA.
    pub workload: ObjectKey,
    pub recommendation: ContainerRecommendation,
}

impl WorkloadRecommendation {
    /// Returns the numbers only.
    pub fn recommendation(&self) -> ResourceRecommendation {
        let optional = |amounts: ResourceAmounts| OptionalAmounts {
            cpu: amounts.cpu.map(Quantity::to_cpu),
            memory: amounts.memory.map(Quantity::to_memory),
        };
        let ContainerRecommendation { target, lower, upper, .. } = &self.recommendation;
        ResourceRecommendation {
            target: optional(*target),
            lower: optional(*lower),
            upper: optional(*upper),
        }
    }
}

impl Recommender {
    /// Creates a recommender without history for these VPAs.
    pub fn new(
        settings: Settings,
        vpas: impl IntoIterator<Item = (ObjectKey, VpaSettings)>,
    ) -> Self {
        let vpas = vpas
            .into_iter()
            .map(|(key, vpa_settings)| SimulatedVpa {
                key,
                vpa_settings,
                history: History::default(),
            })
            .collect();
        Self { settings, vpas }
    }

    /// Ingests what a metrics server and the pod status would report after a minute: no usage of a container that was
    /// just OOM killed, but the OOM kill with its request and limit.
    pub fn observe(&mut self, step: &ContainerMinute) {
        if !step.running {
            return;
        }
        let settings = &self.settings;
        let Some(vpa) = find(&mut self.vpas, &step.namespace, &step.workload) else {
            return;
        };
        let existing = vpa.history.get(&step.container);
        let rules = vpa.vpa_settings.rules(existing, settings);
        let container = vpa.history.container_mut(&step.container, step.at, &rules);
        let request = step.share.request;
        let requests = KnownRequests {
            cpu: Some(request.cpu.as_cores()),
            memory: Some(request.memory.as_f64()),
        };
        container.observe_requests(requests, &rules);
        // Samples are only rejected if they are out of order, which a virtual clock does not produce.
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

    /// Drops the per-pod state of deleted pods; their samples stay.
    pub fn retain_pods(&mut self, is_alive: impl Fn(&str) -> bool) {
        for vpa in &mut self.vpas {
            for (_, container) in vpa.history.iter_mut() {
                container.retain_replicas(&is_alive);
            }
        }
    }

    /// Decides on planned requests. To be called each minute, before [`recommend`](Self::recommend).
    pub fn decide_plans(&mut self, now: Time) {
        let Self { settings, vpas } = self;
        for SimulatedVpa { vpa_settings, history, .. } in vpas {
            for (_, container) in history.iter_mut() {
                let rules = vpa_settings.rules(Some(container), settings);
                container.decide_plan(&rules, now, KnownRequests::default());
            }
        }
    }

    pub fn recommend(&self, now: Time) -> Vec<WorkloadRecommendation> {
        self.vpas
            .iter()
            .flat_map(|vpa| {
                let SimulatedVpa { key, vpa_settings, history } = vpa;
                let recommendation = recommend(vpa_settings, history, &self.settings, now);
                recommendation.containers.into_iter().map(|recommendation| WorkloadRecommendation {
                    workload: key.clone(),
                    recommendation,
                })
            })
            .collect()
    }

    /// The recommendation of a workload as in the status of its VPA.
    pub fn object(&self, workload: &ObjectKey, now: Time) -> Option<vpa::Recommendation> {
        let vpa = self.vpas.iter().find(|vpa| vpa.key == *workload)?;
        let found = recommend(&vpa.vpa_settings, &vpa.history, &self.settings, now);
        (!found.containers.is_empty()).then(|| to_object(&found))
    }

    /// Returns the histories as records to save.
    pub fn records(&self, now: Time) -> Vec<Record> {
        self.vpas
            .iter()
            .flat_map(|vpa| {
                vpa.history.iter().map(|(name, container)| {
                    let rules = vpa.vpa_settings.rules(Some(container), &self.settings);
                    let key = ContainerKey::new(vpa.key.clone(), Arc::clone(name));
                    Record::new(key, container.to_snapshot(now, &rules))
                })
            })
            .collect()
    }

    /// Returns a sink for a storage to load into.
    pub fn restore_sink(&mut self, now: Time) -> RestoreSink<'_> {
        RestoreSink { recommender: self, now, skipped: Vec::new() }
    }
}

fn find<'a>(
    vpas: &'a mut [SimulatedVpa],
    namespace: &str,
    workload: &str,
) -> Option<&'a mut SimulatedVpa> {
    vpas.iter_mut().find(|vpa| &*vpa.key.name == workload && &*vpa.key.namespace == namespace)
}

/// A storage sink that restores histories into a recommender.
pub struct RestoreSink<'a> {
    recommender: &'a mut Recommender,
    now: Time,
    /// Records that could not be restored.
    pub skipped: Vec<SkippedRecord>,
}

impl crate::history::Sink for RestoreSink<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        let Recommender { settings, vpas } = &mut *self.recommender;
        let Some(vpa) = find(vpas, &key.vpa.namespace, &key.vpa.name) else { return };
        let rules = vpa.vpa_settings.rules(None, settings);
        match ContainerHistory::from_snapshot(&snapshot, self.now, &rules) {
            Ok(history) => {
                vpa.history.restore(key.container, history, self.now, &rules);
            }
            Err(error) => self
                .skipped
                .push(SkippedRecord { record: key.to_string(), reason: error.to_string() }),
        }
    }

    fn sample(&mut self, key: &ContainerKey, _: Sample) {
        let reason = "raw samples are not supported by the simulation".to_owned();
        self.skipped.push(SkippedRecord { record: key.to_string(), reason });
    }
}
