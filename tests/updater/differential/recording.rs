//! Owns what is recorded of upstream's updater, and of the cluster that it saw: `cargo xtask record updater` writes it.

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

/// One run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recording {
    /// What the API server answers to those who read, by path and selectors. In a run nothing changes.
    pub reads: BTreeMap<String, Answer>,
    /// Each part.
    pub parts: Vec<Recorded>,
}

/// One part of a run.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// When it began.
    pub began: Timestamp,
    /// What upstream did.
    pub theirs: UpdaterActions,
    /// What the API server answers to what is to be done to a pod, as [`Deeds`] names it.
    pub answers: BTreeMap<String, Answer>,
}

/// What the API server answered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// The code.
    pub code: u16,
    /// Without managed fields.
    pub body: Value,
}

/// Where the recording of this seed is.
pub fn golden(seed: u64) -> UpstreamRecording {
    let scenario = Scenario::draw(seed, WORKLOADS, &NAMESPACES, Timestamp::UNIX_EPOCH);
    let rounds = scenario.rounds();
    let texts: Vec<String> = rounds.iter().flatten().map(ApiWrite::text).collect();
    let parts = PARTS.each_ref().map(|part| (part.flags, part.passes.idle, part.passes.made));
    UpstreamRecording::new("updater", seed, &(texts, parts))
}

/// Names what was to be done to a pod so that it is the same for all pods of its kind: the API server's answer is.
#[derive(Debug)]
pub struct ActionNames(HashMap<(String, String), KindOfPod>);

/// What a pod is one of.
#[derive(Debug)]
struct KindOfPod {
    name: String,
    containers: Vec<String>,
}

// === impl Deeds ===

impl ActionNames {
    /// For the pods of a scenario.
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

    /// The name of a deed, if the pod is one of those.
    pub fn name(&self, asked: &RecordedWrite) -> Option<String> {
        let (namespace, pod) = asked.pod()?;
        let KindOfPod { name, containers } = self.0.get(&(namespace.to_owned(), pod.to_owned()))?;
        Some(format!("{name} {:?}", PodWrite::of(asked, containers)))
    }
}

// === impl Recording ===

impl Recording {
    /// What a run came to, with what both of its updaters have read.
    pub async fn of(client: &Client, run: &LiveRun) -> Self {
        let deeds = ActionNames::of(&run.scenario);
        let mut reads = BTreeMap::new();
        for path in &run.read {
            reads.insert(path.clone(), Answer::read(client, path).await);
        }
        let parts = run.parts.iter().map(|part| {
            let mut answers: BTreeMap<String, Answer> = BTreeMap::new();
            for asked in part.sides.iter().flat_map(|did| &did.asked).filter(|one| one.code > 0) {
                let deed = deeds.name(asked).expect("a pod of the scenario");
                let answer = Answer::to(asked);
                let before = answers.insert(deed.clone(), answer.clone());
                let is_same = before.is_none_or(|before| before.code == answer.code);
                assert!(is_same, "the answer to the same deed is not the same: {deed}");
            }
            Recorded { began: part.began, theirs: part.sides[0].clone(), answers }
        });
        Self { reads, parts: parts.collect() }
    }
}

// === impl Answer ===

impl Answer {
    async fn read(client: &Client, path: &str) -> Self {
        let request = http::Request::get(path).body(Vec::new()).expect("a request");
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

    fn to(asked: &RecordedWrite) -> Self {
        let mut body = asked.answer.clone();
        // Of a pod, an updater reads the version that it has since.
        if asked.code < 300 && body["kind"] == "Pod" {
            let version = &body["metadata"]["resourceVersion"];
            body = json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": { "resourceVersion": version },
            });
        }
        Self { code: asked.code, body }
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

/// The text of a streamed list: each object, and then that those were all.
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
