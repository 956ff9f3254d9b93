//! Tests of changing schemas, and of Docker names.

use super::*;

/// The schema of a server with this scrape interval.
pub(in crate::prometheus) fn schema(interval: u64, longest: u64) -> Schema {
    let name = |text: &str| WithOrigin::detected(text.to_owned());
    let seconds = Duration::from_secs;
    Schema {
        usage: UsageSeries {
            cpu: name(CPU_METRIC),
            memory: name(MEMORY_METRIC),
            job: WithOrigin::detected(Some("kubelet".to_owned())),
            metrics_path: None,
            namespace: name("namespace"),
            pod: name("pod"),
            container: name("container"),
            containers: 1,
            jobs: Vec::new(),
        },
        kube_state_metrics: None,
        recording_rules: RecordingRules::Absent,
        dialect: Dialect::PromQl,
        scrape_interval: WithOrigin::detected(ScrapeInterval {
            interval: seconds(interval),
            longest_gap: seconds(longest),
        }),
        replica_labels: Vec::new(),
        cluster_labels: Vec::new(),
        matchers: [r#"cluster="qa""#.parse().expect("one")].into_iter().collect(),
    }
}

fn of_job(job: &str, containers: u64) -> Schema {
    let mut schema = schema(60, 60);
    (schema.usage.job.value, schema.usage.containers) = (Some(job.to_owned()), containers);
    schema.kube_state_metrics = Some(KubeStateMetrics::default());
    schema
}

#[test]
fn metrics_missing_temporarily_keep_their_detected_names() {
    let before = of_job("kubelet", 7);
    let assumed = WithOrigin::assumed(ScrapeInterval::default());
    let young = Schema {
        kube_state_metrics: None,
        scrape_interval: assumed.clone(),
        ..of_job("cadvisor", 3)
    };
    let merged = young.or_previous(&before);
    assert_eq!(merged.usage.job.value.as_deref(), Some("cadvisor"), "detected names are updated");
    assert_eq!(
        (&merged.kube_state_metrics, &merged.scrape_interval),
        (&before.kube_state_metrics, &before.scrape_interval)
    );
    let empty = Schema { scrape_interval: assumed, ..of_job("any", 0) };
    assert_eq!(empty.or_previous(&before), before);
    assert!(before.has_same_names(&of_job("kubelet", 9)));
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
