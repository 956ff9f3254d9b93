//! Requests the metrics of an object, and names each as upstream does.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use kube::{Client, ResourceExt as _};

use super::{config::WatermarkConfig, reconcile::Reconcile};
use crate::controllers::runtime::client_calls::QueryRecorder;
use crate::{
    cluster::{
        cache::selector::Selector,
        clock::Clock,
        metric_sources::{
            external_recommender::{
                RecommenderCallObserver, RecommenderClient, RequestLimits, redact_url,
            },
            metrics_client::{FetchContext, MetricTimeouts, MetricsClient},
        },
    },
    telemetry::PrometheusQueryMetrics,
};
use plimsoll_core::{
    api::wpa::RecommenderSpec,
    scaling::{
        MetricError, MetricSourceType, MetricValue, PodsNotReady, Scale,
        external_recommender::RecommendContext,
        metric_source::{display_name, recommender_name},
    },
    types::{compat::Compat, quantity::Quantity},
    watermark::{
        Band, EffectiveSpec, MetricInput, MetricRequestBuilder,
        metric_requests::recommender_request, validation::MetricBlock,
    },
};

/// Upstream's user agent, which recommenders may rely on.
pub(super) const USER_AGENT: &str = "wpa-controller";
/// The minimum timeout of metrics APIs, even if the period is shorter.
const MIN_METRIC_TIMEOUT: Duration = Duration::from_secs(10);

/// The timeout of all metrics of an object together, in multiples of the timeout of one.
const TOTAL_TIMEOUT_FACTOR: u32 = 2;

/// Creates the client. `calls` observes requests to recommenders, `query_metrics` counts queries to Prometheus.
pub(super) fn metrics_client(
    config: &WatermarkConfig,
    client: Client,
    clock: &Clock,
    calls: Arc<dyn RecommenderCallObserver>,
    query_metrics: PrometheusQueryMetrics,
) -> Result<MetricsClient> {
    let observer = Arc::new(QueryRecorder::new(query_metrics));
    let promql =
        config.prometheus.open(config.settings.period, config.max_metric_age, clock, observer)?;
    Ok(MetricsClient::new(
        client,
        promql,
        RecommenderClient::new(USER_AGENT, calls, RequestLimits::default()),
        config.recommender_tls.clone(),
        metric_timeouts(config),
        config.settings.workers,
    ))
}

/// A request that takes longer than a period delays the next reconcile, and so a change of the bounds. Upstream limits
/// neither that nor the metrics of an object in total.
fn metric_timeouts(config: &WatermarkConfig) -> MetricTimeouts {
    let timeout = config.settings.request_timeout;
    match config.settings.compat {
        Compat::Upstream => MetricTimeouts { metrics_api: timeout, total: None },
        Compat::Plimsoll => {
            let metrics_api = timeout.min(config.settings.period.max(MIN_METRIC_TIMEOUT));
            MetricTimeouts { metrics_api, total: Some(metrics_api * TOTAL_TIMEOUT_FACTOR) }
        }
    }
}

/// Fetches all metrics of an object, in the order of the spec.
pub(super) async fn fetch_metrics(
    reconcile: &Reconcile<'_>,
    rules: &EffectiveSpec,
    scale: Scale,
    ready_pods: Result<u32, PodsNotReady>,
) -> Vec<MetricInput> {
    let Reconcile { controller, key, state, spec, .. } = reconcile;
    let autoscaler = &controller.autoscaler;
    let context = FetchContext {
        namespace: &key.namespace,
        now: controller.clock.now(),
        last_reconcile: state.last_reconcile,
    };
    let ready_pods = match ready_pods {
        // A target scaled to zero has no pods, but a metric may scale it up.
        Err(_) if rules.may_be_zero() && scale.spec_replicas == 0 => Ok(0),
        counted => counted,
    };
    if let Some(recommender) = &spec.recommender {
        let value = match ready_pods {
            // As in upstream, the recommender is not called if no pod is ready.
            Err(why) => Err(MetricError::PodsNotReady(why)),
            Ok(ready_pods) => {
                let recommend_context = RecommendContext {
                    namespace: context.namespace,
                    cluster: &autoscaler.config.cluster,
                    scale,
                    ready_pods,
                };
                let request = recommender_request(spec, recommender, &recommend_context);
                autoscaler.metrics_client.fetch_one(&context, &request).await
            }
        };
        return vec![recommender_input(recommender, rules, value)];
    }
    let builder = MetricRequestBuilder {
        annotations: state.object.annotations(),
        compat: autoscaler.config.settings.compat,
        has_prometheus: autoscaler.metrics_client.has_prometheus(),
        ready_pods: &ready_pods,
    };
    let metrics = spec.metrics.iter().filter_map(|metric| builder.build(metric));
    let (named, requests): (Vec<_>, Vec<_>) =
        metrics.map(|metric| ((metric.kind, metric.block), metric.request)).unzip();
    let values = autoscaler.metrics_client.fetch(&context, &requests).await;
    let metrics = named.into_iter().zip(values);
    metrics.map(|((kind, block), value)| metric_input(kind, block, rules, value)).collect()
}

fn metric_input(
    kind: MetricSourceType,
    block: MetricBlock<'_>,
    rules: &EffectiveSpec,
    value: Result<MetricValue, MetricError>,
) -> MetricInput {
    let selector = Selector::from_label_selector(block.selector);
    MetricInput {
        kind,
        label: block.name.to_owned(),
        name: display_name(block.name, block.labels()),
        selector: selector.map(|selector| selector.as_str().to_owned()).unwrap_or_default(),
        address: None,
        band: band(block.low_watermark, block.high_watermark, rules),
        value,
    }
}

fn recommender_input(
    recommender: &RecommenderSpec,
    rules: &EffectiveSpec,
    value: Result<MetricValue, MetricError>,
) -> MetricInput {
    let settings = recommender.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let name = recommender_name(&recommender.target_type, settings);
    let value = value.map_err(|why| match why {
        MetricError::Failed(why) => {
            MetricError::Failed(format!("unable to get external recommendation {name}: {why}"))
        }
        other => other,
    });
    MetricInput {
        kind: MetricSourceType::Recommender,
        label: name.clone(),
        name,
        selector: String::new(),
        address: Some(redact_url(&recommender.url)),
        band: band(recommender.low_watermark, recommender.high_watermark, rules),
        value,
    }
}

fn band(low: Option<Quantity>, high: Option<Quantity>, rules: &EffectiveSpec) -> Option<Band> {
    let milli = |watermark: Option<Quantity>| watermark.map(Quantity::milli_value);
    Band::new(milli(low), milli(high), rules.tolerance)
}
