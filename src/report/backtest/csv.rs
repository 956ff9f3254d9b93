//! A row for each container and policy: sums over all days, in base units.

use plimsoll_core::backtest::account::{ContainerDay, PolicyAccount, WorkloadAccount};

use crate::report::recommend::{
    csv::{protected, push_cell},
    escape::one_line,
};

/// The share of minutes above the request from which a day is bad.
const BAD_SHARE: f64 = 0.05;

const COLUMNS: [&str; 23] = [
    "cluster",
    "namespace",
    "kind",
    "name",
    "container",
    "policy",
    "days",
    "cpu_requested_core_hours",
    "cpu_used_core_hours",
    "cpu_slack_core_hours",
    "cpu_short_core_hours",
    "cpu_minutes",
    "cpu_short_minutes",
    "bad_cpu_days",
    "throttled_minutes",
    "unknown_minutes",
    "memory_requested_gib_hours",
    "memory_slack_gib_hours",
    "oom_kills",
    "oom_days",
    "evicted",
    "resized",
    "replicas",
];

/// Renders the rows, with the line ends of RFC 4180.
pub(super) fn render(accounts: &[WorkloadAccount]) -> String {
    let mut text = COLUMNS.join(",") + "\r\n";
    for account in accounts {
        for policy in &account.policies {
            for (index, container) in account.containers.iter().enumerate() {
                let row = row(account, policy, (index, container));
                for (column, cell) in row.iter().enumerate() {
                    if column > 0 {
                        text.push(',');
                    }
                    push_cell(&mut text, cell, ',');
                }
                text.push_str("\r\n");
            }
        }
    }
    text
}

fn row(
    account: &WorkloadAccount,
    policy: &PolicyAccount,
    (index, container): (usize, &str),
) -> [String; 23] {
    let days: Vec<&ContainerDay> =
        policy.days.iter().filter(|day| usize::from(day.container) == index).collect();
    let hours =
        |of: fn(&ContainerDay) -> f64| days.iter().map(|day| of(day)).sum::<f64>().to_string();
    let count =
        |of: fn(&ContainerDay) -> u64| days.iter().map(|day| of(day)).sum::<u64>().to_string();
    let days_with =
        |of: fn(&ContainerDay) -> bool| days.iter().filter(|day| of(day)).count().to_string();
    let name = |text: &str| protected(&one_line(text)).into_owned();
    let is_bad =
        |day: &ContainerDay| day.cpu_short_minutes as f64 > BAD_SHARE * day.cpu_minutes as f64;
    [
        name(account.cluster.as_deref().unwrap_or_default()),
        name(&account.namespace),
        name(&account.kind),
        name(&account.name),
        name(container),
        name(&policy.policy),
        days.len().to_string(),
        hours(|day| day.cpu_requested),
        hours(|day| day.cpu_used),
        hours(|day| day.cpu_slack),
        hours(|day| day.cpu_short),
        count(|day| day.cpu_minutes),
        count(|day| day.cpu_short_minutes),
        days_with(is_bad),
        count(|day| day.throttled_minutes),
        count(|day| day.censored_minutes),
        hours(|day| day.memory_requested),
        hours(|day| day.memory_slack),
        count(|day| day.oom_kills.into()),
        days_with(|day| day.oom_kills > 0),
        count(|day| day.evicted.into()),
        count(|day| day.resized.into()),
        <&str>::from(account.replicas).to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::backtest::test_reports::accounts;

    #[test]
    fn a_reader_gets_back_the_sums_of_each_container_and_policy() {
        let mut accounts = accounts();
        accounts[0].name = "=cmd()".into();
        let text = render(&accounts);
        let mut reader = ::csv::Reader::from_reader(text.as_bytes());
        let heads = reader.headers().expect("a head").clone();
        let rows: Vec<_> = reader.records().map(|row| row.expect("CSV")).collect();
        let expected: usize =
            accounts.iter().map(|of| of.policies.len() * of.containers.len()).sum();
        assert_eq!(rows.len(), expected);
        let cell = |row: usize, name: &str| {
            let column = heads.iter().position(|head| head == name).expect("a column");
            rows[row][column].to_owned()
        };
        assert_eq!(cell(0, "name"), "'=cmd()", "not a formula");
        assert_eq!(cell(0, "days"), "2");
        assert_eq!(cell(0, "cpu_requested_core_hours"), "48");
        assert_eq!((cell(0, "oom_kills"), cell(0, "oom_days")), ("3".to_owned(), "1".to_owned()));
        assert_eq!(cell(0, "bad_cpu_days"), "1");
        assert_eq!(cell(0, "replicas"), "recordedWithAutoscaler");
    }
}
