//! What a recommender reads history and usage from, and writes history to.

use std::sync::Arc;

use anyhow::Result;
use kube::Client;
use plimsoll_storage::{
    Checkpoints, Local, Storage,
    checkpoint::Options,
    prometheus::{
        client::{Asked, Watch},
        history::PrometheusHistory,
    },
};

use super::series::Series;
use crate::{
    clock::Clock,
    metrics::{PrometheusCalls, RecommenderMetrics},
    run::{
        calls,
        config::{RecommenderConfig, StorageChoice, UsageSource},
    },
};
use plimsoll_core::types::compat::Compat;

/// A Prometheus, where one is asked for anything.
pub(super) fn open_prometheus(
    config: &RecommenderConfig,
    clock: &Clock,
    metrics: &RecommenderMetrics,
    calls: &PrometheusCalls,
) -> Result<Option<Arc<PrometheusHistory>>> {
    if config.storage != StorageChoice::Prometheus && config.usage != UsageSource::Prometheus {
        return Ok(None);
    }
    let watch = Arc::new(Questions {
        metrics: metrics.clone(),
        calls: calls::Questions::new(calls.clone()),
    });
    let weighting = config.settings.history_weighting;
    Ok(Some(Arc::new(config.prometheus.history(weighting, clock, watch)?)))
}

/// Where history is kept.
pub(super) fn open_storage(
    config: &RecommenderConfig,
    client: &Client,
    clock: &Clock,
    prometheus: Option<&Arc<PrometheusHistory>>,
) -> Result<Arc<dyn Storage>> {
    match (&config.storage, prometheus) {
        (StorageChoice::Local(directory), _) => {
            let (local, report) = Local::open(directory)?;
            tracing::warn!(
                directory = %directory.display(),
                ?report,
                "history is kept in a directory: run a single replica"
            );
            Ok(Arc::new(local))
        }
        (StorageChoice::Prometheus, Some(history)) if !config.prometheus.has_fallback => {
            Ok(Arc::clone(history) as _)
        }
        _ => Ok(Arc::new(checkpoints(config, client, clock))),
    }
}

/// Counts what a Prometheus is asked, by upstream's names and by ours.
#[derive(Debug)]
struct Questions {
    metrics: RecommenderMetrics,
    calls: calls::Questions,
}

impl Watch for Questions {
    fn asked(&self, asked: &Asked<'_>) {
        // As upstream: a question without any answer is in no series.
        if let Some(status) = asked.status {
            self.metrics.observe_query(status, "post", asked.time);
        }
        self.calls.asked(asked);
    }
}

/// The series that history is read from, where it is.
pub(super) fn open_series(
    config: &RecommenderConfig,
    prometheus: Option<&Arc<PrometheusHistory>>,
) -> Option<Arc<Series>> {
    let history = prometheus.filter(|_| config.storage == StorageChoice::Prometheus)?;
    Some(Arc::new(Series {
        place: history.place().to_owned(),
        history: Arc::clone(history),
        length: config.prometheus.length,
        has_fallback: config.prometheus.has_fallback,
    }))
}

fn checkpoints(config: &RecommenderConfig, client: &Client, clock: &Clock) -> Checkpoints {
    let clock = clock.clone();
    let options = Options {
        namespace: config.scope.only.clone(),
        extras: config.compat == Compat::Plimsoll,
        concurrency: config.workers,
        ..Options::default()
    };
    Checkpoints::new(client.clone(), move || clock.now(), options)
}
