//! Stabilization windows: past recommendations that hold a change back.

use std::time::Duration;

use serde::Serialize;

use super::{
    fixes::{Fix, Fixes},
    hpa_state::{HpaState, Recommendation, seconds},
    spec::Behavior,
};
use crate::types::Time;

/// What became of a recommendation within its windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Stabilization {
    /// What the metrics ask for.
    pub recommended: i32,
    /// What the windows leave of it.
    pub stabilized: i32,
    /// The direction of the window that holds, if one does.
    pub held: Option<Held>,
}

/// Why a recommendation has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// Whether fewer replicas are held back, or more.
    pub direction: Direction,
    /// The recommendation that is in force instead.
    pub by: Option<Recommendation>,
    /// When it leaves the window.
    pub until: Option<Time>,
}

/// More replicas, or fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// More.
    Up,
    /// Fewer.
    Down,
}

/// Without `behavior`: the largest recommendation of the window. One that is exactly as old as the window still counts.
pub fn without_behavior(
    memory: &mut HpaState,
    recommended: i32,
    current: i32,
    window: Duration,
    now: Time,
    fixes: Fixes,
) -> Stabilization {
    let cutoff = now.earlier(window);
    let alive = memory.recommendations().iter().filter(|one| one.at >= cutoff);
    let holder = alive
        .filter(|one| one.replicas > recommended)
        .max_by_key(|one| (one.replicas, one.at))
        .copied();
    let mut stabilized = holder.map_or(recommended, |one| one.replicas);
    if fixes.has(Fix::WindowOnlyHolds) {
        stabilized = stabilized.min(current.max(recommended));
    }
    memory.recommend(recommended, now, |one| one.at < cutoff);
    let held = (stabilized != recommended).then(|| Held {
        direction: Direction::Down,
        by: holder,
        until: holder.map(|one| one.at.later(window)),
    });
    Stabilization { recommended, stabilized, held }
}

/// With `behavior`: the current number, moved no further than the smallest recommendation of the window for more
/// replicas, and the largest of the window for fewer. One that is exactly as old as its window counts no more.
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
    let all = memory.recommendations();
    let lowest = all.iter().filter(|one| one.at > up_cutoff && one.replicas < recommended);
    let lowest = lowest.min_by_key(|one| (one.replicas, std::cmp::Reverse(one.at))).copied();
    let highest = all.iter().filter(|one| one.at > down_cutoff && one.replicas > recommended);
    let highest = highest.max_by_key(|one| (one.replicas, one.at)).copied();
    let floor = lowest.map_or(recommended, |one| one.replicas);
    let ceiling = highest.map_or(recommended, |one| one.replicas);
    let stabilized = current.max(floor).min(ceiling);
    memory.recommend(recommended, now, |one| one.at < up_cutoff && one.at < down_cutoff);
    let held = (stabilized != recommended).then(|| {
        let (direction, by, window) = if recommended >= current {
            (Direction::Up, lowest, up_window)
        } else {
            (Direction::Down, highest, down_window)
        };
        Held { direction, by, until: by.map(|one| one.at.later(window)) }
    });
    Stabilization { recommended, stabilized, held }
}
