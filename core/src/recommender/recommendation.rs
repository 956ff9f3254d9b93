//! The decision: what every container of a VPA should request, and why.

use std::sync::Arc;

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::{
    container::ContainerHistory,
    estimate::{
        EstimatorChain, PercentileReading, Resource, ResourceEstimate, confidence_evidence,
    },
    explanation::{Basis, Explanation, Floor, ResourceExplanation, Rounding},
    history::History,
    policy::{self, Cap, ContainerPolicy, ResourceAmounts},
    settings::{ModelRules, Percentiles, Settings},
    throttling::Throttled,
    tuning::Tuning,
    vpa_settings::VpaSettings,
};
use crate::types::units::MAX_AMOUNT;

/// What every container of a VPA should request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    /// By container name.
    pub containers: Vec<ContainerRecommendation>,
    /// Containers that are remembered, but have left the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<Arc<str>>,
}

/// What one container should request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecommendation {
    /// Name of the container.
    pub container: Arc<str>,
    /// What to request.
    pub target: ResourceAmounts,
    /// Below this the pod should be given more.
    pub lower: ResourceAmounts,
    /// Above this the pod could do with less.
    pub upper: ResourceAmounts,
    /// The target before the policy's limits.
    pub uncapped: ResourceAmounts,
    /// Why.
    pub explanation: Explanation,
}

/// Recommends for every container of a VPA that is remembered and not switched off.
pub fn recommend(
    directives: &VpaSettings,
    history: &History,
    settings: &Settings,
    now: Time,
) -> Recommendation {
    let mut stale = Vec::new();
    let mut wanted = Vec::with_capacity(4);
    for (name, container) in history.iter() {
        let policy = policy::policy_for(&directives.policies, name);
        if policy.is_some_and(|policy| policy.off) {
            continue;
        }
        if history.is_stale(container, settings) {
            stale.push(Arc::clone(name));
        } else {
            wanted.push((name, container, policy));
        }
    }
    let desk = Estimator { vpa_settings: directives, settings, now, containers: wanted.len() };
    let containers = wanted
        .into_iter()
        .map(|(name, container, policy)| desk.recommend(name, container, policy))
        .collect();
    Recommendation { containers, stale }
}

/// What all containers of a VPA share while they are worked out.
struct Estimator<'a> {
    vpa_settings: &'a VpaSettings,
    settings: &'a Settings,
    now: Time,
    containers: usize,
}

