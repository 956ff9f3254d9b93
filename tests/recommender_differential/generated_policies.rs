//! Generates VPA specs: every field that a recommender reads, and fields that it must ignore.

use serde_json::{Map, Value, json};

use crate::support::random::Random;

/// A spec without target and recommender, and annotations.
pub fn draw(noise: &mut Random, containers: &[String]) -> (Value, Value) {
    let mut spec = json!({});
    if noise.chance(80) {
        spec["updatePolicy"] = update_policy(noise);
    }
    if noise.chance(80) {
        let others = ["*".to_owned(), "nobody".to_owned()];
        let mut policies = Vec::new();
        for name in containers.iter().chain(&others) {
            if noise.chance(if name == "nobody" { 10 } else { 50 }) {
                policies.push(container_policy(noise, name));
            }
        }
        // The order of a list is up to the user.
        if noise.chance(50) {
            policies.reverse();
        }
        spec["resourcePolicy"] = json!({ "containerPolicies": policies });
    }
    if noise.chance(10) {
        let factor = noise.between(2, 5);
        spec["startupBoost"] = json!({ "cpu": { "type": "Factor", "factor": factor } });
    }
    let mut annotations = Map::new();
    for name in containers {
        let value = *noise.pick(&["", "", "", "true", "yes"]);
        if !value.is_empty() {
            let key = format!("vpa-post-processor.kubernetes.io/{name}_integerCPU");
            annotations.insert(key, value.into());
        }
    }
    (spec, annotations.into())
}

fn update_policy(noise: &mut Random) -> Value {
    let modes = ["Off", "Initial", "Recreate", "InPlaceOrRecreate", "InPlace", "Auto"];
    let mut policy = json!({ "updateMode": noise.pick(&modes) });
    if noise.chance(30) {
        policy["minReplicas"] = noise.between(1, 3).into();
    }
    if noise.chance(20) {
        let requirement = noise.pick(&["TargetHigherThanRequests", "TargetLowerThanRequests"]);
        policy["evictionRequirements"] =
            json!([{ "resources": ["cpu"], "changeRequirement": requirement }]);
    }
    if noise.chance(20) {
        policy["evictAfterOOMSeconds"] = noise.between(1, 900).into();
    }
    policy
}

fn container_policy(noise: &mut Random, name: &str) -> Value {
    let mut policy = json!({ "containerName": name });
    if noise.chance(30) {
        policy["mode"] = (*noise.pick(&["Auto", "Auto", "Off"])).into();
    }
    for bound in ["minAllowed", "maxAllowed"] {
        if noise.chance(45) {
            policy[bound] = amounts(noise);
        }
    }
    if noise.chance(35) {
        policy["controlledResources"] = noise
            .pick(&[json!([]), json!(["cpu"]), json!(["memory"]), json!(["memory", "cpu"])])
            .clone();
    }
    if noise.chance(30) {
        policy["controlledValues"] = (*noise.pick(&["RequestsAndLimits", "RequestsOnly"])).into();
    }
    if noise.chance(30) {
        policy["oomBumpUpRatio"] = (*noise.pick(&["1", "1.5", "1.2345", "2050m", "3"])).into();
    }
    if noise.chance(30) {
        policy["oomMinBumpUp"] = (*noise.pick(&["0", "50Mi", "1000", "0.5Gi", "1e8"])).into();
    }
    if noise.chance(30) {
        policy["memoryAggregationIntervalSeconds"] =
            (*noise.pick(&[600, 3600, 20_000, 43_200, 172_800])).into();
    }
    if noise.chance(30) {
        policy["memoryAggregationIntervalCount"] = (*noise.pick(&[1, 2, 8, 30])).into();
    }
    policy
}

/// As users write them, including zero and a minimum above the maximum; the status repeats capped amounts in the
/// user's notation.
fn amounts(noise: &mut Random) -> Value {
    let cpu = ["0", "10m", "0.1", "250m", "0.75", "1", "1500m", "2.5", "8", "1e1"];
    let memory = ["0", "64Mi", "100M", "128974848", "0.5Gi", "1e9", "1Gi", "1500Mi", "3G", "8Gi"];
    let mut amounts = Map::new();
    if noise.chance(75) {
        amounts.insert("cpu".to_owned(), (*noise.pick(&cpu)).into());
    }
    if noise.chance(75) {
        amounts.insert("memory".to_owned(), (*noise.pick(&memory)).into());
    }
    amounts.into()
}
