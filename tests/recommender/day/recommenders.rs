//! The two recommenders of the day, the reference model of each, and the comparison with them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use kube::Client;
use plimsoll::{cluster::clock::Clock, controllers::recommender::RecommenderHandle};
use plimsoll_core::types::Time;
use serde_json::{Map, Value, json};

use super::super::in_process::{start, wait_for_passes, wait_until_written};
use super::super::recorded_writes;
use super::super::reference_model::{
    ReferenceContainer, ReferencePolicy, cpu_text, memory_text, time_text,
};
use super::workloads::{DayWorkloads, RECOMMENDERS, ServedSample};
use crate::support::http_get::http_get;
use crate::support::{MetricsServer, Testbed, wait};

/// Age of the samples, in seconds, when a pass reads them.
const SAMPLE_AGE_SECONDS: i64 = 7;

/// Both recommenders, with the clock and the metrics server that they share.
pub struct BothRecommenders {
    bed: Testbed,
    usage: MetricsServer,
    clock: Clock,
    both: Vec<ModelledRecommender>,
}

struct ModelledRecommender {
    name: &'static str,
    running: Option<RecommenderHandle>,
    /// Keyed by workload and container.
    model: BTreeMap<(&'static str, &'static str), ReferenceContainer>,
    /// Time of the last change to each workload's history.
    changed: BTreeMap<&'static str, i64>,
    /// Workloads that lost a pod since the last pass.
    forgotten: BTreeSet<&'static str>,
    /// Time at which each workload was first seen without pods.
    empty_since: BTreeMap<&'static str, i64>,
    /// Transition time of `RecommendationProvided` for each VPA.
    provided: BTreeMap<&'static str, String>,
    expected: Option<ExpectedKill>,
    /// Generation of the VPA whose policy changes.
    generation: i64,
}

#[derive(Clone, Debug)]
struct ExpectedKill {
    subject: &'static str,
    pod: String,
    container: &'static str,
    at: i64,
    request: i64,
}

// === impl Sides ===

impl BothRecommenders {
    pub async fn start(bed: &Testbed, usage: MetricsServer, morning: i64) -> Self {
        let clock = Clock::fake(Time::from_secs(morning + SAMPLE_AGE_SECONDS));
        let mut sides = Vec::new();
        for name in RECOMMENDERS {
            sides.push(ModelledRecommender {
                name,
                running: Some(run(bed, &clock, name).await),
                model: BTreeMap::new(),
                changed: BTreeMap::new(),
                forgotten: BTreeSet::new(),
                empty_since: BTreeMap::new(),
                provided: BTreeMap::new(),
                expected: None,
                generation: 1,
            });
        }
        Self { bed: bed.clone(), usage, clock, both: sides }
    }

    pub fn now(&self) -> i64 {
        self.clock.now().as_secs()
    }

    /// Runs the first passes. A target that needs a lookup at the API server may be resolved only after the first
    /// pass, so passes continue, a minute apart and without new samples, until every VPA has a recommendation.
    pub async fn begin(&mut self, cast: &DayWorkloads) {
        let morning = self.now() - SAMPLE_AGE_SECONDS;
        let shown = cast.samples(morning);
        for side in &mut self.both {
            wait_for_passes(side.running(), 1).await;
        }
        let mut provided = self.all_provided(cast).await;
        for _ in 0..10 {
            if provided {
                break;
            }
            self.pass(60).await;
            provided = self.all_provided(cast).await;
        }
        assert!(provided, "all VPAs have a recommendation within ten passes");
        for side in &mut self.both {
            side.add_to_model(cast, &shown, morning, morning + SAMPLE_AGE_SECONDS);
        }
        // One more pass, after which both have read samples of every container.
        self.steps(cast, 60, 1).await;
        let objects = read(&self.bed.client(), &cast.namespace, "verticalpodautoscalers").await;
        for side in &mut self.both {
            for subject in &cast.workloads {
                let vpa = &objects[&format!("{}-{}", subject.name, side.name)];
                let condition = condition(vpa, "RecommendationProvided");
                let since = condition["lastTransitionTime"].as_str().expect("valid timestamp");
                side.provided.insert(subject.name, since.to_owned());
            }
        }
    }

