//! Replays with modelled replicas: `--hpa=model`.

use proptest::prelude::*;

use super::cadence::random;
use crate::{
    backtest::{
        account::{ContainerDay, WorkloadAccount},
        policy::{Policy, PolicyRule},
        recording::WorkloadRecording,
        replay::{ReplaySettings, replay, replay_scaled},
        replica_model::{
            ReplicaRule, ReplicaSource, ScalingTarget, UtilizationScaling, WorkloadScaling,
        },
        testing::{
            MINUTES_PER_DAY, amounts, container, days_later, evaluation, pod, usage, workload,
        },
    },
    rightsizing::survey::Resource,
};

const DAYS: u32 = 3;

fn scaling(resource: Resource, percent: u32, (min, max): (u32, u32)) -> WorkloadScaling {
    let targets = vec![ScalingTarget { resource, container: None, percent }];
    WorkloadScaling::Utilization(UtilizationScaling { min, max, targets })
}

fn by_cpu(percent: u32, range: (u32, u32)) -> WorkloadScaling {
    scaling(Resource::Cpu, percent, range)
}

fn run(
    recording: &WorkloadRecording,
    scaling: &WorkloadScaling,
    rules: &[PolicyRule],
) -> WorkloadAccount {
    let policies: Vec<Policy> = rules.iter().copied().map(Policy::new).collect();
    let settings = ReplaySettings { replicas: ReplicaRule::Model, ..ReplaySettings::default() };
    replay_scaled(recording, scaling, &evaluation(1, DAYS - 1), &policies, &settings)
}

/// Pods that all use the same, all the time.
fn steady(pods: u32, milli: i64, request: i64) -> WorkloadRecording {
    let minutes = 0..DAYS * MINUTES_PER_DAY;
    let requests = amounts(Some(request), Some(128));
    let made = (0..pods).map(|index| {
        let usage = usage(minutes.clone(), |_| milli as f64 / 1_000.0, |_| 100.0);
        pod(&format!("web-{index}"), minutes.clone(), vec![usage])
    });
    workload("web", vec![container("app", requests, amounts(None, None))], made.collect())
}

fn is_near(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 1e-6 * expected.abs().max(1.0)
}

#[test]
fn half_the_request_is_twice_the_replicas() {
    // Two pods request a core and use half of one, which is the target. KRR requests 500m.
    let recording = steady(2, 500, 1_000);
    let account = run(&recording, &by_cpu(50, (1, 10)), &[PolicyRule::KrrSimple]);
    assert_eq!(account.replicas, ReplicaSource::Modelled);
    let [first, second] = &account.policies[0].days[..] else { panic!("two days") };
    // One minute passes until the autoscaler sees the new utilization of 100 %.
    assert_eq!(first.cpu_minutes, 2 + 4 * 1_439);
    assert_eq!((first.evicted, first.born_changed), (2, 0), "new pods begin as the evicted ones");
    assert!(is_near(first.cpu_requested, (2.0 + 4.0 * 1_439.0) * 0.5 / 60.0), "{first:?}");
    for day in [first, second] {
        // What all pods use together stays.
        assert!(is_near(day.cpu_used, 24.0), "{day:?}");
        assert_eq!(day.memory_windows, 4 * 288);
        // 250m of 500m are used.
        assert!(is_near(day.cpu_slack, day.cpu_requested / 2.0), "{day:?}");
    }
    assert_eq!(second.cpu_minutes, 4 * 1_440);
    assert!(is_near(second.cpu_requested, 48.0), "{second:?}");
}

#[test]
fn replicas_stay_as_recorded_by_default_and_under_what_was_requested() {
    let recording = steady(2, 500, 1_000);
    let scaling = by_cpu(50, (1, 10));
    let policies = [Policy::new(PolicyRule::KrrSimple)];
    let settings = ReplaySettings::default();
    let account =
        replay_scaled(&recording, &scaling, &evaluation(1, DAYS - 1), &policies, &settings);
    assert_eq!(account.replicas, ReplicaSource::RecordedWithAutoscaler);
    assert_eq!(account.policies[0].days[0].cpu_minutes, 2 * 1_440);
    let scaling = by_cpu(20, (1, 10));
    let account = run(&recording, &scaling, &[PolicyRule::Current, PolicyRule::Oracle]);
    for policy in &account.policies {
        assert_eq!(policy.days[0].cpu_minutes, 2 * 1_440, "{}", policy.policy);
    }
}

#[test]
fn minimum_and_maximum_hold() {
    let recording = steady(4, 500, 1_000);
    for (range, pods) in [((1, 5), 5), ((6, 9), 8), ((12, 20), 12)] {
        let account = run(&recording, &by_cpu(50, range), &[PolicyRule::KrrSimple]);
        assert_eq!(account.policies[0].days[1].cpu_minutes, pods * 1_440, "{range:?}");
    }
}

