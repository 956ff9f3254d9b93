//! Computes the recommendation of a VPA: what its containers should request, and why.

use std::sync::Arc;

use crate::{
    api::vpa::{ContainerMode, ContainerPolicy},
    types::{PerResource, Time},
};
use serde::{Deserialize, Serialize};

use super::{
    container::ContainerHistory,
    estimate::{
        EstimatorChain, PercentileReading, Resource, ResourceEstimate, confidence_evidence,
    },
    explanation::{Explanation, Floor, ResourceExplanation, Rounding},
    history::History,
    model_settings::{ModelRules, Percentiles, Settings},
    plan::{CpuDecision, MemoryDecision, PlanDecision, PlanProfile, PlanRules, PlannedRequest},
    policy::{Cap, ResourceAmounts},
    throttling::Throttled,
    tuning_annotations::Tuning,
    vpa_settings::VpaSettings,
};
use crate::types::units::{MAX_AMOUNT, MilliCpu};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recommendation {
    pub containers: Vec<ContainerRecommendation>,
    /// Containers with a history that have left the pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<Arc<str>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ContainerRecommendation {
    pub container: Arc<str>,
    pub target: ResourceAmounts,
    /// Pods with a lower request should get more.
    pub lower: ResourceAmounts,
    /// Pods with a higher request need less.
    pub upper: ResourceAmounts,
    /// The target before the policy is applied.
    pub uncapped: ResourceAmounts,
    pub explanation: Explanation,
}

impl Recommendation {
    /// The profile by which all requests of all containers are planned. `None` while one of them is not: a container has no
    /// plan before it has a day of samples.
    pub fn planned_by(&self) -> Option<PlanProfile> {
        let mut profile = None;
        for ContainerRecommendation { explanation, .. } in &self.containers {
            for resource in explanation.values() {
                profile = Some(resource.plan.as_ref()?.profile);
            }
        }
        profile
    }
}

/// The smallest difference of CPU requests, in cores.
const SMALLEST_STEP: f64 = 0.001;

/// Computes the recommendation of every container of a VPA that has a history and is not off.
pub fn recommend(
    vpa_settings: &VpaSettings,
    history: &History,
    settings: &Settings,
    now: Time,
) -> Recommendation {
    let mut stale = Vec::new();
    let mut recommended = Vec::with_capacity(4);
    for (name, container) in history.iter() {
        let policy = ContainerPolicy::find(&vpa_settings.policies, name);
        if policy.is_some_and(|policy| policy.mode == Some(ContainerMode::Off)) {
            continue;
        }
        if history.is_stale(container, settings) {
            stale.push(Arc::clone(name));
        } else {
            recommended.push((name, container, policy));
        }
    }
    let estimator = Estimator { vpa_settings, settings, now, containers: recommended.len() };
    let containers = recommended
        .into_iter()
        .map(|(name, container, policy)| estimator.recommend(name, container, policy))
        .collect();
    Recommendation { containers, stale }
}

/// The common inputs for all containers of a VPA.
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
        let controls = |resource| policy.is_none_or(|policy| policy.controls(resource));
        let rules = self.vpa_settings.rules(Some(container), self.settings);
        let cpu =
            controls(Resource::Cpu).then(|| self.cpu(name, container, policy, &rules)).unzip();
        let memory =
            controls(Resource::Memory).then(|| self.memory(container, policy, &rules)).unzip();
        let estimates = PerResource { cpu: cpu.0, memory: memory.0 };
        ContainerRecommendation {
            container: Arc::clone(name),
            target: estimates.map(|estimate| estimate.target),
            lower: estimates.map(|estimate| estimate.lower_bound),
            upper: estimates.map(|estimate| estimate.upper_bound),
            uncapped: estimates.map(|estimate| estimate.uncapped),
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
        let values = container.percentiles(Resource::Cpu, shares, rules);
        let readings = percentile_readings(shares, values, None);
        let floor = tuning.cpu_floor.map(|floor| floor.0);
        let chain = EstimatorChain {
            resource: Resource::Cpu,
            evidence: confidence_evidence(
                Resource::Cpu,
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
                        .any(|listed| **listed == *name),
            },
            cap: Cap::new(
                policy.and_then(|policy| policy.min_allowed.cpu()),
                policy.and_then(|policy| policy.max_allowed.cpu()),
                settings.max_cpu,
            ),
            upper_bound_factor: settings.upper_bound_factor,
            throttled: container
                .throttling()
                .and_then(|measured| Throttled::new(measured, settings, rules, self.now)),
            bump: None,
            plan: None,
        };
        let estimate = chain.run(readings);
        let fallback = Some(estimate.0.target.as_f64());
        let planned = rules.plan.as_ref().and_then(|plan_rules| {
            let decision = container.plan()?.planned_cpu(plan_rules, self.now, fallback)?;
            Some(planned_cpu(&chain, plan_rules, &decision, tuning.cpu_floor))
        });
        planned.unwrap_or(estimate)
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
        let values = container.percentiles(Resource::Memory, shares, rules);
        let largest = container.largest_replica.as_ref().filter(|_| settings.per_replica_peaks);
        let largest = largest.map(|largest| largest.peaks.percentiles(buckets, shares));
        // The confidence in memory also uses CPU samples, unless there are almost none.
        let (of, stats) = container.memory_evidence(rules);
        let bump = container.bump.filter(|bump| self.now < bump.at.later(rules.memory_span()));
        let chain = EstimatorChain {
            resource: Resource::Memory,
            evidence: confidence_evidence(of, stats, settings.memory.confidence_interval),
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
                policy.and_then(|policy| policy.min_allowed.memory()),
                policy.and_then(|policy| policy.max_allowed.memory()),
                settings.max_memory,
            ),
            upper_bound_factor: settings.upper_bound_factor,
            throttled: None,
            bump: bump.map(|bump| (bump, buckets.upper_edge(buckets.find(bump.counted as f64)))),
            plan: None,
        };
        let estimate = chain.run(percentile_readings(shares, values, largest));
        let fallback = Some(estimate.0.target.as_f64());
        let planned = rules.plan.as_ref().and_then(|plan_rules| {
            let decision = container.plan()?.planned_memory(plan_rules, self.now, fallback)?;
            Some(planned_memory(&chain, plan_rules, &decision))
        });
        planned.unwrap_or(estimate)
    }

    fn tuning(&self) -> &Tuning {
        if self.settings.per_vpa_tuning { &self.vpa_settings.tuning } else { &Tuning::NONE }
    }

    /// Returns the VPA's own minimum, or this container's share of the pod's.
    fn floor(&self, resource: Resource, own: Option<i64>, of_pod: f64) -> Floor {
        match own {
            // A minimum from a flag is a float and therefore clamped; a quantity is not.
            Some(amount) => Floor { amount: amount.min(MAX_AMOUNT), split_among: None },
            None => Floor {
                amount: resource.scale(resource.amount(of_pod), 1.0 / self.containers as f64),
                split_among: Some(self.containers),
            },
        }
    }
}

