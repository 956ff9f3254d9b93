//! Tests of the disruption budget: limits, size of the annotation, and trials.

use proptest::prelude::*;

use super::*;

const NOW: Time = Time::from_secs(1_800_000_000);
const SIZES: PodCounts = PodCounts { cluster: 50, namespace: 10 };

fn vpa(text: &str) -> ObjectKey {
    let (namespace, name) = text.split_once('/').expect("a key");
    ObjectKey { namespace: namespace.into(), name: name.into() }
}

fn settings(cluster: u32, namespace: u32) -> GuardSettings {
    let allowance = |at_least| Some(Allowance { at_least, share: 0.0 });
    GuardSettings {
        cluster_disruptions: allowance(cluster),
        namespace_disruptions: allowance(namespace),
        ..GuardSettings::default()
    }
}

#[test]
fn budgets_of_namespaces_and_cluster_are_separate_and_resizes_count_separately() {
    let settings = settings(3, 2);
    let mut budget = DisruptionBudget::default();
    let allows = |budget: &DisruptionBudget, name| {
        budget.allows(name, BudgetKind::Disruption, SIZES, &settings, NOW)
    };
    for name in ["a", "a"] {
        assert_eq!(allows(&budget, name), Ok(()));
        budget.record(name, BudgetKind::Disruption, true, NOW);
    }
    assert_eq!(allows(&budget, "a"), Err(SkipReason::NamespaceBudget));
    assert_eq!(allows(&budget, "b"), Ok(()));
    budget.record("b", BudgetKind::Disruption, true, NOW);
    assert_eq!(allows(&budget, "c"), Err(SkipReason::ClusterBudget));
    assert_eq!(budget.allows("a", BudgetKind::Resize, SIZES, &settings, NOW), Ok(()));
    let later = NOW.later(Duration::from_mins(66));
    assert_eq!(budget.allows("a", BudgetKind::Disruption, SIZES, &settings, later), Ok(()));
}

#[test]
fn the_first_eviction_must_have_an_effect_before_the_next() {
    let settings = GuardSettings { max_unproven_evictions: Some(10), ..GuardSettings::default() };
    let mut budget = DisruptionBudget::default();
    assert_eq!(budget.ensure_effective(&settings, NOW), Ok(()));
    budget.record("a", BudgetKind::Disruption, true, NOW);
    assert_eq!(budget.ensure_effective(&settings, NOW), Err(SkipReason::EffectUnproven));
    assert_eq!(budget.max_unproven(&settings, NOW), Some(1));
    let mut proven = budget.clone();
    proven.record_effect(NOW);
    assert_eq!(proven.max_unproven(&settings, NOW), Some(10));
    assert_eq!(proven.max_unproven(&settings, NOW.later(EFFECT_VALID_FOR)), Some(1), "long ago");
    let mut tried = Vec::new();
    for minute in 0..24 * 60 {
        let now = NOW.later(Duration::from_mins(minute));
        if budget.ensure_effective(&settings, now).is_ok() {
            budget.record("a", BudgetKind::Disruption, true, now);
            tried.push(minute);
        }
    }
    assert_eq!(tried, [15, 45, 105, 225, 465, 705, 945, 1185, 1425]);
}

#[test]
fn evictions_without_effect_stop_until_one_has_an_effect() {
    let settings = GuardSettings { max_unproven_evictions: Some(2), ..GuardSettings::default() };
    let mut budget = DisruptionBudget { proven: Some(NOW), ..DisruptionBudget::default() };
    for _ in 0..2 {
        assert_eq!(budget.ensure_effective(&settings, NOW), Ok(()));
        budget.record("a", BudgetKind::Disruption, true, NOW);
    }
    assert_eq!(budget.ensure_effective(&settings, NOW), Err(SkipReason::EffectUnproven));
    let later = NOW.later(EFFECT_TIMEOUT);
    assert_eq!(budget.ensure_effective(&settings, later), Ok(()), "one is tried");
    budget.record("a", BudgetKind::Disruption, true, later);
    assert_eq!(budget.ensure_effective(&settings, later), Err(SkipReason::EffectUnproven));
    budget.record_effect(later);
    assert_eq!(budget.ensure_effective(&settings, later), Ok(()));
    assert_eq!(budget.unproven(), 0);
}

#[test]
fn regressions_of_several_workloads_stop_the_cluster_for_a_while() {
    let settings = GuardSettings::default();
    let breaker = settings.breaker.expect("is on");
    let mut budget = DisruptionBudget::default();
    for name in ["a/1", "a/1", "b/1", "b/2", "a/2"] {
        assert!(!budget.trip(&vpa(name), &breaker, NOW), "{name}");
    }
    assert!(budget.trip(&vpa("c/1"), &breaker, NOW));
    let until = NOW.later(breaker.open_for);
    let allows = |at| budget.allows("z", BudgetKind::Resize, SIZES, &settings, at);
    assert_eq!(allows(NOW), Err(SkipReason::ClusterBreakerOpen { until }));
    assert_eq!(allows(until), Ok(()));
}

