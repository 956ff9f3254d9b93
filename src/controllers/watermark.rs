//! The watermark controller: WatermarkPodAutoscalers as a kind of replica autoscaler.
//!
//! ```text
//!   replicas: due object ──▶ reconcile: spec, gates, scale, decide ──▶ replicas: apply
//!   fetch_metrics: MetricsClient ───────────────────────────┘ │
//!                              exported state ◀───────────────┘
//!                              exported state ──▶ metrics
//! ```

mod autoscaler;
pub mod config;
mod decision_field;
pub mod dry_run;
mod fetch_metrics;
mod metrics_export;
mod reconcile;
pub(crate) mod scaling_gates;
mod watermark_decision;

use std::{net::SocketAddr, sync::Arc};

use anyhow::Result;
use parking_lot::Mutex;
use plimsoll_core::types::compat::Compat;
use tokio::time::Instant;

use self::{
    autoscaler::WatermarkAutoscaler,
    config::WatermarkConfig,
    decision_field::DecisionField,
    fetch_metrics::{USER_AGENT, metrics_client},
    metrics_export::{RecommenderCallMetrics, retain_recommender_series},
};
use super::replicas::ReplicaController;
use crate::{
    cluster::leader::Election,
    controllers::runtime::{
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        target_vpas::Vpas,
    },
    telemetry::{
        PrometheusQueryMetrics, ReplicaKind, ReplicaObjectMetrics, WatermarkMetrics,
        upstream_series,
    },
};

/// The reporting component of events.
pub const EVENT_COMPONENT: &str = "wpa_controller";

pub type WatermarkController = ReplicaController<WatermarkAutoscaler>;

pub type WatermarkHandle = ControllerHandle<WatermarkController>;

impl ControllerConfig for WatermarkConfig {
    type Controller = WatermarkController;

    fn process(&self) -> &ProcessConfig {
        &self.settings.process
    }
}

impl Controller for WatermarkController {
    type Config = WatermarkConfig;

    const USER_AGENT: &str = USER_AGENT;

    async fn new(config: WatermarkConfig, context: &mut ControllerContext) -> Result<Arc<Self>> {
        let metrics = WatermarkMetrics::new(&mut context.registry);
        let settings = config.settings.clone();
        metrics.set_workers(settings.workers);
        let query_metrics = PrometheusQueryMetrics::new(&mut context.registry, "watermark");
        let calls =
            Arc::new(RecommenderCallMetrics { metrics: metrics.clone(), calls: Mutex::default() });
        let client = context.client.clone();
        let metrics_client = metrics_client(&config, client, &context.clock, calls, query_metrics)?;
        let upstream = upstream_series(config.label_set, &config.labels_as_tags);
        let cardinality = settings.object_metrics;
        let vpas = (settings.compat == Compat::Plimsoll)
            .then(|| Vpas::new(&settings.namespaces, context.watch_factory.clone()));
        let autoscaler = WatermarkAutoscaler {
            metrics_client,
            metrics,
            decision_field: DecisionField::default(),
            vpas,
            config,
        };
        let controller = Arc::new(Self::from_parts(settings, autoscaler, context));
        let objects = Arc::new(Arc::downgrade(&controller));
        context.registry.add_replica_autoscalers(ReplicaObjectMetrics::new(
            ReplicaKind::WATERMARK,
            objects,
            cardinality,
            upstream,
        ));
        Ok(controller)
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let version = env!("CARGO_PKG_VERSION");
        let dry_run = self.settings.dry_run.is_some();
        tracing::info!(version, ?addresses, dry_run, "starting watermark controller");
    }

    fn election(&self) -> Option<Election> {
        self.new_election()
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        if let Some(vpas) = &self.autoscaler.vpas {
            let consequence = "replicas may be removed while the updater replaces pods";
            vpas.start(consequence, &mut tasks.workers);
        }
        self.spawn_tasks(tasks);
    }

    async fn drain(&self, deadline: Instant) {
        self.drain_writes(deadline).await;
    }

    fn refresh_metrics(&self) {
        self.refresh_gauges();
        self.autoscaler.metrics.set_queue_depth(self.queue.overdue(self.clock.now()));
        retain_recommender_series(self);
    }
}