    async fn all_provided(&self, cast: &DayWorkloads) -> bool {
        self.wait_until_written().await;
        let objects = read(&self.bed.client(), &cast.namespace, "verticalpodautoscalers").await;
        let provided = |vpa: &Value| condition(vpa, "RecommendationProvided")["status"] == "True";
        objects.values().all(provided)
    }

    /// Waits until the statuses of the last pass are written.
    async fn wait_until_written(&self) {
        for side in &self.both {
            wait_until_written(side.running()).await;
        }
    }

    /// Waits until every change of the last pass is written and saved.
    async fn wait_until_saved(&self) {
        self.wait_until_written().await;
        wait::until("all histories are saved", || async {
            self.both.iter().all(|side| side.running().unsaved() == 0).then_some(())
        })
        .await;
    }

    /// Runs passes with new samples.
    pub async fn steps(&mut self, cast: &DayWorkloads, by: i64, count: usize) {
        for _ in 0..count {
            let shown = cast.samples(self.now() + by - SAMPLE_AGE_SECONDS);
            let at = self.now() + by - SAMPLE_AGE_SECONDS;
            self.usage.show(super::at(at), shown.iter().map(ServedSample::sample));
            self.pass(by).await;
            if self.both.iter().any(|side| !side.forgotten.is_empty()) {
                // The status of a workload without pods carries the time of this pass, if it is written before the
                // next one.
                self.wait_until_saved().await;
            }
            let now = self.now();
            for side in &mut self.both {
                let taken = side.add_to_model(cast, &shown, at, now);
                let summary = side.running().passes().borrow().1;
                assert_eq!(summary.samples, 2 * taken, "{} at {}", side.name, time_text(now));
                let kills = side.expected.take_if(|_| summary.kills > 0);
                assert_eq!(summary.kills, u64::from(kills.is_some()), "kills of {}", side.name);
                if let Some(ExpectedKill { subject, pod, container, at, request }) = kills {
                    let known = side.model.get_mut(&(subject, container)).expect("known");
                    known.kill(&pod, at, request);
                }
            }
        }
    }

    async fn pass(&self, by: i64) {
        let before: Vec<_> =
            self.both.iter().map(|side| side.running().passes().borrow().0).collect();
        self.clock.step(Duration::from_secs(by.unsigned_abs()));
        for (side, before) in self.both.iter().zip(before) {
            wait_for_passes(side.running(), before + 1).await;
        }
    }

    /// Registers an OOM kill that both recommenders will observe.
    pub fn expect_kill(
        &mut self,
        subject: &'static str,
        pod: &str,
        container: &'static str,
        at: i64,
        request: i64,
    ) {
        for side in &mut self.both {
            side.expected =
                Some(ExpectedKill { subject, pod: pod.to_owned(), container, at, request });
        }
    }

    /// Runs passes a minute apart until both have observed the kill.
    pub async fn steps_until_kills(&mut self, cast: &DayWorkloads) {
        for _ in 0..60 {
            self.steps(cast, 60, 1).await;
            if self.both.iter().all(|side| side.expected.is_none()) {
                return;
            }
        }
        panic!("the kill was not observed within an hour");
    }

    /// Removes a pod from both models.
    pub fn pod_removed(&mut self, subject: &'static str, pod: &str) {
        for side in &mut self.both {
            side.forgotten.insert(subject);
            for ((of, _), container) in &mut side.model {
                if *of == subject {
                    container.forget(pod);
                }
            }
        }
    }

    /// Waits until both have observed `count` pods.
    pub async fn wait_for_pods(&self, count: usize) {
        for side in &self.both {
            let address = format!("http://{}/metrics", side.running().address());
            let line = format!("plimsoll_feed_objects{{feed=\"pods\"}} {count}\n");
            wait::until(&format!("{} has {count} pods", side.name), || async {
                let text = String::from_utf8(http_get(&address).await?.to_vec()).ok()?;
                text.contains(&line).then_some(())
            })
            .await;
        }
    }

