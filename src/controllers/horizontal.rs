//! The horizontal controller: HorizontalPodAutoscalers as a kind of replica autoscaler.
//!
//! ```text
//!   replicas: due object ──▶ reconcile: spec, scale, pods, usage, values of the status ──▶ core: decide
//!                                 │                                                          │
//!                                 │                 status of the HPA controller ──▶ core: comparison
//!                                 ▼                                                          ▼
//!                          exported state ──▶ metrics                         results of comparisons ──▶ metrics
//! ```
//!
//! In shadow mode it only observes: the HPA controller of the cluster changes the replicas, and nothing but the Lease is
//! written. With `--mode=adopted` it changes the replicas of objects that were adopted, and stores a record in an annotation
//! of theirs before. With `--mode=replace` it does so for all objects, reads their metrics, and writes their status.

mod autoscaler;
pub mod config;
mod horizontal_decision;
mod horizontal_pod;
mod object;
pub mod object_queries;
mod own_metrics;
mod own_rules;
mod reconcile;
mod replacement;
mod selector_index;
mod sentinel;
mod shared_requests;
mod stored_status;
pub mod takeover;
mod usage_cache;

use std::{collections::HashSet, net::SocketAddr, sync::Arc};

use anyhow::Result;
use tokio::time::Instant;

use self::{
    autoscaler::HorizontalAutoscaler,
    config::{HorizontalConfig, HorizontalMode},
    object_queries::ObjectQueries,
    replacement::Replacement,
    selector_index::SelectorIndex,
    usage_cache::UsageCache,
};
use super::replicas::ReplicaController;
use crate::{
    cluster::leader::Election,
    controllers::runtime::{
        client_calls::QueryRecorder,
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        target_vpas::Vpas,
    },
    telemetry::{
        HorizontalMetrics, PrometheusQueryMetrics, ReplicaKind, ReplicaObjectMetrics,
        UpstreamSeries,
    },
};

pub type HorizontalController = ReplicaController<HorizontalAutoscaler>;

pub type HorizontalHandle = ControllerHandle<HorizontalController>;

impl ControllerConfig for HorizontalConfig {
    type Controller = HorizontalController;

    fn process(&self) -> &ProcessConfig {
        &self.settings.process
    }
}

impl Controller for HorizontalController {
    type Config = HorizontalConfig;

    const USER_AGENT: &str = concat!("plimsoll-horizontal/", env!("CARGO_PKG_VERSION"));

    async fn new(config: HorizontalConfig, context: &mut ControllerContext) -> Result<Arc<Self>> {
        let metrics = HorizontalMetrics::new(&mut context.registry);
        let settings = config.settings.clone();
        let cardinality = settings.object_metrics;
        let calls = PrometheusQueryMetrics::new(&mut context.registry, "horizontal");
        let observer = Arc::new(QueryRecorder::new(calls));
        let queries = ObjectQueries::new(&config, &context.clock, observer.clone())?;
        let usage = UsageCache::new(&config, context.client.clone(), &context.clock, observer)?;
        let replaces = config.mode == HorizontalMode::Replace;
        let replacement = replaces.then(|| Replacement::new(&config, context));
        let selectors = SelectorIndex::default();
        let vpas = Vpas::new(&settings.namespaces, context.watch_factory.clone());
        let autoscaler =
            HorizontalAutoscaler { config, metrics, usage, queries, replacement, selectors, vpas };
        let controller = Arc::new(Self::from_parts(settings, autoscaler, context));
        let objects = Arc::new(Arc::downgrade(&controller));
        context.registry.add_replica_autoscalers(ReplicaObjectMetrics::new(
            ReplicaKind::HORIZONTAL,
            objects,
            cardinality,
            UpstreamSeries::default(),
        ));
        Ok(controller)
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let version = env!("CARGO_PKG_VERSION");
        let mode = self.autoscaler.config.mode.as_str();
        tracing::info!(version, ?addresses, mode, "starting horizontal controller");
    }

    fn election(&self) -> Option<Election> {
        let election = self.new_election()?;
        Some(match &self.autoscaler.replacement {
            Some(replacement) => election.only_while(replacement.sentinel.may_lead()),
            None => election,
        })
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        if self.autoscaler.config.mode != HorizontalMode::Shadow {
            let consequence =
                "replicas follow the requests of pods even if a VerticalPodAutoscaler changes them";
            self.autoscaler.vpas.start(consequence, &mut tasks.workers);
        }
        if let Some(replacement) = &self.autoscaler.replacement {
            let (sentinel, fence) = (Arc::clone(&replacement.sentinel), &self.permit.fence);
            tasks.workers.spawn_cancellable(sentinel.run(fence.clone()));
        }
        self.spawn_tasks(tasks);
        let controller = Arc::clone(self);
        tasks.workers.spawn_cancellable(async move {
            loop {
                for object in controller.autoscaler.usage.next_ready().await {
                    controller.queue.make_due(&object, controller.clock.now());
                }
            }
        });
    }

    async fn drain(&self, deadline: Instant) {
        self.drain_writes(deadline).await;
    }

    fn refresh_metrics(&self) {
        self.refresh_gauges();
        let keys = self.queue.keys();
        self.autoscaler.selectors.retain(&keys);
        if let Some(replacement) = &self.autoscaler.replacement {
            // Another process exports the objects while it leads.
            let controlled = if self.is_standby() { HashSet::new() } else { keys };
            replacement.metrics.set_objects(&controlled);
        }
    }
}
