//! The sentinel: an object whose target does not exist. An HPA controller that is active writes its status within one
//! period. As long as it stays empty, no other controller scales, and this one may.
//!
//! ```text
//!   unarmed ──created──▶ armed ──untouched for the proof──▶ proven: may write
//!      ▲                   │ touched                          │ touched
//!      │ deleted           ▼                                  ▼
//!      └────────────── active: deleted, and created again later
//! ```

use std::{fmt, time::Duration};

use crate::types::Time;

/// The name of the object, and of the target that does not exist.
pub const SENTINEL_NAME: &str = "plimsoll-sentinel";

/// How many periods of the other controller the object has to stay untouched.
const PROOF_PERIODS: u32 = 4;

/// How long the states of the sentinel last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentinelRules {
    /// How long the object has to stay untouched before anything else is written.
    pub proof: Duration,
    /// How long after it was touched it is created again.
    pub rearm: Duration,
}

/// What a read of the object has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObservedSentinel<'a> {
    /// It does not exist.
    Missing,
    /// Its status was never written.
    Untouched {
        /// The UID of the object.
        uid: &'a str,
    },
    /// Its status was written.
    Touched {
        /// The UID of the object.
        uid: &'a str,
    },
    /// It could not be read.
    Unknown,
}

/// What to do with the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentinelStep {
    Create,
    Delete,
    /// Nothing.
    Wait,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is known.
    Unarmed,
    /// The object exists, and is not touched.
    Armed { uid: Box<str>, since: Time },
    /// It was not touched for long enough, and was last read at this time.
    Proven { uid: Box<str>, read_at: Time },
    /// It was touched.
    Active { since: Time },
}

/// An active HPA controller was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltinFound {
    /// How long after the object was created; `None` if it had been untouched for long enough before.
    pub after: Option<Duration>,
}

/// The state of the sentinel.
#[derive(Clone, Debug)]
pub struct Sentinel {
    rules: SentinelRules,
    phase: Phase,
    is_builtin_active: Option<bool>,
}

impl SentinelRules {
    /// The rules for an HPA controller with this period.
    pub fn new(shortest_proof: Duration, builtin_period: Duration, rearm: Duration) -> Self {
        Self { proof: shortest_proof.max(builtin_period.saturating_mul(PROOF_PERIODS)), rearm }
    }
}

impl Sentinel {
    /// Before anything is known.
    pub const fn new(rules: SentinelRules) -> Self {
        Self { rules, phase: Phase::Unarmed, is_builtin_active: None }
    }

    /// Whether anything but the object may be written.
    pub const fn may_write(&self) -> bool {
        matches!(self.phase, Phase::Proven { .. })
    }

    /// Whether another HPA controller is active; `None` before that was found out.
    pub const fn is_builtin_active(&self) -> Option<bool> {
        self.is_builtin_active
    }

    /// Observes the object. Returns what to do, and whether an active controller was found.
    pub fn observe(
        &mut self,
        seen: ObservedSentinel<'_>,
        now: Time,
    ) -> (SentinelStep, Option<BuiltinFound>) {
        use ObservedSentinel::{Missing, Touched, Unknown, Untouched};
        let SentinelRules { proof, rearm } = self.rules;
        let step = match (&mut self.phase, seen) {
            (Phase::Armed { uid, since }, Untouched { uid: seen }) if **uid == *seen => {
                if now >= since.later(proof) {
                    self.is_builtin_active = Some(false);
                    self.phase = Phase::Proven { uid: seen.into(), read_at: now };
                }
                SentinelStep::Wait
            }
            (Phase::Proven { uid, read_at }, Untouched { uid: seen }) if **uid == *seen => {
                *read_at = now;
                SentinelStep::Wait
            }
            // Another one has to prove it again.
            (_, Untouched { uid }) => {
                self.phase = Phase::Armed { uid: uid.into(), since: now };
                SentinelStep::Wait
            }
            (Phase::Armed { .. } | Phase::Proven { .. }, Touched { .. }) => {
                let after = match self.phase {
                    Phase::Armed { since, .. } => {
                        Some(Duration::from_nanos(now.nanos_since(since).max(0).unsigned_abs()))
                    }
                    _ => None,
                };
                self.is_builtin_active = Some(true);
                self.phase = Phase::Active { since: now };
                return (SentinelStep::Delete, Some(BuiltinFound { after }));
            }
            // Left by an earlier process: the other controller may be off by now.
            (Phase::Unarmed | Phase::Active { .. }, Touched { .. }) => SentinelStep::Delete,
            (Phase::Active { since }, Missing) if now < since.later(rearm) => SentinelStep::Wait,
            (Phase::Active { .. }, Missing) => SentinelStep::Create,
            (_, Missing) => {
                self.phase = Phase::Unarmed;
                SentinelStep::Create
            }
            (Phase::Proven { read_at, .. }, Unknown) if now >= read_at.later(proof) => {
                self.phase = Phase::Unarmed;
                SentinelStep::Wait
            }
            (_, Unknown) => SentinelStep::Wait,
        };
        (step, None)
    }
}

