//! Plays a scenario like the oracle, with our decisions.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use plimsoll_core::hpa::hpa_state::{Recommendation, ScaleEvent};
use plimsoll_core::hpa::labels::Failure;
use plimsoll_core::hpa::status::differs;
use plimsoll_core::hpa::{
    Config, Decision, EventStage, EventType, Fetched, Fixes, HpaState, NO_OPTIONS, Observed,
    ScaleError, ScaleValues, Selector, Zone, decide, metric_requests,
};
use plimsoll_core::types::Time;

use super::delaying_queue::DelayingQueue;
use super::go_duration::{duration, nanos, seconds};
use super::pass::{Pass, PassEvent, PassMemory};
use super::rest_mapping::mappings;
use super::scenario::{Aged, Remembered, Scenario};
use super::simulated_cluster::{SimulatedCluster, StoredHpa, time};

/// Maximum writes of a scale in one pass on conflicts.
const MAX_ATTEMPTS: usize = 5;
/// Upstream waits 10 ms plus up to 10 % jitter.
const RETRY_DELAY_NANOS: i64 = 10_500_000;

/// All passes of a scenario, with these `fixes`.
pub fn play_scenario(scenario: &Scenario, fixes: Fixes) -> Result<Vec<Pass>> {
    let settings = &scenario.config;
    let gate = |name: &str, default| settings.feature_gates.get(name).copied().unwrap_or(default);
    let mut player = ScenarioPlayer {
        id: &scenario.id,
        fixes,
        config: Config {
            downscale_stabilization: duration(
                settings.downscale_stabilization_seconds.unwrap_or(300.0),
            ),
            tolerance: settings.tolerance.unwrap_or(0.1),
            cpu_initialization_period: duration(
                settings.cpu_initialization_seconds.unwrap_or(300.0),
            ),
            initial_readiness_delay: duration(settings.initial_readiness_seconds.unwrap_or(30.0)),
            scale_to_zero: gate("HPAScaleToZero", false),
            configurable_tolerance: gate("HPAConfigurableTolerance", true),
            pod_level_resources: gate("PodLevelResources", true),
        },
        period: nanos(settings.sync_period_seconds.unwrap_or(15.0)),
        now: 0,
        world: SimulatedCluster::default(),
        queue: DelayingQueue::default(),
        memories: BTreeMap::new(),
        selectors: BTreeMap::new(),
        passes: Vec::new(),
    };
    for step in &scenario.steps {
        player.run_until(nanos(step.at));
        let (applied, deleted) = player
            .world
            .apply(step, settings.no_defaults, player.now)
            .with_context(|| format!("scenario {}, step at {}", scenario.id, step.at))?;
        for key in applied {
            player.enqueue(&key);
        }
        for key in deleted {
            player.selectors.remove(&key);
        }
        for (key, remembered) in &step.remember {
            player.remember(key, remembered);
        }
    }
    player.run_until(nanos(scenario.seconds));
    Ok(player.passes)
}

struct ScenarioPlayer<'a> {
    id: &'a str,
    fixes: Fixes,
    config: Config,
    period: i64,
    /// Nanoseconds since the start.
    now: i64,
    world: SimulatedCluster,
    queue: DelayingQueue,
    memories: BTreeMap<String, HpaState>,
    /// Selectors of the targets of all objects; `None` until it was read.
    selectors: BTreeMap<String, Option<Selector>>,
    passes: Vec<Pass>,
}

/// The target of a pass.
struct Target {
    resource: String,
    scale: Result<ScaleValues, ScaleError>,
}

