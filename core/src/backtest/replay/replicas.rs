//! The virtual pods of a workload under a policy: what a metrics server shows of them, and what happens to
//! them.

use super::{
    amounts::{amounts_of, amounts_of_new_pods},
    facts::Facts,
    held::Held,
    pods::{MINUTE, VirtualPod, has_samples},
    scaling::Scaling,
    tally::{PodChange, Tally},
    usage::{self, MINUTES_PER_WINDOW},
};
use crate::{
    backtest::{
        policy::{RuleState, Seen},
        recording::WorkloadRecording,
    },
    types::{Time, units::MilliCpu},
};

/// Later than everything.
const END: Time = Time::from_nanos(i64::MAX);
/// The use of a CPU limit from which on demand may have been higher.
const CENSORED_USE: f64 = 0.98;

/// The virtual pods of a workload.
pub(super) struct Replicas<'a> {
    recording: &'a WorkloadRecording,
    facts: &'a Facts,
    /// When the policy begins to decide.
    from: Time,
    pub pods: Vec<VirtualPod>,
    /// Pods whose recorded pod has ended, until its last samples are known. Nothing changes them.
    ending: Vec<VirtualPod>,
    next_pod: usize,
    /// Its autoscaler, if replicas are modelled.
    scaling: Option<Scaling<'a>>,
    /// What new pods request in fact at this time, and their limits.
    pub recorded: Vec<Held>,
    next_step: Option<Time>,
    last_born: Option<Vec<Held>>,
    /// Minutes with CPU of each container, and the first of them.
    pub samples: Vec<u64>,
    pub first_sample: Vec<Option<Time>>,
    pub tally: Tally,
}

impl<'a> Replicas<'a> {
    pub fn new(
        recording: &'a WorkloadRecording,
        facts: &'a Facts,
        from: Time,
        scaling: Option<Scaling<'a>>,
    ) -> Self {
        let containers = recording.containers.len();
        Self {
            recording,
            facts,
            from,
            pods: Vec::new(),
            ending: Vec::new(),
            next_pod: 0,
            tally: Tally::new(containers, scaling.is_some()),
            scaling,
            recorded: vec![Held::default(); containers],
            next_step: Some(recording.from),
            last_born: None,
            samples: vec![0; containers],
            first_sample: vec![None; containers],
        }
    }

