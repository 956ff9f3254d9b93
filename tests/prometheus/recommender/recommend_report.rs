//! `plimsoll recommend` computes what a recommender with the same Prometheus writes, to the digit, with and without a
//! cluster.

use jiff::Timestamp;
use plimsoll::{
    cli::recommend_config,
    report::recommend::run::{NoProgress, run_recommend},
};
use plimsoll_core::{
    api::ResourceList,
    rightsizing::{report::Report, survey::Resource},
    types::quantity::Quantity,
};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};

use super::fixture::{Fixture, recommendation};
use crate::prometheus::label_flavors::OPERATOR;
use crate::recommender::in_process::wait_until_written;
use crate::support::prometheus_server::History;

const WORKLOADS: [&str; 3] = ["web", "later", "varied"];

/// Usage that varies by the hour and by the pod, with a restart of the counter.
fn varied(mut history: History, namespace: &str, end: Timestamp) -> History {
    for (index, pod) in
        ["varied-7d5f9c4b6d-x2x4z", "varied-7d5f9c4b6d-b5b6z"].into_iter().enumerate()
    {
        let names = [namespace, pod, "main"];
        let phase = index as f64;
        let seconds = move |at: Timestamp| (at.as_second() - end.as_second() + 1_000_000) as f64;
        // The derivative is positive: a counter rises.
        let cpu = move |at: Timestamp| {
            let t = seconds(at) % 250_000.0;
            Some(0.3 * t + 900.0 * (t / 4_000.0 + phase).sin() + 2_000.0)
        };
        let memory = move |at: Timestamp| {
            let wave = (seconds(at) / 11_000.0 + phase).sin();
            Some((3e8 + 1.7e8 * wave).round())
        };
        history = OPERATOR.usage(history, CPU_METRIC, names, cpu);
        history = OPERATOR.usage(history, MEMORY_METRIC, names, memory);
    }
    history
}

/// Lower bound, target and upper bound of CPU and memory.
type Numbers = [Option<i64>; 6];

fn numbers_of_status(lists: [&ResourceList; 3]) -> Numbers {
    let cpu = lists.map(|list| list.cpu().map(Quantity::milli_value));
    let memory = lists.map(|list| list.memory().map(Quantity::value));
    [cpu[0], cpu[1], cpu[2], memory[0], memory[1], memory[2]]
}

fn numbers_of_report(report: &Report, name: &str) -> Numbers {
    let workload = report.workloads.iter().find(|workload| workload.name == name);
    let workload = workload.unwrap_or_else(|| panic!("no workload {name}: {report:?}"));
    let container = workload.containers.iter().find(|container| container.name == "main");
    let rows = &container.expect("the container").resources;
    let of = |wanted| {
        let row = rows.iter().find(|row| row.resource == wanted).expect("a row");
        [row.lower, row.target, row.upper]
    };
    let (cpu, memory) = (of(Resource::Cpu), of(Resource::Memory));
    [cpu[0], cpu[1], cpu[2], memory[0], memory[1], memory[2]]
}

#[tokio::test]
async fn a_report_has_the_numbers_that_the_recommender_writes() {
    let Some(fixture) = Fixture::with_past(8 * 24 + 1, varied).await else { return };
    for name in &WORKLOADS[1..] {
        fixture.deploy(name).await;
        fixture.create_vpa(name).await;
    }
    let at = fixture.clock.now();
    // External metrics without names are no usage: only history counts, as in the report.
    let running = fixture.start(&["--bounds-dead-band=0", "--use-external-metrics"]).await;
    fixture.wait_for_history(&running).await;
    wait_until_written(&running).await;
    let mut written = Vec::new();
    for name in WORKLOADS {
        let vpa =
            fixture.vpa(name, "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
        let found = recommendation(&vpa).expect("is present");
        written.push(numbers_of_status([&found.lower_bound, &found.target, &found.upper_bound]));
    }
    running.stop().await;

    let address = format!("--prometheus-address={}", fixture.proxy.url());
    let (until, namespace) =
        (format!("--until={at}"), format!("--namespace={}", fixture.namespace));
    let kubeconfig = format!("--kubeconfig={}", fixture.bed.kubeconfig_path().display());
    let flags = [&*address, &*until, &*namespace];
    let report = async |more: &[&str]| {
        let config = recommend_config(&[&flags[..], more].concat()).expect("valid flags");
        let mut progress = NoProgress;
        run_recommend(&config, &fixture.clock, &mut progress).await.expect("a report")
    };
    let with_cluster = report(&[&kubeconfig, "--source=cluster"]).await;
    assert_eq!(with_cluster.unread, [], "{with_cluster:?}");
    // The API server is not asked at all.
    let without_cluster = report(&["--kubeconfig=/nonexistent", "--source=prometheus"]).await;
    for (name, written) in WORKLOADS.into_iter().zip(&written) {
        assert_eq!(numbers_of_report(&with_cluster, name), *written, "{name}");
        assert_eq!(numbers_of_report(&without_cluster, name), *written, "{name} by series");
    }
    let distinct: std::collections::BTreeSet<_> = written.iter().collect();
    assert!(distinct.len() >= 2, "different loads have different numbers: {written:?}");
}
