//! One change of one workload: a pod goes first and is watched, the others follow, and then the workload rests.
//!
//! A pod is as old as its creation or its last resize. Those that are older than the rollout are still to be changed by
//! it; those that are younger have had their turn, and to change them again is another rollout, for which the workload
//! has to rest first, twice as long each time.

use std::time::Duration;

use crate::types::Time;
use serde::{Deserialize, Serialize};

use super::{
    super::skip_reason::SkipReason,
    infeasible::{RecommendedTarget, is_similar},
    regression::{Health, Regression},
    settings::{BreakerSettings, CoolDown, GuardSettings},
    workload_state::{OpenBreaker, WorkloadState},
};

/// How far the clock that stamps pods may be behind ours.
const CLOCK_SKEW: Duration = Duration::from_mins(1);

/// After so long without a change, one pod goes first again.
const CANARY_AGAIN_AFTER: Duration = Duration::from_hours(1);

/// How long pods are watched after the last of them was changed.
const WATCH_DURATION: Duration = Duration::from_hours(1);

/// Twelve doublings are enough for any rest: a minute becomes three days.
const MAX_DOUBLINGS: u32 = 12;

/// One change of one workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// When it began.
    pub began: Time,
    /// When the last pod was changed.
    pub last: Time,
    /// How many such changes there were one soon after the other.
    pub streak: u32,
    /// When a pod went first, the last time.
    pub wave: Time,
    /// Pods that were changed since.
    pub touched: u32,
    /// Those of them that were evicted.
    pub evicted: u32,
    /// How well pods were at that time.
    pub before: Health,
    /// What all of them were to have, as the first was; nothing where that became something else meanwhile, and nobody can
    /// tell any more what each was given.
    pub target: Vec<RecommendedTarget>,
}

/// How a change of a pod counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutEntry {
    /// It is the first of a new rollout.
    Begin,
    /// It is the first after a pause, or after pods got worse.
    Resume,
    /// It follows others.
    Continue,
}

/// What is known of the pods that were changed in the wave so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RolloutProgress {
    /// How well they are.
    pub health: Health,
    /// Whether all of them are there and ready, or as well as pods were before.
    pub settled: bool,
}

impl CoolDown {
    /// How long a workload rests after so many changes in a row.
    pub fn duration(self, streak: u32, urgent: bool) -> Duration {
        let base = if urgent { self.urgent } else { self.base };
        base.saturating_mul(1 << streak.min(MAX_DOUBLINGS)).min(self.max)
    }
}

impl Rollout {
    /// Whether a pod of this age has had its turn.
    pub fn has_changed(&self, made: Time) -> bool {
        made.later(CLOCK_SKEW) >= self.began
    }

    /// Whether a pod of this age was made, or resized, by the wave that is watched.
    pub fn is_in_wave(&self, made: Time) -> bool {
        // Times of objects have no fractions, and clocks differ a little.
        made.later(Duration::from_secs(5)) >= self.wave
    }

    /// Whether its pods are still watched.
    pub fn is_watched(&self, now: Time) -> bool {
        self.touched > 0 && self.last.later(WATCH_DURATION) > now
    }

    /// Whether one pod has to go first again.
    fn needs_canary(&self, breaker: Option<OpenBreaker>, now: Time) -> bool {
        self.touched == 0
            || self.last.later(CANARY_AGAIN_AFTER) <= now
            || breaker.is_some_and(|opened| opened.since >= self.wave)
    }
}

