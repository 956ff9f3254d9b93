//! Vectors T1 to T50 and H1 to H8: scaling policies and scale events.

use super::fixture::{NOW, ago};
use crate::hpa::Fixes;
use crate::hpa::bounds::LimitedBy::{self, Max, Min, Nothing, ScaleDownRate, ScaleUpRate};
use crate::hpa::hpa_state::{HpaState, ScaleEvent};
use crate::hpa::scale_rate::Rates;
use crate::hpa::spec::{Behavior, Policy, PolicyKind, ScalingRules, SelectPolicy};

fn pods(value: i32, period_seconds: i32) -> Policy {
    Policy { kind: PolicyKind::Pods, value, period_seconds }
}

fn percent(value: i32, period_seconds: i32) -> Policy {
    Policy { kind: PolicyKind::Percent, value, period_seconds }
}

fn events(changes: &[(i32, i64)]) -> Vec<ScaleEvent> {
    let event = |&(change, age): &(i32, i64)| ScaleEvent { change, at: ago(age), outdated: false };
    changes.iter().map(event).collect()
}

/// The same rules for both directions; an empty list selects the defaults.
fn behavior(policies: &[Policy], select_policy: SelectPolicy) -> Behavior {
    let rules = |defaults: &[Policy]| ScalingRules {
        policies: if policies.is_empty() { defaults.to_vec() } else { policies.to_vec() },
        select_policy,
        ..ScalingRules::default()
    };
    Behavior {
        scale_up: rules(&[pods(4, 15), percent(100, 15)]),
        scale_down: rules(&[percent(100, 15)]),
    }
}