    /// Lets the rule see what was measured in the minute before, windows that ended then, and kills. Returns
    /// whether it sees a kill.
    pub fn show(&mut self, minute: u32, rule: &mut RuleState<'_>) -> bool {
        let Some(before) = minute.checked_sub(1) else { return false };
        let at = usage::time_of(self.recording, before);
        let mut was_killed = false;
        for pod in self.pods.iter_mut().chain(&mut self.ending) {
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
                    let factor = cpu_factor(self.scaling.as_ref(), container);
                    rule.take_cpu(seen, (f64::from(cores) * factor).min(limit));
                }
            }
            was_killed |= pod.show_windows(at, rule);
        }
        was_killed
    }

    /// Removes pods whose recorded pod has ended. Returns whether there were any.
    pub fn remove_gone(&mut self, now: Time, rule: &mut RuleState<'_>) -> bool {
        if self.scaling.is_some() {
            return self.remove_gone_of_model(now, rule);
        }
        // Their last samples are known now.
        let was_ending = !self.ending.is_empty();
        for mut pod in self.ending.drain(..) {
            pod.show_windows(END, rule);
        }
        let recording = self.recording;
        let is_gone = |pod: &mut VirtualPod| recording.pods[pod.recorded].gone <= now;
        self.ending.extend(self.pods.extract_if(.., is_gone));
        if was_ending {
            self.forget_gone(rule);
        }
        was_ending || !self.ending.is_empty()
    }

    /// The same if replicas are modelled: a pod goes on with other usage once the last samples of its
    /// recorded pod are known.
    fn remove_gone_of_model(&mut self, now: Time, rule: &mut RuleState<'_>) -> bool {
        let known = now.earlier(MINUTE);
        let recording = self.recording;
        let is_gone = |pod: &VirtualPod| recording.pods[pod.recorded].gone <= known;
        let gone: Vec<usize> =
            (0..self.pods.len()).filter(|index| is_gone(&self.pods[*index])).collect();
        for index in &gone {
            self.pods[*index].show_windows(END, rule);
        }
        if let Some(scaling) = &mut self.scaling {
            scaling.retain_living(|recorded| recording.pods[recorded].gone <= known);
        }
        if gone.is_empty() {
            return false;
        }
        self.move_pods(&gone, now);
        self.pods.retain(|pod| !is_gone(pod));
        self.forget_gone(rule);
        true
    }

    /// Pods whose recorded pod was removed without a successor go on with the usage of another one, if
    /// replicas are modelled.
    fn move_pods(&mut self, gone: &[usize], now: Time) {
        let Some(scaling) = self.scaling.as_mut().filter(|of| of.wanted().is_some()) else {
            return;
        };
        for index in gone {
            let Some(recorded) = scaling.moves_to(&self.pods) else { continue };
            let pod = &mut self.pods[*index];
            let usage = &self.recording.pods[recorded];
            pod.recorded = recorded;
            pod.copy = scaling.next_copy();
            (pod.recorded_amounts, pod.next_step) = amounts_of(self.recording, usage, now);
            for (container, state) in pod.containers.iter_mut().enumerate() {
                state.is_present = usage.containers.get(container).is_some_and(has_samples);
                state.throttled = 0;
            }
        }
    }

    /// Lets the autoscaler decide, if replicas are modelled. Removes pods that are too many;
    /// [`Self::create_born`] creates those that are missing. Returns whether pods were removed.
    pub fn rescale(&mut self, minute: u32, now: Time, rule: &mut RuleState<'_>) -> bool {
        let Some(scaling) = self.scaling.as_mut().filter(|_| now >= self.from) else {
            return false;
        };
        let Some(wanted) = scaling.pass(&self.pods, minute, now) else { return false };
        let before = self.pods.len();
        while self.pods.len() > wanted as usize {
            let surplus = self.scaling.as_mut().and_then(|scaling| scaling.surplus(&self.pods));
            let Some(index) = surplus else { break };
            self.pods.remove(index).show_windows(END, rule);
        }
        let is_changed = self.pods.len() < before;
        if is_changed {
            self.forget_gone(rule);
        }
        is_changed
    }

    /// Lets the rule forget pods that do not exist any more.
    pub fn forget_gone(&self, rule: &mut RuleState<'_>) {
        rule.retain_pods(|name| self.pods.iter().chain(&self.ending).any(|pod| *pod.name == *name));
    }

    /// Follows what was requested in fact: new pods begin with it, and with `sets_pods` running ones are
    /// resized to it.
    pub fn follow_recording(&mut self, now: Time, sets_pods: bool) {
        let is_due = |next: Option<Time>| next.is_some_and(|next| next <= now);
        if is_due(self.next_step) {
            (self.recorded, self.next_step) = amounts_of_new_pods(self.recording, now);
        }
        for index in 0..self.pods.len() {
            let pod = &mut self.pods[index];
            if !is_due(pod.next_step) {
                continue;
            }
            let recorded = &self.recording.pods[pod.recorded];
            (pod.recorded_amounts, pod.next_step) = amounts_of(self.recording, recorded, now);
            let held = pod.recorded_amounts.clone();
            if sets_pods && now > self.from && self.differs(index, &held) {
                self.resize(index, &held, now);
            } else if sets_pods {
                for (state, held) in self.pods[index].containers.iter_mut().zip(held) {
                    state.held = held;
                }
            }
        }
    }

    /// Creates pods that were born in fact, or those that the autoscaler wants if replicas are modelled.
    /// `sized` are the amounts that they get instead of the recorded ones. Returns whether there were any.
    pub fn create_born(
        &mut self,
        minute: u32,
        now: Time,
        mut sized: impl FnMut(&[Held]) -> Option<Vec<Held>>,
    ) -> bool {
        let before = self.pods.len();
        while let Some(recorded) = self.recording.pods.get(self.next_pod) {
            if recorded.born > now {
                break;
            }
            let index = self.next_pod;
            self.next_pod += 1;
            if recorded.gone <= now.earlier(MINUTE) {
                continue;
            }
            let wanted = self.scaling.as_mut().and_then(|scaling| {
                scaling.add_living(index);
                scaling.wanted()
            });
            if wanted.is_none() {
                self.create(index, (0, recorded.born), minute, now, &mut sized);
            }
        }
        while let Some(scaling) = &mut self.scaling
            && scaling.wanted().is_some_and(|wanted| self.pods.len() < wanted as usize)
            && let Some(index) = scaling.least_used(&self.pods)
        {
            let copy = scaling.next_copy();
            self.create(index, (copy, now), minute, now, &mut sized);
        }
        self.pods.len() > before
    }

    /// Creates a pod with the usage of a recorded one.
    fn create(
        &mut self,
        index: usize,
        (copy, created): (u32, Time),
        minute: u32,
        now: Time,
        sized: &mut impl FnMut(&[Held]) -> Option<Vec<Held>>,
    ) {
        let recorded = &self.recording.pods[index];
        let advised = sized(&self.recorded);
        let is_sized = advised.is_some();
        let (recorded_amounts, next_step) = amounts_of(self.recording, recorded, now);
        let held = advised.unwrap_or_else(|| recorded_amounts.clone());
        let mut pod = VirtualPod::new(index, recorded, created, &held, minute / MINUTES_PER_WINDOW);
        pod.copy = copy;
        pod.is_sized = is_sized;
        (pod.recorded_amounts, pod.next_step) = (recorded_amounts, next_step);
        pod.set_name(&recorded.name);
        self.pods.push(pod);
        let differs = self.last_born.as_ref().is_some_and(|before| *before != held);
        if differs && now >= self.from {
            self.count(self.pods.len() - 1, now, PodChange::BornChanged);
        }
        self.last_born = Some(held);
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
    pub fn replace(&mut self, index: usize, held: Vec<Held>, now: Time) {
        let pod = &mut self.pods[index];
        pod.replace(&self.recording.pods[pod.recorded].name, &held, now);
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
    pub fn run_minute(&mut self, minute: u32, now: Time, rule: &mut RuleState<'_>) {
        let day = self.facts.day_index(now);
        let window = minute / MINUTES_PER_WINDOW;
        let ends_window = (minute + 1).is_multiple_of(MINUTES_PER_WINDOW);
        let is_judged = now >= self.from;
        if let Some(scaling) = &mut self.scaling {
            scaling.spread(&self.pods, minute);
            for container in 0..self.recording.containers.len() {
                rule.scale_cpu(container, minute, scaling.cpu_factor(container));
                rule.scale_memory(container, window, scaling.memory_factor(container));
            }
        }
        let scaling = self.scaling.as_ref();
        for pod in self.pods.iter_mut().chain(&mut self.ending) {
            let recorded = &self.recording.pods[pod.recorded];
            for (container, state) in pod.containers.iter_mut().enumerate() {
                if !state.is_present {
                    continue;
                }
                let usage = &recorded.containers[container];
                let was = &pod.recorded_amounts[container];
                if is_judged && let Some(cores) = usage::cpu_at(usage, minute) {
                    let cores = f64::from(cores);
                    let near = |limit: MilliCpu| cores >= CENSORED_USE * limit.as_cores();
                    let is_censored =
                        state.was_throttled(usage, minute) || was.cpu_limit.is_some_and(near);
                    let cores = cores * cpu_factor(scaling, container);
                    self.tally.add_minute(container, day, &state.held, cores, is_censored);
                    state.mean = (state.mean.0 + cores, state.mean.1 + 1);
                }
                if ends_window && let (sum, count @ 1..) = std::mem::take(&mut state.mean) {
                    self.tally.add_mean(container, day, sum / f64::from(count));
                }
                if window < state.next_window {
                    continue;
                }
                let facts = &self.facts.containers[container];
                let demand = facts.demand(usage, pod.recorded, window);
                // What it had when it was killed in fact counts.
                if demand.and_then(|of| of.killed_at).is_some_and(|at| now.later(MINUTE) < at) {
                    continue;
                }
                state.next_window = window + 1;
                let Some(demand) = demand else { continue };
                let factor = scaling.map_or(1.0, |scaling| scaling.memory_factor(container));
                let ends = usage::end_of(self.recording, window);
                let outcome = state.run_window(was, (window, ends), &demand.scaled(factor));
                if is_judged && facts.is_elastic {
                    self.tally.leave_out_window(container, day);
                } else if is_judged {
                    self.tally.add_window(container, day, &state.held, outcome);
                }
            }
        }
    }
}

/// The part of the usage of its recorded pod that a virtual pod has.
fn cpu_factor(scaling: Option<&Scaling<'_>>, container: usize) -> f64 {
    scaling.map_or(1.0, |scaling| scaling.cpu_factor(container))
}
