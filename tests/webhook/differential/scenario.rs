//! Generates the reviews for both webhooks: workloads with their VPAs and LimitRanges, and pods as controllers would create
//! them.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::PODS_OF_EACH;
use crate::support::bulk_objects::{ApiWrite, Workload, WorkloadKind, collection};
use crate::support::random::Random;

const VPAS: &str = "verticalpodautoscalers";
const MEBIBYTE: u64 = 1 << 20;
const NAMESPACES: usize = 12;

/// A workload with its VPA.
#[derive(Debug)]
pub struct ScenarioWorkload {
    /// Owner of the pods.
    pub workload: Workload,
    /// Its VPA.
    vpa: Value,
    /// The VPA's status.
    status: Value,
    seed: u64,
    index: u64,
}

/// The input of both webhooks.
#[derive(Debug)]
pub struct Scenario {
    /// Workloads by number.
    pub subjects: Vec<ScenarioWorkload>,
    ranges: Vec<ApiWrite>,
}

// === impl Scenario ===

impl Scenario {
    /// Generates this many workloads, spread over namespaces.
    pub fn draw(seed: u64, count: usize) -> Self {
        let namespaces: Vec<_> = (0..NAMESPACES).map(|index| format!("team-{index:02}")).collect();
        let subjects = (0..count).map(|index| {
            let namespace = &namespaces[index % namespaces.len()];
            ScenarioWorkload::draw(seed, index as u64, namespace)
        });
        let ranges = namespaces.iter().enumerate().flat_map(|(index, namespace)| {
            let mut noise = Random::derive(seed, &[7, index as u64]);
            // Every third namespace has none.
            let count = if index % 3 == 0 { 0 } else { noise.between(1, 2) };
            let ranges: Vec<_> = (0..count)
                .map(|number| {
                    let object = json!({
                        "apiVersion": "v1", "kind": "LimitRange",
                        "metadata": { "name": format!("range-{number}"), "namespace": namespace },
                        "spec": { "limits": limits(&mut noise, number == 0) },
                    });
                    ApiWrite::create(collection("v1", namespace, "limitranges"), &object)
                })
                .collect();
            ranges
        });
        Self { ranges: ranges.collect(), subjects: subjects.collect() }
    }

    /// Returns the namespaces of the scenario.
    pub fn namespaces(&self) -> BTreeSet<&str> {
        self.subjects.iter().map(|subject| &*subject.workload.namespace).collect()
    }

    /// Returns all objects and reviews, as text.
    pub fn inputs(&self) -> Vec<String> {
        let written =
            self.create_owners_and_ranges().chain(self.vpas()).chain(self.recommendations());
        let pods = self
            .subjects
            .iter()
            .flat_map(|subject| (0..PODS_OF_EACH).map(|number| subject.pod(number).to_string()));
        written.map(|write| format!("{write:?}")).chain(pods).collect()
    }

    /// Returns the namespaces, which are created first.
    pub fn create_namespaces(&self) -> impl Iterator<Item = ApiWrite> {
        self.namespaces().into_iter().map(|name| {
            let metadata = json!({ "name": name });
            let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
            ApiWrite::create("/api/v1/namespaces", &object)
        })
    }

    /// Returns what is created next: owners and LimitRanges.
    pub fn create_owners_and_ranges(&self) -> impl Iterator<Item = ApiWrite> {
        let owners = self.subjects.iter().flat_map(|subject| subject.workload.owners());
        owners.chain(self.ranges.iter().cloned())
    }

    /// Returns what depends on the owners: their statuses, and VPAs.
    pub fn vpas(&self) -> impl Iterator<Item = ApiWrite> {
        self.subjects.iter().flat_map(|subject| {
            let mut writes = subject.workload.statuses();
            let namespace = &subject.workload.namespace;
            let path = collection("autoscaling.k8s.io/v1", namespace, VPAS);
            writes.push(ApiWrite::create(path, &subject.vpa));
            writes
        })
    }

