//! Runs a scenario and measures it.

use std::{collections::VecDeque, time::Duration};

use super::{
    PERIOD, STEPS_PER_DAY, STEPS_PER_MINUTE,
    hpa_pass::{PassInput, PassResult, pass},
    load::Load,
    replica::Replica,
    scenario::{Mode, Scenario},
    vertical::Vertical,
};
use crate::{
    coordination::{
        ChangeReason, Coordination, Observed, RatioRule, RecentUsage, ReplicaWriter, RequestChange,
        Resource, ScalePoint, State, UpdateWave, change_timing::Replicas, coordinate,
        decide::Recommended, retarget,
    },
    hpa::{Config, HpaState},
    types::Time,
};

/// The start of every run: a Monday.
const START: Time = Time::from_secs(1_767_571_200);
/// Days at the start that are not measured.
const WARM_UP_DAYS: u64 = 2;
/// `--pod-update-threshold` of the updater.
const UPDATE_THRESHOLD: f64 = 0.1;
/// `--in-recommendation-bounds-eviction-lifetime-threshold` of the updater, in steps.
const LIFETIME_STEPS: u64 = STEPS_PER_DAY / 2;
/// A scale-up this long after a wave is still attributed to it, in steps: samples and readiness lag behind.
const WAVE_AFTERMATH: u64 = 5 * STEPS_PER_MINUTE;

/// What a run measured, without its first two days.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    pub mean_replicas: f64,
    /// Mean replicas of each whole week, the first included.
    pub weekly_replicas: Vec<f64>,
    pub max_replicas: i32,
    /// Mean sum of requests, in cores.
    pub requested_cores: f64,
    /// Mean load, in cores.
    pub used_cores: f64,
    /// The mean request at the end, in millicores.
    pub request_at_end: i64,
    /// The fraction of time at the maximum of replicas.
    pub share_at_max: f64,
    /// The fraction of time at the minimum of replicas.
    pub share_at_min: f64,
    /// How often a day the replicas changed their direction.
    pub turns_per_day: f64,
    /// Scale-ups during a wave or soon after it that the load did not need.
    pub scale_ups_by_waves: u64,
    pub scale_ups: u64,
    /// How often the request of the workload was changed; with [`Mode::Unaware`], how many pods were changed.
    pub request_changes: u64,
    /// The shortest time between two changes of the request that were not needed to raise it.
    pub shortest_interval: Option<Duration>,
    /// Replicas that were removed while a wave was under way.
    pub removed_in_waves: u64,
    /// The lowest ratio of a request to the floor of the scale point, while there was a floor.
    pub lowest_above_floor: Option<f64>,
    /// How often the scale point was raised.
    pub raises: u64,
}

pub fn run(scenario: &Scenario) -> Outcome {
    run_with(scenario, &mut |_, _| {})
}

