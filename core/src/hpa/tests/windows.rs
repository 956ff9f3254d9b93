//! Vectors S1 to S5 and B1 to B11: stabilization windows.

use std::time::Duration;

use super::fixture::{NOW, ago};
use crate::hpa::Fixes;
use crate::hpa::hpa_state::{HpaState, Recommendation};
use crate::hpa::spec::{Behavior, ScalingRules};
use crate::hpa::stabilization::{Direction, Stabilization, with_behavior, without_behavior};

const WINDOW: Duration = Duration::from_mins(5);

fn memory(history: &[(i32, i64)]) -> HpaState {
    let recommendation = |&(replicas, age): &(i32, i64)| Recommendation { replicas, at: ago(age) };
    HpaState {
        recommendations: Some(history.iter().map(recommendation).collect()),
        ..HpaState::default()
    }
}

fn values(memory: &HpaState) -> Vec<i32> {
    memory.recommendations().iter().map(|recommendation| recommendation.replicas).collect()
}

#[test]
fn without_behavior_the_largest_recommendation_in_the_window_counts() {
    type Row = (&'static str, &'static [(i32, i64)], i32, i32, &'static [i32]);
    let rows: [Row; 7] = [
        ("S1", &[], 5, 5, &[5]),
        ("S2", &[(4, 120), (5, 60)], 3, 5, &[4, 5, 3]),
        ("S3", &[(1, 120), (2, 60)], 3, 3, &[1, 2, 3]),
        ("S4", &[(10, 600), (9, 540)], 3, 3, &[10, 3]),
        ("S5", &[(10, 600), (4, 60), (5, 120), (9, 540)], 3, 5, &[10, 4, 5, 3]),
        ("as old as the window", &[(9, 300)], 3, 9, &[9, 3]),
        ("older than the window", &[(9, 301)], 3, 3, &[3]),
    ];
    for (name, history, recommended, stabilized, after) in rows {
        let mut memory = memory(history);
        let found = without_behavior(&mut memory, recommended, 100, WINDOW, NOW, Fixes::UPSTREAM);
        assert_eq!((found.stabilized, values(&memory)), (stabilized, after.to_vec()), "{name}");
        assert_eq!(found.held.is_some(), stabilized != recommended, "{name}");
    }
}

fn hold(
    history: &[(i32, i64)],
    current: i32,
    recommended: i32,
    up: i32,
    down: Option<i32>,
) -> (Stabilization, HpaState) {
    let rules =
        |window| ScalingRules { stabilization_window_seconds: window, ..ScalingRules::default() };
    let behavior = Behavior { scale_up: rules(Some(up)), scale_down: rules(down) };
    let mut memory = memory(history);
    let found = with_behavior(&mut memory, recommended, current, &behavior, WINDOW, NOW);
    (found, memory)
}

#[test]
fn with_behavior_each_direction_has_its_own_window() {
    type Row = (
        &'static str,
        i32,
        i32,
        &'static [(i32, i64)],
        i32,
        i32,
        i32,
        &'static [i32],
        Option<Direction>,
    );
    let rows: [Row; 13] = [
        ("B1", 100, 5, &[], 0, 0, 5, &[5], None),
        ("B2", 100, 3, &[(4, 120), (5, 60)], 0, 180, 5, &[4, 5, 3], Some(Direction::Down)),
        ("B3", 1, 7, &[(4, 120), (5, 60)], 300, 0, 4, &[4, 5, 7], Some(Direction::Up)),
        ("B4", 100, 3, &[(1, 120), (2, 60)], 300, 0, 3, &[1, 2, 3], None),
        ("B5", 1, 3, &[(4, 120), (5, 60)], 0, 300, 3, &[4, 5, 3], None),
        ("B6", 100, 3, &[(10, 600), (9, 540)], 0, 0, 3, &[10, 3], None),
        ("B7", 1, 100, &[(10, 600), (9, 540)], 0, 0, 100, &[10, 100], None),
        (
            "B8",
            100,
            3,
            &[(10, 600), (4, 60), (5, 120), (9, 540)],
            0,
            180,
            5,
            &[10, 4, 5, 3],
            Some(Direction::Down),
        ),
        (
            "B9",
            1,
            100,
            &[(10, 6000), (6, 60), (5, 120), (9, 180)],
            300,
            0,
            5,
            &[100, 6, 5, 9],
            Some(Direction::Up),
        ),
        ("B10", 2, 1, &[(2, 6000), (3, 180)], 300, 300, 2, &[1, 3], Some(Direction::Down)),
        ("B11", 2, 3, &[(2, 6000), (1, 180)], 300, 300, 2, &[3, 1], Some(Direction::Up)),
        ("as old as the window", 9, 3, &[(9, 300)], 0, 300, 3, &[9, 3], None),
        ("younger than the window", 9, 3, &[(9, 299)], 0, 300, 9, &[9, 3], Some(Direction::Down)),
    ];
    for (name, current, recommended, history, up, down, stabilized, after, held) in rows {
        let (found, memory) = hold(history, current, recommended, up, Some(down));
        assert_eq!((found.stabilized, values(&memory)), (stabilized, after.to_vec()), "{name}");
        assert_eq!(found.held.map(|held| held.direction), held, "{name}");
    }
}

#[test]
fn an_unset_window_is_that_of_the_flag() {
    assert_eq!(hold(&[(9, 299)], 9, 3, 0, None).0.stabilized, 9);
    assert_eq!(hold(&[(9, 301)], 9, 3, 0, None).0.stabilized, 3);
}

#[test]
fn a_stabilized_recommendation_reports_when_it_ends() {
    let (found, _) = hold(&[(4, 120), (5, 60), (5, 90)], 100, 3, 0, Some(180));
    let held = found.held.expect("held");
    assert_eq!(held.by, Some(Recommendation { replicas: 5, at: ago(60) }));
    assert_eq!(held.until, Some(ago(60 - 180)));
    let (found, _) = hold(&[(4, 120), (5, 60)], 1, 7, 300, Some(0));
    assert_eq!(found.held.and_then(|held| held.until), Some(ago(120 - 300)));
}

/// The pass in which a window of ten minutes ends.
#[test]
fn replicas_decrease_when_the_highest_recommendation_leaves_the_window() {
    let mut memory = memory(&[]);
    let behavior = Behavior {
        scale_down: ScalingRules {
            stabilization_window_seconds: Some(600),
            ..ScalingRules::default()
        },
        ..Behavior::default()
    };
    let mut seen = Vec::new();
    for (minute, recommended) in [10, 9, 8, 9, 9, 8, 9, 8, 9, 8, 7, 7].into_iter().enumerate() {
        let now = NOW.later(Duration::from_secs(minute as u64 * 60));
        seen.push(with_behavior(&mut memory, recommended, 10, &behavior, WINDOW, now).stabilized);
    }
    assert_eq!(seen, [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 9, 9]);
}
