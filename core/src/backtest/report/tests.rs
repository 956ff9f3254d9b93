//! Reports of made-up accounts.

use proptest::prelude::*;

use super::{BacktestReport, ReportInputs, build};
use crate::backtest::{
    account::{ContainerDay, PolicyAccount, WorkloadAccount},
    fail_on::Outcome,
    policy::{Policy, PolicyLabel},
    replay::{ReplaySettings, replay},
    replica_model::ReplicaSource,
    testing::{
        MINUTES_PER_DAY, amounts, container, days_later, evaluation, inputs, pod, usage, workload,
    },
};

fn labels(names: &[&str]) -> Vec<PolicyLabel> {
    names.iter().map(|name| name.parse::<Policy>().expect(name).label()).collect()
}

fn two_days(names: &[&str]) -> ReportInputs {
    inputs(labels(names), &evaluation(0, 2))
}

/// A day of one pod that requests cores and GiB, with so many short minutes and kills.
fn day(index: u32, cores: f64, gib: f64, short: u64, kills: u32) -> ContainerDay {
    ContainerDay {
        day: days_later(index),
        cpu_minutes: 1_440,
        memory_windows: 288,
        cpu_requested: cores * 24.0,
        cpu_used: 24.0,
        cpu_slack: cores * 6.0,
        cpu_short_minutes: short,
        cpu_short: short as f64 / 60.0,
        memory_requested: gib * 24.0,
        memory_slack: gib * 12.0,
        oom_kills: kills,
        evicted: 1,
        ..ContainerDay::default()
    }
}

fn account(name: &str, policies: Vec<(&str, Vec<ContainerDay>)>) -> WorkloadAccount {
    let policy = |(policy, days): (&str, Vec<ContainerDay>)| PolicyAccount {
        policy: policy.into(),
        days,
        first_recommendation_seconds: vec![Some(7_200)],
    };
    WorkloadAccount {
        cluster: None,
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: name.into(),
        containers: vec!["app".into()],
        elastic_containers: 0,
        unknown_requests: 0,
        missing_minutes: 0,
        sampled_minutes: 2_880,
        replicas: ReplicaSource::Recorded,
        policies: policies.into_iter().map(policy).collect(),
    }
}

fn example() -> (Vec<WorkloadAccount>, ReportInputs) {
    let days = |cores: f64, short: [u64; 2], kills: [u32; 2]| {
        (0..2).map(|at| day(at, cores, cores, short[at as usize], kills[at as usize])).collect()
    };
    let accounts = vec![
        account(
            "web",
            vec![
                ("current", days(4.0, [0, 0], [0, 0])),
                ("plimsoll", days(2.0, [72, 73], [0, 1])),
                ("oracle", days(1.0, [900, 900], [0, 0])),
            ],
        ),
        account(
            "db",
            vec![
                ("current", days(2.0, [0, 0], [0, 0])),
                ("plimsoll", days(1.0, [0, 0], [5, 0])),
                ("oracle", days(1.0, [0, 0], [0, 0])),
            ],
        ),
    ];
    (accounts, two_days(&["current", "plimsoll", "oracle"]))
}