type Events = &'static [(i32, i64)];
type Row = (&'static str, [i32; 4], Vec<Policy>, Events, Events, i32, LimitedBy);

fn check(rows: Vec<Row>, select: SelectPolicy) {
    for (name, [current, wanted, min, max], policies, up, down, replicas, by) in rows {
        let memory = HpaState {
            scale_up_events: events(up),
            scale_down_events: events(down),
            ..HpaState::default()
        };
        let behavior = behavior(&policies, select);
        let rates =
            Rates { behavior: &behavior, memory: &memory, now: NOW, fixes: Fixes::UPSTREAM };
        let limited = rates.limit(current, wanted, min, max);
        assert_eq!((limited.replicas, limited.by), (replicas, by), "{name}");
    }
}

#[test]
fn bounds_and_rates_are_applied_as_in_the_vectors() {
    check(
        vec![
            ("T1", [5, 7, 3, 8], vec![], &[], &[], 7, Nothing),
            ("T2", [3, 1, 2, 8], vec![], &[], &[], 2, Min),
            ("T3", [1, 0, 0, 10], vec![], &[], &[], 0, Nothing),
            ("T4", [20, 1000, 1, 10], vec![], &[], &[], 10, Max),
            ("T5", [100, 1000, 100, 150], vec![], &[], &[], 150, Max),
            ("T6", [3, 1000, 1, 2000], vec![percent(1, 60)], &[], &[], 4, ScaleUpRate),
            ("T7", [1000, 3, 3, 2000], vec![pods(20, 60)], &[], &[], 980, ScaleDownRate),
            ("T8", [10, 50, 1, 1000], vec![], &[], &[], 20, ScaleUpRate),
            (
                "T9",
                [10, 500, 1, 1000],
                vec![pods(100, 60), percent(100, 60)],
                &[],
                &[],
                110,
                ScaleUpRate,
            ),
            (
                "T10",
                [10, 500, 1, 1000],
                vec![pods(2, 60), percent(100, 60)],
                &[],
                &[],
                20,
                ScaleUpRate,
            ),
            ("T11", [10, 50, 1, 1000], vec![pods(100, 60)], &[], &[], 50, Nothing),
            ("T12", [10, 50, 1, 1000], vec![pods(10000, 60)], &[], &[], 50, Nothing),
            ("T13", [10, 50, 1, 1000], vec![pods(30, 60)], &[], &[], 40, ScaleUpRate),
            ("T14", [10, 50, 1, 1000], vec![percent(200, 60)], &[], &[], 30, ScaleUpRate),
            (
                "T15",
                [100, 2, 1, 1000],
                vec![pods(20, 60), percent(1, 60)],
                &[],
                &[],
                80,
                ScaleDownRate,
            ),
            (
                "T16",
                [100, 2, 1, 1000],
                vec![pods(2, 60), percent(1, 60)],
                &[],
                &[],
                98,
                ScaleDownRate,
            ),
            ("T17", [10, 0, 1, 1000], vec![pods(100, 60)], &[], &[], 1, Min),
            ("T18", [10, 2, 5, 1000], vec![percent(100, 60)], &[], &[], 5, Min),
            ("T19", [10, 2, 1, 1000], vec![pods(5, 60)], &[], &[], 5, ScaleDownRate),
            ("T20", [10, 5, 1, 1000], vec![percent(50, 60)], &[], &[], 5, Nothing),
            ("T40", [0, 5, 0, 10], vec![percent(100, 15)], &[], &[], 0, ScaleUpRate),
            ("T41", [0, 9, 0, 20], vec![], &[], &[], 4, ScaleUpRate),
            ("T42", [100, 500, 1, 1000], vec![percent(10, 60)], &[], &[], 111, ScaleUpRate),
            ("T43", [50, 500, 1, 1000], vec![percent(10, 60)], &[], &[], 56, ScaleUpRate),
            ("T44", [100, 1, 1, 1000], vec![percent(10, 60)], &[], &[], 90, ScaleDownRate),
        ],
        SelectPolicy::Max,
    );
}

#[test]
fn past_changes_use_the_budget_of_a_period() {
    const THREE: Events = &[(1, 20), (5, 60), (9, 100)];
    const TENS: Events = &[(10, 20), (10, 60), (10, 100)];
    const FOUR: Events = &[(8, 15), (12, 45), (9, 75), (11, 105)];
    let [up, down] = [[100, 200, 1, 1000], [100, 5, 1, 1000]];
    check(
        vec![
            ("T21", [100, 500, 1, 200], vec![pods(300, 60)], THREE, &[], 200, Max),
            ("T22", [100, 500, 1, 200], vec![percent(10000, 60)], THREE, &[], 200, Max),
            ("T23", [100, 500, 1, 2000], vec![pods(5, 120)], THREE, &[], 100, ScaleUpRate),
            ("T24", [100, 500, 1, 2000], vec![pods(150, 120)], THREE, &[], 235, ScaleUpRate),
            ("T25", [100, 500, 1, 2000], vec![percent(200, 120)], THREE, &[], 255, ScaleUpRate),
            (
                "T26",
                [6, 24, 1, 2000],
                vec![percent(300, 300)],
                &[(4, 60)],
                &[(2, 60)],
                16,
                ScaleUpRate,
            ),
            ("T27", [10, 5, 1, 2000], vec![], &[], THREE, 5, Nothing),
            ("T28", [100, 0, 1, 2000], vec![pods(115, 120)], &[], THREE, 1, Min),
            ("T29", [100, 0, 5, 2000], vec![pods(130, 120)], &[], THREE, 5, Min),
            ("T30", [100, 2, 5, 2000], vec![percent(100, 120)], &[], THREE, 5, Min),
            ("T31", [100, 2, 1, 2000], vec![pods(5, 120)], &[], THREE, 100, ScaleDownRate),
            (
                "T32",
                [100, 0, 1, 2000],
                vec![percent(50, 120)],
                &[],
                &[(2, 20), (4, 60), (6, 100)],
                56,
                ScaleDownRate,
            ),
            (
                "T33",
                [10, 1, 1, 2000],
                vec![percent(50, 180)],
                &[(2, 60)],
                &[(4, 60)],
                6,
                ScaleDownRate,
            ),
            ("T34", [100, 0, 1, 2000], vec![percent(10, 120)], &[], TENS, 100, ScaleDownRate),
            ("T35", [10, 5, 1, 2000], vec![percent(1000, 120)], &[], TENS, 5, Nothing),
            ("T45", up, vec![pods(1000, 60)], FOUR, &[], 200, Nothing),
            ("T46", up, vec![pods(1000, 120), percent(100, 60)], FOUR, &[], 200, Nothing),
            ("T47", up, vec![pods(1000, 30), percent(100, 60)], FOUR, &[], 200, Nothing),
            ("T48", down, vec![pods(1000, 60)], &[], FOUR, 5, Nothing),
            ("T49", down, vec![pods(1000, 120), percent(100, 60)], &[], FOUR, 5, Nothing),
            ("T50", down, vec![pods(1000, 30), percent(100, 60)], &[], FOUR, 5, Nothing),
        ],
        SelectPolicy::Max,
    );
}

#[test]
fn the_select_policy_chooses_a_policy() {
    check(
        vec![
            (
                "T36",
                [1, 500, 1, 1000],
                vec![pods(2, 60), percent(50, 60)],
                &[],
                &[],
                2,
                ScaleUpRate,
            ),
            (
                "T37",
                [5, 0, 0, 1000],
                vec![pods(2, 60), percent(50, 60)],
                &[],
                &[],
                3,
                ScaleDownRate,
            ),
        ],
        SelectPolicy::Min,
    );
    check(
        vec![
            ("T38", [10, 50, 1, 1000], vec![], &[], &[], 10, ScaleUpRate),
            ("T39", [10, 1, 1, 1000], vec![], &[], &[], 10, ScaleDownRate),
        ],
        SelectPolicy::Disabled,
    );
}

#[test]
fn a_policy_reports_what_it_allows_and_when_more() {
    let memory =
        HpaState { scale_up_events: events(&[(3, 20), (2, 50), (9, 70)]), ..HpaState::default() };
    let behavior = behavior(&[pods(7, 60)], SelectPolicy::Max);
    let rates = Rates { behavior: &behavior, memory: &memory, now: NOW, fixes: Fixes::UPSTREAM };
    let policy = rates.up(20).policies[0];
    assert_eq!((policy.at_start, policy.replicas, policy.renewed), (15, 22, Some(ago(50 - 60))));
}

#[test]
fn scale_events_replace_outdated_ones() {
    type Row = (&'static str, Events, Vec<Policy>, &'static [(i32, bool)]);
    let rows: Vec<Row> = vec![
        ("H2", &[], vec![pods(10, 60), percent(100, 60)], &[(5, false)]),
        ("H4", &[(7, 61)], vec![pods(10, 60), percent(100, 60)], &[(5, false)]),
        ("H5", &[(7, 58)], vec![pods(10, 60), percent(100, 60)], &[(7, false), (5, false)]),
        ("H6", &[(7, 61), (6, 59)], vec![pods(10, 60)], &[(5, false), (6, false)]),
        (
            "H7",
            &[(8, 29), (6, 59), (7, 61), (9, 61)],
            vec![pods(10, 60), percent(100, 30)],
            &[(8, false), (6, false), (7, true), (5, false)],
        ),
        (
            "H8",
            &[(7, 58), (6, 59)],
            vec![pods(10, 120), percent(100, 30)],
            &[(7, false), (6, false), (5, false)],
        ),
    ];
    for (name, before, policies, after) in rows {
        let behavior = behavior(&policies, SelectPolicy::Max);
        for (from, to) in [(10, 15), (15, 10)] {
            let mut memory = HpaState {
                scale_up_events: events(before),
                scale_down_events: events(before),
                ..HpaState::default()
            };
            memory.scaled(from, to, &behavior, NOW);
            let (changed, other) = if to > from {
                (&memory.scale_up_events, &memory.scale_down_events)
            } else {
                (&memory.scale_down_events, &memory.scale_up_events)
            };
            let seen: Vec<_> = changed.iter().map(|event| (event.change, event.outdated)).collect();
            assert_eq!(seen, after, "{name}");
            assert_eq!(*other, events(before), "{name}");
        }
    }
}
