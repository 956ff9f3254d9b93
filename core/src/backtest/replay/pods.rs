//! Virtual pods: those of the recording, with the requests and limits of a policy.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use super::{facts::WindowDemand, held::Held, tally::WindowOutcome};
use crate::{
    backtest::{
        policy::{RuleState, Seen},
        recording::{CPU_STEP_SECONDS, PodContainer, PodRecording},
    },
    types::{Time, units::Bytes},
};

/// A container that was killed in one window has just restarted in the next.
const WINDOWS_AFTER_KILL: u32 = 2;
/// How long a new pod is not ready.
const START: Duration = Duration::from_mins(1);
/// What was measured so long ago is known.
pub(super) const MINUTE: Duration = Duration::from_secs(CPU_STEP_SECONDS as u64);
/// A kill whose time is not known is after the last sample of its window.
const BEFORE_NEXT_SAMPLE: Duration = Duration::from_secs(CPU_STEP_SECONDS as u64 / 2);

/// A pod under a policy.
#[derive(Clone, Debug)]
pub(super) struct VirtualPod {
    /// The index of the pod in the recording whose usage it has.
    pub recorded: usize,
    /// Distinguishes pods that have the usage of the same recorded pod; 0 for the recorded pod itself.
    pub copy: u32,
    pub name: Arc<str>,
    /// How often it was replaced.
    pub generation: u32,
    pub created: Time,
    pub ready_at: Time,
    pub resizes: i64,
    /// Whether it was created with a recommendation.
    pub is_sized: bool,
    /// What the recorded pod has at this time, by container.
    pub recorded_amounts: Vec<Held>,
    /// When that changes next.
    pub next_step: Option<Time>,
    pub containers: Vec<VirtualContainer>,
}

/// A container of a pod under a policy.
#[derive(Clone, Debug)]
pub(super) struct VirtualContainer {
    /// Whether the recorded pod has it.
    pub is_present: bool,
    pub held: Held,
    /// The next window whose peak is compared with the limit.
    pub next_window: u32,
    /// The first window in which it can be killed.
    pub next_kill: u32,
    /// Windows that are not known yet, and the window before.
    pub pending: [Option<PendingWindow>; 2],
    pub restarts: u32,
    pub started: Time,
    /// The start and the end of the container that was killed last.
    pub last_kill: Option<(Time, Time)>,
    /// The position in the throttled minutes of the recording.
    pub throttled: usize,
    /// The sum of cores in this window, and of how many minutes.
    pub mean: (f64, u32),
}

/// What will be seen of a window of memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingWindow {
    pub window: u32,
    /// When it is over.
    pub ends: Time,
    /// The peak that a metrics server shows then; `None` if the container was killed before there was a
    /// sample.
    pub peak: Option<f64>,
    /// Whether more was used than the limit allows.
    pub is_cut: bool,
    /// The request of that time.
    pub request: Option<Bytes>,
    pub kill: Option<PendingKill>,
    /// Whether the pod was replaced meanwhile. What is seen late is seen of its successor, which was not
    /// killed.
    pub is_of_predecessor: bool,
}

/// A kill that will be seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingKill {
    pub at: Time,
    pub limit: Bytes,
}

impl VirtualPod {
    /// A pod with the usage of a recorded one, from a window of memory on.
    pub fn new(
        index: usize,
        recorded: &PodRecording,
        created: Time,
        held: &[Held],
        window: u32,
    ) -> Self {
        let state = |(container, held): (usize, &Held)| VirtualContainer {
            is_present: recorded.containers.get(container).is_some_and(has_samples),
            held: *held,
            next_window: window,
            next_kill: 0,
            pending: [None, None],
            restarts: 0,
            started: created,
            last_kill: None,
            throttled: 0,
            mean: (0.0, 0),
        };
        Self {
            recorded: index,
            copy: 0,
            name: Arc::from(""),
            generation: 0,
            created,
            ready_at: created.later(START),
            resizes: 0,
            is_sized: false,
            recorded_amounts: Vec::new(),
            next_step: None,
            containers: held.iter().enumerate().map(state).collect(),
        }
    }

    /// Becomes its successor with other amounts, and the usage of the same recorded pod.
    pub fn replace(&mut self, recorded: &str, held: &[Held], now: Time) {
        self.generation += 1;
        self.set_name(recorded);
        self.created = now;
        self.ready_at = now.later(START);
        self.resizes = 0;
        self.is_sized = true;
        for (state, held) in self.containers.iter_mut().zip(held) {
            state.held = *held;
            state.restarts = 0;
            state.started = now;
            state.last_kill = None;
            for pending in state.pending.iter_mut().flatten() {
                pending.is_of_predecessor = true;
            }
        }
    }