#[test]
fn regressions_in_one_or_two_namespaces_do_not_stop_the_cluster() {
    let breaker = GuardSettings::default().breaker.expect("is on");
    let mut budget = DisruptionBudget::default();
    for number in 0..1_000 {
        let name = format!("{}/{number}", if number % 2 == 0 { "a" } else { "b" });
        assert!(!budget.trip(&vpa(&name), &breaker, NOW), "{name}");
    }
    assert_eq!(budget.open_until(NOW), None);
    assert!(budget.write().expect("fits").len() < 200, "they use no space of other entries");
    assert!(budget.trip(&vpa("c/0"), &breaker, NOW));
}

#[test]
fn a_ledger_with_too_many_namespaces_is_still_written_and_never_undercounts() {
    let (mut budget, mut exact) = (DisruptionBudget::default(), BTreeMap::<String, u32>::new());
    for number in 0..4_000_u64 {
        let name = format!("a-namespace-with-a-rather-long-name-{}", number % 3_000);
        let at = NOW.later(Duration::from_secs(number / 4));
        budget.record(&name, BudgetKind::Disruption, true, at);
        *exact.entry(name).or_default() += 1;
    }
    let now = NOW.later(Duration::from_mins(17));
    let text = budget.write().expect("it fits");
    assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
    let mut read = DisruptionBudget::read(&text).expect("is read");
    assert_eq!(read.changes(BudgetKind::Disruption).in_cluster(now), 4_000);
    for (name, changes) in &exact {
        assert!(read.changes(BudgetKind::Disruption).in_namespace(name, now) >= *changes, "{name}");
    }
    assert!(read.changes(BudgetKind::Disruption).in_namespace("another", now) <= 2);
    // More changes can be recorded after a read, and all of them expire after an hour.
    for number in 0..3_000 {
        read.record(&format!("the-next-{number}"), BudgetKind::Disruption, true, now);
        if number % 500 == 0 {
            read = DisruptionBudget::read(&read.write().expect("it fits")).expect("is read");
        }
    }
    assert_eq!(read.changes(BudgetKind::Disruption).in_cluster(now), 7_000);
    let later = now.later(Duration::from_mins(66));
    read.record("a", BudgetKind::Disruption, true, later);
    assert_eq!(read.changes(BudgetKind::Disruption).in_cluster(later), 1);
    assert!(read.write().expect("it fits").len() < 300);
}

#[test]
fn a_ledger_reads_back_and_a_compacted_one_counts_longer() {
    let mut budget = DisruptionBudget::default();
    for minute in 0..60 {
        for name in 0..300 {
            let at = NOW.later(Duration::from_mins(minute));
            budget.record(&format!("namespace-{name}"), BudgetKind::Disruption, true, at);
        }
    }
    let now = NOW.later(Duration::from_mins(59));
    let text = budget.write().expect("it fits");
    assert!(text.len() <= MAX_BYTES, "{} bytes", text.len());
    let read = DisruptionBudget::read(&text).expect("is read");
    let counted =
        |budget: &DisruptionBudget, at| budget.changes(BudgetKind::Disruption).in_cluster(at);
    assert_eq!(counted(&read, now), counted(&budget, now));
    let later = now.later(Duration::from_mins(30));
    assert!(counted(&read, later) > counted(&budget, later));
    let small = DisruptionBudget::default();
    assert_eq!(DisruptionBudget::read(&small.write().expect("fits")), Ok(small));
    let newer = StateError::Version { found: 2, expected: 1 };
    assert_eq!(DisruptionBudget::read("{\"v\":2}"), Err(newer));
    assert!(matches!(DisruptionBudget::read("{}"), Err(StateError::Malformed(_))));
}

proptest! {
    #[test]
    fn no_hour_has_more_changes_than_allowed(steps in prop::collection::vec(0_u64..900, 1..200)) {
        let settings = settings(7, 7);
        let (mut budget, mut now, mut made) = (DisruptionBudget::default(), NOW, Vec::new());
        for step in steps {
            now = now.later(Duration::from_secs(step));
            if budget.allows("a", BudgetKind::Disruption, SIZES, &settings, now).is_ok() {
                budget.record("a", BudgetKind::Disruption, true, now);
                made.push(now);
                // A new leader reads what was persisted.
                budget = DisruptionBudget::read(&budget.write().expect("fits")).expect("is read");
            }
            let hour = now.earlier(Duration::from_hours(1));
            let recent = made.iter().filter(|at| **at > hour).count();
            prop_assert!(recent <= 7, "{recent} within an hour");
        }
    }
}