/// Passes a planned CPU request and its bounds through rounding, floor and policy.
fn planned_cpu(
    chain: &EstimatorChain,
    rules: &PlanRules,
    decision: &CpuDecision,
    own_floor: Option<MilliCpu>,
) -> (ResourceEstimate, ResourceExplanation) {
    let target = decision.target;
    let (lower, upper) = decision
        .plan
        .map_or((target, target), |plan| (plan.lower.min(target), plan.upper.max(target)));
    // The bounds are the levels that a change from would not pay. A plan that changes the request has it outside of them
    // even if the costs are not monotonic, so that an updater acts when the plan does.
    let [lower, upper] = if !decision.outcome.is_change() {
        [lower, upper]
    } else if target > decision.request {
        [lower.max(decision.request + SMALLEST_STEP), upper]
    } else {
        [lower, upper.min(decision.request - SMALLEST_STEP)]
    };
    let (lower, upper) = (lower.min(target), upper.max(target));
    let floor = own_floor.unwrap_or(MilliCpu::from_cores(rules.cpu.floor_cores));
    let plan = PlannedRequest::new(rules, PlanDecision::Cpu(*decision));
    let chain = EstimatorChain {
        floor: Floor { amount: floor.0.min(MAX_AMOUNT), split_among: None },
        ..planned_chain(chain, plan)
    };
    chain.run([lower, target, upper].map(|cores| planned_reading(cores * 1000.0, 1000.0)))
}

/// Passes a planned memory request and its bounds through rounding, floor and policy. The bounds are the requests that a
/// decision would not change.
fn planned_memory(
    chain: &EstimatorChain,
    rules: &PlanRules,
    decision: &MemoryDecision,
) -> (ResourceEstimate, ResourceExplanation) {
    let target = decision.target;
    let lower = target / (1.0 + rules.memory.raise_above);
    let upper = target / (1.0 - rules.memory.lower_below).max(0.01);
    let plan = PlannedRequest::new(rules, PlanDecision::Memory(*decision));
    let readings = [lower, target, upper].map(|bytes| planned_reading(bytes, 1.0));
    planned_chain(chain, plan).run(readings)
}

fn planned_chain(chain: &EstimatorChain, plan: PlannedRequest) -> EstimatorChain {
    EstimatorChain {
        margin: 0.0,
        upper_bound_factor: None,
        throttled: None,
        bump: None,
        plan: Some(Box::new(plan)),
        ..*chain
    }
}

/// The reading of a planned amount, rounded up to a millicore or byte. A quarter more keeps the whole number when the
/// chain truncates it.
fn planned_reading(amount: f64, units: f64) -> PercentileReading {
    let value = ((amount - 1e-6).ceil().max(0.0) + 0.25) / units;
    PercentileReading { percentile: 1.0, value, largest_replica: None }
}

fn percentile_shares(percentiles: &Percentiles, target: Option<f64>) -> [f64; 3] {
    match target {
        // Widen the bounds to include a VPA's own target percentile.
        Some(target) => [percentiles.lower.min(target), target, percentiles.upper.max(target)],
        None => [percentiles.lower, percentiles.target, percentiles.upper],
    }
}

fn percentile_readings(
    shares: [f64; 3],
    values: [f64; 3],
    largest: Option<[f64; 3]>,
) -> [PercentileReading; 3] {
    std::array::from_fn(|index| PercentileReading {
        percentile: shares[index],
        value: values[index],
        largest_replica: largest.map(|largest| largest[index]),
    })
}
