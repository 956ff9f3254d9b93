//! What is remembered of an object from pass to pass: recommendations and scale events. Plain data that can be persisted.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    fixes::{Fix, Fixes},
    spec::Behavior,
};
use crate::types::Time;

/// A number of replicas that the metrics asked for, before any window, rate or bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// How many.
    pub replicas: i32,
    /// When.
    pub at: Time,
}

/// A change of replicas that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleEvent {
    /// By how many; always above zero.
    pub change: i32,
    /// When.
    pub at: Time,
    /// Whether its place may be taken.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outdated: bool,
}

/// What is remembered of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HpaState {
    /// Of which object: another one of the same name is not the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// `None` before the first pass that read a scale.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recommendations: Option<Vec<Recommendation>>,
    /// Changes to more replicas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scale_up_events: Vec<ScaleEvent>,
    /// Changes to fewer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scale_down_events: Vec<ScaleEvent>,
}

impl HpaState {
    /// What was persisted by the process before this one, if that counts.
    pub fn restored(persisted: Option<Self>, fixes: Fixes) -> Self {
        persisted.filter(|_| fixes.has(Fix::MemorySurvivesRestart)).unwrap_or_default()
    }

    /// Forgets what is of another object of the same name.
    #[must_use]
    pub fn of_object(self, uid: Option<&str>, fixes: Fixes) -> Self {
        if self.uid.as_deref() == uid {
            return self;
        }
        let is_other = self.uid.is_some() && uid.is_some() && fixes.has(Fix::NewObjectNewMemory);
        let kept = if is_other { Self::default() } else { self };
        Self { uid: uid.map(str::to_owned), ..kept }
    }

    /// Begins with the replicas that there are, so that nothing is removed before a whole window was seen.
    pub fn seed(&mut self, replicas: i32, now: Time) {
        self.recommendations.get_or_insert_with(|| vec![Recommendation { replicas, at: now }]);
    }

    /// All recommendations.
    pub fn recommendations(&self) -> &[Recommendation] {
        self.recommendations.as_deref().unwrap_or_default()
    }

    /// Adds a recommendation, in place of the last one that `is_expired`.
    pub fn recommend(
        &mut self,
        replicas: i32,
        now: Time,
        is_expired: impl Fn(&Recommendation) -> bool,
    ) {
        let all = self.recommendations.get_or_insert_default();
        let recommendation = Recommendation { replicas, at: now };
        match all.iter_mut().rev().find(|one| is_expired(one)) {
            Some(place) => *place = recommendation,
            None => all.push(recommendation),
        }
    }

    /// Adds a change that was written, and marks those that no policy of its direction looks back to.
    pub fn scaled(&mut self, from: i32, to: i32, behavior: &Behavior, now: Time) {
        let (events, rules) = if to > from {
            (&mut self.scale_up_events, &behavior.scale_up)
        } else {
            (&mut self.scale_down_events, &behavior.scale_down)
        };
        let cutoff = now.earlier(seconds(rules.longest_period()));
        for event in events.iter_mut() {
            event.outdated |= event.at < cutoff;
        }
        let event =
            ScaleEvent { change: to.wrapping_sub(from).wrapping_abs(), at: now, outdated: false };
        match events.iter_mut().rev().find(|event| event.outdated) {
            Some(place) => *place = event,
            None => events.push(event),
        }
    }

    /// Leaves out what no later decision can depend on, for persisting it: recommendations that a later one outlasts in
    /// both directions, and events beyond the periods.
    #[must_use]
    pub fn compact(&self, windows: Windows, now: Time) -> Self {
        let recommendations = self.recommendations.as_ref().map(|all| {
            let mut sorted = all.clone();
            sorted.sort_by_key(|one| std::cmp::Reverse(one.at));
            let (mut most, mut least) = (i32::MIN, i32::MAX);
            let mut kept = Vec::new();
            for one in sorted {
                // The newest is always kept: an empty history would be seeded again.
                let holds_down = one.replicas > most && one.at >= now.earlier(windows.down);
                let holds_up = one.replicas < least && one.at >= now.earlier(windows.up);
                if kept.is_empty() || holds_down || holds_up {
                    most = most.max(one.replicas);
                    least = least.min(one.replicas);
                    kept.push(one);
                }
            }
            kept.reverse();
            kept
        });
        // A policy counts changes of both directions.
        let cutoff = now.earlier(windows.period);
        let recent = |events: &[ScaleEvent]| {
            events.iter().filter(|event| event.at >= cutoff).copied().collect()
        };
        Self {
            uid: self.uid.clone(),
            recommendations,
            scale_up_events: recent(&self.scale_up_events),
            scale_down_events: recent(&self.scale_down_events),
        }
    }
}

/// For how long what is remembered can matter.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// How long a recommendation holds more replicas back.
    pub up: Duration,
    /// How long one holds fewer back.
    pub down: Duration,
    /// The longest period of a policy of either direction.
    pub period: Duration,
}

impl Windows {
    /// Of an object, with the flag's window where it has none.
    pub fn of(behavior: Option<&Behavior>, default_window: Duration) -> Self {
        let Some(behavior) = behavior else {
            return Self { up: Duration::ZERO, down: default_window, period: Duration::ZERO };
        };
        let (up, down) = (&behavior.scale_up, &behavior.scale_down);
        Self {
            up: seconds(up.stabilization_window_seconds.unwrap_or(0)),
            down: down.stabilization_window_seconds.map_or(default_window, seconds),
            period: seconds(up.longest_period().max(down.longest_period())),
        }
    }
}

pub(super) fn seconds(count: i32) -> Duration {
    Duration::from_secs(u64::try_from(count).unwrap_or(0))
}
