//! A horizontal controller whose object asks for far more replicas than there are, and may add two in half an hour: a scale
//! update made twice, or one that is not remembered, results in six replicas or more, a lost one in two.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::{Api, ResourceExt as _};
use plimsoll_core::hpa::{HpaRecord, record::RECORD_ANNOTATION};
use serde_json::json;

use super::{FaultSubject, testbed_and_namespace, watermark::ReplicasLog};
use crate::{
    support::{
        Testbed,
        holding_proxy::{
            HeldMoment, HoldPoint,
            RoleWrite::{self, HpaRecord as Record, Scale},
        },
        manifests,
        metrics_server::{MetricsServer, UsageValue},
        role_process::RoleProcess,
    },
    updater::fixture::deployment,
    watermark_controller::fixture::wait_for_deployment,
};

/// Two replicas in half an hour, which is the longest period of a policy.
const BEHAVIOR: &str =
    r#"{"scaleUp":{"policies":[{"type":"Pods","value":2,"periodSeconds":1800}]}}"#;

/// A horizontal controller with a driven workload of two replicas.
pub struct HorizontalController {
    bed: Testbed,
    namespace: String,
    _usage: MetricsServer,
    replicas: ReplicasLog,
}

impl FaultSubject for HorizontalController {
    const ROLE: &str = "horizontal";
    const LEASE: Option<&str> = Some("plimsoll-horizontal");
    const WITHOUT_LEASE: &[&str] = &["--leader-elect=false"];
    const ACTION: RoleWrite = Scale;
    const ACTIONS: Option<usize> = Some(1);
    const CRASHES: &[HeldMoment] = &[
        (Record, HoldPoint::Request),
        // From here on it is recorded, and not made.
        (Record, HoldPoint::Answer),
        (Scale, HoldPoint::Request),
        // From here on it is made, and not reported.
        (Scale, HoldPoint::Answer),
    ];
    const LEADER_METRICS: &[&str] = &["plimsoll_max_replicas"];

    async fn new(name: &str, private: bool) -> Option<Self> {
        let (bed, namespace) = testbed_and_namespace(name, private).await?;
        let usage = MetricsServer::shared(&bed, &namespace).await;
        usage.set_all(&namespace, "web-", "main", UsageValue { cpu: 0.1, memory: 1 << 40 });
        deployment(&bed, &namespace, "web", 2).await;
        wait_for_deployment(&bed, &namespace, "web", 2).await;
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
        manifests::create::<HorizontalPodAutoscaler>(bed.client(), &namespace, &yaml).await;
        let replicas = ReplicasLog::start(&bed, &namespace);
        replicas.wait_for_replicas(2).await;
        Some(Self { bed, namespace, _usage: usage, replicas })
    }

    fn bed(&self) -> &Testbed {
        &self.bed
    }

    fn namespace(&self) -> &str {
        &self.namespace
    }

    fn flags(&self, port: u16) -> Vec<String> {
        vec![
            "--mode=adopted".to_owned(),
            "--horizontal-pod-autoscaler-sync-period=500ms".to_owned(),
            format!("--namespaces={}", self.namespace),
            format!("--leader-elect-resource-namespace={}", self.namespace),
            format!("--address=127.0.0.1:{port}"),
        ]
    }

    async fn assert_done_once(&self, process: &RoleProcess, _unmade: usize) {
        self.replicas.wait_for_replicas(4).await;
        process.wait_for_increase("plimsoll_horizontal_reconciles_total", &[], 4).await;
        assert_eq!(*self.replicas.values(), [2, 4]);
        let api = Api::<HorizontalPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        let object = api.get("web").await.expect("exists");
        let text = object.annotations().get(RECORD_ANNOTATION).expect("a record");
        let record = HpaRecord::parse(text).expect("a valid record");
        let events = &record.memory.scale_up_events;
        assert_eq!(events.iter().map(|event| event.change).collect::<Vec<_>>(), [2], "{record:?}");
        assert_eq!(record.pending, None);
        assert_eq!(record.last_scale.map(|change| (change.from, change.to)), Some((2, 4)));
    }
}
