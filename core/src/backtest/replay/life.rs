//! The life of a workload under one policy, minute by minute.

use super::{
    PassCadence, ReplaySettings,
    facts::{DAY_SECONDS, Facts},
    held::Held,
    pods::VirtualPod,
    replicas::Replicas,
    scaling::Scaling,
    sizer::Sizer,
    updating::{Change, Updating},
    usage,
};
use crate::{
    api::{
        ResourceList,
        vpa::{self, UpdateMode},
    },
    backtest::{
        account::PolicyAccount,
        policy::{
            Advice, ApplyMode, ContainerAdvice, Estimates, Policy, PolicyRule, RuleContext,
            RuleState,
        },
        recording::{CPU_STEP_SECONDS, Evaluation, WorkloadRecording},
        replica_model::UtilizationScaling,
    },
    rightsizing::survey::Amounts,
    sizing::{ContainerRef, SizedContainer},
    types::{Time, quantity::Quantity},
    updater::Action,
};

const WEEK_SECONDS: i64 = 7 * DAY_SECONDS;
const MINUTE_NANOS: i64 = CPU_STEP_SECONDS * 1_000_000_000;

/// A workload under one policy.
pub(super) struct Life<'a> {
    recording: &'a WorkloadRecording,
    facts: &'a Facts,
    evaluation: &'a Evaluation,
    settings: &'a ReplaySettings,
    policy: &'a Policy,
    in_place: bool,
    rule: RuleState<'a>,
    sizer: Sizer,
    applies: Applies,
    replicas: Replicas<'a>,
    /// What was applied last by a calendar: the template of new pods.
    applied: Option<Advice>,
    estimates: Vec<Option<Estimates>>,
    first_advice: Vec<Option<u64>>,
    /// Whether containers wait for their first recommendation, as their requests are unknown.
    has_unknown_requests: bool,
}

/// How recommendations reach pods.
enum Applies {
    Never,
    Updater { updating: Box<Updating>, next: Time, every: i64 },
    Calendar { next: Time, every: i64 },
}

impl<'a> Life<'a> {
    pub fn new(
        recording: &'a WorkloadRecording,
        facts: &'a Facts,
        evaluation: &'a Evaluation,
        policy: &'a Policy,
        settings: &'a ReplaySettings,
        scaling: Option<&'a UtilizationScaling>,
    ) -> Self {
        // What was requested in fact had the replicas that were recorded, and the yardstick is made from these.
        let is_modelled = !matches!(policy.rule, PolicyRule::Current | PolicyRule::Oracle);
        let scaling = scaling.filter(|_| is_modelled);
        let scaling = scaling.map(|scaling| Scaling::new(recording, facts, scaling));
        let rule = RuleState::new(policy, RuleContext { recording, facts, settings });
        let compat = policy.rule.model().unwrap_or_default();
        let in_place = policy.in_place.unwrap_or(settings.in_place);
        let mode = if in_place { UpdateMode::InPlaceOrRecreate } else { UpdateMode::Recreate };
        let calendar = |every| Applies::Calendar { next: evaluation.from, every };
        let applies = match (policy.rule, policy.apply) {
            (PolicyRule::Current, _) => Applies::Never,
            (_, ApplyMode::Updater) => {
                let is_planned = matches!(rule, RuleState::Plan(_));
                let is_ours = is_planned || matches!(rule, RuleState::Model(_));
                Applies::Updater {
                    updating: Box::new(Updating::new(recording, compat, settings, is_planned)),
                    next: evaluation.from,
                    every: if is_ours { CPU_STEP_SECONDS } else { rule.instant_seconds() },
                }
            }
            (_, ApplyMode::Daily) => calendar(DAY_SECONDS),
            (_, ApplyMode::Weekly) => calendar(WEEK_SECONDS),
            (_, ApplyMode::Immediate) => calendar(rule.instant_seconds()),
        };
        Self {
            recording,
            facts,
            evaluation,
            settings,
            policy,
            in_place,
            rule,
            sizer: Sizer::new(recording, compat, mode),
            applies,
            replicas: Replicas::new(recording, facts, evaluation.from, scaling),
            applied: None,
            estimates: Vec::new(),
            first_advice: vec![None; recording.containers.len()],
            has_unknown_requests: facts.unknown_requests() > 0,
        }
    }