#[test]
fn figures_are_ratios_of_sums() {
    let (accounts, inputs) = example();
    let report = build(&accounts, &inputs);
    assert_eq!((report.workloads, report.containers, report.container_days), (2, 2, 4));
    let [current, ours, oracle] = &report.policies[..] else { panic!("three policies") };
    // 4 + 2 cores and 2 + 1 cores.
    assert_eq!((current.cpu_requested, ours.cpu_requested), (6.0, 3.0));
    assert_eq!((ours.cpu_slack, ours.memory_slack), (Some(0.25), Some(0.5)));
    assert_eq!(ours.cpu_short_time, Some(145.0 / 5_760.0));
    assert_eq!(ours.bad_cpu_days, 1, "72 of 1440 minutes are 5 %, 73 are more");
    assert_eq!((ours.oom_kills, ours.oom_days, ours.serious_days), (6, 2, 1));
    assert_eq!((ours.evicted, ours.changes_per_day), (4, 1.0));
    assert_eq!(ours.first_recommendation_hours, Some(2.0));
    // 3 cores and 3 GiB for 730 h.
    let monthly = ours.monthly_cost.expect("a cost");
    assert!((monthly - 3.0 * 730.0 * 0.034).abs() < 1e-9, "{monthly}");
    assert_eq!((current.is_on_frontier, ours.is_on_frontier), (Some(true), Some(true)));
    assert_eq!(oracle.is_on_frontier, None, "a yardstick");
    let against = ours.against_current.as_ref().expect("differences");
    assert!(
        (against.cost.estimate + 0.5).abs() < 1e-12 && against.cost.lower <= against.cost.estimate
    );
    assert_eq!((against.oom_days.estimate, against.bad_cpu_days.estimate), (2.0, 1.0));
    assert_eq!(current.against_current, None);
    assert_eq!(ours.days.len(), 2);
    assert_eq!((ours.days[0].cpu_requested, ours.days[0].cpu_used), (3.0, 2.0));
    assert_eq!(ours.slack_histogram, [0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_frontier_names_the_price_of_a_bad_day_that_is_avoided() {
    let (accounts, inputs) = example();
    let report = build(&accounts, &inputs);
    let names: Vec<&str> = report.frontier.iter().map(|step| step.policy.as_str()).collect();
    assert_eq!(names, ["plimsoll", "current"], "from the cheapest to the safest");
    let step = &report.frontier[1];
    // 3 cores and 3 GiB more for 48 h; 2 OOM-days and one bad CPU day less.
    let extra = step.extra_cost.expect("a cost");
    assert!((extra - 3.0 * 48.0 * 0.034).abs() < 1e-9, "{extra}");
    assert_eq!(step.avoided_days, Some(3));
    assert_eq!(step.price_per_day, Some(extra / 3.0));
    assert_eq!(report.frontier[0].extra_cost, None);
}

#[test]
fn the_worst_containers_come_first_with_a_remark() {
    let (accounts, inputs) = example();
    let report = build(&accounts, &inputs);
    let worst: Vec<_> = report
        .worst
        .iter()
        .map(|worst| (worst.workload.as_str(), worst.policy.as_str(), worst.remark.as_str()))
        .collect();
    assert_eq!(
        worst,
        [
            ("shop/Deployment/web", "plimsoll", "1 of 2 days with an OOM kill, none under current"),
            ("shop/Deployment/db", "plimsoll", "1 of 2 days with an OOM kill, none under current"),
        ]
    );
}

#[test]
fn a_missing_price_makes_no_cost() {
    let (accounts, mut inputs) = example();
    inputs.memory_gib_hour = None;
    let report = build(&accounts, &inputs);
    assert_eq!(report.policies[0].monthly_cost, None);
    let condition = "plimsoll: cost > current".parse::<crate::backtest::FailOn>().expect("parses");
    assert!(matches!(condition.check(&report), Outcome::Unknown(_)));
    let condition =
        "plimsoll: oom-days > current".parse::<crate::backtest::FailOn>().expect("parses");
    let Outcome::Failed(text) = condition.check(&report) else { panic!("it holds") };
    assert_eq!(text, "oom-days of plimsoll is 2.0000 and > 0.0000 of current");
    let step = report.frontier.last().expect("a step");
    assert_eq!(step.extra_cost, Some(144.0), "core-hours");
}

#[test]
fn an_empty_backtest_is_a_report() {
    let report = build(&[], &two_days(&["current", "plimsoll"]));
    assert_eq!((report.workloads, report.container_days), (0, 0));
    assert_eq!(report.policies[1].cpu_slack, None);
    assert_eq!(report.policies[1].against_current, None);
}

/// A workload whose usage is high for a tenth of the time, recorded under a CPU limit.
fn limited(name: &str, limit: f64) -> crate::backtest::WorkloadRecording {
    let minutes = 0..4 * MINUTES_PER_DAY;
    let pods = (0..2).map(|index| {
        let demand =
            move |minute: u32| -> f64 { if minute.is_multiple_of(10) { 1.6 } else { 0.4 } };
        let used = usage(minutes.clone(), move |minute| demand(minute).min(limit), |_| 300.0);
        pod(&format!("{name}-{index}"), minutes.clone(), vec![used])
    });
    let limits = amounts(Some((limit * 1_000.0) as i64), None);
    workload(name, vec![container("app", amounts(Some(300), Some(400)), limits)], pods.collect())
}

#[test]
fn the_same_demand_under_three_limits_ranks_alike_or_is_unknown() {
    let names = ["current", "kubecost", "cost", "latency"];
    let policies: Vec<Policy> = names.iter().map(|name| name.parse().expect("a policy")).collect();
    let evaluation = evaluation(2, 2);
    let verdicts = [8.0, 1.0, 0.5].map(|limit| {
        let settings = ReplaySettings::default();
        let account = replay(&limited("web", limit), &evaluation, &policies, &settings);
        let report = build(&[account], &inputs(labels(&names), &evaluation));
        report.policies.iter().map(|policy| policy.is_on_frontier).collect::<Vec<_>>()
    });
    assert!(verdicts[0].iter().all(Option::is_some), "nothing was throttled: {verdicts:?}");
    for limited in &verdicts[1..] {
        for ((limited, free), name) in limited.iter().zip(&verdicts[0]).zip(names) {
            assert!(limited.is_none() || limited == free, "{name}: {verdicts:?}");
        }
        assert!(
            limited.iter().any(Option::is_none),
            "a tenth of the time is unknown: {verdicts:?}"
        );
    }
}

fn bytes(report: &BacktestReport) -> Vec<u8> {
    serde_json::to_vec(report).expect("serializes")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]
    #[test]
    fn merged_shards_are_the_report_of_one_process(
        shorts in prop::collection::vec((0..1_440_u64, 0..6_u32, 0.01..9.0_f64), 2..12),
        shards in 1..5_usize,
    ) {
        let accounts: Vec<WorkloadAccount> = shorts
            .iter()
            .enumerate()
            .map(|(index, (short, kills, cores))| {
                let own = |factor: f64| {
                    (0..2).map(|at| day(at, cores * factor, cores / 3.0, *short, *kills)).collect()
                };
                account(&format!("web-{index}"), vec![("current", own(1.0)), ("cost", own(0.7))])
            })
            .collect();
        let inputs = two_days(&["current", "cost"]);
        let whole = bytes(&build(&accounts, &inputs));
        // Each shard is written as JSON and read again; the last one comes first.
        let mut merged = Vec::new();
        for shard in (0..shards).rev() {
            let own: Vec<&WorkloadAccount> = accounts.iter().skip(shard).step_by(shards).collect();
            let text = serde_json::to_string(&own).expect("serializes");
            merged.extend(serde_json::from_str::<Vec<WorkloadAccount>>(&text).expect("parses"));
        }
        let text = serde_json::to_string(&inputs).expect("serializes");
        let inputs: ReportInputs = serde_json::from_str(&text).expect("parses");
        prop_assert_eq!(whole, bytes(&build(&merged, &inputs)));
    }
}
