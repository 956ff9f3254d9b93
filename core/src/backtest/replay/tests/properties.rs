//! What holds for every recording.

use proptest::prelude::*;

use super::cadence::random;
use crate::backtest::{
    account::{ContainerDay, WorkloadAccount},
    policy::{Policy, PolicyRule},
    recording::WorkloadRecording,
    replay::{ReplaySettings, replay},
    testing::{MINUTES_PER_DAY, evaluation},
};

fn all_but_the_oracle() -> Vec<Policy> {
    let rules = PolicyRule::NAMES.iter().map(|name| name.parse().expect("a rule"));
    rules.filter(|rule| *rule != PolicyRule::Oracle).map(Policy::new).collect()
}

fn run(recording: &WorkloadRecording, policies: &[Policy]) -> WorkloadAccount {
    replay(recording, &evaluation(1, 3), policies, &ReplaySettings::default())
}

fn sum(days: &[ContainerDay], field: fn(&ContainerDay) -> f64) -> f64 {
    days.iter().map(field).sum()
}

/// Multiplies all usage from a minute on.
pub(super) fn change_future(recording: &mut WorkloadRecording, minute: u32, factor: f32) {
    for usage in recording.pods.iter_mut().flat_map(|pod| &mut pod.containers) {
        for (offset, cores) in usage.cpu.iter_mut().enumerate() {
            if usage.first_minute + offset as u32 >= minute {
                *cores *= factor;
            }
        }
        for (offset, bytes) in usage.memory.iter_mut().enumerate() {
            if (usage.first_window + offset as u32) * 5 >= minute {
                *bytes *= factor;
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn the_future_changes_no_decision(seed in any::<u64>(), factor in 0.1..9.0_f32) {
        let policies = all_but_the_oracle();
        let recording = random(seed, 4, true);
        let mut other = recording.clone();
        change_future(&mut other, 3 * MINUTES_PER_DAY, factor);
        let [before, after] = [&recording, &other].map(|recording| run(recording, &policies));
        for (before, after) in before.policies.iter().zip(&after.policies) {
            let past = |days: &[ContainerDay]| {
                let end = crate::backtest::testing::days_later(3);
                days.iter().filter(|day| day.day < end).cloned().collect::<Vec<_>>()
            };
            prop_assert_eq!(past(&before.days), past(&after.days), "{}", before.policy);
        }
    }

    #[test]
    fn more_margin_is_never_less_slack_nor_more_short(seed in any::<u64>()) {
        // Without limits or evictions, so that what is seen is the same, and without the thresholds of an updater.
        let recording = random(seed, 4, false);
        let policies: Vec<Policy> = ["0", "0.1", "0.5"]
            .iter()
            .map(|margin| format!("m{margin}=margin={margin},apply=instant,in-place=true").parse().expect("parses"))
            .collect();
        let account = run(&recording, &policies);
        for pair in account.policies.windows(2) {
            let [less, more] = [&pair[0].days, &pair[1].days];
            prop_assert!(sum(less, |day| day.cpu_slack) <= sum(more, |day| day.cpu_slack) + 1e-9);
            prop_assert!(sum(less, |day| day.memory_slack) <= sum(more, |day| day.memory_slack) + 1e-9);
            prop_assert!(sum(less, |day| day.cpu_short_minutes as f64) >= sum(more, |day| day.cpu_short_minutes as f64));
            prop_assert!(sum(less, |day| day.memory_short_windows as f64) >= sum(more, |day| day.memory_short_windows as f64));
        }
    }

    #[test]
    fn the_same_input_gives_the_same_bytes(seed in any::<u64>()) {
        let policies = all_but_the_oracle();
        let recording = random(seed, 4, true);
        let bytes = || serde_json::to_vec(&run(&recording, &policies)).expect("serializes");
        prop_assert_eq!(bytes(), bytes());
    }

    #[test]
    fn two_halves_of_a_workload_have_its_totals(seed in any::<u64>()) {
        // Twice the same pod, so that each half recommends what both do.
        let mut both = random(seed, 4, false);
        both.pods.truncate(1);
        let mut twin = both.pods[0].clone();
        twin.name = "web-9".into();
        both.pods.push(twin);
        let mut half = both.clone();
        half.pods.truncate(1);
        let policies: Vec<Policy> = [PolicyRule::Current, PolicyRule::KrrSimple, PolicyRule::Kubecost, PolicyRule::Oracle]
            .map(Policy::new)
            .into();
        let [both, half] = [&both, &half].map(|recording| run(recording, &policies));
        for (both, half) in both.policies.iter().zip(&half.policies) {
            for field in [
                (|day| day.cpu_requested) as fn(&ContainerDay) -> f64,
                |day| day.cpu_used,
                |day| day.cpu_slack,
                |day| day.cpu_short,
                |day| day.memory_requested,
                |day| day.memory_slack,
                |day| day.cpu_short_minutes as f64,
                |day| f64::from(day.oom_kills),
                |day| f64::from(day.evicted),
            ] {
                let (whole, part) = (sum(&both.days, field), 2.0 * sum(&half.days, field));
                prop_assert!((whole - part).abs() <= 1e-9 * whole.abs().max(1.0), "{} {}", whole, part);
            }
        }
    }

    #[test]
    fn no_use_at_all_breaks_nothing(seed in any::<u64>()) {
        let mut recording = random(seed, 4, true);
        change_future(&mut recording, 0, 0.0);
        let mut policies = all_but_the_oracle();
        policies.push(Policy::new(PolicyRule::Oracle));
        let account = run(&recording, &policies);
        for policy in &account.policies {
            for day in &policy.days {
                prop_assert!(day.cpu_short_minutes == 0 && day.oom_kills == 0 && day.cpu_used == 0.0);
                prop_assert!(day.cpu_slack.is_finite() && (day.cpu_slack - day.cpu_requested).abs() < 1e-9);
            }
        }
    }
}