    /// Returns the statuses of the VPAs.
    pub fn recommendations(&self) -> impl Iterator<Item = ApiWrite> {
        self.subjects.iter().map(|subject| {
            let namespace = &subject.workload.namespace;
            let path = collection("autoscaling.k8s.io/v1", namespace, VPAS);
            let path = format!("{path}/{}/status", subject.workload.name);
            ApiWrite::patch(path, &json!({ "status": subject.status }))
        })
    }
}

// === impl ScenarioWorkload ===

impl ScenarioWorkload {
    fn draw(seed: u64, index: u64, namespace: &str) -> Self {
        let mut noise = Random::derive(seed, &[1, index]);
        let count = noise.between(1, 3) as usize;
        let containers = ["main", "proxy", "log-2"][..count].iter();
        let workload = Workload {
            namespace: namespace.to_owned(),
            name: format!("w{index:03}"),
            kind: WorkloadKind::ALL[index as usize % WorkloadKind::ALL.len()],
            containers: containers.map(|name| (*name).to_owned()).collect(),
            has_init: false,
            request: noise.between(16, 2048) * MEBIBYTE,
        };
        let mut spec = json!({ "targetRef": workload.target_ref() });
        if noise.chance(85) {
            let modes = ["Off", "Initial", "Recreate", "Auto", "InPlaceOrRecreate", "InPlace"];
            spec["updatePolicy"] = json!({ "updateMode": noise.pick(&modes) });
        }
        if noise.chance(75) {
            let names = workload.containers.iter().map(String::as_str).chain(["*"]);
            let mut policies = Vec::new();
            for name in names {
                if noise.chance(60) {
                    policies.push(policy(&mut noise, name));
                }
            }
            spec["resourcePolicy"] = json!({ "containerPolicies": policies });
        }
        if noise.chance(20) {
            spec["startupBoost"] = boost(&mut noise);
        }
        let vpa = json!({
            "apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": { "name": workload.name, "namespace": namespace },
            "spec": spec,
        });
        let mut recommended = Vec::new();
        for name in workload.containers.iter().map(String::as_str).chain(["nobody"]) {
            if noise.chance(if name == "nobody" { 10 } else { 90 }) {
                recommended.push(recommendation(&mut noise, name));
            }
        }
        let status = if noise.chance(5) {
            json!({ "conditions": [] })
        } else {
            json!({ "recommendation": { "containerRecommendations": recommended } })
        };
        Self { workload, vpa, status, seed, index }
    }

    /// Returns a pod as the API server would send it to a webhook, with or without a namespace, a name or a `generateName`.
    pub fn pod(&self, number: u64) -> Value {
        let mut noise = Random::derive(self.seed, &[2, self.index, number]);
        let mut pod: Value = self.workload.pod_object(number);
        let containers: Vec<_> = self
            .workload
            .containers
            .iter()
            .map(String::as_str)
            .chain(noise.chance(15).then_some("injected"))
            .map(|name| json!({ "name": name, "image": "example/any", "resources": resources(&mut noise) }))
            .collect();
        pod["spec"]["containers"] = containers.into();
        if noise.chance(25) {
            pod["spec"]["initContainers"] = json!([
                { "name": "setup", "image": "example/any", "resources": resources(&mut noise) },
                { "name": "mesh", "image": "example/any", "restartPolicy": "Always",
                  "resources": resources(&mut noise) },
            ]);
        }
        let metadata = pod["metadata"].as_object_mut().expect("an object");
        if noise.chance(50) {
            metadata.insert("annotations".to_owned(), json!({ "somebody.else/said": "this" }));
        }
        if noise.chance(50) {
            let name = metadata.remove("name").expect("has a name");
            let prefix = format!("{}-", name.as_str().expect("text"));
            metadata.insert("generateName".to_owned(), prefix.into());
        }
        pod
    }
}

