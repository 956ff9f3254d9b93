//! Usage is read from the metrics APIs, and each failure mode is reported as such.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use plimsoll::cluster::container_usage::external_usage::{
    ExternalMetrics, PodQuery, fetch_external_usage,
};
use plimsoll::cluster::container_usage::pod_metrics::{
    ContainerUsage, PodUsage, UsageError, UsageReport, fetch_usage,
};
use plimsoll_core::types::units::{Bytes, MilliCpu};

use super::watches::allow;
use crate::support::metrics_server::{Fault, MetricsApi, UsageValue};
use crate::support::wait::PATIENCE;
use crate::support::{MetricsServer, Testbed};

const MEBIBYTE: u64 = 1 << 20;

#[tokio::test]
async fn usage_is_read_or_the_reason_of_its_absence_is_reported() {
    let Some(bed) = Testbed::private().await else { return };
    let (error, _) = fetch(&bed.client(), None, PATIENCE).await;
    let error = error.expect_err("there is no such API yet");
    assert!(matches!(error, UsageError::NotServed { code: 404, .. }), "{error}");

    let usage = MetricsServer::serve(&bed).await;
    let namespace = bed.namespace("web").await;
    let noon: Timestamp = "2026-03-01T12:00:00Z".parse().expect("a time");
    usage.at(noon);
    for pod in ["a", "b", "c"] {
        let used = UsageValue { cpu: 0.250_123_456, memory: 100 * MEBIBYTE };
        usage.set(&namespace, pod, "main", used);
        usage.set(&namespace, pod, "side", UsageValue { cpu: 0.0, memory: 1 });
    }
    usage.set("elsewhere", "d", "main", UsageValue { cpu: 1.0, memory: MEBIBYTE });

    let (report, pods) = fetch(&bed.client(), None, PATIENCE).await;
    let report = report.expect("answered");
    assert_eq!((report.pods, report.containers, report.malformed), (4, 7, 0));
    assert!(report.is_complete());
    assert_eq!(
        pods[1],
        PodUsage {
            namespace: namespace.as_str().into(),
            pod: "a".into(),
            at: noon.into(),
            containers: vec![
                ContainerUsage {
                    name: "main".into(),
                    cpu: Some(MilliCpu(251)),
                    memory: Some(Bytes(100 << 20)),
                },
                ContainerUsage {
                    name: "side".into(),
                    cpu: Some(MilliCpu(0)),
                    memory: Some(Bytes(1)),
                },
            ],
            is_incomplete: false,
        }
    );
    let one: &[&str] = &[&namespace];
    let (report, _) = fetch(&bed.client(), Some(one), PATIENCE).await;
    assert_eq!(report.expect("answered").pods, 3);

    assert_faults_are_distinguished(&bed, &usage, &namespace).await;
    assert_external_metrics_arrive(&bed, &usage, &namespace).await;
}