    pub fn live(mut self) -> PolicyAccount {
        let is_current = self.policy.rule == PolicyRule::Current;
        let end = usage::minute_at(self.recording, self.evaluation.until);
        for minute in 0..end {
            let now = usage::time_of(self.recording, minute);
            let was_killed = self.replicas.show(minute, &mut self.rule);
            let is_gone = self.replicas.remove_gone(now, &mut self.rule);
            let sets_pods = is_current || now <= self.evaluation.from;
            self.replicas.follow_recording(now, sets_pods);
            let is_rescaled = self.replicas.rescale(minute, now, &mut self.rule);
            let is_born = self.create_pods(minute, now);
            if was_killed || is_gone || is_rescaled || is_born {
                self.note_change();
            }
            if now >= self.evaluation.from {
                self.decide(now);
            }
            self.note_first_advice(now);
            self.replicas.run_minute(minute, now, &mut self.rule);
        }
        let facts = self.facts;
        let leaves_out = |container: usize| is_current && !facts.containers[container].has_requests;
        if is_current {
            self.first_advice.fill(None);
        }
        PolicyAccount {
            policy: self.policy.name.clone(),
            days: self.replicas.tally.finish(facts, leaves_out),
            first_recommendation_seconds: self.first_advice,
        }
    }

    fn note_change(&mut self) {
        if let Applies::Updater { updating, .. } = &mut self.applies {
            updating.note_change();
        }
    }

    /// Creates pods that were born in fact. They get what the admission controller of an updater knows at this time, or what
    /// a calendar applied last.
    fn create_pods(&mut self, minute: u32, now: Time) -> bool {
        let Self { rule, sizer, applies, applied, replicas, evaluation, .. } = self;
        replicas.create_born(minute, now, |template| {
            let sized = |advice: &Advice| sizer.sized(template, advice);
            match applies {
                Applies::Updater { .. } if now >= evaluation.from => {
                    rule.advise(now).as_ref().map(sized)
                }
                Applies::Calendar { .. } => applied.as_ref().map(sized),
                Applies::Never | Applies::Updater { .. } => None,
            }
        })
    }

    fn decide(&mut self, now: Time) {
        let is_due = match &mut self.applies {
            Applies::Never => return,
            Applies::Calendar { next, every } | Applies::Updater { next, every, .. } => {
                let is_due = *next <= now;
                if is_due {
                    // The days of the oracle are those of the calendar.
                    let from = if self.policy.rule == PolicyRule::Oracle {
                        now.as_secs().div_euclid(DAY_SECONDS) * DAY_SECONDS
                    } else {
                        next.as_secs()
                    };
                    *next = Time::from_secs(from + *every);
                }
                is_due
            }
        };
        if is_due && matches!(self.applies, Applies::Calendar { .. }) {
            self.apply(now);
        } else if is_due {
            self.update(now);
        }
        if self.has_unknown_requests {
            self.start_unknown_pods(now);
        }
    }

    /// Gives containers whose requests are unknown their first recommendation, which is no change.
    fn start_unknown_pods(&mut self, now: Time) {
        let Some(advice) = self.rule.advise(now) else { return };
        self.has_unknown_requests = false;
        let held = self.sizer.sized(&self.replicas.recorded, &advice);
        for pod in &mut self.replicas.pods {
            let states = pod.containers.iter_mut().zip(&held).zip(&self.facts.containers);
            for ((state, held), facts) in states {
                if !facts.has_requests {
                    state.held = *held;
                }
            }
        }
        self.note_change();
    }

