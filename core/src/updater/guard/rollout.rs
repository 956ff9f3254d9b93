//! One rollout of changes to a workload: one pod is changed first and observed, the others follow, and then the workload
//! cools down.
//!
//! The age of a pod counts from its creation or its last resize. A rollout changes pods that are older than itself.
//! Changing a younger pod again starts another rollout, which first waits for the cool-down; the cool-down doubles each
//! time.

use std::time::Duration;

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::{
    super::skip_reason::SkipReason,
    infeasible::{RecommendedTarget, is_similar},
    regression::{Health, Regression},
    settings::{BreakerSettings, GuardSettings, MAX_DOUBLINGS},
    workload_state::{OpenBreaker, WorkloadState},
};

/// Tolerated lag of the API server's clock behind ours.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// After this time without a change, one pod is changed first again.
const CANARY_AGAIN_AFTER: Duration = Duration::from_hours(1);

/// How long changed pods are observed after the last change.
const WATCH_DURATION: Duration = Duration::from_hours(1);

/// One rollout of changes to a workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    pub began: Time,
    /// When the last pod was changed.
    pub last: Time,
    /// Number of preceding rollouts in quick succession.
    pub streak: u32,
    /// When the current wave began: the last time that one pod was changed first.
    pub wave: Time,
    /// Pods changed in the wave.
    pub touched: u32,
    /// Pods evicted in the wave.
    pub evicted: u32,
    /// Health of the pods before the wave.
    pub before: Health,
    /// The targets of the changed pods. Empty if the targets changed during the wave, so that they are not known for each
    /// pod.
    pub target: Vec<RecommendedTarget>,
}

/// The role of a change in a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutEntry {
    /// The first change of a new rollout.
    Begin,
    /// The first change after a pause or a regression.
    Resume,
    /// A further change of the wave.
    Continue,
}

/// How a pod is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutChange {
    Eviction,
    Resize,
    /// It is resized in place without a restart, to a planned request. The plan pays for each change, so the cool-down does not
    /// double: it would keep the requests from following the day.
    PlannedResize,
}

/// The state of the pods that were changed in the wave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutProgress {
    pub health: Health,
    /// Whether all of them exist and are ready, or are as healthy as pods were before.
    pub settled: bool,
}

impl Rollout {
    /// Whether a pod that was created or resized at this time has been changed by the rollout.
    pub fn has_changed(&self, changed_at: Time) -> bool {
        changed_at.later(CLOCK_SKEW) >= self.began
    }

    /// Whether a pod that was created or resized at this time belongs to the current wave.
    pub fn is_in_wave(&self, changed_at: Time) -> bool {
        // Timestamps of objects are truncated to seconds, and clocks differ slightly.
        changed_at.later(Duration::from_secs(5)) >= self.wave
    }

    /// Whether its pods are still observed.
    pub fn is_watched(&self, now: Time) -> bool {
        self.touched > 0 && self.last.later(WATCH_DURATION) > now
    }

    /// Whether one pod has to be changed first again.
    fn needs_canary(&self, breaker: Option<OpenBreaker>, now: Time) -> bool {
        self.touched == 0
            || self.last.later(CANARY_AGAIN_AFTER) <= now
            || breaker.is_some_and(|opened| opened.since >= self.wave)
    }
}

/// Decides whether a pod that was created or last resized at `changed_at` may be changed, by the state of its rollout.
pub fn admit_change(
    state: &WorkloadState,
    changed_at: Time,
    urgent: bool,
    progress: RolloutProgress,
    settings: &GuardSettings,
    now: Time,
) -> Result<RolloutEntry, SkipReason> {
    let Some(rollout) = &state.rollout else { return Ok(RolloutEntry::Begin) };
    if rollout.has_changed(changed_at) {
        let Some(cool_down) = settings.cool_down else { return Ok(RolloutEntry::Begin) };
        let from = if urgent { changed_at } else { rollout.last };
        let until = from.later(cool_down.duration(rollout.streak, urgent));
        return if until > now {
            Err(SkipReason::CoolDown { until })
        } else {
            Ok(RolloutEntry::Begin)
        };
    }
    if rollout.needs_canary(state.breaker, now) {
        return Ok(RolloutEntry::Resume);
    }
    let Some(canary) = settings.canary.filter(|_| rollout.touched == 1) else {
        return Ok(RolloutEntry::Continue);
    };
    let until = rollout.last.later(canary.watch);
    if until > now || !progress.settled {
        Err(SkipReason::Canary { until })
    } else {
        Ok(RolloutEntry::Continue)
    }
}