async fn assert_faults_are_distinguished(bed: &Testbed, usage: &MetricsServer, namespace: &str) {
    let client = bed.client();
    let broken = |fault| usage.set_fault(MetricsApi::Resource, Some(fault));
    for (code, is_absent) in [(503, true), (404, true), (403, false), (500, false)] {
        broken(Fault::Status(code));
        let error = fetch(&client, None, PATIENCE).await.0.expect_err("refused");
        assert_eq!(matches!(error, UsageError::NotServed { .. }), is_absent, "{code}: {error}");
        assert_eq!(matches!(error, UsageError::Rejected { .. }), !is_absent, "{code}: {error}");
    }
    broken(Fault::Malformed);
    let error = fetch(&client, None, PATIENCE).await.0.expect_err("no list");
    assert!(matches!(error, UsageError::Truncated { .. }), "{error}");
    broken(Fault::Hang);
    let error = fetch(&client, None, Duration::from_millis(300)).await.0.expect_err("late");
    assert!(matches!(error, UsageError::Timeout { .. }), "{error}");
    // So little is truncated before the API server has forwarded any of it.
    broken(Fault::Truncated);
    let error = fetch(&client, None, PATIENCE).await.0.expect_err("cut");
    assert!(matches!(error, UsageError::NotServed { code: 503, .. }), "{error}");
    broken(Fault::Partial);
    let (report, _) = fetch(&client, None, PATIENCE).await;
    assert_eq!(report.expect("answered").pods, 2, "of four");
    for (fault, why) in [
        (Fault::NotANumber, r#"d/main: cpu "NaN": "NaN" is not a quantity"#),
        (Fault::Negative, r#"d/main: cpu "-1": must not be negative"#),
    ] {
        broken(fault);
        let (report, pods) = fetch(&client, None, PATIENCE).await;
        let report = report.expect("answered");
        assert_eq!((report.pods, report.containers, report.malformed), (4, 0, 7), "{fault:?}");
        assert!(report.is_complete() && pods.iter().all(|pod| pod.is_incomplete));
        let example = &report.malformed_examples[0];
        assert!(example.contains(why), "{example}");
    }
    usage.set_fault(MetricsApi::Resource, None);

    // A failing namespace does not affect the others.
    let account = bed.service_account(namespace, "reader").await;
    allow(bed, namespace, "reader", "metrics.k8s.io", &["pods"]).await;
    let both: &[&str] = &["elsewhere", namespace];
    let (report, _) = fetch(&account.client, Some(both), PATIENCE).await;
    let report = report.expect("one request succeeded");
    assert_eq!((report.pods, report.failed), (3, 1));
    let refused = &report.failures[0];
    assert!(matches!(refused, UsageError::Rejected { code: 403, .. }), "{refused}");
}

async fn assert_external_metrics_arrive(bed: &Testbed, usage: &MetricsServer, namespace: &str) {
    for pod in ["a", "b", "c"] {
        let labels = |container| [("app", "web"), ("pod", pod), ("container", container)];
        usage.set_external(namespace, "cpu_used", &labels("main"), 0.25);
        usage.set_external(namespace, "memory_used", &labels("main"), 1e8);
        usage.set_external(namespace, "memory_used", &labels("side"), 2e8);
        usage.set_external(namespace, "memory_used", &[("app", "web"), ("pod", pod)], 3e8);
    }
    usage.set_external(
        namespace,
        "cpu_used",
        &[("app", "x"), ("pod", "a"), ("container", "y")],
        1.0,
    );
    let query = |pod: &str| PodQuery {
        namespace: namespace.into(),
        selector: "app in (web,shop)".into(),
        pod: pod.into(),
    };
    let mut metrics = ExternalMetrics {
        cpu: Some("cpu_used".to_owned()),
        memory: Some("memory_used".to_owned()),
        container_label: "container".to_owned(),
    };
    let fetch = async |client: &Client, metrics: &ExternalMetrics| {
        let mut pods = Vec::new();
        let wanted = ["a", "b", "c", "unknown"].map(query);
        let mut keep = |pod| pods.push(pod);
        let report = fetch_external_usage(client, metrics, wanted, 2, &mut keep, PATIENCE).await;
        pods.sort_by(|one: &PodUsage, other| one.pod.cmp(&other.pod));
        (report, pods)
    };
    let of = |pod: &PodUsage| -> Vec<_> {
        let amounts = pod.containers.iter();
        amounts
            .map(|used| {
                (used.name.to_string(), used.cpu.map(|cpu| cpu.0), used.memory.map(|of| of.0))
            })
            .collect()
    };
    let main = |cpu, memory| ("main".to_owned(), cpu, memory);
    let side = ("side".to_owned(), None, Some(200_000_000));

    let (report, pods) = fetch(&bed.client(), &metrics).await;
    let report = report.expect("answered");
    assert_eq!((report.pods, report.containers, report.failed), (3, 6, 0), "{report:?}");
    assert_eq!(of(&pods[0]), [main(Some(250), Some(100_000_000)), side.clone()]);
    assert_eq!(pods[0].at.to_string(), "2026-03-01T12:00:00Z");
    assert!(!pods[0].is_incomplete);

    // An account that may read only one of the metrics: the other queries fail, and this one is complete.
    let account = bed.service_account(namespace, "half").await;
    allow(bed, namespace, "half", "external.metrics.k8s.io", &["memory_used"]).await;
    let (report, pods) = fetch(&account.client, &metrics).await;
    let report = report.expect("half of the requests succeeded");
    assert_eq!((report.pods, report.failed), (3, 4), "{report:?}");
    assert_eq!(of(&pods[0]), [main(None, Some(100_000_000)), side.clone()]);
    assert!(pods[0].is_incomplete, "its CPU is unknown, and not zero");

    metrics.cpu = None;
    let (report, pods) = fetch(&bed.client(), &metrics).await;
    assert_eq!(report.expect("answered").failed, 0);
    assert_eq!(of(&pods[0]), [main(None, Some(100_000_000)), side]);
    assert!(!pods[0].is_incomplete);

    usage.set_fault(MetricsApi::External, Some(Fault::NotANumber));
    let (report, pods) = fetch(&bed.client(), &metrics).await;
    assert_eq!(report.expect("answered").malformed, 6);
    assert!(of(&pods[0]).is_empty() && pods[0].is_incomplete);
    usage.set_fault(MetricsApi::External, Some(Fault::Status(503)));
    let error = fetch(&bed.client(), &metrics).await.0.expect_err("no response");
    assert!(matches!(error, UsageError::NotServed { code: 503, .. }), "{error}");
}

async fn fetch(
    client: &Client,
    namespaces: Option<&[&str]>,
    timeout: Duration,
) -> (Result<UsageReport, UsageError>, Vec<PodUsage>) {
    let mut pods = Vec::new();
    let mut keep = |pod| pods.push(pod);
    let report = fetch_usage(client, namespaces, &mut keep, timeout).await;
    (report, pods)
}
