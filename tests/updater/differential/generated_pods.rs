//! Generates pods in the states that an updater may find: requests, actual resources, status and annotations.
//!
//! Pods are generated as kinds: pods of one kind differ only in name, and have equal priority.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::generated_vpas::ContainerTarget;
use crate::support::bulk_objects::{ApiWrite, Workload, collection};
use crate::support::random::Random;

/// Prefix of the boost annotations, one for each container.
const BOOST: &str = "vpaCpuStartupBoost/";
/// An annotation value that does not parse.
const UNREADABLE_VALUE: &str = "this is no list";
/// The annotation of resized pods.
pub const MARKER: &str = "vpaInPlaceUpdated";
/// Nodes of the pods: everything fits on the first, little on the second.
pub const NODES: [(&str, &str, &str); 2] = [("large", "512", "4Ti"), ("small", "2", "3Gi")];

/// The owner of a pod, if it is not the one of its workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodOwner {
    /// The owner of the workload's other pods.
    Usual,
    /// Another owner of the same kind with this name: pods of the previous rollout.
    Former(Value),
    /// The target itself, without intermediate owners.
    Target(Value),
    /// No owner.
    None,
}

/// A group of equal pods.
#[derive(Clone, Debug)]
pub struct PodKind {
    /// Name, valid as a label value.
    pub name: String,
    /// Owner of the pods.
    pub owner: PodOwner,
    /// Whether the pods are marked as boosted.
    pub is_boosted: bool,
    pod: Value,
    status: Value,
}

// === impl PodKind ===

impl PodKind {
    /// Generates a kind of pods for a workload with these targets, at this time.
    pub fn draw(
        noise: &mut Random,
        targets: &[ContainerTarget],
        name: &str,
        owner: PodOwner,
        now: Timestamp,
    ) -> Self {
        let usual = noise.below(5);
        let mut containers: Vec<Value> = Vec::new();
        for target in targets {
            let choice = if noise.chance(70) { usual } else { noise.below(5) };
            let mut container = json!({
                "name": target.container, "image": "example/any",
                "resources": resources(noise, target, choice),
            });
            if noise.chance(20) {
                let resource = *noise.pick(&["cpu", "memory"]);
                let policy = *noise.pick(&["NotRequired", "RestartContainer", "RestartContainer"]);
                container["resizePolicy"] =
                    json!([{ "resourceName": resource, "restartPolicy": policy }]);
            }
            containers.push(container);
        }
        let has_sidecar = noise.chance(15);
        let mut spec = json!({ "containers": containers, "nodeName": NODES[0].0 });
        if noise.chance(15) {
            spec["nodeName"] = (*noise.pick(&[NODES[1].0, NODES[1].0, NODES[1].0, "gone"])).into();
        } else if noise.chance(3) {
            spec["nodeName"] = Value::Null;
        }
        if has_sidecar {
            let request = json!({ "cpu": "1m", "memory": "1Mi" });
            spec["initContainers"] = json!([
                { "name": "setup", "image": "example/any" },
                { "name": "mesh", "image": "example/any", "restartPolicy": "Always",
                  "resources": { "requests": request } },
            ]);
        }
        let names: Vec<&str> = targets.iter().map(|target| &*target.container).collect();
        let annotations = annotations(noise, &names);
        let is_boosted = annotations.keys().any(|key| key.starts_with(BOOST));
        let status = status(noise, targets, (&containers, has_sidecar), now);
        let mut pod = json!({ "metadata": { "labels": { "kind": name } }, "spec": spec });
        if !annotations.is_empty() {
            pod["metadata"]["annotations"] = annotations.into();
        }
        if noise.chance(3) {
            pod["metadata"]["finalizers"] = json!(["example.com/stays"]);
        }
        Self { name: name.to_owned(), owner, is_boosted, pod, status }
    }

    /// Creates one of these pods.
    pub fn create(&self, workload: &Workload, number: u64) -> ApiWrite {
        let mut pod = workload.pod_object(number);
        merge(&mut pod, &self.pod);
        match &self.owner {
            PodOwner::Usual => {}
            PodOwner::Former(owner) | PodOwner::Target(owner) => {
                pod["metadata"]["ownerReferences"] = json!([owner]);
            }
            PodOwner::None => pod["metadata"]["ownerReferences"] = Value::Null,
        }
        ApiWrite::create(collection("v1", &workload.namespace, "pods"), &pod)
    }

