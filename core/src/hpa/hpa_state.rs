//! The state of an object between passes: recommendations and scale events. Plain data that can be persisted.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_with::skip_serializing_none;

use super::{
    fixes::{Fix, Fixes},
    spec::Behavior,
};
use crate::types::Time;

/// The replicas that the metrics asked for in one pass, before windows, rates and bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recommendation {
    /// The recommended replicas.
    pub replicas: i32,
    /// When the recommendation was made.
    pub at: Time,
}

/// A change of replicas that was applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScaleEvent {
    /// The number of replicas added or removed; always positive.
    pub change: i32,
    /// When the change was applied.
    pub at: Time,
    /// Whether a newer event may replace this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub outdated: bool,
}

/// The persisted state of one object.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HpaState {
    /// The UID of the object, to detect that it was recreated under the same name.
    pub uid: Option<String>,
    /// Past recommendations; `None` before the first pass that read a scale.
    pub recommendations: Option<Vec<Recommendation>>,
    /// Changes that added replicas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scale_up_events: Vec<ScaleEvent>,
    /// Changes that removed replicas.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scale_down_events: Vec<ScaleEvent>,
    /// Since when in each pass some metric was not available. Only tracked if the object has a fallback.
    pub failing_since: Option<Time>,
    /// Whether the target has zero replicas because an annotation allowed it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scaled_to_zero: bool,
}

impl HpaState {
    /// The state that the previous process persisted, or the default if that is not used.
    pub fn restored(persisted: Option<Self>, fixes: Fixes) -> Self {
        persisted.filter(|_| fixes.has(Fix::MemorySurvivesRestart)).unwrap_or_default()
    }

    /// Resets the state if it belongs to a deleted object of the same name.
    #[must_use]
    pub fn of_object(self, uid: Option<&str>, fixes: Fixes) -> Self {
        if self.uid.as_deref() == uid {
            return self;
        }
        let is_other = self.uid.is_some() && uid.is_some() && fixes.has(Fix::NewObjectNewMemory);
        let state = if is_other { Self::default() } else { self };
        Self { uid: uid.map(str::to_owned), ..state }
    }

    /// Starts with the current replicas, so that nothing is removed before a full window has been observed.
    pub fn seed(&mut self, replicas: i32, now: Time) {
        self.recommendations.get_or_insert_with(|| vec![Recommendation { replicas, at: now }]);
    }

    /// The past recommendations.
    pub fn recommendations(&self) -> &[Recommendation] {
        self.recommendations.as_deref().unwrap_or_default()
    }

    /// Adds a recommendation. It replaces the last one for which `is_expired` is true, if any.
    pub fn recommend(
        &mut self,
        replicas: i32,
        now: Time,
        is_expired: impl Fn(&Recommendation) -> bool,
    ) {
        let recommendations = self.recommendations.get_or_insert_default();
        let recommendation = Recommendation { replicas, at: now };
        match recommendations.iter_mut().rev().find(|past| is_expired(past)) {
            Some(slot) => *slot = recommendation,
            None => recommendations.push(recommendation),
        }
    }

    /// Adds an applied change, and marks events as outdated that are beyond all policy periods of its direction.
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
            Some(slot) => *slot = event,
            None => events.push(event),
        }
    }

    /// Adds an applied change like [`Self::scaled`], unless it is known already.
    pub fn scaled_once(&mut self, from: i32, to: i32, behavior: &Behavior, at: Time) {
        let events = if to > from { &self.scale_up_events } else { &self.scale_down_events };
        let change = to.wrapping_sub(from).wrapping_abs();
        if !events.iter().any(|event| event.at == at && event.change == change) {
            self.scaled(from, to, behavior, at);
        }
    }

    /// Removes what no later decision can depend on, before persisting: recommendations that a later one supersedes in
    /// both directions, and events beyond the policy periods.
    #[must_use]
    pub fn compact(&self, windows: Windows, now: Time) -> Self {
        let recommendations = self.recommendations.as_ref().map(|recommendations| {
            let mut sorted = recommendations.clone();
            sorted.sort_by_key(|recommendation| std::cmp::Reverse(recommendation.at));
            let (mut most, mut least) = (i32::MIN, i32::MAX);
            let mut needed = Vec::new();
            for recommendation in sorted {
                // The newest is always kept: an empty history would be seeded again.
                let holds_down = recommendation.replicas > most
                    && recommendation.at >= now.earlier(windows.down);
                let holds_up =
                    recommendation.replicas < least && recommendation.at >= now.earlier(windows.up);
                if needed.is_empty() || holds_down || holds_up {
                    most = most.max(recommendation.replicas);
                    least = least.min(recommendation.replicas);
                    needed.push(recommendation);
                }
            }
            needed.reverse();
            needed
        });
        // A policy counts changes in both directions.
        let cutoff = now.earlier(windows.period);
        let recent = |events: &[ScaleEvent]| {
            events.iter().filter(|event| event.at >= cutoff).copied().collect()
        };
        Self {
            uid: self.uid.clone(),
            recommendations,
            scale_up_events: recent(&self.scale_up_events),
            scale_down_events: recent(&self.scale_down_events),
            failing_since: self.failing_since,
            scaled_to_zero: self.scaled_to_zero,
        }
    }
}

/// How long the state can affect a decision.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    /// How long a recommendation can delay scaling up.
    pub up: Duration,
    /// How long a recommendation can delay scaling down.
    pub down: Duration,
    /// The longest policy period of either direction.
    pub period: Duration,
}

impl Windows {
    /// The windows of an object; `default_window` is that of the flag.
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
