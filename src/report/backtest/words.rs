//! Sentences and numbers that several forms have in common.

use std::time::Duration;

use plimsoll_core::{
    backtest::{
        ReplicaRule,
        report::{
            BacktestReport, Differences, FrontierStep, Interval, PolicyReport, ReplicasReport,
        },
    },
    types::Time,
};

use crate::report::{
    recommend::amounts::{counted, day, grouped, share},
    style::format_span,
};

/// The apply modes that names do not mention.
const USUAL_APPLY: [&str; 2] = ["updater", "recorded"];
/// Profiles of the model, which follow `plimsoll`.
const PROFILES: [&str; 3] = ["latency", "batch", "cost"];

/// A duration between two times.
fn span(from: Time, until: Time) -> String {
    format_span(Duration::from_nanos(until.nanos_since(from).max(0).unsigned_abs()))
}

/// What was replayed: `14 d to 26 Nov 2026, after 8 d of warm-up`.
pub(super) fn time(report: &BacktestReport) -> String {
    format!(
        "{} to {}, after {} of warm-up",
        span(report.from, report.until),
        day(report.until),
        span(report.warm_up_from, report.from)
    )
}

/// How much: `31 workloads, 44 containers, 616 container-days`.
pub(super) fn extent(report: &BacktestReport) -> String {
    [
        counted(report.workloads as usize, "workload"),
        counted(report.containers as usize, "container"),
        counted(report.container_days as usize, "container-day"),
    ]
    .join(", ")
}

/// What is unknown; `None` if nothing is.
pub(super) fn unknown(report: &BacktestReport) -> Option<String> {
    let mut parts = Vec::new();
    if report.unknown_share > 0.0 {
        parts.push(format!(
            "{} of container-minutes, where containers were throttled or killed in fact",
            small_share(report.unknown_share)
        ));
    }
    if report.elastic_containers > 0 {
        parts.push(format!(
            "memory of {}, as it follows the limit",
            counted(report.elastic_containers as usize, "container")
        ));
    }
    if report.missing_share > 0.0005 {
        parts.push(format!("{} of minutes without samples", small_share(report.missing_share)));
    }
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Where the numbers of replicas come from.
pub(super) fn replicas(report: &BacktestReport) -> String {
    let ReplicasReport {
        rule,
        modelled,
        recorded_with_autoscaler: recorded,
        recorded_unknown_autoscaler: unknown,
    } = report.replicas;
    let answers = |verb: [&str; 2], count: u32| {
        let verb = verb[usize::from(count != 1)];
        format!("{} {verb}", counted(count as usize, "workload"))
    };
    let mut text = if modelled > 0 {
        let has = answers(["has those that its HPA", "have those that their HPA"], modelled);
        format!("replicas modelled (experimental): {has} would have set")
    } else {
        "replicas as recorded".to_owned()
    };
    let mut parts = Vec::new();
    if recorded > 0 && rule == ReplicaRule::Recorded {
        let has = answers(["has an HPA and does", "have an HPA and do"], recorded);
        parts.push(format!("{has} not answer to new requests"));
    } else if recorded > 0 {
        let has = answers(["has", "have"], recorded);
        parts.push(format!("{has} them as recorded, since other metrics or autoscalers count too"));
    } else if rule == ReplicaRule::Model && modelled == 0 {
        parts.push("no workload has an HPA whose targets are relative to requests".to_owned());
    }
    if unknown > 0 {
        let workloads = counted(unknown as usize, "workload");
        parts.push(format!("the autoscalers of {workloads} could not be read"));
    }
    if !parts.is_empty() {
        text += if modelled > 0 { "; " } else { ": " };
        text += &parts.join("; ");
    }
    text
}

/// Whether a policy is only a yardstick, so that it is not judged. Without a verdict, others are unknown.
pub(super) fn is_yardstick(policy: &PolicyReport) -> bool {
    policy.name == "oracle" && policy.is_on_frontier.is_none()
}

/// The name of a policy, with its apply mode if that is not the usual one. Profiles are indented below `plimsoll`.
pub(super) fn policy_name(policy: &PolicyReport, is_indented: bool) -> String {
    let indent = if is_indented { "  " } else { "" };
    let is_applied = policy.name != "current" && !is_yardstick(policy);
    if USUAL_APPLY.contains(&&*policy.apply) || !is_applied {
        return format!("{indent}{}", policy.name);
    }
    format!("{indent}{} {}", policy.name, policy.apply)
}

/// Whether a policy is a profile that follows `plimsoll`.
pub(super) fn is_profile(report: &BacktestReport, index: usize) -> bool {
    let is_profile = |policy: &PolicyReport| PROFILES.contains(&&*policy.name);
    let mut before = report.policies[..index].iter().rev().skip_while(|policy| is_profile(policy));
    is_profile(&report.policies[index])
        && before.next().is_some_and(|policy| policy.name == "plimsoll")
}

/// A share in whole percent, or `-` if it is unknown.
pub(super) fn whole_share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{} %", grouped(value * 100.0, 0)))
}

/// A share with one digit, since small ones matter.
pub(super) fn small_share(value: f64) -> String {
    if value > 0.0 && value < 0.0005 {
        return "< 0.1 %".to_owned();
    }
    if value >= 0.1 { share(value) } else { format!("{:.1} %", value * 100.0) }
}

/// Cores or GiB.
pub(super) fn amount(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        _ => 3,
    };
    grouped(value, digits)
}

/// What is compared as cost.
pub(super) fn money_word(report: &BacktestReport) -> &'static str {
    if report.currency.is_some() { "money" } else { "CPU" }
}

