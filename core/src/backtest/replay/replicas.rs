//! The virtual pods of a workload under a policy: what a metrics server shows of them, and what happens to them.

use std::{sync::Arc, time::Duration};

use super::{
    facts::{Facts, amounts_at},
    pods::{Held, PendingPeak, VirtualContainer, VirtualPod},
    tally::{PodChange, Tally, WindowOutcome},
    usage::{self, MINUTES_PER_WINDOW},
};
use crate::{
    backtest::{
        policy::{RuleState, Seen},
        recording::{CPU_STEP_SECONDS, MEMORY_STEP_SECONDS, PodContainer, WorkloadRecording},
    },
    types::{Time, units::MilliCpu},
};

/// How long a new pod is not ready.
const START: Duration = Duration::from_mins(1);
/// What was measured so long ago is known.
const KNOWN_AFTER: Duration = Duration::from_secs(CPU_STEP_SECONDS as u64);
/// The use of a CPU limit from which on demand may have been higher.
const CENSORED_USE: f64 = 0.98;
/// A container that was killed in one window has just restarted in the next.
const WINDOWS_AFTER_KILL: u32 = 2;

/// The virtual pods of a workload.
pub(super) struct Replicas<'a> {
    recording: &'a WorkloadRecording,
    facts: &'a Facts,
    /// When the policy begins to decide.
    from: Time,
    pub pods: Vec<VirtualPod>,
    next_pod: usize,
    /// What is requested in fact at this time, and the limits.
    pub recorded: Vec<Held>,
    next_step: Option<Time>,
    last_born: Option<Vec<Held>>,
    /// Minutes with CPU of each container, and the first of them.
    pub samples: Vec<u64>,
    pub first_sample: Vec<Option<Time>>,
    pub tally: Tally,
}

impl<'a> Replicas<'a> {
    pub fn new(recording: &'a WorkloadRecording, facts: &'a Facts, from: Time) -> Self {
        let containers = recording.containers.len();
        Self {
            recording,
            facts,
            from,
            pods: Vec::new(),
            next_pod: 0,
            recorded: vec![Held::default(); containers],
            next_step: Some(recording.from),
            last_born: None,
            samples: vec![0; containers],
            first_sample: vec![None; containers],
            tally: Tally::new(containers),
        }
    }

    /// Lets the rule see what was measured in the minute before, and windows that ended then. Returns whether it sees a kill.
    pub fn show(&mut self, minute: u32, rule: &mut RuleState<'_>) -> bool {
        let Some(before) = minute.checked_sub(1) else { return false };
        let at = usage::time_of(self.recording, before);
        let mut was_killed = false;
        for index in 0..self.pods.len() {
            let pod = &self.pods[index];
            let recorded = &self.recording.pods[pod.recorded];
            for (container, state) in pod.containers.iter().enumerate() {
                let used = recorded.containers.get(container);
                let used = used.and_then(|used| usage::cpu_at(used, before));
                if let Some(cores) = used.filter(|_| state.is_present) {
                    let limit = state.held.cpu_limit.map_or(f64::INFINITY, MilliCpu::as_cores);
                    let seen = Seen {
                        container,
                        pod: pod.recorded,
                        pod_name: &pod.name,
                        at,
                        cpu_request: state.held.cpu,
                        memory_request: state.held.memory,
                    };
                    self.samples[container] += 1;
                    self.first_sample[container].get_or_insert(at);
                    rule.take_cpu(seen, f64::from(cores).min(limit));
                }
            }
            if before % MINUTES_PER_WINDOW == 0 {
                let ended = before / MINUTES_PER_WINDOW;
                was_killed |= self.show_windows(index, rule, |window| window < ended);
            }
        }
        was_killed
    }

    /// Lets the rule see the peaks of windows that are over, and kills.
    fn show_windows(
        &mut self,
        index: usize,
        rule: &mut RuleState<'_>,
        is_over: impl Fn(u32) -> bool,
    ) -> bool {
        let from = self.recording.from.as_secs();
        let pod = &mut self.pods[index];
        let mut was_killed = false;
        for (container, state) in pod.containers.iter_mut().enumerate() {
            let mut ended =
                state.pending.each_mut().map(|peak| peak.take_if(|peak| is_over(peak.window)));
            ended.sort_unstable_by_key(|peak| peak.map(|peak| peak.window));
            for peak in ended.into_iter().flatten() {
                let start = from + i64::from(peak.window) * MEMORY_STEP_SECONDS;
                let last_minute = start + MEMORY_STEP_SECONDS - CPU_STEP_SECONDS;
                let seen = Seen {
                    container,
                    pod: pod.recorded,
                    pod_name: &pod.name,
                    at: Time::from_secs(last_minute),
                    cpu_request: state.held.cpu,
                    memory_request: peak.request,
                };
                rule.take_memory(seen, peak.window, peak.bytes, peak.is_cut);
                if let Some(limit) = peak.killed_at {
                    let at = Time::from_secs(last_minute + CPU_STEP_SECONDS / 2);
                    rule.take_kill(Seen { at, ..seen }, limit);
                    state.restarts += 1;
                    state.last_kill = Some((state.started, at));
                    state.started = at;
                    was_killed = true;
                }
            }
        }
        was_killed
    }