/// Runs a scenario. `on_pass` is called with each pass of the HPA.
pub fn run_with(
    scenario: &Scenario,
    on_pass: &mut dyn FnMut(&PassInput<'_>, &PassResult),
) -> Outcome {
    let mut simulation = Simulation::new(scenario);
    for step in 0..scenario.days * STEPS_PER_DAY {
        simulation.step(step, on_pass);
    }
    simulation.finish()
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    load: Load,
    config: Config,
    base: ScalePoint,
    pods: Vec<Replica>,
    pods_created: u64,
    memory: HpaState,
    last: Option<PassResult>,
    replicas_changed: Option<Time>,
    vertical: Vertical,
    recommended: Option<Recommended>,
    /// The request of the workload: what new pods get, with the rules.
    request: i64,
    request_changed: Option<Time>,
    rule: RatioRule,
    wave: Option<UpdateWave>,
    state: State,
    /// The usage per pod in the last hour at the maximum of replicas.
    last_hour: RecentUsage,
    /// The highest loads of the last two minutes.
    recent_loads: VecDeque<f64>,
    last_wave_step: Option<u64>,
    last_direction: i32,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    steps: u64,
    replicas: i64,
    requested: i64,
    load: f64,
    at_max: u64,
    at_min: u64,
    turns: u64,
    week: i64,
    outcome: Outcome,
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario) -> Self {
        let percent = scenario.target_percent;
        let request = scenario.template_request;
        let base = ScalePoint::of(percent, Some(request), None);
        let base = base.unwrap_or(ScalePoint {
            milli: 1,
            source: crate::coordination::ScalePointSource::Template,
        });
        let mut simulation = Self {
            scenario,
            load: scenario.load(),
            config: Config { downscale_stabilization: scenario.down_window, ..Config::default() },
            base,
            pods: Vec::new(),
            pods_created: 0,
            memory: HpaState::default(),
            last: None,
            replicas_changed: None,
            vertical: Vertical::default(),
            recommended: None,
            request,
            request_changed: None,
            rule: match scenario.mode {
                Mode::Coordinated => RatioRule::Usage { average_milli: base.milli },
                _ => RatioRule::Utilization { percent },
            },
            wave: None,
            state: State::default(),
            last_hour: RecentUsage::default(),
            recent_loads: VecDeque::new(),
            last_wave_step: None,
            last_direction: 0,
            totals: Totals::default(),
        };
        // Enough for the first load, ready from the start.
        let first = simulation.load.at(START, 0) / base.milli as f64;
        let first = (first.ceil() as i32).clamp(scenario.min_replicas, scenario.max_replicas);
        for _ in 0..first {
            let mut pod = simulation.create_pod(0);
            pod.ready = 0;
            simulation.pods.push(pod);
        }
        simulation
    }

    fn step(&mut self, step: u64, on_pass: &mut dyn FnMut(&PassInput<'_>, &PassResult)) {
        let now = time_of(step);
        self.use_cpu(step, now);
        self.scale(step, now, on_pass);
        if step.is_multiple_of(STEPS_PER_MINUTE) && self.scenario.mode != Mode::MemoryOnly {
            self.update_requests(step, now);
        }
        self.measure(step);
    }

    /// The ready pods share the load.
    fn use_cpu(&mut self, step: u64, now: Time) {
        let load = self.load.at(now, step);
        let weights: f64 = self.pods.iter().map(|pod| pod.weight(step)).sum();
        for pod in &mut self.pods {
            let usage = if pod.is_ready(step) {
                load * pod.weight(step) / weights
            } else {
                self.scenario.startup_usage
            };
            pod.record(usage);
        }
        self.totals.load += load;
        self.recent_loads.push_back(load);
        if self.recent_loads.len() > 2 * STEPS_PER_MINUTE as usize {
            self.recent_loads.pop_front();
        }
    }

    /// A pass of the HPA.
    fn scale(
        &mut self,
        step: u64,
        now: Time,
        on_pass: &mut dyn FnMut(&PassInput<'_>, &PassResult),
    ) {
        let replicas = self.pods.len() as i32;
        let input = PassInput {
            pods: &self.pods,
            replicas,
            bounds: (self.scenario.min_replicas, self.scenario.max_replicas),
            rule: self.rule,
            memory: &self.memory,
            config: &self.config,
            step,
            now,
        };
        let result = pass(&input);
        on_pass(&input, &result);
        self.memory = result.memory.clone();
        let desired = result.desired;
        self.last = Some(result);
        let readiness = self.config.initial_readiness_delay;
        let is_held = self.scenario.mode == Mode::Coordinated
            && self.wave.is_some_and(|wave| wave.holds_removal(readiness, now).is_some());
        if desired == replicas || (desired < replicas && is_held) {
            return;
        }
        self.count_change(step, replicas, desired);
        self.replicas_changed = Some(now);
        for _ in replicas..desired {
            let pod = self.create_pod(step);
            self.pods.push(pod);
        }
        if desired < replicas {
            // A ReplicaSet removes pods that are not ready first, then those that are ready for the shortest time.
            self.pods.sort_by_key(|pod| pod.ready);
            self.pods.truncate(desired as usize);
        }
    }

    fn count_change(&mut self, step: u64, replicas: i32, desired: i32) {
        let direction = (desired - replicas).signum();
        let is_measured = step >= WARM_UP_DAYS * STEPS_PER_DAY;
        let is_turn = direction == -self.last_direction;
        self.last_direction = direction;
        if !is_measured {
            return;
        }
        self.totals.turns += u64::from(is_turn);
        let scale_point = self.scale_point().milli;
        let outcome = &mut self.totals.outcome;
        if direction > 0 {
            outcome.scale_ups += 1;
            let capacity = f64::from(replicas) * scale_point as f64 * (1.0 + self.config.tolerance);
            let is_needed = self.recent_loads.iter().any(|load| *load > capacity);
            let is_near_wave =
                self.last_wave_step.is_some_and(|wave| step <= wave + WAVE_AFTERMATH);
            outcome.scale_ups_by_waves += u64::from(is_near_wave && !is_needed);
        } else if self.wave.is_some_and(|wave| wave.ended.is_none()) {
            outcome.removed_in_waves += (replicas - desired) as u64;
        }
    }

    /// A minute of recommender and updater.
    fn update_requests(&mut self, step: u64, now: Time) {
        self.vertical.observe(&self.pods, now);
        self.recommended = if self.scenario.alternates {
            Some(alternating(self.base, self.mean_request()))
        } else {
            self.vertical.recommend(now)
        };
        if (self.pods.len() as i32) < self.scenario.max_replicas {
            self.last_hour = RecentUsage::default();
        } else if let Some(usage) = self.last.as_ref().and_then(|last| last.usage) {
            self.last_hour.add(usage, now);
        }
        if self.scenario.mode == Mode::Unaware {
            self.update_unaware(step, now);
        } else {
            self.update_coordinated(step, now);
        }
    }

    /// Upstream's rules: a pod outside of the bounds is changed, and one that differs from the target after half a day.
    fn update_unaware(&mut self, step: u64, now: Time) {
        let Some(recommended) = self.recommended else { return };
        let is_due = |pod: &Replica| {
            let difference = (recommended.target - pod.request).abs() as f64 / pod.request as f64;
            pod.request < recommended.lower
                || pod.request > recommended.upper
                || (difference >= UPDATE_THRESHOLD && pod.sized + LIFETIME_STEPS <= step)
        };
        let due: Vec<u64> = self.pods.iter().filter(|pod| is_due(pod)).map(|pod| pod.id).collect();
        let changed = self.change_pods(&due, recommended.target, self.scenario.in_place, step, now);
        if step >= WARM_UP_DAYS * STEPS_PER_DAY {
            self.totals.outcome.request_changes += changed;
        }
    }

    fn update_coordinated(&mut self, step: u64, now: Time) {
        let observed = self.observe(now);
        let decision = coordinate(&observed, &self.state);
        self.count_raise(&decision);
        self.state = decision.state;
        if let RequestChange::Due { to, reason } = decision.change {
            let interval = self.request_changed.map(|at| now.nanos_since(at));
            let is_urgent =
                matches!(reason, ChangeReason::BelowBounds | ChangeReason::AtMaxReplicas);
            if let Some(interval) = interval.filter(|_| !is_urgent) {
                let interval = Duration::from_nanos(interval.unsigned_abs());
                let shortest = &mut self.totals.outcome.shortest_interval;
                *shortest = Some(shortest.map_or(interval, |shortest| shortest.min(interval)));
            }
            self.request = to;
            self.request_changed = Some(now);
            self.wave = Some(UpdateWave { started: now, ended: None });
            self.totals.outcome.request_changes += u64::from(step >= WARM_UP_DAYS * STEPS_PER_DAY);
        }
        let due: Vec<u64> =
            self.pods.iter().filter(|pod| pod.request != self.request).map(|pod| pod.id).collect();
        // Raised at the maximum in place only: replacing pods would take away capacity.
        let in_place = self.scenario.in_place
            || matches!(
                decision.change,
                RequestChange::Due { reason: ChangeReason::AtMaxReplicas, .. }
            );
        let before = self.mean_request();
        self.change_pods(&due, self.request, in_place, step, now);
        let is_settled =
            self.pods.iter().all(|pod| pod.request == self.request && pod.is_ready(step));
        if let Some(wave) = self.wave.as_mut().filter(|wave| wave.ended.is_none() && is_settled) {
            wave.ended = Some(now);
        }
        if let (Some(min), false) = (decision.range.min, decision.is_idle) {
            let above = self.request as f64 / min as f64;
            let lowest = &mut self.totals.outcome.lowest_above_floor;
            // The first change waits for its turn.
            if self.request_changed.is_some() {
                *lowest = Some(lowest.map_or(above, |lowest: f64| lowest.min(above)));
            }
        }
        let scale_point = self.scale_point();
        self.rule = match self.scenario.mode {
            Mode::Retargeted => {
                let percent = retarget::target_for_step(scale_point, before, self.mean_request());
                RatioRule::Utilization { percent }
            }
            _ => RatioRule::Usage { average_milli: scale_point.milli },
        };
    }

    fn count_raise(&mut self, decision: &Coordination) {
        let raised = |state: &State| state.raised.map_or(0, |raised| raised.request);
        self.totals.outcome.raises += u64::from(raised(&decision.state) > raised(&self.state));
    }

    fn observe(&self, now: Time) -> Observed {
        let scenario = self.scenario;
        let last = self.last.as_ref();
        Observed {
            resource: Resource::Cpu,
            writer: match scenario.mode {
                Mode::Retargeted => ReplicaWriter::Other { may_retarget: true },
                _ => ReplicaWriter::Plimsoll,
            },
            target_percent: scenario.target_percent,
            follows_requests: false,
            template_request: Some(scenario.template_request),
            mean_request: Some(self.mean_request()),
            recommended: self.recommended,
            last_hour_target: self.last_hour.target(now).filter(|_| scenario.raises_at_max),
            usage_per_pod: last.and_then(|last| last.usage),
            replicas: Replicas {
                current: self.pods.len() as i32,
                min: scenario.min_replicas,
                max: scenario.max_replicas,
                proposed: last.and_then(|last| last.proposed),
                changed: self.replicas_changed,
                down_window: scenario.down_window,
            },
            tolerance: self.config.tolerance,
            readiness: self.config.initial_readiness_delay,
            wave: self.wave,
            request_changed: self.request_changed,
            update_threshold: UPDATE_THRESHOLD,
            can_raise_in_place: true,
            now,
        }
    }

    /// Changes the requests of pods: in place, or by replacing them while at most half of the pods are not ready. Returns how
    /// many were changed.
    fn change_pods(
        &mut self,
        due: &[u64],
        request: i64,
        in_place: bool,
        step: u64,
        now: Time,
    ) -> u64 {
        let unready = self.pods.iter().filter(|pod| !pod.is_ready(step)).count();
        let mut budget = if in_place {
            usize::MAX
        } else {
            (self.pods.len() / 2).max(1).saturating_sub(unready)
        };
        let mut changed = 0;
        for id in due {
            let Some(index) = self.pods.iter().position(|pod| pod.id == *id) else { continue };
            if in_place {
                if let Some(pod) = self.pods.get_mut(index) {
                    (pod.request, pod.sized) = (request, step);
                }
            } else if budget > 0 {
                budget -= 1;
                let pod = self.create_pod(step);
                self.pods[index] = pod;
            } else {
                break;
            }
            changed += 1;
        }
        if changed > 0 {
            self.last_wave_step = Some(step);
            if self.scenario.mode == Mode::Unaware {
                self.wave = Some(UpdateWave { started: now, ended: Some(now) });
            }
        }
        changed
    }

    /// A new pod. The admission controller gives it the request of the workload, or by upstream's rules the current
    /// recommendation.
    fn create_pod(&mut self, step: u64) -> Replica {
        self.pods_created += 1;
        let request = match (self.scenario.mode, self.recommended) {
            (Mode::Unaware, Some(recommended)) => recommended.target,
            _ => self.request,
        };
        let (id, noise) = (self.pods_created, self.scenario.noise());
        let startup = self.scenario.startup_steps;
        let ready = step + startup + noise.for_name("startup").bits(id) % (startup + 1);
        Replica::new(id, request, step, ready, noise)
    }

    /// The scale point of the current pods.
    fn scale_point(&self) -> ScalePoint {
        self.state.scale_point(self.base, Some(self.mean_request()))
    }

    fn mean_request(&self) -> i64 {
        let sum: i64 = self.pods.iter().map(|pod| pod.request).sum();
        sum / (self.pods.len() as i64).max(1)
    }

    fn measure(&mut self, step: u64) {
        let replicas = self.pods.len() as i64;
        let totals = &mut self.totals;
        totals.week += replicas;
        let per_week = 7 * STEPS_PER_DAY;
        if (step + 1).is_multiple_of(per_week) {
            totals.outcome.weekly_replicas.push(totals.week as f64 / per_week as f64);
            totals.week = 0;
        }
        if step < WARM_UP_DAYS * STEPS_PER_DAY {
            totals.load = 0.0;
            return;
        }
        totals.steps += 1;
        totals.replicas += replicas;
        totals.requested += self.pods.iter().map(|pod| pod.request).sum::<i64>();
        totals.at_max += u64::from(replicas >= i64::from(self.scenario.max_replicas));
        totals.at_min += u64::from(replicas <= i64::from(self.scenario.min_replicas));
        totals.outcome.max_replicas = totals.outcome.max_replicas.max(replicas as i32);
    }

    fn finish(self) -> Outcome {
        let request_at_end = self.mean_request();
        let totals = self.totals;
        let steps = totals.steps.max(1) as f64;
        Outcome {
            mean_replicas: totals.replicas as f64 / steps,
            requested_cores: totals.requested as f64 / steps / 1000.0,
            used_cores: totals.load / steps / 1000.0,
            share_at_max: totals.at_max as f64 / steps,
            share_at_min: totals.at_min as f64 / steps,
            turns_per_day: totals.turns as f64 / (steps / STEPS_PER_DAY as f64),
            request_at_end,
            ..totals.outcome
        }
    }
}

/// A recommendation a quarter from the current request, within bounds so that it is not urgent. Both values are in the range
/// of every scale point.
fn alternating(base: ScalePoint, current: i64) -> Recommended {
    let low = base.milli * 110 / 100;
    let high = low * 125 / 100;
    let target = if current >= i64::midpoint(low, high) { low } else { high };
    Recommended { target, lower: 1, upper: high * 10 }
}

fn time_of(step: u64) -> Time {
    START.later(Duration::from_secs(step.saturating_mul(PERIOD.as_secs())))
}
