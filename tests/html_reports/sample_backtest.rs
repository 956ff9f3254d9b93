//! A report of a backtest as an example, with a container whose name is markup.

use plimsoll_core::{
    backtest::report::{
        BacktestReport, DayReport, Differences, FrontierStep, Interval, PolicyReport,
        ReplicasReport, SCHEMA_VERSION, WorstContainer,
    },
    types::Time,
};

/// The beginning of the evaluation: 12 November 2026.
const FROM: i64 = 1_794_441_600;
const DAY: i64 = 86_400;
/// A name that is markup.
pub const HOSTILE: &str = "<script>alert(1)</script>";

/// The figures of a policy.
struct Figures {
    name: &'static str,
    apply: &'static str,
    cpu: [f64; 4],
    bad_cpu_days: u64,
    memory: [f64; 3],
    ooms: [u64; 3],
    changes: f64,
    cost: f64,
    is_on_frontier: Option<bool>,
}

impl Figures {
    fn report(&self, index: usize) -> PolicyReport {
        let [cpu_requested, cpu_slack, cpu_short_time, cpu_short_volume] = self.cpu;
        let [memory_requested, memory_slack, memory_over_request] = self.memory;
        let [oom_kills, oom_days, serious_days] = self.ooms;
        let is_compared = self.is_on_frontier.is_some() && self.name != "current";
        let days = (0..14).map(|day| {
            let wave = 1.0 + 0.1 * ((day % 7) as f64 - 3.0) / 3.0;
            DayReport {
                day: Time::from_secs(FROM + day * DAY),
                cpu_requested: cpu_requested * wave,
                cpu_used: 25.0 * wave,
                memory_requested: memory_requested * wave,
                oom_kills: u64::from(day < oom_kills as i64),
            }
        });
        let estimate = |estimate: f64, spread: f64| Interval {
            estimate,
            lower: estimate - spread,
            upper: estimate + spread,
        };
        PolicyReport {
            name: self.name.to_owned(),
            settings: if self.name == "cost" { "margin=0.05".to_owned() } else { String::new() },
            apply: self.apply.to_owned(),
            cpu_requested,
            cpu_slack: Some(cpu_slack),
            cpu_short_time: Some(cpu_short_time),
            cpu_short_volume: Some(cpu_short_volume),
            bad_cpu_days: self.bad_cpu_days,
            throttled: Some(0.001),
            memory_requested: Some(memory_requested),
            memory_slack: Some(memory_slack),
            memory_over_request: Some(memory_over_request),
            oom_kills,
            oom_days,
            serious_days,
            changes_per_day: self.changes,
            evicted: 40 * index as u64,
            resized: 10 * index as u64,
            first_recommendation_hours: (self.name != "current").then_some(1.5),
            monthly_cost: Some(self.cost),
            is_on_frontier: self.is_on_frontier,
            against_current: is_compared.then(|| Differences {
                cost: estimate((self.cost - 2_870.0) / 2_870.0, 0.055),
                oom_days: estimate(oom_days as f64 - 11.0, 5.5),
                bad_cpu_days: estimate(self.bad_cpu_days as f64 - 14.0, 9.0),
            }),
            days: days.collect(),
            slack_histogram: (0..10).map(|tenth| (tenth * 7 + index as u32 * 3) % 11).collect(),
        }
    }
}

/// An example.
#[expect(clippy::too_many_lines, reason = "data")]
pub fn sample() -> BacktestReport {
    let figures = |name, apply, cpu, bad_cpu_days, memory, ooms, changes, cost, is_on_frontier| {
        Figures { name, apply, cpu, bad_cpu_days, memory, ooms, changes, cost, is_on_frontier }
    };
    let policies = [
        figures(
            "current",
            "instant",
            [96.0, 0.71, 0.007, 0.011],
            14,
            [212.0, 0.58, 0.001],
            [19, 11, 1],
            0.1,
            2_870.0,
            Some(false),
        ),
        figures(
            "plimsoll",
            "updater",
            [41.3, 0.33, 0.021, 0.03],
            41,
            [141.6, 0.37, 0.004],
            [3, 3, 0],
            1.4,
            1_391.0,
            Some(true),
        ),
        figures(
            "latency",
            "updater",
            [62.7, 0.56, 0.006, 0.01],
            12,
            [158.9, 0.44, 0.002],
            [1, 1, 0],
            1.2,
            1_938.0,
            Some(true),
        ),
        figures(
            "cost",
            "updater",
            [33.8, 0.19, 0.063, 0.081],
            133,
            [133.0, 0.33, 0.006],
            [6, 6, 0],
            1.7,
            1_191.0,
            Some(true),
        ),
        figures(
            "vpa",
            "updater",
            [41.5, 0.33, 0.023, 0.031],
            44,
            [141.6, 0.37, 0.004],
            [9, 8, 0],
            3.9,
            1_395.0,
            Some(false),
        ),
        figures(
            "krr-simple",
            "weekly",
            [52.9, 0.49, 0.029, 0.04],
            63,
            [163.5, 0.45, 0.002],
            [4, 4, 0],
            0.4,
            1_726.0,
            Some(false),
        ),
        figures(
            "oracle",
            "instant",
            [27.6, 0.0, 0.069, 0.05],
            300,
            [89.4, 0.0, 0.0],
            [0, 0, 0],
            0.0,
            913.0,
            None,
        ),
    ];
    let policies = policies.iter().enumerate().map(|(index, of)| of.report(index)).collect();
    let step = |policy: &str, extra: Option<(f64, u64)>| FrontierStep {
        policy: policy.to_owned(),
        extra_cost: extra.map(|(cost, _)| cost),
        avoided_days: extra.map(|(_, days)| days),
        price_per_day: extra.map(|(cost, days)| cost / days as f64),
    };
    let worst =
        |workload: &str, policy: &str, oom_days, bad_cpu_days, remark: &str| WorstContainer {
            workload: workload.to_owned(),
            container: "main".to_owned(),
            policy: policy.to_owned(),
            oom_days,
            bad_cpu_days,
            remark: remark.to_owned(),
        };
    BacktestReport {
        schema_version: SCHEMA_VERSION,
        kind: "backtest".to_owned(),
        version: "0.1.0".to_owned(),
        scope: "shop".to_owned(),
        warm_up_from: Time::from_secs(FROM - 8 * DAY),
        from: Time::from_secs(FROM),
        until: Time::from_secs(FROM + 14 * DAY),
        workloads: 31,
        containers: 44,
        container_days: 616,
        unknown_share: 0.031,
        missing_share: 0.0,
        elastic_containers: 2,
        replicas: ReplicasReport { recorded_with_autoscaler: 3, ..ReplicasReport::default() },
        currency: Some("USD".to_owned()),
        policies,
        frontier: vec![
            step("cost", None),
            step("plimsoll", Some((92.0, 95))),
            step("latency", Some((252.0, 31))),
        ],
        worst: vec![
            worst(
                "shop/Deployment/checkout",
                "plimsoll",
                3,
                0,
                "3 OOM-days under every policy but current: its peak doubles on Mondays",
            ),
            worst(
                "shop/Deployment/search",
                "cost",
                0,
                58,
                "58 of its 133 bad days; give it profile latency",
            ),
            worst(&format!("shop/Deployment/{HOSTILE}"), "cost", 0, 2, "2 bad days"),
        ],
        remarks: Vec::new(),
    }
}