    /// Removes pods whose last sample is known. Returns whether there were any.
    pub fn remove_gone(&mut self, now: Time, rule: &mut RuleState<'_>) -> bool {
        let known = now.earlier(KNOWN_AFTER);
        let recording = self.recording;
        let is_gone = |pod: &VirtualPod| recording.pods[pod.recorded].gone <= known;
        let gone: Vec<usize> =
            (0..self.pods.len()).filter(|index| is_gone(&self.pods[*index])).collect();
        for index in &gone {
            self.show_windows(*index, rule, |_| true);
        }
        if gone.is_empty() {
            return false;
        }
        self.pods.retain(|pod| !is_gone(pod));
        self.forget_gone(rule);
        true
    }

    /// Lets the rule forget pods that do not exist any more.
    pub fn forget_gone(&self, rule: &mut RuleState<'_>) {
        rule.retain_pods(|name| self.pods.iter().any(|pod| *pod.name == *name));
    }

    /// Follows what was requested in fact: new pods begin with it, and with `sets_pods` running ones have it too.
    pub fn follow_recording(&mut self, now: Time, sets_pods: bool) {
        if self.next_step.is_none_or(|next| next > now) {
            return;
        }
        let mut next: Option<Time> = None;
        for (container, held) in self.recording.containers.iter().zip(&mut self.recorded) {
            *held =
                Held::new(amounts_at(&container.requests, now), amounts_at(&container.limits, now));
            let steps = container.requests.iter().chain(&container.limits);
            let later = steps.map(|step| step.at).filter(|at| *at > now).min();
            next = next.into_iter().chain(later).min();
        }
        self.next_step = next;
        for pod in self.pods.iter_mut().filter(|_| sets_pods) {
            for (state, held) in pod.containers.iter_mut().zip(&self.recorded) {
                state.held = *held;
            }
        }
    }

    /// Creates pods that were born in fact. `sized` are the amounts that they get instead of the recorded ones. Returns
    /// whether there were any.
    pub fn create_born(
        &mut self,
        minute: u32,
        now: Time,
        mut sized: impl FnMut(&[Held]) -> Option<Vec<Held>>,
    ) -> bool {
        let mut is_changed = false;
        while let Some(recorded) = self.recording.pods.get(self.next_pod) {
            if recorded.born > now {
                break;
            }
            let index = self.next_pod;
            self.next_pod += 1;
            if recorded.gone <= now.earlier(KNOWN_AFTER) {
                continue;
            }
            let advised = sized(&self.recorded);
            let is_sized = advised.is_some();
            let held = advised.unwrap_or_else(|| self.recorded.clone());
            let state = |(container, held): (usize, &Held)| VirtualContainer {
                is_present: recorded.containers.get(container).is_some_and(has_samples),
                held: *held,
                next_window: minute / MINUTES_PER_WINDOW,
                next_kill: 0,
                pending: [None, None],
                restarts: 0,
                started: recorded.born,
                last_kill: None,
                throttled: 0,
            };
            self.pods.push(VirtualPod {
                recorded: index,
                name: Arc::from(&*recorded.name),
                generation: 0,
                created: recorded.born,
                ready_at: recorded.born.later(START),
                resizes: 0,
                is_sized,
                containers: held.iter().enumerate().map(state).collect(),
            });
            let differs = self.last_born.as_ref().is_some_and(|before| *before != held);
            if differs && now >= self.from {
                self.count(self.pods.len() - 1, now, PodChange::BornChanged);
            }
            self.last_born = Some(held);
            is_changed = true;
        }
        is_changed
    }

    /// Whether a container of a pod has other amounts.
    pub fn differs(&self, index: usize, held: &[Held]) -> bool {
        let mut containers = self.pods[index].containers.iter().zip(held);
        containers.any(|(state, held)| state.is_present && state.held != *held)
    }

