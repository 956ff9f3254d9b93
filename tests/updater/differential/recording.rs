//! Recordings of upstream's updater, and of the cluster that it saw; `cargo xtask record updater` writes them.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use jiff::Timestamp;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::compare::PodWrite;
use super::deep::LiveRun;
use super::dry_run_proxy::RecordedWrite;
use super::scenario::{Scenario, ScenarioWorkload};
use super::{NAMESPACES, PARTS, UpdaterActions, WORKLOADS};
use crate::support::bulk_objects::ApiWrite;
use crate::support::upstream_recording::UpstreamRecording;

/// A recorded run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recording {
    /// Responses of the API server to reads, by path and selectors. They do not change during a run.
    pub reads: BTreeMap<String, Answer>,
    /// The parts of the run.
    pub parts: Vec<Recorded>,
}

/// One part of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// Start of the part.
    pub began: Timestamp,
    /// Upstream's actions.
    pub theirs: UpdaterActions,
    /// Responses of the API server to writes to pods, by name ([`ActionNames`]).
    pub answers: BTreeMap<String, Answer>,
}

/// A response of the API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Status code.
    pub code: u16,
    /// Body, without managed fields.
    pub body: Value,
}

/// Returns the recording of this seed.
pub fn golden(seed: u64) -> UpstreamRecording {
    let scenario = Scenario::draw(seed, WORKLOADS, &NAMESPACES, Timestamp::UNIX_EPOCH);
    let rounds = scenario.rounds();
    let texts: Vec<String> = rounds.iter().flatten().map(ApiWrite::text).collect();
    let parts = PARTS.each_ref().map(|part| (part.flags, part.passes.idle, part.passes.recorded));
    UpstreamRecording::new("updater", seed, &(texts, parts))
}

/// Names a write to a pod equally for all pods of a kind, since the API server responds equally.
#[derive(Debug)]
pub struct ActionNames(HashMap<(String, String), KindOfPod>);

/// The kind and workload of a pod.
#[derive(Debug)]
struct KindOfPod {
    name: String,
    containers: Vec<String>,
}

// === impl ActionNames ===

impl ActionNames {
    /// Returns the names for the pods of a scenario.
    pub fn of(scenario: &Scenario) -> Self {
        let mut pods = HashMap::new();
        for ScenarioWorkload { workload, kinds, pods: of_it, .. } in &scenario.subjects {
            for (number, &kind) in (0..).zip(of_it) {
                let kind = &kinds[kind].name;
                let name = format!("{}/{} {kind}", workload.namespace, workload.name);
                let of_kind = KindOfPod { name, containers: workload.containers.clone() };
                pods.insert((workload.namespace.clone(), workload.pod_name(number)), of_kind);
            }
        }
        Self(pods)
    }

    /// Returns the name of a write, if its pod is known.
    pub fn name(&self, write: &RecordedWrite) -> Option<String> {
        let (namespace, pod) = write.pod()?;
        let KindOfPod { name, containers } = self.0.get(&(namespace.to_owned(), pod.to_owned()))?;
        Some(format!("{name} {:?}", PodWrite::of(write, containers)))
    }
}

// === impl Recording ===

impl Recording {
    /// Records a run, with everything that both updaters read.
    pub async fn of(client: &Client, run: &LiveRun) -> Self {
        let names = ActionNames::of(&run.scenario);
        let mut reads = BTreeMap::new();
        for path in &run.read {
            reads.insert(path.clone(), Answer::read(client, path).await);
        }
        let parts = run.parts.iter().map(|part| {
            let mut answers: BTreeMap<String, Answer> = BTreeMap::new();
            for write in
                part.sides.iter().flat_map(|actions| &actions.asked).filter(|write| write.code > 0)
            {
                let name = names.name(write).expect("pod of the scenario");
                let answer = Answer::to(write);
                let before = answers.insert(name.clone(), answer.clone());
                let is_same = before.is_none_or(|before| before.code == answer.code);
                assert!(is_same, "different responses to the same write: {name}");
            }
            Recorded { began: part.began, theirs: part.sides[0].clone(), answers }
        });
        Self { reads, parts: parts.collect() }
    }
}

// === impl Answer ===

impl Answer {
    async fn read(client: &Client, path: &str) -> Self {
        let request = http::Request::get(path).body(Vec::new()).expect("valid request");
        match client.request::<Value>(request).await {
            Ok(mut body) => {
                drop_managed_fields(&mut body);
                Self { code: 200, body }
            }
            Err(kube::Error::Api(status)) => {
                Self { code: status.code, body: serde_json::to_value(status).expect("JSON") }
            }
            Err(why) => panic!("{path}: {why}"),
        }
    }

    fn to(write: &RecordedWrite) -> Self {
        let mut body = write.answer.clone();
        // An updater reads the current version of a pod.
        if write.code < 300 && body["kind"] == "Pod" {
            let version = &body["metadata"]["resourceVersion"];
            body = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "resourceVersion": version },
            });
        }
        Self { code: write.code, body }
    }
}

fn drop_managed_fields(body: &mut Value) {
    let drop_of = |object: &mut Value| {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    };
    if body["metadata"].is_object() {
        drop_of(body);
    }
    for object in body["items"].as_array_mut().into_iter().flatten() {
        drop_of(object);
    }
}

/// Returns the text of a streamed list: each object, then the bookmark that ends the initial list.
pub fn streamed(list: &Value) -> String {
    let mut text = String::new();
    for object in list["items"].as_array().into_iter().flatten() {
        let _ = writeln!(text, "{}", json!({ "type": "ADDED", "object": object }));
    }
    let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List");
    let end = json!({ "type": "BOOKMARK", "object": {
        "apiVersion": list["apiVersion"], "kind": kind,
        "metadata": {
            "resourceVersion": list["metadata"]["resourceVersion"],
            "annotations": { "k8s.io/initial-events-end": "true" },
        },
    } });
    let _ = writeln!(text, "{end}");
    text
}