    /// Runs passes a minute apart until both have published this generation.
    pub async fn steps_until_generation(
        &mut self,
        cast: &DayWorkloads,
        subject: &str,
        generation: i64,
    ) {
        for side in &mut self.both {
            side.generation = generation;
        }
        for _ in 0..60 {
            self.steps(cast, 60, 1).await;
            self.wait_until_written().await;
            let objects = read(&self.bed.client(), &cast.namespace, "verticalpodautoscalers").await;
            let is_published = |side: &&str| {
                let vpa = &objects[&format!("{subject}-{side}")];
                vpa["status"]["observedGeneration"] == generation
            };
            if RECOMMENDERS.iter().all(is_published) {
                return;
            }
        }
        panic!("generation {generation} of {subject} was not published within an hour");
    }

    /// Restarts our recommender as a rolling update would.
    pub async fn restart_ours(&mut self) {
        let (bed, clock) = (self.bed.clone(), self.clock.clone());
        let ours = &mut self.both[0];
        ours.running.take().expect("running").stop().await;
        ours.running = Some(run(&bed, &clock, ours.name).await);
        wait_for_passes(ours.running(), 1).await;
    }

    /// Compares statuses and checkpoints once all writes are done.
    pub async fn compare(&mut self, cast: &DayWorkloads, when: &str) {
        let now = self.now();
        let (mut statuses, mut checkpoints) = (BTreeMap::new(), BTreeMap::new());
        for side in &self.both {
            for subject in &cast.workloads {
                let name = format!("{}-{}", subject.name, side.name);
                for container in subject.containers_with_history(side.name) {
                    let known = &side.model[&(subject.name, container)];
                    let status = known.checkpoint(side.changed[subject.name]);
                    let spec = json!({ "vpaObjectName": name, "containerName": container });
                    checkpoints.insert(
                        format!("{name}-{container}"),
                        json!({ "spec": spec, "status": status }),
                    );
                }
                statuses.insert(name, side.status(cast, subject.name));
            }
        }
        let (client, namespace) = (self.bed.client(), &cast.namespace);
        wait::until_ok(&format!("{when}, {}, both match the model", time_text(now)), || async {
            let vpas = read(&client, namespace, "verticalpodautoscalers").await;
            let found = vpas.into_iter().map(|(name, vpa)| (name, status_of(&vpa))).collect();
            let mut differences = differ(&statuses, &found);
            let found = read(&client, namespace, "verticalpodautoscalercheckpoints").await;
            let found = found.into_iter().map(|(name, it)| (name, checkpoint_of(&it))).collect();
            differences.extend(differ(&checkpoints, &found));
            if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
        })
        .await;
    }

    pub async fn stop(self) {
        for side in self.both {
            side.running.expect("running").stop().await;
        }
    }
}

// === impl Side ===

impl ModelledRecommender {
    fn running(&self) -> &RecommenderHandle {
        self.running.as_ref().expect("running")
    }

    /// Adds the served samples to the model. Returns the number of containers.
    fn add_to_model(
        &mut self,
        cast: &DayWorkloads,
        shown: &[ServedSample],
        at: i64,
        now: i64,
    ) -> u64 {
        let mut taken = 0;
        for one in shown {
            let subject = cast.workload_named(one.subject);
            if !subject.containers_with_history(self.name).contains(&one.container) {
                continue;
            }
            let policy = ReferencePolicy::find(&subject.policies, one.container);
            let known = self.model.entry((one.subject, one.container));
            let known = known.or_insert_with(|| ReferenceContainer::new(policy));
            known.take(&one.pod, at, one.millicores(), one.bytes as i64);
            self.changed.insert(one.subject, now);
            taken += 1;
        }
        for subject in std::mem::take(&mut self.forgotten) {
            self.changed.insert(subject, now);
        }
        for subject in &cast.workloads {
            if subject.pods.is_empty() {
                self.empty_since.entry(subject.name).or_insert(now);
            } else {
                self.empty_since.remove(subject.name);
            }
        }
        taken
    }