    /// Resizes a pod in place.
    pub fn resize(&mut self, index: usize, held: &[Held], now: Time) {
        let pod = &mut self.pods[index];
        pod.resizes += 1;
        for (state, held) in pod.containers.iter_mut().zip(held) {
            state.held = *held;
        }
        self.count(index, now, PodChange::Resized);
    }

    /// Replaces a pod by one with other amounts. Its use goes on as recorded.
    pub fn replace(&mut self, index: usize, held: Vec<Held>, now: Time, rule: &mut RuleState<'_>) {
        self.show_windows(index, rule, |_| true);
        let pod = &mut self.pods[index];
        let recorded = &self.recording.pods[pod.recorded];
        pod.generation += 1;
        pod.name = format!("{}.{}", recorded.name, pod.generation).into();
        pod.created = now;
        pod.ready_at = now.later(START);
        pod.resizes = 0;
        pod.is_sized = true;
        for (state, held) in pod.containers.iter_mut().zip(&held) {
            state.held = *held;
            state.restarts = 0;
            state.started = now;
            state.last_kill = None;
        }
        self.last_born = Some(held);
        self.count(index, now, PodChange::Evicted);
    }

    fn count(&mut self, index: usize, now: Time, change: PodChange) {
        // A change of a pod is counted once, with its first container.
        let first = self.pods[index].containers.iter().position(|state| state.is_present);
        if let Some(container) = first {
            self.tally.add_change(container, self.facts.day_index(now), change);
        }
    }

    /// Compares what is used with requests and limits.
    pub fn run_minute(&mut self, minute: u32, now: Time) {
        let day = self.facts.day_index(now);
        let window = minute / MINUTES_PER_WINDOW;
        let is_judged = now >= self.from;
        for pod in &mut self.pods {
            let recorded = &self.recording.pods[pod.recorded];
            for (container, state) in pod.containers.iter_mut().enumerate() {
                if !state.is_present {
                    continue;
                }
                let usage = &recorded.containers[container];
                let was = &self.recorded[container];
                if is_judged && let Some(cores) = usage::cpu_at(usage, minute) {
                    let cores = f64::from(cores);
                    let near = |limit: MilliCpu| cores >= CENSORED_USE * limit.as_cores();
                    let is_censored =
                        was_throttled(usage, state, minute) || was.cpu_limit.is_some_and(near);
                    self.tally.add_minute(container, day, &state.held, cores, is_censored);
                }
                if window < state.next_window {
                    continue;
                }
                state.next_window = window + 1;
                let facts = &self.facts.containers[container];
                let Some((demand, is_assumed)) = facts.demand(usage, pod.recorded, window) else {
                    continue;
                };
                let outcome = run_window(state, was, window, demand, is_assumed);
                if is_judged && facts.is_elastic {
                    self.tally.leave_out_window(container, day);
                } else if is_judged {
                    self.tally.add_window(container, day, &state.held, outcome);
                }
            }
        }
    }
}

fn has_samples(usage: &PodContainer) -> bool {
    !usage.cpu.is_empty() || !usage.memory.is_empty() || !usage.oom_kills.is_empty()
}

/// Whether the container was throttled in fact.
fn was_throttled(usage: &PodContainer, state: &mut VirtualContainer, minute: u32) -> bool {
    let minutes = &usage.throttled_minutes;
    while minutes.get(state.throttled).is_some_and(|throttled| *throttled < minute) {
        state.throttled += 1;
    }
    minutes.get(state.throttled) == Some(&minute)
}

/// Compares the demand of a window with the limit, and keeps what will be seen of it.
fn run_window(
    state: &mut VirtualContainer,
    was: &Held,
    window: u32,
    demand: f64,
    is_assumed: bool,
) -> WindowOutcome {
    let limit = state.held.memory_limit;
    let is_cut = limit.is_some_and(|limit| demand > limit.as_f64());
    let is_killed = is_cut && window >= state.next_kill;
    if is_killed {
        state.next_kill = window + WINDOWS_AFTER_KILL;
    }
    let (request, killed_at) = (state.held.memory, limit.filter(|_| is_killed));
    let bytes = limit.map_or(demand, |limit| demand.min(limit.as_f64()));
    let peak = PendingPeak { window, bytes, is_cut, request, killed_at };
    state.pending[window as usize % 2] = Some(peak);
    let is_limit_raised = match (limit, was.memory_limit) {
        (Some(limit), Some(recorded)) => limit > recorded,
        (None, _) => true,
        (Some(_), None) => false,
    };
    WindowOutcome { demand, is_assumed, is_limit_raised, is_killed }
}