/// Records that a pod is about to be changed.
pub fn record_change(
    state: &mut WorkloadState,
    entry: RolloutEntry,
    change: RolloutChange,
    before: Health,
    target: Vec<RecommendedTarget>,
    settings: &GuardSettings,
    now: Time,
) {
    let evicted = u32::from(change == RolloutChange::Eviction);
    let wave = Rollout {
        began: now,
        last: now,
        streak: 0,
        wave: now,
        touched: 1,
        evicted,
        before,
        target,
    };
    state.rollout = Some(match (state.rollout.take(), entry) {
        (None, _) => wave,
        (Some(known), RolloutEntry::Begin) => {
            // The cool-down itself does not count as quiet time, or long cool-downs would reset the streak.
            let soon = settings.cool_down.is_some_and(|cool_down| {
                let duration = cool_down.duration(known.streak, false);
                known.last.later(duration).later(cool_down.forget_after) > now
            });
            let grows = u32::from(change != RolloutChange::PlannedResize);
            let streak = if soon { known.streak.saturating_add(grows) } else { 0 };
            Rollout { streak, ..wave }
        }
        (Some(known), RolloutEntry::Resume) => {
            Rollout { began: known.began, streak: known.streak, ..wave }
        }
        (Some(known), RolloutEntry::Continue) => Rollout {
            last: now,
            touched: known.touched.saturating_add(1),
            evicted: known.evicted.saturating_add(evicted),
            target: if is_similar(&wave.target, &known.target) { known.target } else { Vec::new() },
            ..known
        },
    });
}

/// Returns what got worse after the current wave, if anything.
pub fn find_regression(
    state: &WorkloadState,
    progress: RolloutProgress,
    settings: &BreakerSettings,
    now: Time,
) -> Option<Regression> {
    let rollout = state.rollout.as_ref().filter(|rollout| rollout.is_watched(now))?;
    if state.breaker.is_some_and(|opened| opened.since >= rollout.wave) {
        return None;
    }
    progress.health.worse_than(&rollout.before, settings.share)
}

