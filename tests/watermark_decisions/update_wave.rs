//! While the updater changes pods of the target, replicas are added and not removed.

use std::time::Duration;

use plimsoll_core::{
    coordination::RemovalHold,
    scaling::Restriction,
    types::{Time, compat::Fixes},
    watermark::ForcedReason,
};
use serde_json::json;

use super::{DecisionCase, ago, both_modes, external_metric};

fn in_wave(fixes: Fixes, until: Option<Time>, value: i64) -> DecisionCase {
    let fields = json!({"minReplicas": 2, "maxReplicas": 10, "scaleDownLimitFactor": 50});
    let mut case = DecisionCase::new(fixes, fields, 6, vec![external_metric(value, 500, 1_000)]);
    case.removal_hold = Some(RemovalHold { wave_started: ago(60), until });
    case
}

#[test]
fn a_wave_keeps_replicas_that_would_be_removed() {
    let fixes = both_modes()[1];
    for until in [None, Some(ago(0).later(Duration::from_secs(20)))] {
        let case = in_wave(fixes, until, 100);
        let decision = case.decide();
        assert_eq!((decision.desired, &decision.change), (6, &None));
        assert_eq!(decision.record.restrictions.last(), Some(&Restriction::VpaWave));
        assert_eq!(decision.record.held_until, until);
        let after = DecisionCase { removal_hold: None, ..case }.decide();
        assert!(after.desired < 6 && !after.record.restrictions.contains(&Restriction::VpaWave));
    }
}

#[test]
fn a_wave_does_not_keep_replicas_from_being_added_or_brought_within_bounds() {
    let fixes = both_modes()[1];
    let above = in_wave(fixes, None, 1_500).decide();
    assert!(above.desired > 6, "{}", above.desired);
    assert!(!above.record.restrictions.contains(&Restriction::VpaWave));
    let inside = in_wave(fixes, None, 700).decide();
    assert_eq!(inside.record.restrictions, [Restriction::WithinBounds]);
    let mut case = in_wave(fixes, None, 100);
    case.rules.limits.max = 5;
    let bounded = case.decide();
    let forced = bounded.change.and_then(|change| change.forced);
    assert_eq!((bounded.desired, forced), (5, Some(ForcedReason::AboveMax)));
}

#[test]
fn other_reasons_not_to_remove_replicas_are_reported_first() {
    let case = in_wave(both_modes()[1], None, 100).scaled_ago(10);
    let restrictions = case.decide().record.restrictions;
    assert_eq!(restrictions.last(), Some(&Restriction::ForbiddenWindow));
    assert!(!restrictions.contains(&Restriction::VpaWave));
}
