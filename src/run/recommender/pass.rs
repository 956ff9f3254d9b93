//! One pass: usage and kills into the histories, decisions out, and the statuses that changed on their way.
//! Nothing here waits for a write.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use plimsoll_storage::{Time, VpaKey};

use super::{Role, state::Core};
use crate::{
    metrics::{QualitySample, RecommendationChange, VpaTraits},
    observe::{
        external::{ExternalMetrics, PodQuery, fetch_external},
        index::Target,
        pod::{Kill, KillSource},
        usage::{PodUsage, UsageError, UsageReport, fetch_usage},
    },
    recommend::{
        Advice, Figures,
        estimate::Resource,
        fleet::{KillOutcome, Taken, Usage},
        status::Change,
        window::Rejected,
    },
    run::config::UsageSource,
    units::{Bytes, MilliCpu},
};

/// So many VPAs are worked out before the lock is given back.
const PAGE: usize = 256;

/// How long an answer about usage may take. A pass that waits for it writes nothing in the meantime.
const USAGE_PATIENCE: Duration = Duration::from_secs(30);

/// Histories are looked through for what has expired no more often than that.
const BETWEEN_EXPIRIES: Duration = Duration::from_hours(1);

/// What passes remember of each other.
#[derive(Debug, Default)]
pub struct Passes {
    last_expiry: Option<Time>,
    missing: HashSet<VpaKey>,
}

/// What a pass did, for logs and tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// VPAs that were worked out.
    pub vpas: usize,
    /// Pods whose usage was read.
    pub pods: u64,
    /// Samples that were taken.
    pub samples: u64,
    /// Kills that were counted.
    pub kills: u64,
    /// Statuses that are to be written.
    pub changed: usize,
}

/// Counts of samples by what became of them.
#[derive(Debug, Default)]
struct Tally {
    taken: u64,
    negative: u64,
    out_of_order: u64,
    unknown_pod: u64,
    unknown_container: u64,
    init: u64,
    unwatched: u64,
}

impl Role {
    /// Makes one pass.
    pub(super) async fn pass(&self, passes: &mut Passes) -> Summary {
        let began = Instant::now();
        let mut summary = Summary::default();
        self.timed("LoadVPAs", || self.find_known_targets());
        self.timed("LoadPods", || {
            let now = self.clock.now();
            self.see_containers(now);
            summary.kills += self.take_kills(now, true);
        });
        let step = Instant::now();
        self.take_usage(&mut summary).await;
        summary.kills += self.take_kills(self.clock.now(), false);
        self.metrics.observe_step("LoadMetrics", step.elapsed());
        self.timed("DeleteRemovedPods", || self.forget_pods());
        self.timed("UpdateVPAs", || self.decide(passes, &mut summary));
        self.timed("MaintainCheckpoints", || self.saver.wake());
        self.timed("GarbageCollect", || self.forget_expired(passes));
        self.metrics.observe_step("total", began.elapsed());
        summary
    }

    fn timed(&self, step: &'static str, work: impl FnOnce()) {
        let began = Instant::now();
        work();
        self.metrics.observe_step(step, began.elapsed());
    }

    /// Follows the targets that can be followed without asking anybody.
    fn find_known_targets(&self) {
        let all: Vec<VpaKey> = self.state.lock().fleet.keys_after(None).cloned().collect();
        for page in all.chunks(PAGE) {
            let mut core = self.state.lock();
            for key in page {
                let Some(vpa) = core.index.vpa(key) else { continue };
                let known = self.targets.resolve_known(&key.namespace, &vpa.target_ref);
                if let Some(outcome) = known {
                    core.take_outcome(key, outcome);
                }
            }
        }
    }

    /// Every container of a pod that matches has a history from then on.
    fn see_containers(&self, now: Time) {
        let mut after = None;
        loop {
            let mut core = self.state.lock();
            let core = &mut *core;
            let page: Vec<VpaKey> =
                core.fleet.keys_after(after.as_ref()).take(PAGE).cloned().collect();
            let Some(last) = page.last() else { return };
            after = Some(last.clone());
            let mut names: Vec<Arc<str>> = Vec::new();
            for key in &page {
                names.clear();
                for (_, pod) in core.index.pods_of(key) {
                    let counted = pod.containers.iter().filter(|one| core.counts(one.part));
                    for container in counted {
                        // Replicas have the same containers, so the list stays short.
                        if !names.iter().any(|known| Arc::ptr_eq(known, &container.name)) {
                            names.push(Arc::clone(&container.name));
                        }
                    }
                }
                for name in &names {
                    core.fleet.see_container(key, name, now);
                }
            }
        }
    }

