//! Stabilization windows: past recommendations delay a change.

use std::time::Duration;

use serde::Serialize;

use super::{
    fixes::{Fix, Fixes},
    hpa_state::{HpaState, Recommendation, seconds},
    spec::Behavior,
};
use crate::types::Time;

/// The result of applying the stabilization windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stabilization {
    /// The replicas that the metrics ask for.
    pub recommended: i32,
    /// The replicas after the windows were applied.
    pub stabilized: i32,
    /// Why the change is delayed, if it is.
    pub held: Option<Held>,
}

/// Why a change is delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The direction of the delayed change.
    pub direction: Direction,
    /// The past recommendation that applies instead.
    pub by: Option<Recommendation>,
    /// When that recommendation leaves the window.
    pub until: Option<Time>,
}

/// The direction of a change of replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Scale up.
    Up,
    /// Scale down.
    Down,
}

/// Without `behavior`: uses the highest recommendation in the window. One that is exactly as old as the window still
/// counts.
pub fn without_behavior(
    memory: &mut HpaState,
    recommended: i32,
    current: i32,
    window: Duration,
    now: Time,
    fixes: Fixes,
) -> Stabilization {
    let cutoff = now.earlier(window);
    let in_window =
        memory.recommendations().iter().filter(|recommendation| recommendation.at >= cutoff);
    let highest = in_window
        .filter(|recommendation| recommendation.replicas > recommended)
        .max_by_key(|recommendation| (recommendation.replicas, recommendation.at))
        .copied();
    let mut stabilized = highest.map_or(recommended, |recommendation| recommendation.replicas);
    if fixes.has(Fix::WindowOnlyHolds) {
        stabilized = stabilized.min(current.max(recommended));
    }
    memory.recommend(recommended, now, |recommendation| recommendation.at < cutoff);
    let held = (stabilized != recommended).then(|| Held {
        direction: Direction::Down,
        by: highest,
        until: highest.map(|recommendation| recommendation.at.later(window)),
    });
    Stabilization { recommended, stabilized, held }
}

/// With `behavior`: changes the current replicas no further than the lowest recommendation in the scale-up window, and
/// the highest in the scale-down window. One that is exactly as old as its window no longer counts.
pub fn with_behavior(
    memory: &mut HpaState,
    recommended: i32,
    current: i32,
    behavior: &Behavior,
    default_window: Duration,
    now: Time,
) -> Stabilization {
    let up_window = seconds(behavior.scale_up.stabilization_window_seconds.unwrap_or(0));
    let down_window = behavior.scale_down.stabilization_window_seconds;
    let down_window = down_window.map_or(Duration::from_secs(default_window.as_secs()), seconds);
    let (up_cutoff, down_cutoff) = (now.earlier(up_window), now.earlier(down_window));
    let recommendations = memory.recommendations();
    let lowest = recommendations.iter().filter(|recommendation| {
        recommendation.at > up_cutoff && recommendation.replicas < recommended
    });
    let lowest = lowest
        .min_by_key(|recommendation| {
            (recommendation.replicas, std::cmp::Reverse(recommendation.at))
        })
        .copied();
    let highest = recommendations.iter().filter(|recommendation| {
        recommendation.at > down_cutoff && recommendation.replicas > recommended
    });
    let highest =
        highest.max_by_key(|recommendation| (recommendation.replicas, recommendation.at)).copied();
    let floor = lowest.map_or(recommended, |recommendation| recommendation.replicas);
    let ceiling = highest.map_or(recommended, |recommendation| recommendation.replicas);
    let stabilized = current.max(floor).min(ceiling);
    memory.recommend(recommended, now, |recommendation| {
        recommendation.at < up_cutoff && recommendation.at < down_cutoff
    });
    let held = (stabilized != recommended).then(|| {
        let (direction, by, window) = if recommended >= current {
            (Direction::Up, lowest, up_window)
        } else {
            (Direction::Down, highest, down_window)
        };
        Held { direction, by, until: by.map(|recommendation| recommendation.at.later(window)) }
    });
    Stabilization { recommended, stabilized, held }
}
