//! What the server did not do when it was asked: the same is not asked again at once, and more seldom each time. Each try
//! is booked before it is made, so one in every pass would be two writes in vain a pass, for as long as a budget holds.

use std::time::Duration;

use crate::types::Time;

use super::{life::Owner, skip::Skip};

/// After the first time. Passes are a minute apart as a rule, so the next one still asks.
const SHORTEST: Duration = Duration::from_secs(30);
/// The longest. Whoever loosens a budget waits that long, at most, until it is seen.
const LONGEST: Duration = Duration::from_mins(5);

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// That any pod of this controller is let go: one budget answers for all of them.
    LetGo(Owner),
    /// That this pod is evicted, by its uid.
    Evict(Box<str>),
    /// That this pod is resized, by its uid.
    Resize(Box<str>),
    /// That this controller gets a second replica.
    Surge(Owner),
}

#[derive(Clone, Debug, PartialEq)]
struct Rest {
    asked: Asked,
    why: Skip,
    times: u32,
    until: Time,
}

/// What is not asked for now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rests(Vec<Rest>);

impl Rests {
    /// It was asked for, and was not done.
    pub fn refuse(&mut self, asked: Asked, why: Skip, now: Time) {
        let at = self.0.iter().position(|rest| rest.asked == asked);
        let times = at.map_or(0, |at| self.0.swap_remove(at).times.saturating_add(1));
        let until = now.later(SHORTEST.saturating_mul(1 << times.min(8)).min(LONGEST));
        self.0.push(Rest { asked, why, times, until });
    }

    /// It was done.
    pub fn forget(&mut self, asked: &Asked) {
        self.0.retain(|rest| rest.asked != *asked);
    }

    /// Why it is not asked for now, if it is not.
    pub fn of(&self, asked: &Asked, now: Time) -> Option<&Skip> {
        let rest = self.0.iter().find(|rest| rest.asked == *asked)?;
        (rest.until > now).then_some(&rest.why)
    }

    /// Forgets what was not asked for again for long.
    pub fn tidy(&mut self, now: Time) {
        self.0.retain(|rest| rest.until.later(LONGEST) > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_refused_is_asked_more_seldom_each_time_until_it_is_done() {
        let mut now = Time::from_secs(1_000_000);
        let mut rests = Rests::default();
        let asked = Asked::LetGo(Owner { kind: "ReplicaSet".into(), name: "web".into() });
        assert_eq!(rests.of(&asked, now), None);
        for seconds in [30, 60, 120, 240, 300, 300] {
            rests.refuse(asked.clone(), Skip::DisruptionBudget, now);
            let until = now.later(Duration::from_secs(seconds));
            let early = until.earlier(Duration::from_secs(1));
            assert_eq!(rests.of(&asked, early), Some(&Skip::DisruptionBudget), "{seconds}");
            assert_eq!(rests.of(&asked, until), None, "{seconds}");
            assert_eq!(rests.of(&Asked::Evict("a".into()), early), None);
            now = until;
        }
        rests.tidy(now);
        rests.refuse(asked.clone(), Skip::DisruptionBudget, now);
        assert!(rests.of(&asked, now.later(Duration::from_secs(299))).is_some(), "it counts on");
        rests.forget(&asked);
        assert_eq!(rests, Rests::default());
        rests.refuse(asked, Skip::Failed, now);
        rests.tidy(now.later(SHORTEST).later(LONGEST));
        assert_eq!(rests, Rests::default(), "that was long ago");
    }
}
