//! Tests of changing schemas, and of Docker names.

use super::*;

fn schema(job: &str, containers: u64) -> Schema {
    Schema {
        usage: UsageSeries {
            cpu: WithOrigin::assumed(CPU_METRIC.into()),
            memory: WithOrigin::assumed(MEMORY_METRIC.into()),
            job: WithOrigin::detected(Some(job.into())),
            metrics_path: None,
            namespace: WithOrigin::detected("namespace".into()),
            pod: WithOrigin::detected("pod".into()),
            container: WithOrigin::detected("container".into()),
            containers,
            jobs: Vec::new(),
        },
        kube_state_metrics: Some(KubeStateMetrics {
            namespace: "namespace".into(),
            ..KubeStateMetrics::default()
        }),
        recording_rules: RecordingRules::Absent,
        scrape_interval: WithOrigin::detected(ScrapeInterval::default()),
        dialect: Dialect::PromQl,
        replica_labels: Vec::new(),
        cluster_labels: Vec::new(),
        matchers: LabelMatchers::default(),
    }
}

#[test]
fn metrics_missing_temporarily_keep_their_detected_names() {
    let before = schema("kubelet", 7);
    let assumed = WithOrigin::assumed(ScrapeInterval::default());
    let young = Schema {
        kube_state_metrics: None,
        scrape_interval: assumed.clone(),
        ..schema("cadvisor", 3)
    };
    let merged = young.or_previous(&before);
    assert_eq!(merged.usage.job.value.as_deref(), Some("cadvisor"), "detected names are updated");
    assert_eq!(
        (&merged.kube_state_metrics, &merged.scrape_interval),
        (&before.kube_state_metrics, &before.scrape_interval)
    );
    let empty = Schema { scrape_interval: assumed, ..schema("any", 0) };
    assert_eq!(empty.or_previous(&before), before);
    assert!(before.has_same_names(&schema("kubelet", 9)));
    assert!(!before.has_same_names(&merged));
    assert!(!before.has_same_names(&Schema { kube_state_metrics: None, ..before.clone() }));
}

#[test]
fn docker_container_names_are_parsed() {
    for (name, container) in [
        ("app", "app"),
        ("k8s_app_web-7d5f9c4b6d-x2x4z_shop_0a1b_0", "app"),
        ("k8s_POD_web-7d5f9c4b6d-x2x4z_shop_0a1b_0", "POD"),
        ("k8s-app", "k8s-app"),
    ] {
        assert_eq!(container_name(name), container);
    }
}