    fn status(&self, cast: &DayWorkloads, name: &'static str) -> Value {
        let subject = cast.workload_named(name);
        let mut wanted: Vec<_> = subject
            .containers_with_history(self.name)
            .into_iter()
            .map(|container| (container, ReferencePolicy::find(&subject.policies, container)))
            .filter(|(_, policy)| !policy.is_some_and(|policy| policy.off))
            .collect();
        wanted.sort_unstable_by_key(|(container, _)| *container);
        let count = wanted.len();
        let containers = wanted.into_iter().map(|(container, policy)| {
            let known = &self.model[&(name, container)];
            let controlled = policy.map_or((true, true), |policy| policy.controlled);
            let cpu = controlled.0.then(|| known.cpu(count, policy));
            let memory = controlled.1.then(|| known.memory(count, policy));
            let list = |index: usize| {
                let mut list = Map::new();
                list.extend(cpu.map(|all| ("cpu".to_owned(), cpu_text(all[index]).into())));
                list.extend(memory.map(|all| ("memory".to_owned(), memory_text(all[index]).into())));
                list
            };
            json!({
                "containerName": container,
                "lowerBound": list(0), "target": list(1), "upperBound": list(2), "uncappedTarget": list(3),
            })
        });
        let mut conditions = Vec::new();
        if let Some(since) = self.empty_since.get(name) {
            conditions.push(json!({
                "type": "NoPodsMatched", "status": "True", "lastTransitionTime": time_text(*since),
                "reason": "NoPodsMatched", "message": "No pods match this VPA object",
            }));
        }
        conditions.push(json!({
            "type": "RecommendationProvided", "status": "True", "lastTransitionTime": self.provided[name],
        }));
        json!({
            "recommendation": { "containerRecommendations": containers.collect::<Vec<_>>() },
            "conditions": conditions,
            "observedGeneration": if name == "job" { self.generation } else { 1 },
        })
    }
}

async fn run(bed: &Testbed, clock: &Clock, name: &str) -> RecommenderHandle {
    let compat = if name == "ours" { "plimsoll" } else { "upstream" };
    let flags = [
        &*format!("--recommender-name={name}"),
        &*format!("--compat={compat}"),
        // Every change is written, so the status can be compared at any time.
        "--bounds-dead-band=0",
        "--checkpoint-interval=0s",
        "--feature-gates=PerVPAConfig=true",
    ];
    start(bed, clock, &flags).await
}

/// All objects of a kind, by name, as JSON.
async fn read(client: &Client, namespace: &str, plural: &str) -> BTreeMap<String, Value> {
    let items = recorded_writes::read(client, namespace, plural).await;
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    items.into_iter().map(|item| (name(&item), item)).collect()
}

fn condition<'a>(vpa: &'a Value, kind: &str) -> &'a Value {
    let conditions = vpa["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    conditions.iter().find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

/// The status of a VPA without empty fields.
fn status_of(vpa: &Value) -> Value {
    let mut status = vpa["status"].clone();
    for condition in status["conditions"].as_array_mut().into_iter().flatten() {
        let fields = condition.as_object_mut().expect("an object");
        fields.retain(|_, value| !matches!(value.as_str(), Some("")));
    }
    status
}

/// Spec and status of a checkpoint, with defaults for omitted fields.
fn checkpoint_of(object: &Value) -> Value {
    let mut status = object["status"].clone();
    for histogram in ["cpuHistogram", "memoryHistogram"] {
        let histogram = &mut status[histogram];
        let total = histogram["totalWeight"].as_f64().unwrap_or(0.0);
        histogram["totalWeight"] = total.into();
        if histogram["bucketWeights"].is_null() {
            histogram["bucketWeights"] = json!({});
        }
        histogram["referenceTimestamp"] = histogram["referenceTimestamp"].take();
    }
    json!({ "spec": object["spec"], "status": status })
}

fn differ(expected: &BTreeMap<String, Value>, found: &BTreeMap<String, Value>) -> Vec<String> {
    let mut names: Vec<_> = expected.keys().chain(found.keys()).collect();
    names.sort_unstable();
    names.dedup();
    let one = |name: &&String| expected.get(*name) != found.get(*name);
    let text = |value: Option<&Value>| value.map_or("nothing".to_owned(), Value::to_string);
    let line = |name: &String| {
        format!(
            "{name}\n  expected {}\n  found    {}",
            text(expected.get(name)),
            text(found.get(name))
        )
    };
    names.into_iter().filter(one).take(3).map(line).collect()
}
