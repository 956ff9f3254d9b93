//! Our model, and upstream's: the recommender's own code.

use super::{
    Advice, Policy, RuleContext,
    rule_state::{Seen, measured},
};
use crate::{
    recommender::{
        ContainerHistory, History, ModelRules, OomKill, Percentiles, Settings, VpaSettings,
        estimate::{
            LOWER_BOUND_FACTOR, Resource, UPPER_BOUND_FACTOR, confidence_evidence,
            confidence_multiplier,
        },
        plan::RequestProfile,
        published_status::to_object,
        recommend,
    },
    types::{
        Time,
        compat::Compat,
        units::{Bytes, MAX_AMOUNT},
    },
};

/// The recommender of one workload.
pub(crate) struct Model<'a> {
    names: Vec<&'a str>,
    settings: Settings,
    vpa_settings: VpaSettings,
    rules: ModelRules,
    history: History,
    /// The last percentiles of each container, and of how many samples.
    read: Vec<ReadPercentiles>,
}

#[derive(Clone, Copy, Debug, Default)]
struct ReadPercentiles {
    cpu_samples: u64,
    memory_samples: u64,
    cpu: [f64; 3],
    memory: [f64; 3],
}

/// The numbers of a recommendation: lower bound, target and upper bound in millicores and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Estimates {
    pub cpu: [i64; 3],
    pub memory: [i64; 3],
}

impl<'a> Model<'a> {
    pub fn new(policy: &Policy, context: RuleContext<'a>) -> Self {
        let base = &context.settings.model;
        let mut settings = match policy.rule.model() {
            Some(Compat::Upstream) => Settings::for_compat(Compat::Upstream),
            _ => base.clone(),
        };
        // Profiles and settings of policies are those that annotations set for a VPA.
        settings.per_vpa_tuning = true;
        // Plans are policies of their own.
        settings.plan.profile = RequestProfile::Vpa;
        let vpa_settings = VpaSettings { tuning: policy.tuning, ..VpaSettings::default() };
        let rules = vpa_settings.rules(None, &settings);
        let containers = &context.recording.containers;
        Self {
            names: containers.iter().map(|container| &*container.name).collect(),
            read: vec![ReadPercentiles::default(); containers.len()],
            settings,
            vpa_settings,
            rules,
            history: History::default(),
        }
    }

    fn container(&mut self, seen: &Seen<'_>) -> &mut ContainerHistory {
        self.history.container_mut(self.names[seen.container], seen.at, &self.rules)
    }

    pub fn take_cpu(&mut self, seen: Seen<'_>, cores: f64) {
        let rules = self.rules;
        let usage = measured(cores);
        // A sample is only rejected if it is out of order, which a recording is not.
        let _ = self.container(&seen).add_cpu(seen.pod_name, seen.at, usage, &rules);
    }

    pub fn take_memory(&mut self, seen: Seen<'_>, bytes: f64) {
        let rules = self.rules;
        let usage = Bytes::from_f64(bytes);
        let _ = self.container(&seen).add_memory(seen.pod_name, seen.at, usage, &rules);
    }

    pub fn take_kill(&mut self, seen: Seen<'_>, limit: Bytes) {
        let rules = self.rules;
        let request = seen.memory_request.unwrap_or(Bytes(0));
        let kill = OomKill { request, limit: Some(limit), usage: None };
        let _ = self.container(&seen).record_oom(seen.pod_name, seen.at, kill, &rules);
    }

    pub fn retain_pods(&mut self, is_alive: impl Fn(&str) -> bool) {
        for (_, container) in self.history.iter_mut() {
            container.retain_replicas(&is_alive);
        }
    }

    pub fn advise(&self, now: Time) -> Option<Advice> {
        let found = recommend(&self.vpa_settings, &self.history, &self.settings, now);
        (!found.containers.is_empty()).then(|| Advice::Object(to_object(&found)))
    }

    /// Whether [`Self::estimates`] has the numbers of a recommendation under these settings.
    pub fn has_estimates(&self) -> bool {
        let Settings { upper_bound_factor, round_millicores, round_bytes, .. } = self.settings;
        let Settings { per_replica_peaks, humanize_memory, max_cpu, max_memory, .. } =
            self.settings;
        upper_bound_factor.is_none()
            && (round_millicores, round_bytes) == (1, 1)
            && (max_cpu, max_memory) == (None, None)
            && !per_replica_peaks
            && !humanize_memory
    }

