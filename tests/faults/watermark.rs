//! WatermarkPodAutoscalers: one step doubles the replicas, and after a scale update the cooldown is one hour.

use kube::Api;
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;
use serde_json::json;

use super::replicas::{AutoscalerKind, ReplicaController};
use crate::{
    support::{Testbed, holding_proxy::RoleWrite, manifests, metrics_server::MetricsServer},
    watermark_controller::fixture::{METRIC, object},
};

/// The kind of the objects.
pub struct Watermark;

/// A watermark controller with a workload of two replicas.
pub type WatermarkController = ReplicaController<Watermark>;

impl AutoscalerKind for Watermark {
    const ROLE: &str = "watermark";
    const LEASE: &str = "watermarkpodautoscaler-lock";
    const WITHOUT_LEASE: &[&str] = &["--enable-leader-election=false"];
    const RECORD: RoleWrite = RoleWrite::WpaStatus;
    const LEADER_METRICS: &[&str] = &["plimsoll_max_replicas", "wpa_controller_max_replicas"];
    const RECONCILES: &str = "plimsoll_watermark_reconciles_total";

    fn load(usage: &MetricsServer, namespace: &str) {
        usage.set_external(namespace, METRIC, &[("app", "web")], 10_000.0);
    }

    async fn create(bed: &Testbed, namespace: &str) {
        let wanted = object(
            "web",
            json!({"upscaleForbiddenWindowSeconds": 3600, "downscaleForbiddenWindowSeconds": 3600}),
        );
        let yaml = serde_json::to_string(&wanted).expect("JSON is YAML");
        manifests::create::<WatermarkPodAutoscaler>(bed.client(), namespace, &yaml).await;
    }

    fn flags(_: &str, port: u16) -> Vec<String> {
        vec![
            "--period=500ms".to_owned(),
            "--health-port=0".to_owned(),
            "--client-qps=0".to_owned(),
            format!("--metrics-addr=127.0.0.1:{port}"),
        ]
    }

    async fn assert_recorded_once(bed: &Testbed, namespace: &str) {
        let api = Api::<WatermarkPodAutoscaler>::namespaced(bed.client(), namespace);
        let status = api.get("web").await.expect("exists").status.expect("valid status");
        assert_eq!((status.desired_replicas, status.scaling_events_count), (4, 1), "{status:#?}");
        assert!(status.last_scale_time.is_some(), "{status:#?}");
    }
}