impl ScenarioPlayer<'_> {
    fn run_until(&mut self, end: i64) {
        loop {
            if let Some(key) = self.queue.pop_due(self.now) {
                self.reconcile(&key);
                continue;
            }
            match self.queue.next_at() {
                Some(at) if at <= end => self.now = self.now.max(at),
                _ => break,
            }
        }
        self.now = self.now.max(end);
    }

    fn enqueue(&mut self, key: &str) {
        self.queue.add(key, self.now + self.period);
        self.selectors.entry(key.to_owned()).or_default();
    }

    fn remember(&mut self, key: &str, remembered: &Remembered) {
        let memory = self.memories.entry(key.to_owned()).or_default();
        let at = |aged: &Aged| time(self.now - nanos(aged.age));
        let events = |all: &Vec<Aged>| {
            let event = |one: &Aged| ScaleEvent {
                change: one.replicas,
                at: at(one),
                outdated: one.outdated,
            };
            all.iter().map(event).collect()
        };
        if let Some(all) = &remembered.recommendations {
            let recommendation =
                |one: &Aged| Recommendation { replicas: one.replicas, at: at(one) };
            memory.recommendations = Some(all.iter().map(recommendation).collect());
        }
        if let Some(all) = &remembered.scale_up_events {
            memory.scale_up_events = events(all);
        }
        if let Some(all) = &remembered.scale_down_events {
            memory.scale_down_events = events(all);
        }
    }

    fn reconcile(&mut self, key: &str) {
        let Some(object) = self.world.objects.get(key).cloned() else {
            self.memories.remove(key);
            return;
        };
        self.world.observe(self.now);
        let began = self.now;
        let mut calls = Vec::new();
        let target = self.read_target(&object, &mut calls);
        let pods = self.world.pods(&object.namespace);
        let others = self.others(&object, key);
        let memory = self.memories.get(key).cloned().unwrap_or_default();
        let observed = Observed {
            namespace: &object.namespace,
            name: &object.name,
            uid: object.uid.as_deref(),
            spec: &object.spec,
            status: &object.status,
            scale: target.scale.as_ref(),
            pods: &pods,
            others: &others,
            memory: &memory,
            config: &self.config,
            fixes: self.fixes,
            options: &NO_OPTIONS,
            now: time(self.now),
        };
        let requests = metric_requests(&observed);
        let mut metric_calls = Vec::new();
        let mut answers: Vec<Option<Fetched>> = Vec::new();
        for request in &requests {
            let fetched =
                request.as_ref().map(|one| self.world.fetch(one, &object.namespace, self.now));
            let (call, answer) = fetched.unzip();
            metric_calls.push(call);
            answers.push(answer);
        }
        let mut decision = decide(&observed, &answers);
        if let (Zone::Metrics, Ok(scale)) = (decision.zone, &target.scale)
            && let Ok(selector) = Selector::parse(&scale.selector)
            && !scale.selector.is_empty()
        {
            self.selectors.insert(key.to_owned(), Some(selector));
        }
        show(&decision, EventStage::Target, &mut calls);
        for index in 0..decision.evaluations.len() {
            calls.extend(metric_calls.get(index).cloned().flatten());
            show(&decision, EventStage::Metric(index), &mut calls);
        }
        let wrote = self.write(&object, &target, &mut decision, &mut calls);
        show(&decision, EventStage::Scale, &mut calls);
        let mut events: Vec<_> = decision
            .events
            .iter()
            .filter(|event| event.stage != EventStage::AfterStatus)
            .map(|event| pass_event(event.kind, event.reason, &event.message))
            .collect();
        let (status, status_written) =
            self.store_status(key, &object, &mut decision, &mut calls, &mut events);
        show(&decision, EventStage::AfterStatus, &mut calls);
        let after = decision.events.iter().filter(|event| event.stage == EventStage::AfterStatus);
        events.extend(after.map(|event| pass_event(event.kind, event.reason, &event.message)));
        let memory = self.aged(&decision.memory);
        self.memories.insert(key.to_owned(), decision.memory.clone());
        self.passes.push(Pass {
            id: self.id.to_owned(),
            hpa: key.to_owned(),
            at: seconds(began),
            action: decision.action,
            error: decision.failure,
            computed: decision.evaluations.iter().map(|one| one.computed.clone()).collect(),
            calls,
            wrote,
            desired: decision.desired,
            events,
            status,
            status_written,
            memory,
        });
        self.queue.add(key, self.now + self.period);
    }

    /// Writes the status if it differs from the stored one.
    fn store_status(
        &mut self,
        key: &str,
        object: &StoredHpa,
        decision: &mut Decision,
        calls: &mut Vec<String>,
        events: &mut Vec<PassEvent>,
    ) -> (HorizontalPodAutoscalerStatus, bool) {
        if !differs(&object.status, &decision.status) {
            return (object.status.clone(), false);
        }
        calls.push("status.update".to_owned());
        if let Err(error) = self.world.fault("status.update", &object.name) {
            if decision.failure == Failure::None {
                decision.failure = Failure::Internal;
            }
            calls.push("event FailedUpdateStatus".to_owned());
            events.push(pass_event(EventType::Warning, "FailedUpdateStatus", &error.message));
            return (object.status.clone(), false);
        }
        if let Some(stored) = self.world.objects.get_mut(key) {
            stored.status = decision.status.clone();
        }
        self.enqueue(key);
        (decision.status.clone(), true)
    }

    fn read_target(&mut self, object: &StoredHpa, calls: &mut Vec<String>) -> Target {
        let name = &object.target.name;
        let resources = match mappings(&object.target) {
            Ok(resources) => resources,
            Err(error) => return Target { resource: String::new(), scale: Err(error) },
        };
        let mut first_error = None;
        for resource in &resources {
            calls.push(format!("scale.get {resource}/{name}"));
            match self.world.scale(resource, &object.namespace, name) {
                Ok(scale) => return Target { resource: resource.clone(), scale: Ok(scale) },
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        let error = ScaleError::Failed(first_error.unwrap_or_default());
        Target { resource: String::new(), scale: Err(error) }
    }

    /// The other objects of the namespace and their selectors.
    fn others(&self, object: &StoredHpa, key: &str) -> Vec<(String, Selector)> {
        let of_namespace = self.selectors.iter().filter_map(|(other, selector)| {
            let (namespace, name) = other.split_once('/')?;
            let is_other = namespace == object.namespace && other != key;
            Some((name.to_owned(), selector.clone()?)).filter(|_| is_other)
        });
        of_namespace.collect()
    }

    /// Writes the scale like upstream: on a conflict it retries and overwrites the current value.
    fn write(
        &mut self,
        object: &StoredHpa,
        target: &Target,
        decision: &mut Decision,
        calls: &mut Vec<String>,
    ) -> Option<i32> {
        let desired = decision.write?;
        let (resource, namespace, name) =
            (&target.resource, &object.namespace, &object.target.name);
        let shown = self.world.scale_name(resource, namespace, name);
        let mut outcome = Ok(());
        for attempt in 1..=MAX_ATTEMPTS {
            calls.push(format!("scale.update {resource}/{shown} {desired}"));
            let Err(error) = self.world.update_scale(resource, namespace, name, desired, self.now)
            else {
                outcome = Ok(());
                break;
            };
            calls.push(format!("scale.get {resource}/{name}"));
            let read = self.world.scale(resource, namespace, name);
            outcome = Err(read.err().unwrap_or(error.message));
            if !error.is_conflict {
                break;
            }
            if attempt < MAX_ATTEMPTS {
                self.now += RETRY_DELAY_NANOS;
            }
        }
        let now = time(self.now);
        let recorded = match &outcome {
            Ok(()) => Ok(()),
            Err(error) => Err(error.as_str()),
        };
        decision.record_write(recorded, now);
        outcome.is_ok().then_some(desired)
    }

    fn aged(&self, memory: &HpaState) -> PassMemory {
        let age = |at: Time| seconds(time(self.now).nanos_since(at));
        let events = |all: &[ScaleEvent]| {
            let aged = |one: &ScaleEvent| Aged {
                replicas: one.change,
                age: age(one.at),
                outdated: one.outdated,
            };
            (!all.is_empty()).then(|| all.iter().map(aged).collect())
        };
        let recommendations = memory.recommendations.as_ref().map(|all| {
            let aged = |one: &Recommendation| Aged {
                replicas: one.replicas,
                age: age(one.at),
                outdated: false,
            };
            all.iter().map(aged).collect()
        });
        PassMemory(Remembered {
            recommendations,
            scale_up_events: events(&memory.scale_up_events),
            scale_down_events: events(&memory.scale_down_events),
        })
    }
}

fn show(decision: &Decision, stage: EventStage, calls: &mut Vec<String>) {
    let at = decision.events.iter().filter(|event| event.stage == stage);
    calls.extend(at.map(|event| format!("event {}", event.reason)));
}

fn pass_event(kind: EventType, reason: &str, message: &str) -> PassEvent {
    let kind = match kind {
        EventType::Normal => "Normal",
        EventType::Warning => "Warning",
    };
    PassEvent { kind, reason: reason.to_owned(), message: message.to_owned() }
}