    /// The numbers of [`Self::advise`], without reasons: they are compared with requests each minute.
    pub fn estimates(&mut self, into: &mut Vec<Option<Estimates>>) {
        into.clear();
        into.resize(self.names.len(), None);
        let Self { names, settings, vpa_settings, rules, history, read } = self;
        let is_used = |container: &ContainerHistory| !history.is_stale(container, settings);
        let count = history.iter().filter(|(_, container)| is_used(container)).count();
        for (index, name) in names.iter().enumerate() {
            let Some(container) = history.get(name).filter(|container| is_used(container)) else {
                continue;
            };
            let estimator =
                Estimator { settings, vpa_settings, rules, containers: count, container };
            into[index] = Some(estimator.estimate(&mut read[index]));
        }
    }
}

struct Estimator<'a> {
    settings: &'a Settings,
    vpa_settings: &'a VpaSettings,
    rules: &'a ModelRules,
    containers: usize,
    container: &'a ContainerHistory,
}

impl Estimator<'_> {
    fn estimate(&self, read: &mut ReadPercentiles) -> Estimates {
        let Self { settings, vpa_settings, container, .. } = self;
        let tuning = &vpa_settings.tuning;
        let (cpu_stats, memory_stats) = (container.cpu_samples, container.memory_samples);
        // Percentiles change with samples only, as all weights decay alike.
        let shares = |percentiles: &Percentiles, target: Option<f64>| {
            let [lower, upper] = [percentiles.lower, percentiles.upper];
            target.map_or([lower, percentiles.target, upper], |target| {
                [lower.min(target), target, upper.max(target)]
            })
        };
        if read.cpu_samples != cpu_stats.count {
            let shares = shares(&settings.cpu, tuning.cpu_percentile);
            read.cpu = container.percentiles(Resource::Cpu, shares, self.rules);
            read.cpu_samples = cpu_stats.count;
        }
        if read.memory_samples != memory_stats.count {
            let shares = shares(&settings.memory, tuning.memory_percentile);
            read.memory = container.percentiles(Resource::Memory, shares, self.rules);
            read.memory_samples = memory_stats.count;
        }
        let interval = settings.cpu.confidence_interval;
        let cpu_confidence = confidence_evidence(Resource::Cpu, cpu_stats, interval).confidence;
        let (of, stats) = container.memory_evidence(self.rules);
        let interval = settings.memory.confidence_interval;
        let memory_confidence = confidence_evidence(of, stats, interval).confidence;
        let cpu_floor = self.floor(
            Resource::Cpu,
            tuning.cpu_floor.map(|floor| floor.0),
            settings.pod_floor_millicores * 0.001,
        );
        let memory_floor = self.floor(
            Resource::Memory,
            tuning.memory_floor.map(|floor| floor.0),
            settings.pod_floor_mebibytes * 1_048_576.0,
        );
        Estimates {
            cpu: self.numbers(Resource::Cpu, read.cpu, cpu_confidence, cpu_floor),
            memory: self.numbers(Resource::Memory, read.memory, memory_confidence, memory_floor),
        }
    }

    fn floor(&self, resource: Resource, own: Option<i64>, of_pod: f64) -> i64 {
        own.map_or_else(
            || resource.scale(resource.amount(of_pod), 1.0 / self.containers as f64),
            |own| own.min(MAX_AMOUNT),
        )
    }

    fn numbers(
        &self,
        resource: Resource,
        values: [f64; 3],
        confidence: f64,
        floor: i64,
    ) -> [i64; 3] {
        let [lower, target, upper] = values.map(|value| {
            let base = resource.amount(value);
            base.saturating_add(resource.scale(base, self.rules.margin))
        });
        let stretched =
            |amount, factor| resource.scale(amount, confidence_multiplier(factor, confidence));
        [stretched(lower, LOWER_BOUND_FACTOR), target, stretched(upper, UPPER_BOUND_FACTOR)]
            .map(|amount| amount.max(floor))
    }
}