    /// Counts the kills that were found: those that a pod showed at first sight before its next samples, the
    /// others after them. What belongs to a history that is not loaded yet waits for it.
    fn take_kills(&self, now: Time, first_sight: bool) -> u64 {
        let mut core = self.state.lock();
        let core = &mut *core;
        let mut counted = 0;
        for kill in core.index.take_kills() {
            if (kill.source == KillSource::FirstSight) != first_sight {
                core.index.add_kill(kill);
                continue;
            }
            counted += self.take_kill(core, kill, now);
        }
        counted
    }

    fn take_kill(&self, core: &mut Core, kill: Kill, now: Time) -> u64 {
        let source = kill.source.name();
        if kill.source == KillSource::FirstSight && !core.fleet.counts_kills_in_downtime() {
            self.health.count_oom_kill(source, "ignored");
            return 0;
        }
        let vpas = match core.index.pod(&kill.namespace, &kill.pod) {
            Some((pod, vpas)) => {
                let part = pod.container(&kill.container).map(|container| container.part);
                if part.is_some_and(|part| !core.counts(part)) {
                    return 0;
                }
                vpas.to_vec()
            }
            None => kill.vpas.clone(),
        };
        let keys = || {
            vpas.iter().map(|name| VpaKey::new(Arc::clone(&kill.namespace), Arc::clone(name)))
        };
        if keys().any(|key| core.is_waiting(&key)) {
            core.index.add_kill(kill);
            return 0;
        }
        let mut counted = 0;
        for key in keys() {
            let (pod, container) = (&*kill.pod, &*kill.container);
            let outcome = core.fleet.take_kill(&key, (pod, container), kill.at, kill.kill, now);
            let word = match outcome {
                KillOutcome::Counted => "counted",
                KillOutcome::Known => "known",
                KillOutcome::Expired => "expired",
                KillOutcome::Refused(_) => "refused",
                KillOutcome::Untracked => "untracked",
            };
            self.health.count_oom_kill(source, word);
            if outcome == KillOutcome::Counted {
                counted += 1;
                let request = kill.kill.request.0;
                let (at, vpa) = (kill.at, &key);
                tracing::info!(%vpa, pod, container, %at, request, source, "OOM kill counted");
                let used = kill.kill.request.as_f64();
                self.observe_quality(core, &key, container, Resource::Memory, true, used);
            }
        }
        counted
    }

    async fn take_usage(&self, summary: &mut Summary) {
        let tally = Mutex::new(Tally::default());
        let mut sink = |usage: PodUsage| {
            let mut tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
            self.take_pod_usage(&usage, &mut tally);
        };
        let read = self.fetch(&mut sink).await;
        let Tally { taken, negative, out_of_order, unknown_pod, unknown_container, init, unwatched } =
            tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        for (outcome, count) in [
            ("taken", taken),
            ("negative", negative),
            ("out_of_order", out_of_order),
            ("unknown_pod", unknown_pod),
            ("unknown_container", unknown_container),
            ("init_container", init),
            ("unwatched", unwatched),
        ] {
            self.health.count_samples(outcome, count);
        }
        summary.samples = taken;
        match read {
            Ok(report) => {
                summary.pods = report.pods;
                self.health.count_samples("malformed", report.malformed);
                self.metrics.count_fetch(!report.is_complete());
                for failure in &report.failures {
                    tracing::warn!(error = %failure, "usage is incomplete; what came was taken");
                }
                for example in &report.malformed_examples {
                    tracing::warn!(what = %example, "usage that makes no sense was left out");
                }
            }
            Err(error) => {
                self.metrics.count_fetch(true);
                tracing::warn!(%error, "no usage could be read; recommendations rest on what is known");
            }
        }
    }

    async fn fetch(
        &self,
        sink: &mut (dyn FnMut(PodUsage) + Send),
    ) -> Result<UsageReport, UsageError> {
        match &self.config.usage {
            UsageSource::Metrics => {
                let only = self.config.scope.only().map(|one| [one]);
                let only = only.as_ref().map(<[&str; 1]>::as_slice);
                fetch_usage(&self.client, only, sink, USAGE_PATIENCE).await
            }
            UsageSource::External { cpu, memory, container_label } => {
                let metrics = ExternalMetrics {
                    cpu: cpu.clone(),
                    memory: memory.clone(),
                    container_label: container_label.clone(),
                };
                let at_once = self.config.workers;
                let pods = self.external_queries();
                fetch_external(&self.client, &metrics, pods, at_once, sink, USAGE_PATIENCE).await
            }
        }
    }