impl Estimator<'_> {
    fn recommend(
        &self,
        name: &Arc<str>,
        container: &ContainerHistory,
        policy: Option<&ContainerPolicy>,
    ) -> ContainerRecommendation {
        let controlled = policy.map(|policy| policy.controlled).unwrap_or_default();
        let rules = self.vpa_settings.rules(Some(container), self.settings);
        let cpu = controlled.cpu.then(|| self.cpu(name, container, policy, &rules)).unzip();
        let memory = controlled.memory.then(|| self.memory(container, policy, &rules)).unzip();
        let pick = |number: fn(ResourceEstimate) -> _| ResourceAmounts {
            cpu: cpu.0.map(number),
            memory: memory.0.map(number),
        };
        ContainerRecommendation {
            container: Arc::clone(name),
            target: pick(|numbers| numbers.target),
            lower: pick(|numbers| numbers.lower_bound),
            upper: pick(|numbers| numbers.upper_bound),
            uncapped: pick(|numbers| numbers.uncapped),
            explanation: Explanation { cpu: cpu.1, memory: memory.1 },
        }
    }

    fn cpu(
        &self,
        name: &str,
        container: &ContainerHistory,
        policy: Option<&ContainerPolicy>,
        rules: &ModelRules,
    ) -> (ResourceEstimate, ResourceExplanation) {
        let settings = self.settings;
        let tuning = self.tuning();
        let shares = percentile_shares(&settings.cpu, tuning.cpu_percentile);
        let reads = container
            .aggregate(rules)
            .cpu()
            .percentiles(rules.cpu_histogram_config().buckets, shares);
        let readings = percentile_readings(shares, reads, None);
        let floor = tuning.cpu_floor.map(|floor| floor.0);
        let chain = EstimatorChain {
            resource: Resource::Cpu,
            evidence: confidence_evidence(
                Basis::Cpu,
                container.cpu_samples,
                settings.cpu.confidence_interval,
            ),
            margin: rules.margin,
            floor: self.floor(Resource::Cpu, floor, settings.pod_floor_millicores * 0.001),
            rounding: Rounding {
                multiple: settings.round_millicores,
                humanized: false,
                whole_cores: settings.integer_cpu
                    && self
                        .vpa_settings
                        .integer_cpu_containers
                        .iter()
                        .any(|wanted| **wanted == *name),
            },
            cap: Cap::new(
                policy.and_then(|policy| policy.min_allowed.cpu),
                policy.and_then(|policy| policy.max_allowed.cpu),
                settings.max_cpu,
            ),
            upper_bound_factor: settings.upper_bound_factor,
            throttled: container
                .throttling()
                .and_then(|known| Throttled::new(known, settings, rules, self.now)),
            bump: None,
        };
        chain.run(readings)
    }

    fn memory(
        &self,
        container: &ContainerHistory,
        policy: Option<&ContainerPolicy>,
        rules: &ModelRules,
    ) -> (ResourceEstimate, ResourceExplanation) {
        let settings = self.settings;
        let tuning = self.tuning();
        let buckets = rules.memory_histogram_config().buckets;
        let shares = percentile_shares(&settings.memory, tuning.memory_percentile);
        let reads = container.aggregate(rules).memory().percentiles(buckets, shares);
        let fleet = container.largest_replica.as_ref().filter(|_| settings.per_replica_peaks);
        let fleet = fleet.map(|fleet| fleet.peaks.percentiles(buckets, shares));
        // Confidence of memory rests on CPU samples as well, unless there are next to none.
        let (of, evidence) = container.memory_evidence(rules);
        let bump = container.bump.filter(|bump| self.now < bump.at.later(rules.memory_span()));
        let chain = EstimatorChain {
            resource: Resource::Memory,
            evidence: confidence_evidence(of, evidence, settings.memory.confidence_interval),
            margin: rules.margin,
            floor: self.floor(
                Resource::Memory,
                tuning.memory_floor.map(|floor| floor.0),
                settings.pod_floor_mebibytes * 1_048_576.0,
            ),
            rounding: Rounding {
                multiple: settings.round_bytes,
                humanized: settings.humanize_memory,
                whole_cores: false,
            },
            cap: Cap::new(
                policy.and_then(|policy| policy.min_allowed.memory),
                policy.and_then(|policy| policy.max_allowed.memory),
                settings.max_memory,
            ),
            upper_bound_factor: settings.upper_bound_factor,
            throttled: None,
            bump: bump.map(|bump| (bump, buckets.upper_edge(buckets.find(bump.counted as f64)))),
        };
        chain.run(percentile_readings(shares, reads, fleet))
    }

    fn tuning(&self) -> &Tuning {
        if self.settings.per_vpa_tuning { &self.vpa_settings.tuning } else { &Tuning::NONE }
    }

    /// The VPA's own floor, or this container's share of the pod's.
    fn floor(&self, resource: Resource, own: Option<i64>, of_pod: f64) -> Floor {
        match own {
            // A flag's floor is a float, and ends there; a quantity does not by itself.
            Some(amount) => Floor { amount: amount.min(MAX_AMOUNT), split_among: None },
            None => Floor {
                amount: resource.scale(resource.amount(of_pod), 1.0 / self.containers as f64),
                split_among: Some(self.containers),
            },
        }
    }
}

fn percentile_shares(percentiles: &Percentiles, target: Option<f64>) -> [f64; 3] {
    match target {
        // A VPA's own target pushes the bounds outwards, so that they still bound it.
        Some(target) => [percentiles.lower.min(target), target, percentiles.upper.max(target)],
        None => [percentiles.lower, percentiles.target, percentiles.upper],
    }
}

fn percentile_readings(
    shares: [f64; 3],
    reads: [f64; 3],
    fleet: Option<[f64; 3]>,
) -> [PercentileReading; 3] {
    std::array::from_fn(|index| PercentileReading {
        percentile: shares[index],
        value: reads[index],
        largest_replica: fleet.map(|fleet| fleet[index]),
    })
}