#[test]
fn memory_is_spread_if_it_is_a_target() {
    // KRR requests 115 MiB for 100: 86 % of a target of 43 % are twice the pods.
    let recording = steady(3, 100, 1_000);
    let account =
        run(&recording, &scaling(Resource::Memory, 43, (1, 20)), &[PolicyRule::KrrSimple]);
    let day = &account.policies[0].days[1];
    assert_eq!(day.memory_windows, 6 * 288);
    // 50 MiB of 115 are used.
    assert!(is_near(day.memory_slack, 65.0 / 115.0 * day.memory_requested), "{day:?}");
}

#[test]
fn pods_of_a_rollout_are_replaced_and_the_number_of_them_stays() {
    let minutes = DAYS * MINUTES_PER_DAY;
    let replaced = 2 * MINUTES_PER_DAY;
    let lives = [0..replaced, 0..replaced + 2, replaced - 1..minutes, replaced + 1..minutes];
    let made = lives.into_iter().enumerate().map(|(index, life)| {
        pod(&format!("web-{index}"), life.clone(), vec![usage(life, |_| 0.5, |_| 100.0)])
    });
    let mut pods: Vec<_> = made.collect();
    pods.sort_by_key(|pod| pod.born);
    let requests = amounts(Some(1_000), Some(128));
    let recording = workload("web", vec![container("app", requests, amounts(None, None))], pods);
    let account = run(&recording, &by_cpu(50, (1, 10)), &[PolicyRule::KrrSimple]);
    let day = &account.policies[0].days[1];
    let pods = day.cpu_minutes as f64 / 1_440.0;
    // While old and new pods exist together, they use half as much again.
    assert!((4.0..4.1).contains(&pods), "{pods}");
}

#[test]
fn a_workload_that_starts_again_uses_what_was_recorded() {
    // Two pods share the use of one, which ends; another one begins later.
    let (end, begin) = (MINUTES_PER_DAY + 600, MINUTES_PER_DAY + 700);
    let made =
        [0..end, begin..DAYS * MINUTES_PER_DAY].into_iter().enumerate().map(|(index, life)| {
            pod(&format!("web-{index}"), life.clone(), vec![usage(life, |_| 0.5, |_| 100.0)])
        });
    let requests = amounts(Some(1_000), Some(128));
    let containers = vec![container("app", requests, amounts(None, None))];
    let recording = workload("web", containers, made.collect());
    let account = run(&recording, &by_cpu(50, (2, 10)), &[PolicyRule::KrrSimple]);
    let used: f64 = days(&account).iter().map(|day| day.cpu_used).sum();
    let minutes = end - MINUTES_PER_DAY + DAYS * MINUTES_PER_DAY - begin;
    assert!(is_near(used, f64::from(minutes) * 0.5 / 60.0), "{used}");
}

fn days(account: &WorkloadAccount) -> Vec<&ContainerDay> {
    account.policies.iter().flat_map(|policy| &policy.days).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn recorded_requests_and_a_steady_demand_give_the_recorded_replicas(pods in 1..7_u32, milli in 10..3_000_i64) {
        // Each rule that requests what is used, with a target of all of it.
        let recording = steady(pods, milli, milli);
        let rules = [PolicyRule::KrrSimple, PolicyRule::KrrSimpleLimit];
        let modelled = run(&recording, &by_cpu(100, (1, 50)), &rules);
        let policies: Vec<Policy> = rules.into_iter().map(Policy::new).collect();
        let recorded = replay(&recording, &evaluation(1, DAYS - 1), &policies, &ReplaySettings::default());
        prop_assert_eq!(days(&modelled), days(&recorded));
    }

    #[test]
    fn what_all_pods_use_together_stays(seed in any::<u64>(), percent in 20..150_u32) {
        let recording = random(seed, DAYS, false);
        let rules = [PolicyRule::Plimsoll, PolicyRule::KrrSimple, PolicyRule::AutopilotServing];
        let modelled = run(&recording, &by_cpu(percent, (1, 12)), &rules);
        let current = run(&recording, &by_cpu(percent, (1, 12)), &[PolicyRule::Current]);
        let expected: f64 = days(&current).iter().map(|day| day.cpu_used).sum();
        for policy in &modelled.policies {
            let found: f64 = policy.days.iter().map(|day| day.cpu_used).sum();
            prop_assert!((found - expected).abs() <= 1e-6 * expected, "{}: {found}, {expected}", policy.policy);
        }
    }

    #[test]
    fn the_future_changes_no_modelled_replicas(seed in any::<u64>(), factor in 0.1..9.0_f32) {
        let rules = [PolicyRule::Plimsoll, PolicyRule::KrrSimple, PolicyRule::Vpa];
        let recording = random(seed, DAYS, true);
        let mut other = recording.clone();
        super::properties::change_future(&mut other, 2 * MINUTES_PER_DAY, factor);
        let [before, after] = [&recording, &other].map(|of| run(of, &by_cpu(60, (1, 12)), &rules));
        let past = |account: &WorkloadAccount| {
            let past = days(account).into_iter().filter(|day| day.day < days_later(2));
            past.cloned().collect::<Vec<_>>()
        };
        prop_assert_eq!(past(&before), past(&after));
    }
}