/// Opens the circuit breaker, for longer each time.
pub fn open_breaker(
    state: &mut WorkloadState,
    regression: Regression,
    settings: &BreakerSettings,
    now: Time,
) {
    let recent = state.breaker.filter(|opened| opened.until.later(settings.max_open_for) > now);
    let trips = recent.map_or(1, |opened| opened.trips.saturating_add(1));
    let doubled = settings.open_for.saturating_mul(1 << (trips - 1).min(MAX_DOUBLINGS));
    let until = now.later(doubled.min(settings.max_open_for));
    state.breaker = Some(OpenBreaker { since: now, until, harm: regression, trips });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::ResourceList,
        types::quantity::{Format, Quantity},
    };

    const NOW: Time = Time::from_secs(1_800_000_000);
    fn settled() -> RolloutProgress {
        RolloutProgress { settled: true, ..RolloutProgress::default() }
    }

    fn minutes(minutes: u64) -> Duration {
        Duration::from_mins(minutes)
    }

    fn begin_change(
        state: &mut WorkloadState,
        made: Time,
        progress: RolloutProgress,
        now: Time,
    ) -> Result<RolloutEntry, SkipReason> {
        let settings = GuardSettings::default();
        let entry = admit_change(state, made, false, progress, &settings, now)?;
        let change = RolloutChange::Eviction;
        record_change(state, entry, change, Health::default(), Vec::new(), &settings, now);
        Ok(entry)
    }

    #[test]
    fn one_pod_is_changed_first_and_the_others_when_it_is_healthy() {
        let (mut state, old) = (WorkloadState::default(), NOW.earlier(minutes(600)));
        let unsettled = RolloutProgress::default();
        assert_eq!(begin_change(&mut state, old, unsettled, NOW), Ok(RolloutEntry::Begin));
        let until = NOW.later(minutes(2));
        let canary = Err(SkipReason::Canary { until });
        assert_eq!(begin_change(&mut state, old, settled(), NOW.later(minutes(1))), canary);
        assert_eq!(begin_change(&mut state, old, unsettled, until), canary);
        assert_eq!(begin_change(&mut state, old, settled(), until), Ok(RolloutEntry::Continue));
        assert_eq!(begin_change(&mut state, old, unsettled, until), Ok(RolloutEntry::Continue));
        let later = until.later(CANARY_AGAIN_AFTER);
        assert_eq!(begin_change(&mut state, old, settled(), later), Ok(RolloutEntry::Resume));
        assert!(begin_change(&mut state, old, settled(), later).is_err(), "one pod is first again");
        let rollout = state.rollout.expect("there is a rollout");
        assert_eq!((rollout.began, rollout.streak), (NOW, 0), "it is still the same rollout");
    }

    #[test]
    fn the_target_of_a_rollout_is_known_only_while_it_stays_the_same() {
        let settings = GuardSettings::default();
        let wanted = |milli: i64| {
            let cpu = Quantity::from_milli(milli, Format::DecimalSi);
            vec![RecommendedTarget {
                container: "main".into(),
                target: ResourceList::cpu_and_memory(Some(cpu), None),
            }]
        };
        let mut state = WorkloadState::default();
        let mut begin = |entry, milli| {
            let health = Health::default();
            let change = RolloutChange::Eviction;
            record_change(&mut state, entry, change, health, wanted(milli), &settings, NOW);
            state.rollout.clone().expect("begun").target
        };
        assert_eq!(begin(RolloutEntry::Begin, 1_000), wanted(1_000));
        assert_eq!(begin(RolloutEntry::Continue, 1_040), wanted(1_000), "of the first pod");
        assert_eq!(begin(RolloutEntry::Continue, 1_200), [], "of either, and of pods in between");
        assert_eq!(begin(RolloutEntry::Continue, 1_200), []);
        assert_eq!(begin(RolloutEntry::Resume, 1_200), wanted(1_200));
    }

    #[test]
    fn the_cool_down_doubles_with_each_change() {
        let (mut state, mut now) = (WorkloadState::default(), NOW);
        begin_change(&mut state, NOW.earlier(minutes(600)), settled(), now).expect("begins");
        for streak in 0..8_u32 {
            let rest = minutes(10).saturating_mul(1 << streak).min(minutes(480));
            let made = now;
            let until = now.later(rest);
            let early = until.earlier(Duration::from_secs(1));
            let tried = begin_change(&mut state, made, settled(), early);
            assert_eq!(tried, Err(SkipReason::CoolDown { until }));
            now = until;
            let entry = begin_change(&mut state, made, settled(), now);
            assert_eq!(entry, Ok(RolloutEntry::Begin), "{streak}");
        }
        let made = now;
        now = now.later(minutes(24 * 60));
        begin_change(&mut state, made, settled(), now).expect("begins");
        assert_eq!(state.rollout.expect("there is a rollout").streak, 0, "a day is long enough");
    }

    #[test]
    fn the_cool_down_of_planned_resizes_does_not_double() {
        let settings = GuardSettings::default();
        for (change, streak) in [(RolloutChange::PlannedResize, 0), (RolloutChange::Resize, 7)] {
            let mut state = WorkloadState::default();
            for hour in 0..8 {
                let (health, now) = (Health::default(), NOW.later(minutes(hour * 60)));
                record_change(
                    &mut state,
                    RolloutEntry::Begin,
                    change,
                    health,
                    Vec::new(),
                    &settings,
                    now,
                );
            }
            let rollout = state.rollout.as_ref().expect("there is a rollout");
            assert_eq!(rollout.streak, streak, "{change:?}");
            let cool_down = minutes(10).saturating_mul(1 << streak).min(minutes(480));
            let until = rollout.last.later(cool_down);
            let early = until.earlier(Duration::from_secs(1));
            let admit = |at| admit_change(&state, rollout.last, false, settled(), &settings, at);
            assert_eq!(admit(early), Err(SkipReason::CoolDown { until }), "{change:?}");
            assert_eq!(admit(until), Ok(RolloutEntry::Begin), "{change:?}");
        }
    }

    #[test]
    fn a_pod_that_needs_more_resources_waits_less() {
        let (mut state, settings) = (WorkloadState::default(), GuardSettings::default());
        begin_change(&mut state, NOW.earlier(minutes(600)), settled(), NOW).expect("begins");
        let admit = |urgent, at| admit_change(&state, NOW, urgent, settled(), &settings, at);
        assert_eq!(admit(true, NOW.later(minutes(1))), Ok(RolloutEntry::Begin));
        assert!(admit(false, NOW.later(minutes(1))).is_err());
        assert!(admit(true, NOW).is_err());
    }

    #[test]
    fn a_pod_created_by_a_slow_clock_counts_as_changed() {
        let mut state = WorkloadState::default();
        begin_change(&mut state, NOW.earlier(minutes(600)), settled(), NOW).expect("begins");
        let made = NOW.earlier(Duration::from_secs(30));
        let tried = begin_change(&mut state, made, settled(), NOW.later(minutes(3)));
        assert!(matches!(tried, Err(SkipReason::CoolDown { .. })), "{tried:?}");
    }

    #[test]
    fn regressions_stop_a_rollout_for_a_growing_time() {
        let breaker = GuardSettings::default().breaker.expect("is on");
        let health = Health { pods: 1, pending: 1, ..Health::default() };
        let bad = RolloutProgress { health, settled: false };
        let (mut state, old, mut now) = (WorkloadState::default(), NOW.earlier(minutes(600)), NOW);
        for hours in [1, 2, 4, 8, 16, 24, 24] {
            let entry = begin_change(&mut state, old, settled(), now).expect("one pod is first");
            assert_ne!(entry, RolloutEntry::Continue);
            let regression = find_regression(&state, bad, &breaker, now).expect("got worse");
            assert_eq!(regression, Regression::Pending);
            open_breaker(&mut state, regression, &breaker, now);
            let until = now.later(Duration::from_hours(hours));
            assert_eq!(state.breaker_open_until(now), Some(until));
            assert_eq!(find_regression(&state, bad, &breaker, now), None, "it is reported once");
            now = until;
            assert_eq!(state.breaker_open_until(now), None);
        }
    }
}