    /// Sets the status of one of these pods.
    pub fn report(&self, workload: &Workload, number: u64) -> ApiWrite {
        let path = collection("v1", &workload.namespace, "pods");
        let path = format!("{path}/{}/status", workload.pod_name(number));
        ApiWrite::patch(path, &json!({ "status": self.status }))
    }

    /// Deletes the pod if it is of a kind that stays terminating for a while.
    pub fn leave(&self, workload: &Workload, number: u64) -> Option<ApiWrite> {
        let path = collection("v1", &workload.namespace, "pods");
        let stays = self.pod["metadata"]["finalizers"].is_array();
        stays.then(|| ApiWrite::delete(format!("{path}/{}", workload.pod_name(number))))
    }
}

impl fmt::Display for PodKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}: {} {}", self.name, self.owner, self.pod, self.status)
    }
}

/// Amounts relative to the target: near it, within its bounds, below them, above them, or none.
fn resources(noise: &mut Random, recommended: &ContainerTarget, usual: u64) -> Value {
    let mut requests = Map::new();
    let mut limits = Map::new();
    let limited = noise.below(4);
    for (index, name) in ["cpu", "memory"].into_iter().enumerate() {
        let amounts = &recommended.amounts[index];
        let choice = if noise.chance(85) { usual } else { noise.below(5) };
        let [low, target, high] = *amounts;
        let share = |share: u64, of: u64| of.saturating_mul(share) / 100;
        let amount = match choice {
            0 => share(noise.between(92, 108), target),
            1 => noise.between(low, high),
            2 => share(noise.between(20, 99), low),
            3 => share(noise.between(101, 300), high),
            _ => {
                if limited == 1 && noise.chance(50) {
                    limits.insert(name.to_owned(), text(name, share(120, target)));
                }
                continue;
            }
        };
        let amount = amount.max(1);
        requests.insert(name.to_owned(), text(name, amount));
        match limited {
            0 => drop(limits.insert(name.to_owned(), text(name, amount))),
            1 => {
                let more = share(noise.between(100, 400), amount);
                limits.insert(name.to_owned(), text(name, more));
            }
            _ => {}
        }
    }
    let mut resources = Map::new();
    for (name, list) in [("requests", requests), ("limits", limits)] {
        if !list.is_empty() {
            resources.insert(name.to_owned(), list.into());
        }
    }
    resources.into()
}

fn text(resource: &str, amount: u64) -> Value {
    if resource == "cpu" { format!("{amount}m").into() } else { amount.to_string().into() }
}

fn annotations(noise: &mut Random, containers: &[&str]) -> Map<String, Value> {
    let mut annotations = Map::new();
    let mut say = |key: &str, value: String| annotations.insert(key.to_owned(), value.into());
    if noise.chance(35) {
        let names = containers.join(", ");
        let observed =
            [&*names, &names, &names, containers[0], "", "main,nobody", "a, strange, list", "Main"];
        say("vpaObservedContainers", (*noise.pick(&observed)).to_owned());
    }
    if noise.chance(20) {
        say(MARKER, "true".to_owned());
    }
    if noise.chance(20) {
        say("somebody.else/said", "this".to_owned());
    }
    if noise.chance(12) {
        let container = *noise.pick(&[containers[0], containers[containers.len() - 1], "nobody"]);
        let before = [
            r#"{"requests":{"cpu":"150m","memory":"200Mi"},"limits":{}}"#,
            r#"{"requests":{"cpu":"100m"},"limits":{"cpu":"1"}}"#,
            r#"{"requests":{"cpu":"300m","memory":"1Gi"},"limits":{"cpu":"2","memory":"2Gi"}}"#,
            r#"{"requests":{},"limits":{}}"#,
            UNREADABLE_VALUE,
        ];
        say(&format!("{BOOST}{container}"), (*noise.pick(&before)).to_owned());
    }
    annotations
}