/// An amount of the cost of a frontier: money, or core-hours without prices.
fn cost(report: &BacktestReport, value: f64) -> String {
    let digits = usize::from(value.abs() < 100.0);
    let digits = if value.abs() < 1.0 { 2 } else { digits };
    match &report.currency {
        Some(currency) => format!("{currency} {}", grouped(value, digits)),
        None => format!("{} core-hours", grouped(value, digits)),
    }
}

/// The policies that no other beats, from the cheapest to the safest.
pub(super) fn frontier_names(report: &BacktestReport) -> String {
    let names: Vec<&str> = report.frontier.iter().map(|step| &*step.policy).collect();
    names.join(", ")
}

/// What each step of the frontier costs.
pub(super) fn frontier_steps(report: &BacktestReport) -> Vec<String> {
    let pairs = report.frontier.windows(2);
    pairs.filter_map(|pair| frontier_step(report, &pair[0], &pair[1])).collect()
}

fn frontier_step(
    report: &BacktestReport,
    from: &FrontierStep,
    to: &FrontierStep,
) -> Option<String> {
    let (extra, avoided) = (to.extra_cost?, to.avoided_days?);
    if extra == 0.0 && avoided == 0 {
        return Some(format!("{} and {} cost and avoid the same.", from.policy, to.policy));
    }
    let days =
        if avoided == 1 { "1 bad day".to_owned() } else { counted(avoided as usize, "bad day") };
    let each = to.price_per_day.filter(|_| avoided > 1);
    let each = each
        .map_or_else(String::new, |price| format!(": {} for each of them", cost(report, price)));
    let length = span(report.from, report.until);
    Some(format!(
        "From {} to {} {days} less for {} in these {length}{each}.",
        from.policy,
        to.policy,
        cost(report, extra)
    ))
}

/// An estimate with its interval: `-52 % (-57..-46)`; `~` if the interval contains zero.
pub(super) fn interval(of: Interval, scale: f64, unit: &str) -> String {
    let signed = |value: f64| {
        let value = value * scale;
        let text = grouped(value, 0);
        if value > 0.0 && text != "0" { format!("+{text}") } else { text }
    };
    let Interval { estimate, lower, upper } = of;
    if lower <= 0.0 && upper >= 0.0 {
        return format!("~ ({}..{}{unit})", signed(lower), signed(upper));
    }
    format!("{}{unit} ({}..{})", signed(estimate), signed(lower), signed(upper))
}

/// The differences of a policy to `current`.
pub(super) fn differences(report: &BacktestReport, of: &Differences) -> String {
    format!(
        "{} {}, OOM-days {}, bad CPU days {}",
        money_word(report),
        interval(of.cost, 100.0, " %"),
        interval(of.oom_days, 1.0, ""),
        interval(of.bad_cpu_days, 1.0, "")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::backtest::test_reports::sample;

    #[test]
    fn an_interval_that_contains_zero_is_no_difference() {
        let of = |estimate, lower, upper| Interval { estimate, lower, upper };
        assert_eq!(interval(of(-0.52, -0.57, -0.46), 100.0, " %"), "-52 % (-57..-46)");
        assert_eq!(interval(of(-8.0, -13.0, 2.0), 1.0, ""), "~ (-13..+2)");
        assert_eq!(interval(of(0.0, 0.0, 0.0), 1.0, ""), "~ (0..0)");
        assert_eq!(interval(of(3.0, 1.0, 5.0), 1.0, ""), "+3 (+1..+5)");
    }

    #[test]
    fn the_source_of_replicas_is_always_said() {
        for (rule, [modelled, recorded, unknown], text) in [
            (ReplicaRule::Recorded, [0, 0, 0], "replicas as recorded"),
            (
                ReplicaRule::Recorded,
                [0, 1, 0],
                "replicas as recorded: 1 workload has an HPA and does not answer to new requests",
            ),
            (
                ReplicaRule::Recorded,
                [0, 3, 2],
                "replicas as recorded: 3 workloads have an HPA and do not answer to new requests; \
                 the autoscalers of 2 workloads could not be read",
            ),
            (
                ReplicaRule::Model,
                [0, 0, 0],
                "replicas as recorded: no workload has an HPA whose targets are relative to requests",
            ),
            (
                ReplicaRule::Model,
                [4, 1, 0],
                "replicas modelled (experimental): 4 workloads have those that their HPA would have \
                 set; 1 workload has them as recorded, since other metrics or autoscalers count too",
            ),
        ] {
            let mut report = sample();
            report.replicas = ReplicasReport {
                rule,
                modelled,
                recorded_with_autoscaler: recorded,
                recorded_unknown_autoscaler: unknown,
            };
            assert_eq!(replicas(&report), text);
        }
    }

    #[test]
    fn small_shares_are_not_zero() {
        for (value, text) in [
            (0.0, "0.0 %"),
            (0.0001, "< 0.1 %"),
            (0.007, "0.7 %"),
            (0.063, "6.3 %"),
            (0.31, "31 %"),
        ] {
            assert_eq!(small_share(value), text);
        }
        assert_eq!(whole_share(None), "-", "unknown is not zero");
    }

    #[test]
    fn profiles_are_below_their_model_only() {
        let report = sample();
        let names: Vec<String> = (0..report.policies.len())
            .map(|index| policy_name(&report.policies[index], is_profile(&report, index)))
            .collect();
        assert_eq!(
            names,
            ["current", "plimsoll", "  latency", "  cost", "vpa", "krr-simple weekly", "oracle"]
        );
    }

    #[test]
    fn steps_of_the_frontier_name_the_price_of_a_day() {
        let mut report = sample();
        assert_eq!(
            frontier_steps(&report)[1],
            "From plimsoll to latency 31 bad days less for USD 252 in these 14 d: USD 8.1 for each of them."
        );
        report.currency = None;
        assert!(frontier_steps(&report)[1].contains("252 core-hours"));
    }
}