    /// Names it after the recorded pod, uniquely.
    pub fn set_name(&mut self, recorded: &str) {
        let mut name = recorded.to_owned();
        if self.copy > 0 {
            // A String is always writable.
            let _ = write!(name, "+{}", self.copy);
        }
        if self.generation > 0 {
            let _ = write!(name, ".{}", self.generation);
        }
        self.name = name.into();
    }

    /// Lets the rule see the peaks of windows that are over by a time, and kills. Returns whether it sees a
    /// kill.
    pub fn show_windows(&mut self, until: Time, rule: &mut RuleState<'_>) -> bool {
        let mut was_killed = false;
        for (container, state) in self.containers.iter_mut().enumerate() {
            for known in state.take_known(until).into_iter().flatten() {
                let seen = Seen {
                    container,
                    pod: self.recorded,
                    pod_name: &self.name,
                    at: known.ends.earlier(MINUTE),
                    cpu_request: state.held.cpu,
                    memory_request: known.request,
                };
                if let Some(bytes) = known.peak {
                    rule.take_memory(seen, known.window, bytes, known.is_cut);
                }
                let Some(PendingKill { at, limit }) = known.kill else { continue };
                rule.take_kill(Seen { at, ..seen }, limit);
                was_killed = true;
                if !known.is_of_predecessor {
                    state.restarts += 1;
                    state.last_kill = Some((state.started, at));
                    state.started = at;
                }
            }
        }
        was_killed
    }
}

impl VirtualContainer {
    /// Whether the container was throttled in fact.
    pub fn was_throttled(&mut self, usage: &PodContainer, minute: u32) -> bool {
        let minutes = &usage.throttled_minutes;
        while minutes.get(self.throttled).is_some_and(|throttled| *throttled < minute) {
            self.throttled += 1;
        }
        minutes.get(self.throttled) == Some(&minute)
    }

    /// Compares the demand of a window with the limit, and keeps what will be seen of it.
    pub fn run_window(
        &mut self,
        was: &Held,
        (window, ends): (u32, Time),
        demand: &WindowDemand,
    ) -> WindowOutcome {
        let limit = self.held.memory_limit;
        let is_above = |bytes: f64| limit.is_some_and(|limit| bytes > limit.as_f64());
        let is_killed = is_above(demand.bytes) && window >= self.next_kill;
        if is_killed {
            self.next_kill = window + WINDOWS_AFTER_KILL;
        }
        let kill = limit.filter(|_| is_killed).map(|limit| PendingKill {
            at: demand.killed_at.unwrap_or(ends.earlier(BEFORE_NEXT_SAMPLE)),
            limit,
        });
        // A container that was killed in fact is assumed to have needed more, but that was not measured.
        let peak = limit.map_or(demand.measured, |limit| {
            demand.measured.map(|bytes| bytes.min(limit.as_f64()))
        });
        self.pending[window as usize % 2] = Some(PendingWindow {
            window,
            ends,
            peak,
            is_cut: demand.measured.is_some_and(is_above),
            request: self.held.memory,
            kill,
            is_of_predecessor: false,
        });
        let is_limit_raised = match (limit, was.memory_limit) {
            (Some(limit), Some(recorded)) => limit > recorded,
            (None, _) => true,
            (Some(_), None) => false,
        };
        let is_assumed = demand.killed_at.is_some();
        WindowOutcome { demand: demand.bytes, is_assumed, is_limit_raised, is_killed }
    }

    /// Takes the windows that are over by a time, and of another one the kill.
    fn take_known(&mut self, until: Time) -> [Option<PendingWindow>; 2] {
        let mut known = self.pending.each_mut().map(|slot| {
            let pending = slot.as_mut()?;
            if pending.ends <= until {
                return slot.take();
            }
            let kill = pending.kill.take_if(|kill| kill.at <= until)?;
            Some(PendingWindow { peak: None, kill: Some(kill), ..*pending })
        });
        known.sort_unstable_by_key(|known| known.map(|known| known.window));
        known
    }
}

/// Whether anything is known of a container.
pub(super) fn has_samples(usage: &PodContainer) -> bool {
    !usage.cpu.is_empty() || !usage.memory.is_empty() || !usage.oom_kills.is_empty()
}