    fn external_queries(&self) -> Vec<PodQuery> {
        let core = self.state.lock();
        let mut queries = Vec::new();
        for key in core.fleet.keys_after(None) {
            let Some(vpa) = core.index.vpa(key) else { continue };
            let selector = vpa.selector().to_string();
            queries.extend(core.index.pods_of(key).map(|(pod, _)| PodQuery {
                namespace: (*key.namespace).into(),
                selector: selector.as_str().into(),
                pod: (**pod).into(),
            }));
        }
        queries
    }

    /// Takes the usage of one pod into the histories of its VPAs.
    fn take_pod_usage(&self, usage: &PodUsage, tally: &mut Tally) {
        let now = self.clock.now();
        let mut core = self.state.lock();
        let core = &mut *core;
        let Some((pod, vpas)) = core.index.pod(&usage.namespace, &usage.pod) else {
            tally.unknown_pod += usage.containers.len() as u64;
            return;
        };
        if vpas.is_empty() {
            tally.unwatched += usage.containers.len() as u64;
            return;
        }
        let Some(namespace) = core.index.namespace(&usage.namespace).cloned() else { return };
        let keys: Vec<VpaKey> = vpas
            .iter()
            .map(|name| VpaKey::new(Arc::clone(&namespace), Arc::clone(name)))
            .collect();
        let mut wanted = Vec::with_capacity(usage.containers.len());
        for container in &usage.containers {
            match pod.container(&container.name) {
                None => tally.unknown_container += 1,
                Some(known) if !core.counts(known.part) => tally.init += 1,
                Some(known) => wanted.push((Arc::clone(&known.name), container)),
            }
        }
        // Upstream takes what is missing for nothing used, unless the reading itself failed.
        let fill = core.fleet.is_upstream() && !usage.is_incomplete;
        for (name, container) in wanted {
            let sample = Usage {
                pod: &usage.pod,
                container: &name,
                at: usage.at,
                cpu: container.cpu.or(fill.then_some(MilliCpu(0))),
                memory: container.memory.or(fill.then_some(Bytes(0))),
            };
            for key in &keys {
                let Some(taken) = core.fleet.take_usage(key, sample, now) else { continue };
                tally.count(taken);
                if taken.cpu == Some(Ok(())) {
                    let used = sample.cpu.unwrap_or_default().as_cores();
                    self.observe_quality(core, key, &name, Resource::Cpu, false, used);
                }
                if taken.memory == Some(Ok(())) {
                    let used = sample.memory.unwrap_or_default().as_f64();
                    self.observe_quality(core, key, &name, Resource::Memory, false, used);
                }
            }
        }
    }

    /// How far what was used is from what is recommended.
    fn observe_quality(
        &self,
        core: &Core,
        key: &VpaKey,
        container: &str,
        resource: Resource,
        is_oom: bool,
        usage: f64,
    ) {
        let (Some(watched), Some(vpa)) = (core.fleet.get(key), core.index.vpa(key)) else { return };
        if watched.is_off(container) {
            return;
        }
        let advice = watched.advice_for(container);
        let recommendation = advice.and_then(|advice| advice.of(resource)).map(|one| one.uncapped);
        let update_mode = vpa.mode.map(crate::api::vpa::UpdateMode::as_str);
        self.metrics.observe_sample(&QualitySample {
            update_mode,
            resource,
            is_oom,
            usage,
            recommendation,
        });
    }

    /// Forgets what was kept for single pods that are gone.
    fn forget_pods(&self) {
        let mut after = None;
        loop {
            let mut core = self.state.lock();
            let core = &mut *core;
            let page: Vec<VpaKey> =
                core.fleet.keys_after(after.as_ref()).take(PAGE).cloned().collect();
            let Some(last) = page.last() else { return };
            after = Some(last.clone());
            for key in &page {
                // A history that is not loaded brings pods of its own.
                if !core.is_waiting(key) {
                    let index = &core.index;
                    core.fleet.retain_pods(key, |pod| index.pod(&key.namespace, pod).is_some());
                }
            }
        }
    }