impl BuiltinFound {
    /// What to do about it, in one line. `object` is the namespace and name of the sentinel.
    pub fn message(self, object: &impl fmt::Display) -> String {
        let (after, nothing) = match self.after {
            Some(after) => {
                (format!(" after {} s", after.as_millis().div_ceil(1000)), "nothing is changed")
            }
            None => (String::new(), "nothing is changed any more"),
        };
        format!(
            "the HPA controller of kube-controller-manager is active (it wrote the status of {object}{after}); {nothing}. \
             Start it with --controllers=*,-horizontal-pod-autoscaler-controller, or use --mode=shadow"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ObservedSentinel::{Missing, Touched, Unknown, Untouched},
        SentinelStep::{Create, Delete, Wait},
        *,
    };

    const RULES: SentinelRules =
        SentinelRules { proof: Duration::from_mins(1), rearm: Duration::from_mins(10) };

    fn sentinel(phase: Phase) -> Sentinel {
        Sentinel { phase, ..Sentinel::new(RULES) }
    }

    fn at(seconds: i64) -> Time {
        Time::from_secs(1_800_000_000 + seconds)
    }

    fn armed(uid: &str, since: i64) -> Phase {
        Phase::Armed { uid: uid.into(), since: at(since) }
    }

    fn proven(uid: &str, read_at: i64) -> Phase {
        Phase::Proven { uid: uid.into(), read_at: at(read_at) }
    }

    fn active(since: i64) -> Phase {
        Phase::Active { since: at(since) }
    }

    #[test]
    fn each_observation_leads_to_one_step_and_phase() {
        let (old, other) = (Untouched { uid: "a" }, Untouched { uid: "b" });
        let (touched, other_touched) = (Touched { uid: "a" }, Touched { uid: "b" });
        for (phase, seen, now, step, expected) in [
            (Phase::Unarmed, Missing, 0, Create, Phase::Unarmed),
            (Phase::Unarmed, Unknown, 0, Wait, Phase::Unarmed),
            (Phase::Unarmed, old, 5, Wait, armed("a", 5)),
            // It is not known when it was touched.
            (Phase::Unarmed, touched, 0, Delete, Phase::Unarmed),
            (armed("a", 0), old, 59, Wait, armed("a", 0)),
            (armed("a", 0), old, 60, Wait, proven("a", 60)),
            (armed("a", 0), Unknown, 100, Wait, armed("a", 0)),
            (armed("a", 0), other, 60, Wait, armed("b", 60)),
            (armed("a", 0), Missing, 60, Create, Phase::Unarmed),
            (armed("a", 0), touched, 15, Delete, active(15)),
            (armed("a", 0), other_touched, 15, Delete, active(15)),
            (proven("a", 60), old, 61, Wait, proven("a", 61)),
            (proven("a", 60), Unknown, 119, Wait, proven("a", 60)),
            (proven("a", 60), Unknown, 120, Wait, Phase::Unarmed),
            (proven("a", 60), Missing, 61, Create, Phase::Unarmed),
            (proven("a", 60), other, 61, Wait, armed("b", 61)),
            (proven("a", 60), touched, 99, Delete, active(99)),
            (active(15), touched, 16, Delete, active(15)),
            (active(15), other_touched, 400, Delete, active(15)),
            (active(15), Missing, 614, Wait, active(15)),
            (active(15), Missing, 615, Create, active(15)),
            (active(15), Unknown, 700, Wait, active(15)),
            // Another process has created it.
            (active(15), other, 300, Wait, armed("b", 300)),
        ] {
            let mut one = sentinel(phase.clone());
            let (found_step, found) = one.observe(seen, at(now));
            assert_eq!((found_step, &one.phase), (step, &expected), "{phase:?} {seen:?} at {now}");
            let is_new = one.phase == active(now);
            assert_eq!(found.is_some(), is_new, "{phase:?} {seen:?} at {now}");
            assert_eq!(one.may_write(), matches!(expected, Phase::Proven { .. }));
        }
    }

    /// Lives through a day of one object after the other, with a read per second. Returns when it may write.
    fn writing(touched_from: i64, touched_until: i64, end: i64) -> Vec<(i64, bool)> {
        let mut sentinel = Sentinel::new(RULES);
        let (mut object, mut created) = (None, 0_u32);
        let mut changes = vec![(0, false)];
        for second in 0..end {
            let is_active = (touched_from..touched_until).contains(&second);
            // The other controller writes every 15 seconds.
            if let Some((_, is_touched)) = &mut object {
                *is_touched |= is_active && second % 15 == 0;
            }
            let uid = created.to_string();
            let seen = match object {
                None => Missing,
                Some((_, false)) => Untouched { uid: &uid },
                Some((_, true)) => Touched { uid: &uid },
            };
            match sentinel.observe(seen, at(second)).0 {
                Create => {
                    created += 1;
                    object = Some((created, false));
                }
                Delete => object = None,
                Wait => {}
            }
            if changes.last().is_none_or(|(_, before)| *before != sentinel.may_write()) {
                changes.push((second, sentinel.may_write()));
            }
        }
        changes
    }

    #[test]
    fn it_writes_only_while_no_other_controller_does_and_notices_within_one_period() {
        assert_eq!(writing(-1, -1, 3000), [(0, false), (61, true)], "no other controller");
        assert_eq!(writing(0, 9999, 9000), [(0, false)], "always");
        // It is created again 10 minutes after it was touched, and a minute later it may write.
        assert_eq!(writing(0, 100, 3000), [(0, false), (15 + 600 + 61, true)], "first");
        let expected = [(0, false), (61, true), (1005, false), (1005 + 600 + 61, true)];
        assert_eq!(writing(1000, 1200, 3000), expected, "for a while");
    }

    #[test]
    fn whether_the_builtin_controller_is_active_is_unknown_before_the_first_result() {
        let mut sentinel = Sentinel::new(RULES);
        let observe = |sentinel: &mut Sentinel, seen, second| {
            sentinel.observe(seen, at(second));
            sentinel.is_builtin_active()
        };
        assert_eq!(observe(&mut sentinel, Missing, 0), None);
        assert_eq!(observe(&mut sentinel, Untouched { uid: "a" }, 1), None);
        assert_eq!(observe(&mut sentinel, Touched { uid: "a" }, 15), Some(true));
        assert_eq!(observe(&mut sentinel, Untouched { uid: "b" }, 700), Some(true));
        assert_eq!(observe(&mut sentinel, Untouched { uid: "b" }, 760), Some(false));
        assert_eq!(observe(&mut sentinel, Missing, 761), Some(false));
    }

    #[test]
    fn the_proof_takes_four_periods_and_at_least_the_shortest_time() {
        let minute = Duration::from_mins(1);
        for (period, proof) in [(1, 60), (15, 60), (30, 120), (60, 240)] {
            let rules = SentinelRules::new(minute, Duration::from_secs(period), minute);
            assert_eq!(rules.proof, Duration::from_secs(proof), "{period}");
        }
    }

    #[test]
    fn the_message_says_what_was_found_and_what_to_do() {
        let found = |millis: Option<u64>| {
            let found = BuiltinFound { after: millis.map(Duration::from_millis) };
            found.message(&"plimsoll/plimsoll-sentinel")
        };
        assert_eq!(
            found(Some(14_300)),
            "the HPA controller of kube-controller-manager is active (it wrote the status of plimsoll/plimsoll-sentinel \
             after 15 s); nothing is changed. Start it with --controllers=*,-horizontal-pod-autoscaler-controller, or use \
             --mode=shadow"
        );
        assert!(found(None).contains("plimsoll-sentinel); nothing is changed any more. Start"));
    }
}
