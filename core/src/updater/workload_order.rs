//! The order in which a pass processes workloads. Scarce resources, such as time, budget or trial evictions, go to the
//! first workloads, so the order rotates for fairness.

use crate::types::ObjectKey;

use super::guard::Trials;

/// The workloads with which the next pass starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextPassOrder {
    /// The first workload that was skipped because the pass ran out of time.
    pub first_without_time: Option<ObjectKey>,
    /// The first workload that was skipped because the cluster's budget was exhausted.
    pub first_without_budget: Option<ObjectKey>,
}

/// Sorts workloads. `trials` is set while it is not proven that the webhook sizes new pods.
pub fn order_workloads<T>(
    workloads: &mut [T],
    key: impl Fn(&T) -> &ObjectKey,
    next_order: &NextPassOrder,
    trials: Option<&Trials>,
) {
    workloads.sort_by(|left, right| key(left).cmp(key(right)));
    let mut start_with = |first: &ObjectKey| {
        // If the workload was deleted meanwhile, start with the one after it.
        let at = workloads.partition_point(|workload| key(workload) < first);
        workloads.rotate_left(at);
    };
    if let Some(first) = &next_order.first_without_time {
        start_with(first);
    } else if let Some(trials) = trials {
        let trial_order = trials.order();
        workloads.sort_by_cached_key(|workload| trial_order.priority_of(key(workload)));
    } else if let Some(first) = &next_order.first_without_budget {
        start_with(first);
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Duration};

    use crate::types::Time;

    use super::*;
    use crate::updater::guard::{BudgetKind, DisruptionBudget, GuardSettings};

    const NOW: Time = Time::from_secs(1_800_000_000);

    fn vpa(text: &str) -> ObjectKey {
        let (namespace, name) = text.split_once('/').expect("a key");
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }

    /// Returns the workloads whose pods are evicted within some hours, in order, if new pods are never sized.
    fn tried(workloads: &[&str], hours: u64) -> Vec<ObjectKey> {
        let settings = GuardSettings::default();
        let (mut budget, mut tried) = (DisruptionBudget::default(), Vec::new());
        let mut workloads: Vec<ObjectKey> = workloads.iter().map(|text| vpa(text)).collect();
        for minute in 0..hours * 60 {
            let now = NOW.later(Duration::from_mins(minute));
            // Each pass reads the state that the last one wrote.
            budget = DisruptionBudget::read(&budget.write().expect("fits")).expect("is read");
            let (order, trials) = (NextPassOrder::default(), budget.trials(&settings, now));
            order_workloads(&mut workloads, |key| key, &order, trials);
            for workload in &workloads {
                if budget.ensure_effective(&settings, now).is_ok() {
                    budget.record_trial(workload, &settings, now);
                    budget.record(&workload.namespace, BudgetKind::Disruption, true, now);
                    tried.push(workload.clone());
                }
            }
        }
        tried
    }

    #[test]
    fn webhook_trials_rotate_over_namespaces_and_then_over_workloads() {
        let workloads = ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1"];
        let tried = tried(&workloads, 24);
        assert_eq!(tried[..3], [vpa("a/1"), vpa("b/1"), vpa("c/1")], "each namespace");
        assert_eq!(tried[3..5], [vpa("a/2"), vpa("b/2")], "a tried workload waits for the others");
    }

    #[test]
    fn a_namespace_with_many_workloads_does_not_take_all_trials() {
        let many: Vec<String> = (0..500).map(|number| format!("a/{number:03}")).collect();
        let workloads: Vec<&str> = many.iter().map(String::as_str).chain(["b/1"]).collect();
        let tried = tried(&workloads, 4 * 24);
        let of_b = tried.iter().filter(|key| *key.namespace == *"b").count();
        assert!(of_b * 4 >= tried.len(), "{of_b} of {}", tried.len());
        assert_eq!(tried[1], vpa("b/1"), "the second one already");
    }

    #[test]
    fn workloads_that_wait_for_the_cluster_budget_are_first_in_the_next_pass() {
        let mut workloads: Vec<ObjectKey> =
            (0..26_u8).map(|letter| vpa(&format!("{}/web", char::from(b'a' + letter)))).collect();
        let mut next_order = NextPassOrder::default();
        let mut granted = BTreeMap::<ObjectKey, u32>::new();
        // Each workload needs two changes per pass, and the budget allows three in total.
        for _ in 0..26 {
            order_workloads(&mut workloads, |key| key, &next_order, None);
            let mut left = 3;
            next_order = NextPassOrder::default();
            for workload in &workloads {
                let changes = left.min(2);
                left -= changes;
                *granted.entry(workload.clone()).or_default() += changes;
                if changes < 2 {
                    next_order.first_without_budget.get_or_insert_with(|| workload.clone());
                }
            }
        }
        assert!(granted.values().all(|changes| (2..=5).contains(changes)), "{granted:?}");
        let late = NextPassOrder { first_without_time: Some(vpa("k/web")), ..next_order };
        order_workloads(&mut workloads, |key| key, &late, Some(&Trials::default()));
        assert_eq!(workloads[0], vpa("k/web"));
    }
}