fn policy(noise: &mut Random, name: &str) -> Value {
    let mut policy = json!({ "containerName": name });
    if noise.chance(25) {
        policy["mode"] = (*noise.pick(&["Auto", "Off"])).into();
    }
    for bound in ["minAllowed", "maxAllowed"] {
        if noise.chance(40) {
            policy[bound] = amounts(noise, 75);
        }
    }
    if noise.chance(35) {
        policy["controlledResources"] =
            noise.pick(&[json!(["cpu"]), json!(["memory"]), json!(["memory", "cpu"])]).clone();
    }
    if noise.chance(45) {
        policy["controlledValues"] = (*noise.pick(&["RequestsAndLimits", "RequestsOnly"])).into();
    }
    if noise.chance(10) {
        policy["startupBoost"] = boost(noise);
    }
    policy
}

fn boost(noise: &mut Random) -> Value {
    let duration = noise.between(0, 300);
    let cpu = if noise.chance(50) {
        json!({ "type": "Factor", "factor": noise.between(1, 5), "durationSeconds": duration })
    } else {
        let quantity = *noise.pick(&["100m", "1", "2500m"]);
        json!({ "type": "Quantity", "quantity": quantity, "durationSeconds": duration })
    };
    json!({ "cpu": cpu })
}

fn recommendation(noise: &mut Random, name: &str) -> Value {
    let cpu = noise.between(15, 4_000);
    let memory = noise.between(10, 6_000) * 1_000_000 + noise.below(1_000_000);
    let of = |share: u64| json!({ "cpu": format!("{}m", cpu * share / 100), "memory": (memory * share / 100).to_string() });
    let (low, high) = (noise.between(10, 100), noise.between(100, 900));
    let mut recommendation = json!({
        "containerName": name, "target": of(100), "lowerBound": of(low), "upperBound": of(high),
        "uncappedTarget": of(100),
    });
    if noise.chance(8) {
        let resource = *noise.pick(&["cpu", "memory"]);
        for field in ["target", "lowerBound", "upperBound"] {
            recommendation[field].as_object_mut().expect("an object").remove(resource);
        }
    }
    recommendation
}

/// Amounts in the formats that people use.
fn amounts(noise: &mut Random, share: u64) -> Value {
    let cpu = ["10m", "0.1", "250m", "0.75", "1", "1500m", "2.5", "8"];
    let memory = ["64Mi", "100M", "128974848", "0.5Gi", "1e9", "1Gi", "1500Mi", "3G", "8Gi"];
    let mut amounts = Map::new();
    if noise.chance(share) {
        amounts.insert("cpu".to_owned(), (*noise.pick(&cpu)).into());
    }
    if noise.chance(share) {
        amounts.insert("memory".to_owned(), (*noise.pick(&memory)).into());
    }
    amounts.into()
}

fn resources(noise: &mut Random) -> Value {
    let mut resources = Map::new();
    for field in ["requests", "limits"] {
        if noise.chance(if field == "requests" { 85 } else { 50 }) {
            resources.insert(field.to_owned(), amounts(noise, 85));
        }
    }
    resources.into()
}

/// Only the first of several LimitRanges of a namespace has limits for containers: which of two defaults applies depends on
/// the order of upstream's cache, which differs between two processes.
fn limits(noise: &mut Random, is_first: bool) -> Value {
    let mut limits = Vec::new();
    if is_first && noise.chance(80) {
        let mut container = json!({ "type": "Container" });
        if noise.chance(50) {
            container["max"] = json!({ "cpu": "3", "memory": "4Gi" });
        }
        if noise.chance(50) {
            container["min"] = json!({ "cpu": "50m", "memory": "48Mi" });
        }
        if noise.chance(30) {
            container["default"] = json!({ "cpu": "2", "memory": "2Gi" });
        }
        limits.push(container);
    }
    if !is_first || noise.chance(40) {
        let mut pod = json!({ "type": "Pod" });
        if noise.chance(70) {
            pod["max"] = json!({ "cpu": "5", "memory": "6Gi" });
        }
        if noise.chance(50) {
            pod["min"] = json!({ "cpu": "200m", "memory": "300Mi" });
        }
        limits.push(pod);
    }
    limits.into()
}
