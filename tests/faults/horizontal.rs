//! Driven HorizontalPodAutoscalers, which may add two replicas in half an hour.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Api, ResourceExt as _};
use plimsoll_core::hpa::{HpaRecord, record::RECORD_ANNOTATION};
use serde_json::json;

use super::replicas::{AutoscalerKind, ReplicaController};
use crate::support::{
    Testbed,
    holding_proxy::RoleWrite,
    manifests,
    metrics_server::{MetricsServer, UsageValue},
};

/// Two replicas in half an hour, which is the longest period of a policy.
const BEHAVIOR: &str =
    r#"{"scaleUp":{"policies":[{"type":"Pods","value":2,"periodSeconds":1800}]}}"#;

/// The kind of the objects.
pub struct Horizontal;

/// A horizontal controller with a driven workload of two replicas.
pub type HorizontalController = ReplicaController<Horizontal>;

impl AutoscalerKind for Horizontal {
    const ROLE: &str = "horizontal";
    const LEASE: &str = "plimsoll-horizontal";
    const WITHOUT_LEASE: &[&str] = &["--leader-elect=false"];
    const RECORD: RoleWrite = RoleWrite::HpaRecord;
    const LEADER_METRICS: &[&str] = &["plimsoll_max_replicas"];
    const RECONCILES: &str = "plimsoll_horizontal_reconciles_total";

    fn load(usage: &MetricsServer, namespace: &str) {
        usage.set_all(namespace, "web-", "main", UsageValue { cpu: 0.1, memory: 1 << 40 });
    }

    async fn create(bed: &Testbed, namespace: &str) {
        let disabled = json!({"selectPolicy": "Disabled"});
        let object = json!({
            "metadata": {"name": "web", "annotations": {"plimsoll.dev/hpa": "drive", "plimsoll.dev/behavior": BEHAVIOR}},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 2, "maxReplicas": 50, "behavior": {"scaleUp": disabled, "scaleDown": disabled},
                "metrics": [{"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Mi"}}}],
            },
        });
        let yaml = serde_json::to_string(&object).expect("JSON is YAML");
        manifests::create::<HorizontalPodAutoscaler>(bed.client(), namespace, &yaml).await;
    }

    fn flags(namespace: &str, port: u16) -> Vec<String> {
        vec![
            "--mode=adopted".to_owned(),
            "--horizontal-pod-autoscaler-sync-period=500ms".to_owned(),
            format!("--namespaces={namespace}"),
            format!("--address=127.0.0.1:{port}"),
        ]
    }

    async fn assert_recorded_once(bed: &Testbed, namespace: &str) {
        let api = Api::<HorizontalPodAutoscaler>::namespaced(bed.client(), namespace);
        let object = api.get("web").await.expect("exists");
        let text = object.annotations().get(RECORD_ANNOTATION).expect("a record");
        let record = HpaRecord::parse(text).expect("a valid record");
        let events = &record.memory.scale_up_events;
        assert_eq!(events.iter().map(|event| event.change).collect::<Vec<_>>(), [2], "{record:?}");
        assert_eq!(record.pending, None);
        assert_eq!(record.last_scale.map(|change| (change.from, change.to)), Some((2, 4)));
    }
}
