//! Draws pods as an updater may find them: what they ask for, what they have, how they fare, and what is said on them.
//!
//! Pods are drawn as kinds: those of one kind are alike in all but their names, and equally urgent.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::generated_vpas::ContainerTarget;
use crate::support::bulk_objects::{ApiWrite, Workload, collection};
use crate::support::random::Random;

/// What a boost is written under, for each container.
const BOOST: &str = "vpaCpuStartupBoost/";
/// What stands there and cannot be read.
const UNREADABLE_VALUE: &str = "this is no list";
/// What says that a pod was resized.
pub const MARKER: &str = "vpaInPlaceUpdated";
/// Where a pod may be: everything fits on the first, little on the second.
pub const NODES: [(&str, &str, &str); 2] = [("large", "512", "4Ti"), ("small", "2", "3Gi")];

/// Whom a pod belongs to, where that is not what its workload says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodOwner {
    /// As its workload says.
    Usual,
    /// Another of the same kind, named so: the pods of the rollout before.
    Former(Value),
    /// The target itself, past all that stands between.
    Target(Value),
    /// Nobody.
    None,
}

/// Pods that are alike.
#[derive(Clone, Debug)]
pub struct PodKind {
    /// As a label has it.
    pub name: String,
    /// Whom they belong to.
    pub owner: PodOwner,
    /// Whether something on them says that they are boosted.
    pub is_boosted: bool,
    pod: Value,
    status: Value,
}

// === impl Kind ===

impl PodKind {
    /// Draws one of a workload, for which that is wished, as it is at this time.
    pub fn draw(
        noise: &mut Random,
        wishes: &[ContainerTarget],
        name: &str,
        owner: PodOwner,
        now: Timestamp,
    ) -> Self {
        let usual = noise.below(5);
        let mut containers: Vec<Value> = Vec::new();
        for wish in wishes {
            let way = if noise.chance(70) { usual } else { noise.below(5) };
            let mut container = json!({
                "name": wish.container, "image": "example/any",
                "resources": resources(noise, wish, way),
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
        let names: Vec<&str> = wishes.iter().map(|wish| &*wish.container).collect();
        let annotations = annotations(noise, &names);
        let is_boosted = annotations.keys().any(|key| key.starts_with(BOOST));
        let status = status(noise, wishes, (&containers, has_sidecar), now);
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

    /// Has it be as it is.
    pub fn report(&self, workload: &Workload, number: u64) -> ApiWrite {
        let path = collection("v1", &workload.namespace, "pods");
        let path = format!("{path}/{}/status", workload.pod_name(number));
        ApiWrite::patch(path, &json!({ "status": self.status }))
    }

    /// Deletes it, if it is one of those that then stay for a while.
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

/// Amounts beside what is wished: near it, within its bounds, below them, above them, or none.
fn resources(noise: &mut Random, wish: &ContainerTarget, usual: u64) -> Value {
    let mut requests = Map::new();
    let mut limits = Map::new();
    let limited = noise.below(4);
    for (index, name) in ["cpu", "memory"].into_iter().enumerate() {
        let amounts = &wish.amounts[index];
        let way = if noise.chance(85) { usual } else { noise.below(5) };
        let [low, target, high] = *amounts;
        let share = |share: u64, of: u64| of.saturating_mul(share) / 100;
        let amount = match way {
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
        let all = containers.join(", ");
        let observed =
            [&*all, &all, &all, containers[0], "", "main,nobody", "a, strange, list", "Main"];
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
    wishes: &[ContainerTarget],
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
    // Far from every threshold that is tried.
    let ages = [2, 35, 5 * 60, 11 * 60, 13 * 60, 13 * 60, 72 * 60, 72 * 60];
    if noise.chance(95) {
        status["startTime"] = ago(now, *noise.pick(&ages)).into();
    }
    let tells = noise.below(10);
    let mut statuses: Vec<Value> = Vec::new();
    for (wish, container) in wishes.iter().zip(containers) {
        let mut one = container_status(noise, &wish.container, phase, now);
        let spec = &container["resources"];
        match tells {
            0..6 => one["resources"] = spec.clone(),
            6 => {
                let way = noise.below(5);
                one["resources"] = resources(noise, wish, way);
            }
            7 => one["resources"] = json!({ "requests": { "cpu": "77m" } }),
            _ => {}
        }
        if noise.chance(97) {
            statuses.push(one);
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
        let words = [
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
            let (kind, reason, message) = *noise.pick(&words);
            if conditions.iter().any(|one| one["type"] == kind) {
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

/// So many minutes before that.
fn ago(now: Timestamp, minutes: i64) -> String {
    let at = now - SignedDuration::from_mins(minutes);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Sets the fields of one object in another.
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
