//! Reports and accounts for tests of the forms.

use std::{fs, path::Path};

use plimsoll_core::{
    backtest::{
        ReplicaSource,
        account::{ContainerDay, PolicyAccount, WorkloadAccount},
        report::BacktestReport,
    },
    types::Time,
};

use crate::report::style::{Glyphs, Style};

#[path = "../../../tests/html_reports/sample_backtest.rs"]
mod sample_backtest;

pub(super) use sample_backtest::sample;

pub(super) fn without_prices() -> BacktestReport {
    let mut report = sample();
    report.currency = None;
    for policy in &mut report.policies {
        policy.monthly_cost = None;
    }
    report
}

/// A report with this name in every text that users choose.
pub(super) fn named(name: &str) -> BacktestReport {
    let mut report = sample();
    name.clone_into(&mut report.scope);
    for policy in &mut report.policies {
        policy.name = format!("{name}{}", policy.name);
        name.clone_into(&mut policy.settings);
    }
    for step in &mut report.frontier {
        step.policy = format!("{name}{}", step.policy);
    }
    for worst in &mut report.worst {
        for text in
            [&mut worst.workload, &mut worst.container, &mut worst.policy, &mut worst.remark]
        {
            name.clone_into(text);
        }
    }
    report.remarks = vec![name.to_owned()];
    report
}

/// Accounts of a workload of two containers, over two days under two policies.
pub(super) fn accounts() -> Vec<WorkloadAccount> {
    let day = |container: u16, day: i64| ContainerDay {
        container,
        day: Time::from_secs(day * 86_400),
        cpu_minutes: 1_440,
        memory_windows: 288,
        cpu_requested: 24.0,
        cpu_used: 6.0,
        cpu_slack: 12.0,
        cpu_short_minutes: if day == 0 { 73 } else { 72 },
        memory_requested: 48.0,
        oom_kills: if day == 0 { 3 } else { 0 },
        ..ContainerDay::default()
    };
    let policy = |name: &str| PolicyAccount {
        policy: name.into(),
        days: vec![day(0, 0), day(0, 1), day(1, 0), day(1, 1)],
        first_recommendation_seconds: vec![Some(600), None],
    };
    vec![WorkloadAccount {
        cluster: None,
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        containers: vec!["main".into(), "proxy".into()],
        elastic_containers: 0,
        unknown_requests: 0,
        missing_minutes: 0,
        sampled_minutes: 5_760,
        replicas: ReplicaSource::RecordedWithAutoscaler,
        policies: vec![policy("current"), policy("plimsoll")],
    }]
}

pub(super) fn style(width: usize) -> Style {
    Style { width, colour: false, glyphs: Glyphs::Unicode, command: "plimsoll".to_owned() }
}

/// Compares text with a file in `testdata`; `UPDATE=1` writes it.
pub(super) fn assert_golden(name: &str, text: &str) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/report/backtest/testdata");
    let path = folder.join(name);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, text).expect("the file can be written");
    }
    let expected = fs::read_to_string(&path).expect("the file is in the repository");
    assert_eq!(text, expected, "{name} is out of date; run the tests with UPDATE=1");
}