    /// Works out every VPA, and hands those whose status is to be written to the outbox.
    fn decide(&self, passes: &mut Passes, summary: &mut Summary) {
        let config = &self.config;
        let (mut counts, mut after) = (Vec::new(), None);
        let may_write = self.may_write();
        {
            let mut core = self.state.lock();
            let room = core.find_room(config.cap_to_largest_node, config.pod_cap);
            core.fleet.set_room(room);
        }
        loop {
            let now = self.clock.now();
            let mut core = self.state.lock();
            let core = &mut *core;
            let page: Vec<VpaKey> =
                core.fleet.keys_after(after.as_ref()).take(PAGE).cloned().collect();
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            for key in &page {
                let verdict = core.judge(key, now);
                let Some(vpa) = core.index.vpa(key) else { continue };
                let mode = vpa.mode;
                let pods = vpa.pod_count();
                let unsupported = matches!(vpa.target(), Target::Unsupported(_) | Target::Unavailable(_));
                let Some(verdict) = verdict else {
                    counts.push((mode, vpa.reported.recommendation.is_some(), pods > 0, unsupported));
                    continue;
                };
                summary.vpas += 1;
                counts.push((mode, !verdict.said.containers.is_empty(), pods > 0, unsupported));
                let old: Vec<Advice> =
                    core.fleet.get(key).map(|watched| watched.advice().to_vec()).unwrap_or_default();
                let band = config.bounds_dead_band;
                let change = core.sent.get(key).unwrap_or(&vpa.reported).change(
                    &verdict.conditions,
                    &verdict.said,
                    vpa.generation,
                    band,
                );
                if change == Change::Due {
                    summary.changed += 1;
                    if may_write {
                        self.outbox().push(key.clone(), core.last_written(key));
                    }
                }
                if let Some(latency) = core.fleet.keep_advice(key, &verdict.said, now) {
                    self.metrics.observe_first_recommendation(latency);
                }
                self.observe_changes(core, key, &old, mode.map(crate::api::vpa::UpdateMode::as_str), pods);
                note_missing(passes, core, key, now);
            }
        }
        let core = self.state.lock();
        passes.missing.retain(|key| core.fleet.get(key).is_some());
        self.metrics.set_container_states(core.fleet.containers());
        drop(core);
        self.metrics.set_vpa_counts(counts.iter().map(|&(mode, said, matched, unsupported)| VpaTraits {
            update_mode: mode.map(crate::api::vpa::UpdateMode::as_str),
            has_recommendation: said,
            matches_pods: matched,
            unsupported_config: unsupported,
        }));
    }

    fn observe_changes(
        &self,
        core: &Core,
        key: &VpaKey,
        old: &[Advice],
        update_mode: Option<&str>,
        pods: usize,
    ) {
        let Some(watched) = core.fleet.get(key) else { return };
        for before in old {
            let Some(after) = watched.advice_for(&before.container) else { continue };
            for resource in [Resource::Cpu, Resource::Memory] {
                let both = before.of(resource).zip(after.of(resource));
                let Some((Figures { uncapped: old, .. }, Figures { uncapped: new, .. })) = both else {
                    continue;
                };
                let (old, new) = (*old, *new);
                self.metrics.observe_change(&RecommendationChange { update_mode, resource, old, new, pods });
            }
        }
    }

    fn forget_expired(&self, passes: &mut Passes) {
        let now = self.clock.now();
        let due = passes.last_expiry.is_none_or(|last| {
            // A clock that was set back must not put this off.
            now >= last.later(BETWEEN_EXPIRIES) || now < last
        });
        if due {
            passes.last_expiry = Some(now);
            let gone = self.state.lock().fleet.forget_expired(now);
            for key in &gone {
                tracing::info!(container = %key, "history expired");
            }
        }
    }
}

impl Tally {
    fn count(&mut self, taken: Taken) {
        for outcome in [taken.cpu, taken.memory].into_iter().flatten() {
            match outcome {
                Ok(()) => self.taken += 1,
                Err(Rejected::Negative) => self.negative += 1,
                Err(Rejected::OutOfOrder | Rejected::TooOld) => self.out_of_order += 1,
            }
        }
    }
}

/// After half an hour without a recommendation one line says so, and again every half hour.
fn note_missing(passes: &mut Passes, core: &Core, key: &VpaKey, now: Time) {
    const PATIENCE: Duration = Duration::from_mins(30);
    let since = core.fleet.get(key).and_then(|watched| watched.empty_since());
    match since {
        Some(since) if now > since.later(PATIENCE) => {
            if passes.missing.insert(key.clone()) {
                tracing::warn!(vpa = %key, %since, "no recommendation for more than half an hour");
            }
        }
        Some(_) => {}
        None => {
            passes.missing.remove(key);
        }
    }
}
