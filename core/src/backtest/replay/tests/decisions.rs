//! What policies request, and how it reaches pods.

use crate::backtest::{
    account::{ContainerDay, WorkloadAccount},
    policy::Policy,
    recording::WorkloadRecording,
    replay::{ReplaySettings, replay},
    testing::{MINUTES_PER_DAY, amounts, container, evaluation, pod, usage, workload},
};

fn policies(texts: &[&str]) -> Vec<Policy> {
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

fn run(recording: &WorkloadRecording, days: (u32, u32), texts: &[&str]) -> WorkloadAccount {
    let evaluation = evaluation(days.0, days.1);
    replay(recording, &evaluation, &policies(texts), &ReplaySettings::default())
}

fn total(account: &WorkloadAccount, policy: usize, field: fn(&ContainerDay) -> f64) -> f64 {
    account.policies[policy].days.iter().map(field).sum()
}

/// Pods that use one core and 400 MiB, requested and limited as given.
fn steady(pods: u32, days: u32, milli: i64, mebibytes: i64) -> WorkloadRecording {
    let minutes = 0..days * MINUTES_PER_DAY;
    let pods = (0..pods).map(|index| {
        let used = usage(minutes.clone(), |_| 1.0, |_| 400.0);
        pod(&format!("web-{index}"), minutes.clone(), vec![used])
    });
    let requests = amounts(Some(milli), Some(mebibytes));
    workload("web", vec![container("app", requests, amounts(None, None))], pods.collect())
}

#[test]
fn foreign_rules_request_what_their_formulas_say() {
    // One core and 400 MiB all the time, applied at the beginning of the evaluation of one day.
    let recording = steady(1, 9, 100, 100);
    let names = [
        "krr-simple",
        "krr-simple-limit",
        "kubecost",
        "kruize-cost",
        "kruize-performance",
        "oracle",
    ];
    let account = run(&recording, (8, 1), &names);
    let cores = |policy| total(&account, policy, |day| day.cpu_requested) / 24.0;
    let mebibytes = |policy| total(&account, policy, |day| day.memory_requested) * 1_024.0 / 24.0;
    for (policy, (milli, memory)) in [
        (1_000, 460.0),
        (1_000, 460.0),
        (1_539, 400.0 / 0.65), // 1 / 0.65, rounded up
        (1_000, 400.0),
        (1_000, 400.0),
        (1_000, 400.0),
    ]
    .into_iter()
    .enumerate()
    {
        assert!(
            (cores(policy) - f64::from(milli) / 1_000.0).abs() < 1e-9,
            "{} {}",
            names[policy],
            cores(policy)
        );
        assert!(
            (mebibytes(policy) - memory).abs() < 1e-3,
            "{} {}",
            names[policy],
            mebibytes(policy)
        );
    }
}

#[test]
fn krr_takes_the_pod_that_needs_most_and_its_limit_is_of_all_pods() {
    let minutes = 0..3 * MINUTES_PER_DAY;
    let pods = [0.2, 0.8].map(|cores| {
        let used = usage(minutes.clone(), move |_| cores, |_| 200.0);
        pod(&format!("web-{cores}"), minutes.clone(), vec![used])
    });
    let requests = amounts(Some(100), Some(100));
    let recording =
        workload("web", vec![container("app", requests, amounts(None, None))], pods.into());
    let account = run(&recording, (2, 1), &["krr-simple", "kubecost"]);
    let cores = |policy| total(&account, policy, |day| day.cpu_requested) / 48.0;
    assert!((cores(0) - 0.8).abs() < 1e-9, "{}", cores(0));
    assert!((cores(1) - 1.231).abs() < 1e-9, "0.8 / 0.65, rounded up: {}", cores(1));
}

#[test]
fn the_updater_changes_replicas_one_after_the_other_and_a_single_pod_never() {
    for (pods, evicted) in [(1, 0), (2, 2), (3, 3)] {
        let account = run(&steady(pods, 4, 100, 2_000), (2, 2), &["plimsoll", "vpa"]);
        for policy in &account.policies {
            let found: u32 = policy.days.iter().map(|day| day.evicted).sum();
            assert_eq!(found, evicted, "{pods} pods under {}", policy.policy);
        }
    }
    let in_place = run(&steady(3, 4, 100, 2_000), (2, 2), &["x=in-place=true"]);
    let days = &in_place.policies[0].days;
    assert_eq!(days.iter().map(|day| (day.evicted, day.resized)).max(), Some((0, 3)));
}

#[test]
fn a_calendar_changes_all_pods_at_once_and_only_if_something_differs() {
    let account =
        run(&steady(3, 9, 100, 100), (1, 8), &["krr-simple", "x=profile=krr-simple,apply=daily"]);
    for policy in &account.policies {
        let found: Vec<u32> = policy.days.iter().map(|day| day.evicted).collect();
        assert_eq!(found, [3, 0, 0, 0, 0, 0, 0, 0], "{}", policy.policy);
    }
}

#[test]
fn a_pod_that_is_born_takes_the_recommendation_of_that_time() {
    let mut recording = steady(1, 4, 100, 2_000);
    let minutes = 3 * MINUTES_PER_DAY..4 * MINUTES_PER_DAY;
    let used = usage(minutes.clone(), |_| 1.0, |_| 400.0);
    recording.pods[0] = pod(
        "web-0",
        0..3 * MINUTES_PER_DAY,
        vec![usage(0..3 * MINUTES_PER_DAY, |_| 1.0, |_| 400.0)],
    );
    recording.pods.push(pod("web-1", minutes, vec![used]));
    let account = run(&recording, (2, 2), &["current", "plimsoll"]);
    let milli = |policy: usize, day: usize| {
        let day = &account.policies[policy].days[day];
        (day.cpu_requested / (day.cpu_minutes as f64 / 60.0) * 1_000.0).round()
    };
    assert_eq!((milli(0, 0), milli(0, 1)), (100.0, 100.0));
    assert_eq!(milli(1, 0), 100.0, "a single pod is not evicted");
    assert!((1_150.0..1_250.0).contains(&milli(1, 1)), "p90 + 15 %: {}", milli(1, 1));
    let born: Vec<u32> = account.policies[1].days.iter().map(|day| day.born_changed).collect();
    assert_eq!(born, [0, 1]);
}

#[test]
fn a_killed_container_gets_more_memory() {
    // 100 MiB until the evaluation, then 700 MiB: above the limit of 400 MiB.
    let minutes = 0..6 * MINUTES_PER_DAY;
    let pods = (0..2).map(|index| {
        let grows = |window: u32| if window < 2 * 288 + 12 { 100.0 } else { 700.0 };
        let used = usage(minutes.clone(), |_| 0.2, grows);
        pod(&format!("web-{index}"), minutes.clone(), vec![used])
    });
    let (requests, limits) = (amounts(Some(200), Some(400)), amounts(None, Some(400)));
    let recording = workload("web", vec![container("app", requests, limits)], pods.collect());
    let account = run(&recording, (2, 4), &["current", "plimsoll", "vpa", "oracle", "steady"]);
    let kills = |policy: usize| {
        account.policies[policy].days.iter().map(|day| day.oom_kills).collect::<Vec<_>>()
    };
    // Two pods, every second window of 276 and of 288.
    assert_eq!(kills(0), [2 * 138, 2 * 144, 2 * 144, 2 * 144]);
    for policy in [1, 2] {
        let kills = kills(policy);
        assert!(kills[0] < 2 * 138 && kills[3] == 0, "{policy}: {kills:?}");
    }
    // The peak window adds a fifth for each kill, so it takes longer.
    assert_eq!(kills(4)[2..], [0, 0]);
    assert_eq!(kills(3), [0, 0, 0, 0], "the oracle knew");
    assert_eq!(account.policies[0].first_recommendation_seconds, [None]);
    assert_eq!(account.policies[1].first_recommendation_seconds, [Some(60)]);
}
