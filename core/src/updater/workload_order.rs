//! In which order the workloads of a pass have their turn. What there is too little of, time, budget or trials of the
//! webhook, goes to whoever comes first, so nobody comes first each time.

use crate::types::ObjectKey;

use super::guard::Trials;

/// Who comes first in the next pass.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextPassOrder {
    /// The first workload for which there was no time left.
    pub first_without_time: Option<ObjectKey>,
    /// The first one for which the cluster's budget was spent.
    pub first_without_budget: Option<ObjectKey>,
}

/// Puts workloads into their order. `trials` are those of a webhook that is not known to size pods, if it is so.
pub fn order_workloads<T>(
    workloads: &mut [T],
    key: impl Fn(&T) -> &ObjectKey,
    waiting: &NextPassOrder,
    trials: Option<&Trials>,
) {
    workloads.sort_by(|one, other| key(one).cmp(key(other)));
    let mut begin_with = |first: &ObjectKey| {
        // It may be gone meanwhile; then the one after it is the first.
        let at = workloads.partition_point(|one| key(one) < first);
        workloads.rotate_left(at);
    };
    if let Some(first) = &waiting.first_without_time {
        begin_with(first);
    } else if let Some(trials) = trials {
        let turns = trials.order();
        workloads.sort_by_cached_key(|one| turns.priority_of(key(one)));
    } else if let Some(first) = &waiting.first_without_budget {
        begin_with(first);
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

    /// Whose pods are evicted within so many hours, one after another, where no new pod is ever sized.
    fn tried(workloads: &[&str], hours: u64) -> Vec<ObjectKey> {
        let settings = GuardSettings::default();
        let (mut ledger, mut tried) = (DisruptionBudget::default(), Vec::new());
        let mut workloads: Vec<ObjectKey> = workloads.iter().map(|text| vpa(text)).collect();
        for minute in 0..hours * 60 {
            let now = NOW.later(Duration::from_mins(minute));
            // It is read by another process each time.
            ledger = DisruptionBudget::read(&ledger.write().expect("fits")).expect("is read");
            order_workloads(
                &mut workloads,
                |key| key,
                &NextPassOrder::default(),
                ledger.trials(&settings, now),
            );
            for workload in &workloads {
                if ledger.ensure_effective(&settings, now).is_ok() {
                    ledger.record_trial(workload, &settings, now);
                    ledger.record(&workload.namespace, BudgetKind::Disruption, true, now);
                    tried.push(workload.clone());
                }
            }
        }
        tried
    }

    #[test]
    fn trials_of_a_webhook_take_turns_over_namespaces_and_then_over_workloads() {
        let all = ["a/1", "a/2", "a/3", "b/1", "b/2", "c/1"];
        let tried = tried(&all, 24);
        assert_eq!(tried[..3], [vpa("a/1"), vpa("b/1"), vpa("c/1")], "each namespace");
        assert_eq!(tried[3..5], [vpa("a/2"), vpa("b/2")], "who was tried waits for the others");
    }

    #[test]
    fn a_namespace_with_many_workloads_does_not_take_all_trials() {
        let many: Vec<String> = (0..500).map(|number| format!("a/{number:03}")).collect();
        let all: Vec<&str> = many.iter().map(String::as_str).chain(["b/1"]).collect();
        let tried = tried(&all, 4 * 24);
        let of_b = tried.iter().filter(|key| *key.namespace == *"b").count();
        assert!(of_b * 4 >= tried.len(), "{of_b} of {}", tried.len());
        assert_eq!(tried[1], vpa("b/1"), "the second one already");
    }

    #[test]
    fn who_waits_for_the_cluster_budget_begins_the_next_pass() {
        let mut workloads: Vec<ObjectKey> =
            (0..26_u8).map(|letter| vpa(&format!("{}/web", char::from(b'a' + letter)))).collect();
        let (mut waiting, mut got) = (NextPassOrder::default(), BTreeMap::<ObjectKey, u32>::new());
        // Each wants two changes in each pass, and three are left for all.
        for _ in 0..26 {
            order_workloads(&mut workloads, |key| key, &waiting, None);
            let mut left = 3;
            waiting = NextPassOrder::default();
            for workload in &workloads {
                let changes = left.min(2);
                left -= changes;
                *got.entry(workload.clone()).or_default() += changes;
                if changes < 2 {
                    waiting.first_without_budget.get_or_insert_with(|| workload.clone());
                }
            }
        }
        assert!(got.values().all(|changes| (2..=5).contains(changes)), "{got:?}");
        let late = NextPassOrder { first_without_time: Some(vpa("k/web")), ..waiting };
        order_workloads(&mut workloads, |key| key, &late, Some(&Trials::default()));
        assert_eq!(workloads[0], vpa("k/web"));
    }
}