fn status(
    noise: &mut Random,
    targets: &[ContainerTarget],
    (containers, has_sidecar): (&[Value], bool),
    now: Timestamp,
) -> Value {
    let phases = ["Running", "Running", "Running", "Running", "Running", "Running", "Pending"];
    let mut phase = *noise.pick(&phases);
    if noise.chance(4) {
        phase = *noise.pick(&["Failed", "Succeeded", "Unknown"]);
    }
    let is_ready = phase == "Running" && noise.chance(85);
    let mut status = json!({ "phase": phase, "conditions": conditions(noise, is_ready, now) });
    // Far from every threshold used in the test.
    let ages = [2, 35, 5 * 60, 11 * 60, 13 * 60, 13 * 60, 72 * 60, 72 * 60];
    if noise.chance(95) {
        status["startTime"] = ago(now, *noise.pick(&ages)).into();
    }
    let form = noise.below(10);
    let mut statuses: Vec<Value> = Vec::new();
    for (target, container) in targets.iter().zip(containers) {
        let mut container_status = container_status(noise, &target.container, phase, now);
        let spec = &container["resources"];
        match form {
            0..6 => container_status["resources"] = spec.clone(),
            6 => {
                let choice = noise.below(5);
                container_status["resources"] = resources(noise, target, choice);
            }
            7 => container_status["resources"] = json!({ "requests": { "cpu": "77m" } }),
            _ => {}
        }
        if noise.chance(97) {
            statuses.push(container_status);
        }
    }
    status["containerStatuses"] = statuses.into();
    if has_sidecar {
        let sidecar = container_status(noise, "mesh", phase, now);
        status["initContainerStatuses"] = json!([sidecar]);
    }
    status
}

fn container_status(noise: &mut Random, name: &str, phase: &str, now: Timestamp) -> Value {
    let state = if phase == "Pending" {
        json!({ "waiting": { "reason": "ContainerCreating" } })
    } else {
        json!({ "running": { "startedAt": ago(now, 1) } })
    };
    let mut status = json!({
        "name": name, "image": "example/any", "imageID": "example/any", "ready": true,
        "restartCount": 0, "state": state,
    });
    if noise.chance(15) {
        let reason = *noise.pick(&["OOMKilled", "OOMKilled", "OOMKilled", "Error"]);
        let ended = *noise.pick(&[1, 1, 20, 120]);
        let ran = *noise.pick(&[2, 2, 20, 300]);
        status["restartCount"] = 1.into();
        status["lastState"] = json!({ "terminated": {
            "reason": reason, "exitCode": 137, "startedAt": ago(now, ended + ran), "finishedAt": ago(now, ended),
        } });
    }
    status
}

fn conditions(noise: &mut Random, is_ready: bool, now: Timestamp) -> Value {
    let condition = |kind: &str, status: &str, minutes: i64| json!({ "type": kind, "status": status, "lastTransitionTime": ago(now, minutes) });
    let mut conditions = Vec::new();
    if is_ready || noise.chance(80) {
        conditions.push(condition("Ready", if is_ready { "True" } else { "False" }, 60));
    }
    if noise.chance(18) {
        let examples = [
            ("PodResizePending", "Deferred", "no room"),
            ("PodResizePending", "Deferred", ""),
            ("PodResizePending", "Infeasible", "too large"),
            ("PodResizePending", "Infeasible", ""),
            ("PodResizePending", "", ""),
            ("PodResizePending", "Strange", "who knows"),
            ("PodResizeInProgress", "", ""),
            ("PodResizeInProgress", "Error", "it broke"),
            ("PodResizeInProgress", "Error", ""),
            ("PodResizeInProgress", "", "it goes on"),
            ("PodResizeInProgress", "Strange", ""),
        ];
        for _ in 0..noise.between(1, 2) {
            let (kind, reason, message) = *noise.pick(&examples);
            if conditions.iter().any(|existing| existing["type"] == kind) {
                continue;
            }
            let status = if noise.chance(85) { "True" } else { "False" };
            let mut resize = condition(kind, status, 120);
            for (field, text) in [("reason", reason), ("message", message)] {
                if !text.is_empty() {
                    resize[field] = text.into();
                }
            }
            conditions.push(resize);
        }
    }
    conditions.into()
}

/// The time this many minutes earlier.
fn ago(now: Timestamp, minutes: i64) -> String {
    let at = now - SignedDuration::from_mins(minutes);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Merges the fields of one object into another.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}