impl WorkloadState {
    /// Whether a pod that was made, or resized last, at that time may be changed for all that happened to its workload.
    pub fn admit_change(
        &self,
        made: Time,
        urgent: bool,
        progress: RolloutProgress,
        settings: &GuardSettings,
        now: Time,
    ) -> Result<RolloutEntry, SkipReason> {
        let Some(rollout) = &self.rollout else { return Ok(RolloutEntry::Begin) };
        if rollout.has_changed(made) {
            let Some(cool_down) = settings.cool_down else { return Ok(RolloutEntry::Begin) };
            let from = if urgent { made } else { rollout.last };
            let until = from.later(cool_down.duration(rollout.streak, urgent));
            return if until > now {
                Err(SkipReason::CoolDown { until })
            } else {
                Ok(RolloutEntry::Begin)
            };
        }
        if rollout.needs_canary(self.breaker, now) {
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

    /// Notes that a pod is about to be changed.
    pub fn record_change(
        &mut self,
        entry: RolloutEntry,
        is_eviction: bool,
        before: Health,
        target: Vec<RecommendedTarget>,
        settings: &GuardSettings,
        now: Time,
    ) {
        let evicted = u32::from(is_eviction);
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
        self.rollout = Some(match (self.rollout.take(), entry) {
            (None, _) => wave,
            (Some(known), RolloutEntry::Begin) => {
                // The rest itself is no quiet time: who rests for hours and is changed right after is changed too often.
                let soon = settings.cool_down.is_some_and(|it| {
                    let rest = it.duration(known.streak, false);
                    known.last.later(rest).later(it.forget_after) > now
                });
                let streak = if soon { known.streak.saturating_add(1) } else { 0 };
                Rollout { streak, ..wave }
            }
            (Some(known), RolloutEntry::Resume) => {
                Rollout { began: known.began, streak: known.streak, ..wave }
            }
            (Some(known), RolloutEntry::Continue) => Rollout {
                last: now,
                touched: known.touched.saturating_add(1),
                evicted: known.evicted.saturating_add(evicted),
                target: if is_similar(&wave.target, &known.target) {
                    known.target
                } else {
                    Vec::new()
                },
                ..known
            },
        });
    }

    /// What got worse by the wave that is watched, if anything did.
    pub fn find_regression(
        &self,
        progress: RolloutProgress,
        settings: &BreakerSettings,
        now: Time,
    ) -> Option<Regression> {
        let rollout = self.rollout.as_ref().filter(|rollout| rollout.is_watched(now))?;
        if self.breaker.is_some_and(|opened| opened.since >= rollout.wave) {
            return None;
        }
        progress.health.worse_than(&rollout.before, settings.share)
    }

    /// Stops changes for a while, longer each time.
    pub fn open_breaker(&mut self, harm: Regression, settings: &BreakerSettings, now: Time) {
        let of_late = self.breaker.filter(|opened| opened.until.later(settings.max_open_for) > now);
        let trips = of_late.map_or(1, |opened| opened.trips.saturating_add(1));
        let doubled = settings.open_for.saturating_mul(1 << (trips - 1).min(MAX_DOUBLINGS));
        let until = now.later(doubled.min(settings.max_open_for));
        self.breaker = Some(OpenBreaker { since: now, until, harm, trips });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::ResourceList,
        types::quantity::{Format, Quantity},
    };

    const NOW: Time = Time::from_secs(1_800_000_000);
    const SETTLED: RolloutProgress = RolloutProgress {
        health: Health {
            pods: 0,
            pending: 0,
            unready: 0,
            restarting: 0,
            out_of_memory: 0,
            missing: 0,
        },
        settled: true,
    };

    fn minutes(minutes: u64) -> Duration {
        Duration::from_mins(minutes)
    }

    fn begun(
        memory: &mut WorkloadState,
        made: Time,
        progress: RolloutProgress,
        now: Time,
    ) -> Result<RolloutEntry, SkipReason> {
        let settings = GuardSettings::default();
        let entry = memory.admit_change(made, false, progress, &settings, now)?;
        memory.record_change(entry, true, Health::default(), Vec::new(), &settings, now);
        Ok(entry)
    }

    #[test]
    fn one_pod_goes_first_and_the_others_follow_when_it_is_well() {
        let (mut memory, old) = (WorkloadState::default(), NOW.earlier(minutes(600)));
        let unsettled = RolloutProgress { settled: false, ..SETTLED };
        assert_eq!(begun(&mut memory, old, unsettled, NOW), Ok(RolloutEntry::Begin));
        let until = NOW.later(minutes(2));
        let canary = Err(SkipReason::Canary { until });
        assert_eq!(begun(&mut memory, old, SETTLED, NOW.later(minutes(1))), canary);
        assert_eq!(begun(&mut memory, old, unsettled, until), canary);
        assert_eq!(begun(&mut memory, old, SETTLED, until), Ok(RolloutEntry::Continue));
        assert_eq!(begun(&mut memory, old, unsettled, until), Ok(RolloutEntry::Continue));
        let later = until.later(CANARY_AGAIN_AFTER);
        assert_eq!(begun(&mut memory, old, SETTLED, later), Ok(RolloutEntry::Resume));
        assert!(begun(&mut memory, old, SETTLED, later).is_err(), "one goes first again");
        let rollout = memory.rollout.expect("is there");
        assert_eq!((rollout.began, rollout.streak), (NOW, 0), "it is still the same rollout");
    }

    #[test]
    fn what_a_wave_wants_is_known_only_as_long_as_it_stays_the_same() {
        let settings = GuardSettings::default();
        let wanted = |milli: i64| {
            let cpu = Quantity::from_milli(milli, Format::DecimalSi);
            vec![RecommendedTarget {
                container: "main".into(),
                target: ResourceList::cpu_and_memory(Some(cpu), None),
            }]
        };
        let mut memory = WorkloadState::default();
        let mut begin = |entry, milli| {
            let condition = Health::default();
            memory.record_change(entry, true, condition, wanted(milli), &settings, NOW);
            memory.rollout.clone().expect("begun").target
        };
        assert_eq!(begin(RolloutEntry::Begin, 1_000), wanted(1_000));
        assert_eq!(begin(RolloutEntry::Continue, 1_040), wanted(1_000), "of the first pod");
        assert_eq!(begin(RolloutEntry::Continue, 1_200), [], "of either, and of pods in between");
        assert_eq!(begin(RolloutEntry::Continue, 1_200), []);
        assert_eq!(begin(RolloutEntry::Resume, 1_200), wanted(1_200));
    }

    #[test]
    fn a_pod_that_had_its_turn_waits_twice_as_long_each_time() {
        let (mut memory, mut now) = (WorkloadState::default(), NOW);
        begun(&mut memory, NOW.earlier(minutes(600)), SETTLED, now).expect("begins");
        for streak in 0..8_u32 {
            let rest = minutes(10).saturating_mul(1 << streak).min(minutes(480));
            let made = now;
            let until = now.later(rest);
            let early = until.earlier(Duration::from_secs(1));
            assert_eq!(
                begun(&mut memory, made, SETTLED, early),
                Err(SkipReason::CoolDown { until })
            );
            now = until;
            assert_eq!(begun(&mut memory, made, SETTLED, now), Ok(RolloutEntry::Begin), "{streak}");
        }
        let made = now;
        now = now.later(minutes(24 * 60));
        begun(&mut memory, made, SETTLED, now).expect("begins");
        assert_eq!(memory.rollout.expect("is there").streak, 0, "a day is long enough");
    }

    #[test]
    fn a_pod_in_need_waits_less() {
        let (mut memory, settings) = (WorkloadState::default(), GuardSettings::default());
        begun(&mut memory, NOW.earlier(minutes(600)), SETTLED, NOW).expect("begins");
        let admit = |urgent, at| memory.admit_change(NOW, urgent, SETTLED, &settings, at);
        assert_eq!(admit(true, NOW.later(minutes(1))), Ok(RolloutEntry::Begin));
        assert!(admit(false, NOW.later(minutes(1))).is_err());
        assert!(admit(true, NOW).is_err());
    }

    #[test]
    fn a_pod_that_a_slow_clock_stamps_has_had_its_turn_too() {
        let mut memory = WorkloadState::default();
        begun(&mut memory, NOW.earlier(minutes(600)), SETTLED, NOW).expect("begins");
        let made = NOW.earlier(Duration::from_secs(30));
        let tried = begun(&mut memory, made, SETTLED, NOW.later(minutes(3)));
        assert!(matches!(tried, Err(SkipReason::CoolDown { .. })), "{tried:?}");
    }

    #[test]
    fn pods_that_get_worse_stop_it_and_longer_each_time() {
        let breaker = GuardSettings::default().breaker.expect("is on");
        let bad = RolloutProgress {
            health: Health { pods: 1, pending: 1, ..SETTLED.health },
            settled: false,
        };
        let (mut memory, old, mut now) = (WorkloadState::default(), NOW.earlier(minutes(600)), NOW);
        for hours in [1, 2, 4, 8, 16, 24, 24] {
            let entry = begun(&mut memory, old, SETTLED, now).expect("one goes first");
            assert_ne!(entry, RolloutEntry::Continue);
            let harm = memory.find_regression(bad, &breaker, now).expect("got worse");
            assert_eq!(harm, Regression::Pending);
            memory.open_breaker(harm, &breaker, now);
            let until = now.later(Duration::from_hours(hours));
            assert_eq!(memory.breaker_open_until(now), Some(until));
            assert_eq!(memory.find_regression(bad, &breaker, now), None, "it is told once");
            now = until;
            assert_eq!(memory.breaker_open_until(now), None);
        }
    }
}
