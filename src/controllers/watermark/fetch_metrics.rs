//! Fetches the metrics of an object, several concurrently, and names each as upstream does.

use std::{sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use futures::{FutureExt as _, StreamExt as _, stream};
use kube::{Client, ResourceExt as _};
use plimsoll_core::types::{ObjectKey, Time};
use plimsoll_storage::prometheus::{
    client::{self, QueryLimits},
    transport::{HttpTransport, WallClock},
};
use tokio::time::{Instant, timeout_at};

use super::{
    WatermarkController, autoscaler::ObjectState, circuit_breaker::ServiceCall,
    config::WatermarkConfig, scaling_gates::queried_metric,
};
use crate::controllers::runtime::client_calls::QueryRecorder;
use crate::{
    cluster::{
        cache::selector::Selector,
        clock::Clock,
        metrics_api::source::{
            external_metrics::fetch_external_metric,
            promql::PromqlCache,
            recommender::{RecommenderCallObserver, RecommenderClient, RequestLimits, redact_url},
            resource_metrics::fetch_resource_metric,
        },
    },
    telemetry::PrometheusQueryMetrics,
};
use plimsoll_core::{
    api::{
        annotations::MAX_VALUE_BYTES,
        wpa::{MetricSpec, RecommenderSpec, WatermarkPodAutoscalerSpec},
    },
    scaling::{
        MetricError, MetricSourceType, MetricValue, Pod, PodsNotReady, ReadinessPolicy, Scale,
        metric_value::{display_name, recommender_name},
        recommender_protocol::{RecommendContext, request_body},
    },
    types::{compat::Compat, quantity::Quantity},
    watermark::{
        Band, EffectiveSpec, MetricInput, recommender::recommend_request, validation::metric_block,
    },
};

/// Upstream's user agent, which recommenders may rely on.
pub(super) const USER_AGENT: &str = "wpa-controller";
/// Timeout of requests to recommenders, as upstream.
const RECOMMENDER_TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum timeout of metrics APIs, even if the period is shorter.
const MIN_METRIC_TIMEOUT: Duration = Duration::from_secs(10);

/// Concurrent metric requests for one object.
const MAX_CONCURRENT_METRICS: usize = 4;

/// The timeout of all metrics of an object together, in multiples of the timeout of one.
const TOTAL_TIMEOUT_FACTOR: u32 = 2;

/// Clients of the metric sources other than the API server.
pub(super) struct MetricClients {
    recommenders: RecommenderClient,
    /// `None` if no Prometheus server is configured.
    promql: Option<PromqlCache>,
}

impl MetricClients {
    /// Creates the clients. `calls` observes requests to recommenders, `query_metrics` counts queries to Prometheus.
    pub fn new(
        config: &WatermarkConfig,
        clock: &Clock,
        calls: Arc<dyn RecommenderCallObserver>,
        query_metrics: PrometheusQueryMetrics,
    ) -> Result<Self> {
        let request_limits =
            RequestLimits { timeout: RECOMMENDER_TIMEOUT, ..RequestLimits::default() };
        let prometheus = &config.prometheus;
        let promql = if prometheus.transport.address.is_empty() {
            None
        } else {
            let wall = clock.clone();
            let transport = HttpTransport::new(
                prometheus.transport.clone(),
                WallClock::new(move || wall.now()),
            )
            .context("--prometheus-address")?;
            let limits = QueryLimits {
                max_in_flight: prometheus.max_concurrent,
                timeout: prometheus.timeout,
                max_attempts: 1,
                ..QueryLimits::default()
            };
            let observer = Arc::new(QueryRecorder::new(query_metrics));
            let client =
                client::PrometheusClient::new(Arc::new(transport), limits).with_observer(observer);
            let promql = PromqlCache::new(client, config.period)
                .with_matchers(prometheus.matchers.clone())
                .with_tenant_scope(prometheus.scope.clone());
            // The age of samples costs another query and is only needed for --max-metric-age.
            let needs_sample_age = config.max_metric_age.is_some();
            Some(if needs_sample_age { promql.with_sample_age() } else { promql })
        };
        Ok(Self { recommenders: RecommenderClient::new(USER_AGENT, calls, request_limits), promql })
    }
}

impl WatermarkController {
    /// The Prometheus client, if a server is configured.
    pub(super) fn promql(&self) -> Option<&PromqlCache> {
        self.autoscaler.metric_clients.promql.as_ref()
    }

    /// Fetches all metrics of an object, in the order of the spec.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn fetch_metrics(
        &self,
        key: &ObjectKey,
        state: &ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        rules: &EffectiveSpec,
        scale: Scale,
        readiness: &ReadinessPolicy<'_>,
        pods: &[Pod],
    ) -> Vec<MetricInput> {
        let ready = match readiness.ready_pods(pods, scale) {
            // A target scaled to zero has no pods, but a metric may scale it up.
            Err(_) if rules.may_be_zero() && scale.spec_replicas == 0 => Ok(0),
            counted => counted,
        };
        if let Some(recommender) = &filled.recommender {
            let result = match ready {
                // As in upstream, the recommender is not called if no pod is ready.
                Err(why) => Err(MetricError::PodsNotReady(why)),
                Ok(ready) => {
                    let context = RecommendContext {
                        namespace: &key.namespace,
                        cluster: &self.autoscaler.config.cluster,
                        scale,
                        ready_pods: ready,
                    };
                    self.query_recommender(filled, recommender, &context).await
                }
            };
            return vec![recommender_input(recommender, rules, result)];
        }
        let (ready, deadline) =
            (&ready, Instant::now() + self.metrics_api_timeout() * TOTAL_TIMEOUT_FACTOR);
        let fetch = |metric| self.fetch_metric(key, state, metric, rules, ready, deadline).boxed();
        let requests: Vec<_> = filled.metrics.iter().map(fetch).collect();
        let inputs: Vec<Option<MetricInput>> =
            stream::iter(requests).buffered(MAX_CONCURRENT_METRICS).collect().await;
        inputs.into_iter().flatten().collect()
    }

    /// Fetches one metric. Metrics that are not about pods are not fetched if no pod is ready.
    async fn fetch_metric(
        &self,
        key: &ObjectKey,
        state: &ObjectState,
        metric: &MetricSpec,
        rules: &EffectiveSpec,
        ready: &Result<u32, PodsNotReady>,
        deadline: Instant,
    ) -> Option<MetricInput> {
        let block = metric_block(metric).ok()?;
        let query = self.query_annotation(state, metric, block.name);
        let kind =
            if query.is_some() { MetricSourceType::Prometheus } else { source_type(metric)? };
        let milli = |watermark: Option<Quantity>| watermark.map(Quantity::milli_value);
        let is_of_pods = !matches!(kind, MetricSourceType::External | MetricSourceType::Prometheus);
        let request = async {
            match (ready, query) {
                (Err(why), _) if !is_of_pods => Err(MetricError::PodsNotReady(why.clone())),
                (_, Some((annotation, query))) => {
                    self.fetch_query(key, state, annotation, query).await
                }
                (_, None) => self.fetch_from_metrics_api(key, kind, metric).await,
            }
        };
        // Boxed, because the future of a query is large.
        let value = self.with_deadline(deadline, Box::pin(request)).await;
        let selector = Selector::from_label_selector(block.selector);
        Some(MetricInput {
            kind,
            label: block.name.to_owned(),
            name: display_name(block.name, block.labels()),
            selector: selector.map(|selector| selector.as_str().to_owned()).unwrap_or_default(),
            address: None,
            band: Band::new(
                milli(block.low_watermark),
                milli(block.high_watermark),
                rules.tolerance,
            ),
            value,
        })
    }

    /// Fails a request that does not finish before the deadline. Upstream has no such limit: many metrics that each respond
    /// just in time would occupy a worker or a parking permit for all that time.
    async fn with_deadline(
        &self,
        deadline: Instant,
        request: impl Future<Output = Result<MetricValue, MetricError>>,
    ) -> Result<MetricValue, MetricError> {
        if self.settings.compat == Compat::Upstream {
            return request.await;
        }
        let timed_out = || {
            MetricError::Failed(
                "timed out: the metrics of the object take too long in total".to_owned(),
            )
        };
        if Instant::now() >= deadline {
            return Err(timed_out());
        }
        timeout_at(deadline, request).await.unwrap_or_else(|_| Err(timed_out()))
    }

    /// The annotation that replaces an external metric by a PromQL query, and the query.
    fn query_annotation<'a>(
        &self,
        state: &'a ObjectState,
        metric: &MetricSpec,
        name: &str,
    ) -> Option<(&'a str, &'a str)> {
        if source_type(metric)? != MetricSourceType::External
            || self.settings.compat == Compat::Upstream
        {
            return None;
        }
        let mut annotations = state.object.annotations().iter();
        let (key, query) = annotations.find(|(key, _)| queried_metric(key) == Some(name))?;
        Some((key, query))
    }

    async fn fetch_query(
        &self,
        key: &ObjectKey,
        state: &ObjectState,
        annotation: &str,
        query: &str,
    ) -> Result<MetricValue, MetricError> {
        if self.promql().is_none() {
            return Err(MetricError::Failed(format!(
                "annotation {annotation} needs a Prometheus server: set --prometheus-address"
            )));
        }
        if query.len() > MAX_VALUE_BYTES {
            return Err(MetricError::Failed(format!(
                "annotation {annotation} has {} bytes, but the maximum is {MAX_VALUE_BYTES}: shorten the query or use a \
                 recording rule",
                query.len()
            )));
        }
        self.query_prometheus(&key.namespace, query, self.clock.now(), state.last_reconcile).await
    }

    /// Queries Prometheus for an object of this namespace. `last_reconcile` is when the object last needed the result.
    pub(super) async fn query_prometheus(
        &self,
        namespace: &str,
        query: &str,
        now: Time,
        last_reconcile: Option<Time>,
    ) -> Result<MetricValue, MetricError> {
        let Some(promql) = self.promql() else {
            let why = "no Prometheus server is configured: set --prometheus-address";
            return Err(MetricError::Failed(why.to_owned()));
        };
        let call = ServiceCall { service: "Prometheus", kind: "Prometheus", namespace };
        let request = promql.get(namespace, query, now, last_reconcile);
        self.autoscaler
            .circuit_breaker
            .call(call, self.autoscaler.config.prometheus.timeout, request)
            .await
    }

    async fn fetch_from_metrics_api(
        &self,
        key: &ObjectKey,
        kind: MetricSourceType,
        metric: &MetricSpec,
    ) -> Result<MetricValue, MetricError> {
        let block = metric_block(metric).map_err(|why| MetricError::Failed(why.to_string()))?;
        let timeout = self.metrics_api_timeout();
        let selector = Selector::from_label_selector(block.selector).map_err(|why| {
            MetricError::Failed(format!("invalid selector of metric {}: {why}", block.name))
        })?;
        let (client, selector): (&Client, &str) = (&self.client, selector.as_str());
        let container = match kind {
            MetricSourceType::ContainerResource => metric.container_resource.as_ref(),
            _ => None,
        };
        let container = container.map(|metric| metric.container.as_str());
        match kind {
            MetricSourceType::External
            | MetricSourceType::Prometheus
            | MetricSourceType::Recommender => {
                let service = "the external metrics API";
                let call = ServiceCall { service, kind: service, namespace: &key.namespace };
                let request =
                    fetch_external_metric(client, &key.namespace, block.name, selector, timeout);
                self.autoscaler.circuit_breaker.call(call, timeout, request).await
            }
            MetricSourceType::Resource | MetricSourceType::ContainerResource => {
                let service = "the resource metrics API";
                let call = ServiceCall { service, kind: service, namespace: &key.namespace };
                let request = fetch_resource_metric(
                    client,
                    &key.namespace,
                    block.name,
                    container,
                    selector,
                    timeout,
                );
                self.autoscaler.circuit_breaker.call(call, timeout, request).await
            }
        }
    }

    /// Timeout of metrics APIs. A request that takes longer than a period delays the next reconcile, and so a change of the
    /// bounds.
    fn metrics_api_timeout(&self) -> Duration {
        let config = &self.autoscaler.config;
        match config.compat {
            Compat::Upstream => config.request_timeout,
            Compat::Plimsoll => config.request_timeout.min(config.period.max(MIN_METRIC_TIMEOUT)),
        }
    }

    async fn query_recommender(
        &self,
        filled: &WatermarkPodAutoscalerSpec,
        recommender: &RecommenderSpec,
        context: &RecommendContext<'_>,
    ) -> Result<MetricValue, MetricError> {
        let tls = recommender.tls_config.as_ref();
        let body = request_body(&recommend_request(filled, recommender), context);
        let defaults = &self.autoscaler.config.recommender_tls;
        let request = self.autoscaler.metric_clients.recommenders.recommend(
            &recommender.url,
            tls,
            defaults,
            &body,
        );
        let service = redact_url(&recommender.url);
        let namespace = context.namespace;
        let call = ServiceCall { service: &service, kind: "recommenders", namespace };
        let result = self.autoscaler.circuit_breaker.call(call, RECOMMENDER_TIMEOUT, request).await;
        result.map(MetricValue::Recommendation).map_err(|why| match why {
            MetricError::Failed(why) => {
                let name = recommender_label(recommender);
                MetricError::Failed(format!("unable to get external recommendation {name}: {why}"))
            }
            other => other,
        })
    }
}

fn source_type(metric: &MetricSpec) -> Option<MetricSourceType> {
    match metric.kind.as_str() {
        "External" => Some(MetricSourceType::External),
        "Resource" => Some(MetricSourceType::Resource),
        "ContainerResource" => Some(MetricSourceType::ContainerResource),
        _ => None,
    }
}

fn recommender_label(recommender: &RecommenderSpec) -> String {
    let settings = recommender.settings.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    recommender_name(&recommender.target_type, settings)
}

fn recommender_input(
    recommender: &RecommenderSpec,
    rules: &EffectiveSpec,
    value: Result<MetricValue, MetricError>,
) -> MetricInput {
    let milli = |watermark: Option<Quantity>| watermark.map(Quantity::milli_value);
    let name = recommender_label(recommender);
    MetricInput {
        kind: MetricSourceType::Recommender,
        label: name.clone(),
        name,
        selector: String::new(),
        address: Some(redact_url(&recommender.url)),
        band: Band::new(
            milli(recommender.low_watermark),
            milli(recommender.high_watermark),
            rules.tolerance,
        ),
        value,
    }
}