    /// Applies a recommendation to all pods at once.
    fn apply(&mut self, now: Time) {
        let Some(advice) = self.rule.advise(now) else { return };
        let held = self.sizer.sized(&self.replicas.recorded, &advice);
        self.applied = Some(advice);
        for index in 0..self.replicas.pods.len() {
            if !self.replicas.differs(index, &held) {
                continue;
            }
            if self.in_place || self.policy.rule == PolicyRule::Oracle {
                self.replicas.resize(index, &held, now);
            } else {
                self.replicas.replace(index, held.clone(), now);
            }
        }
        self.replicas.forget_gone(&mut self.rule);
    }

    /// Runs a pass of the updater, unless it is known to change nothing.
    fn update(&mut self, now: Time) {
        let Self { rule, applies, replicas, sizer, estimates, .. } = self;
        let Applies::Updater { updating, .. } = applies else { return };
        let is_just_ready =
            |pod: &VirtualPod| pod.ready_at <= now && now.nanos_since(pod.ready_at) < MINUTE_NANOS;
        if replicas.pods.iter().any(is_just_ready) {
            updating.note_change();
        }
        let has_estimates = rule.estimates(now, estimates);
        let may_skip = has_estimates && self.settings.passes == PassCadence::WhenDue;
        let is_due = !may_skip || updating.is_due(&replicas.pods, estimates, now);
        if replicas.pods.is_empty() || !is_due {
            return;
        }
        let Some(advice) = rule.advise(now) else { return };
        let object = match &advice {
            Advice::Object(recommendation) => recommendation.clone(),
            Advice::Amounts(amounts) => object_of(amounts, sizer),
        };
        let changes = updating.pass(&replicas.pods, sizer, &object, estimates, now);
        for Change { pod, action } in &changes {
            match action {
                Action::Evict { .. } => {
                    let held = sizer.sized(&replicas.recorded, &advice);
                    replicas.replace(*pod, held, now);
                }
                Action::Resize { sized_containers, .. } => {
                    let held = resized(&replicas.pods[*pod], sized_containers);
                    replicas.resize(*pod, &held, now);
                }
                Action::RemoveBoost { .. } | Action::Surge | Action::EndSurge => {}
            }
        }
        if !changes.is_empty() {
            replicas.forget_gone(rule);
        }
    }

    fn note_first_advice(&mut self, now: Time) {
        let needed = self.rule.needed_samples();
        for (container, first) in self.first_advice.iter_mut().enumerate() {
            if first.is_none()
                && self.replicas.samples[container] >= needed
                && let Some(sample) = self.replicas.first_sample[container]
            {
                *first = u64::try_from(now.as_secs() - sample.as_secs()).ok();
            }
        }
    }
}

/// The amounts of a pod after a resize.
fn resized(pod: &VirtualPod, sizes: &[SizedContainer]) -> Vec<Held> {
    let mut position = 0;
    let held = pod.containers.iter().map(|state| {
        if !state.is_present {
            return state.held;
        }
        // The pod that was sized has only the containers that are present.
        let place = ContainerRef::Main(position);
        position += 1;
        let own = sizes.iter().find(|sizes| sizes.container == place);
        own.map_or(state.held, |sizes| state.held.with_sizes(sizes))
    });
    held.collect()
}

/// A recommendation without bounds, so that the updater acts on the difference to the target alone.
fn object_of(amounts: &[Option<ContainerAdvice>], sizer: &Sizer) -> vpa::Recommendation {
    let containers = amounts.iter().enumerate().filter_map(|(container, advice)| {
        let Amounts { cpu, memory } = advice.as_ref()?.requests;
        let target =
            ResourceList::cpu_and_memory(cpu.map(Quantity::cpu), memory.map(Quantity::memory));
        Some(vpa::ContainerRecommendation {
            container_name: sizer.name(container).to_string(),
            uncapped_target: target.clone(),
            target,
            ..vpa::ContainerRecommendation::default()
        })
    });
    vpa::Recommendation { container_recommendations: containers.collect() }
}
