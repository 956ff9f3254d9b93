//! Opens the storage and the sources of history and usage.

use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use plimsoll_storage::{
    CheckpointStorage, LocalStorage, Storage,
    checkpoint::CheckpointOptions,
    prometheus::{
        client::{CompletedQuery, QueryObserver},
        history::PrometheusHistory,
    },
};

use super::config::{RecommenderConfig, StorageChoice, UsageSource};
use crate::{
    cluster::clock::Clock,
    controllers::runtime::client_calls,
    telemetry::{PrometheusQueryMetrics, RecommenderMetrics},
};
use plimsoll_core::types::compat::Compat;

/// The Prometheus client, if usage or history is read from Prometheus.
pub(super) fn open_prometheus(
    config: &RecommenderConfig,
    clock: &Clock,
    metrics: &RecommenderMetrics,
    calls: &PrometheusQueryMetrics,
) -> Result<Option<Arc<PrometheusHistory>>> {
    if config.storage != StorageChoice::Prometheus && config.usage != UsageSource::Prometheus {
        return Ok(None);
    }
    let observer = Arc::new(RecommenderQueryMetrics {
        metrics: metrics.clone(),
        calls: client_calls::QueryRecorder::new(calls.clone()),
    });
    let weighting = config.settings.history_weighting;
    Ok(Some(Arc::new(config.prometheus.open_history(weighting, clock, observer)?)))
}

pub(super) fn open_storage(
    config: &RecommenderConfig,
    client: &Client,
    clock: &Clock,
    prometheus: Option<&Arc<PrometheusHistory>>,
) -> Result<Arc<dyn Storage>> {
    match (&config.storage, prometheus) {
        (StorageChoice::Local(directory), _) => {
            let (local, report) = LocalStorage::open(directory)?;
            tracing::warn!(
                directory = %directory.display(),
                ?report,
                "history is stored in a local directory; run a single replica"
            );
            Ok(Arc::new(local))
        }
        (StorageChoice::Prometheus, Some(history)) if !config.prometheus.has_fallback => {
            Ok(Arc::clone(history) as _)
        }
        _ => {
            let clock = clock.clone();
            let options = CheckpointOptions {
                namespace: config.scope.only.clone(),
                write_annotations: config.compat == Compat::Plimsoll,
                concurrency: config.workers,
                ..CheckpointOptions::default()
            };
            Ok(Arc::new(CheckpointStorage::new(client.clone(), move || clock.now(), options)))
        }
    }
}

/// Counts Prometheus queries under upstream's metric names and under our own.
#[derive(Debug)]
struct RecommenderQueryMetrics {
    metrics: RecommenderMetrics,
    calls: client_calls::QueryRecorder,
}

impl QueryObserver for RecommenderQueryMetrics {
    fn on_query(&self, query: &CompletedQuery<'_>) {
        // As in upstream, a query without a response is not counted.
        if let Some(status) = query.status {
            self.metrics.observe_query(status, "post", query.duration);
        }
        self.calls.on_query(query);
    }
}
