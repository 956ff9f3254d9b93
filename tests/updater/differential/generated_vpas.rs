//! Generates VPAs and their recommendations.

use serde_json::{Map, Value, json};

use crate::support::bulk_objects::Workload;
use crate::support::random::Random;

/// Plural of the resource.
pub const VPAS: &str = "verticalpodautoscalers";
/// Group and version of the resource.
pub const AUTOSCALING: &str = "autoscaling.k8s.io/v1";

/// Recommendation for a container: lower bound, target and upper bound of CPU, in millicores, and of memory, in bytes.
#[derive(Clone, Debug)]
pub struct ContainerTarget {
    /// Name of the container.
    pub container: String,
    /// Lower bound, target and upper bound of CPU, then of memory.
    pub amounts: [[u64; 3]; 2],
    /// Which resources have a recommendation.
    recommended: RecommendedResources,
}

/// The resources of a container that have a recommendation.
#[derive(Clone, Copy, Debug)]
enum RecommendedResources {
    /// None.
    Nothing,
    /// All but this one, if any.
    All(Option<&'static str>),
}

// === impl ContainerTarget ===

impl ContainerTarget {
    /// Generates a recommendation. A whole one covers both resources.
    pub fn draw(noise: &mut Random, container: &str, is_whole: bool) -> Self {
        let cpu = noise.between(15, 1_500);
        let memory = noise.between(10, 2_000) * 1_000_000 + noise.below(1_000_000);
        let mut around = |target: u64| {
            let (low, high) = (noise.between(40, 98), noise.between(102, 400));
            [(target * low / 100).max(1), target, target * high / 100]
        };
        let amounts = [around(cpu), around(memory)];
        let left_out = (!is_whole && noise.chance(8)).then(|| *noise.pick(&["cpu", "memory"]));
        let recommended = if is_whole || noise.chance(92) {
            RecommendedResources::All(left_out)
        } else {
            RecommendedResources::Nothing
        };
        Self { container: container.to_owned(), amounts, recommended }
    }

    /// Returns the recommendation as in a VPA's status.
    pub fn recommendation_json(&self) -> Option<Value> {
        let RecommendedResources::All(left_out) = self.recommended else { return None };
        let list = |which: usize| {
            let [cpu, memory] = self.amounts.map(|amounts| amounts[which]);
            let mut list = json!({ "cpu": format!("{cpu}m"), "memory": memory.to_string() });
            if let Some(resource) = left_out {
                list.as_object_mut().expect("an object").remove(resource);
            }
            list
        };
        Some(json!({
            "containerName": self.container, "lowerBound": list(0), "target": list(1),
            "upperBound": list(2), "uncappedTarget": list(1),
        }))
    }
}

/// Generates a VPA of a workload. A whole one omits no container.
pub fn vpa(
    noise: &mut Random,
    workload: &Workload,
    targets: &[ContainerTarget],
    is_whole: bool,
    end: &str,
) -> Value {
    let mut spec = json!({ "targetRef": workload.target_ref() });
    if noise.chance(94) {
        spec["updatePolicy"] = policy_of_updates(noise);
    }
    if noise.chance(60) {
        let mut policies = Vec::new();
        for target in targets {
            if noise.chance(50) {
                policies.push(policy(noise, &target.container, target, is_whole));
            }
        }
        if noise.chance(40) {
            policies.push(policy(noise, "*", &targets[0], is_whole));
        }
        spec["resourcePolicy"] = json!({ "containerPolicies": policies });
    }
    if noise.chance(15) {
        spec["startupBoost"] = boost(noise);
    }
    let name = format!("{}{end}", workload.name);
    json!({
        "apiVersion": AUTOSCALING, "kind": "VerticalPodAutoscaler",
        "metadata": { "name": name, "namespace": workload.namespace }, "spec": spec,
    })
}

/// Whether a VPA has a startup boost.
pub fn is_boosting(vpa: &Value) -> bool {
    let policies = vpa["spec"]["resourcePolicy"]["containerPolicies"].as_array();
    let mut specs = policies.into_iter().flatten().chain([&vpa["spec"]]);
    specs.any(|spec| spec["startupBoost"].is_object())
}

fn policy_of_updates(noise: &mut Random) -> Value {
    let modes = [
        "Recreate",
        "Recreate",
        "Recreate",
        "Auto",
        "InPlaceOrRecreate",
        "InPlaceOrRecreate",
        "InPlaceOrRecreate",
        "InPlace",
        "InPlace",
        "Off",
        "Initial",
    ];
    let mut policy = json!({ "updateMode": noise.pick(&modes) });
    if noise.chance(40) {
        policy["minReplicas"] = noise.between(1, 4).into();
    }
    if noise.chance(20) {
        policy["evictAfterOOMSeconds"] = (*noise.pick(&[90, 3 * 3600])).into();
    }
    if noise.chance(18) {
        let requirement = |noise: &mut Random| {
            let resources = [json!(["cpu"]), json!(["memory"]), json!(["cpu", "memory"])];
            let change = ["TargetHigherThanRequests", "TargetLowerThanRequests"];
            json!({ "resources": noise.pick(&resources), "changeRequirement": noise.pick(&change) })
        };
        let list: Vec<Value> = (0..noise.between(0, 2)).map(|_| requirement(noise)).collect();
        policy["evictionRequirements"] = list.into();
    }
    policy
}

fn policy(noise: &mut Random, name: &str, recommended: &ContainerTarget, is_whole: bool) -> Value {
    let mut policy = json!({ "containerName": name });
    if !is_whole && noise.chance(20) {
        policy["mode"] = (*noise.pick(&["Auto", "Off"])).into();
    }
    for (bound, from, to) in [("minAllowed", 30, 130), ("maxAllowed", 70, 400)] {
        if noise.chance(30) {
            let mut amounts = Map::new();
            for (resource, [_, target, _]) in ["cpu", "memory"].into_iter().zip(recommended.amounts)
            {
                let amount = (target * noise.between(from, to) / 100).max(1);
                if noise.chance(75) {
                    let text =
                        if resource == "cpu" { format!("{amount}m") } else { amount.to_string() };
                    amounts.insert(resource.to_owned(), text.into());
                }
            }
            policy[bound] = amounts.into();
        }
    }
    if noise.chance(20) {
        let lists = [json!(["cpu"]), json!(["memory"]), json!(["memory", "cpu"])];
        policy["controlledResources"] = noise.pick(&lists).clone();
    }
    if noise.chance(40) {
        let values = ["RequestsAndLimits", "RequestsOnly"];
        policy["controlledValues"] = (*noise.pick(&values)).into();
    }
    if noise.chance(8) {
        policy["startupBoost"] = boost(noise);
    }
    policy
}

/// A boost that ended long ago or will not end soon: ready pods have been ready for an hour.
fn boost(noise: &mut Random) -> Value {
    let seconds = *noise.pick(&[0, 60, 600, 600, 30_000]);
    json!({ "cpu": { "type": "Factor", "factor": 2, "durationSeconds": seconds } })
}
