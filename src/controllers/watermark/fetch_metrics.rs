//! Asks the sources of an object, a few at once, and names each as upstream does.

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
    WatermarkController, circuit_breaker::ServiceCall, config::WatermarkConfig,
    object_state::ObjectState, scaling_gates::queried_metric,
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

/// Upstream's name, by which whoever is asked may tell who asks.
pub(super) const USER_AGENT: &str = "wpa-controller";
/// How long a recommender may take: upstream's limit.
const RECOMMENDER_TIMEOUT: Duration = Duration::from_secs(10);
/// A metrics API may take as long, however short a period is.
const MIN_METRIC_TIMEOUT: Duration = Duration::from_secs(10);

/// How many metrics of one object are asked for at once.
const MAX_CONCURRENT_METRICS: usize = 4;

/// How many times as long as one of them all metrics of an object may take together.
const TOTAL_TIMEOUT_FACTOR: u32 = 2;

/// Whom values are asked from, but for the API server.
pub(super) struct MetricClients {
    recommenders: RecommenderClient,
    /// None where no Prometheus is known.
    promql: Option<PromqlCache>,
}

impl MetricClients {
    /// Nobody is asked yet. Requests to recommenders are told to `calls`, those to a Prometheus to `told`.
    pub fn new(
        config: &WatermarkConfig,
        clock: &Clock,
        calls: Arc<dyn RecommenderCallObserver>,
        told: PrometheusQueryMetrics,
    ) -> Result<Self> {
        let pace = RequestLimits { timeout: RECOMMENDER_TIMEOUT, ..RequestLimits::default() };
        let asked = &config.prometheus;
        let queries = if asked.transport.address.is_empty() {
            None
        } else {
            let own = clock.clone();
            let door =
                HttpTransport::new(asked.transport.clone(), WallClock::new(move || own.now()))
                    .context("--prometheus-address")?;
            let limits = QueryLimits {
                max_in_flight: asked.max_concurrent,
                timeout: asked.timeout,
                max_attempts: 1,
                ..QueryLimits::default()
            };
            let watch = Arc::new(QueryRecorder::new(told));
            let client = client::PrometheusClient::new(Arc::new(door), limits).with_observer(watch);
            let queries = PromqlCache::new(client, config.period)
                .with_matchers(asked.matchers.clone())
                .with_tenant_scope(asked.scope.clone());
            // Only who asks how old a value may be needs to know, and it costs a query.
            let tells = config.max_metric_age.is_some();
            Some(if tells { queries.with_sample_age() } else { queries })
        };
        Ok(Self { recommenders: RecommenderClient::new(USER_AGENT, calls, pace), promql: queries })
    }
}

impl WatermarkController {
    /// The Prometheus that is asked, if one is known.
    pub(super) fn promql(&self) -> Option<&PromqlCache> {
        self.metric_clients.promql.as_ref()
    }

    /// What comes of asking the sources of an object, in their order.
    #[expect(clippy::too_many_arguments, reason = "each is another thing that was read")]
    pub(super) async fn fetch_metrics(
        &self,
        key: &ObjectKey,
        seat: &ObjectState,
        filled: &WatermarkPodAutoscalerSpec,
        rules: &EffectiveSpec,
        scale: Scale,
        readiness: &ReadinessPolicy<'_>,
        pods: &[Pod],
    ) -> Vec<MetricInput> {
        let ready = match readiness.ready_pods(pods, scale) {
            // Without any replica there is no pod, and something else may ask for the first.
            Err(_) if rules.may_be_zero() && scale.spec_replicas == 0 => Ok(0),
            counted => counted,
        };
        if let Some(recommender) = &filled.recommender {
            let asked = match ready {
                // As upstream has it, nobody is asked about pods of which none is ready.
                Err(why) => Err(MetricError::PodsNotReady(why)),
                Ok(ready) => {
                    let occasion = RecommendContext {
                        namespace: &key.namespace,
                        cluster: &self.config.cluster,
                        scale,
                        ready_pods: ready,
                    };
                    self.query_recommender(filled, recommender, &occasion).await
                }
            };
            return vec![recommender_input(recommender, rules, asked)];
        }
        let (ready, until) =
            (&ready, Instant::now() + self.metrics_api_timeout() * TOTAL_TIMEOUT_FACTOR);
        let ask = |metric| self.fetch_metric(key, seat, metric, rules, ready, until).boxed();
        let asked: Vec<_> = filled.metrics.iter().map(ask).collect();
        let asked: Vec<Option<MetricInput>> =
            stream::iter(asked).buffered(MAX_CONCURRENT_METRICS).collect().await;
        asked.into_iter().flatten().collect()
    }

    /// What comes of asking for one metric. Without pods that are ready nobody is asked about what is not of pods.
    async fn fetch_metric(
        &self,
        key: &ObjectKey,
        seat: &ObjectState,
        metric: &MetricSpec,
        rules: &EffectiveSpec,
        ready: &Result<u32, PodsNotReady>,
        until: Instant,
    ) -> Option<MetricInput> {
        let found = metric_block(metric).ok()?;
        let query = self.query_annotation(seat, metric, found.name);
        let kind =
            if query.is_some() { MetricSourceType::Prometheus } else { source_type(metric)? };
        let milli = |mark: Option<Quantity>| mark.map(Quantity::milli_value);
        let is_of_pods = !matches!(kind, MetricSourceType::External | MetricSourceType::Prometheus);
        let asked = async {
            match (ready, query) {
                (Err(why), _) if !is_of_pods => Err(MetricError::PodsNotReady(why.clone())),
                (_, Some((annotation, query))) => {
                    self.fetch_query(key, seat, annotation, query).await
                }
                (_, None) => self.fetch_from_metrics_api(key, kind, metric).await,
            }
        };
        let asked = self.with_deadline(until, asked).await;
        let selector = Selector::from_label_selector(found.selector);
        Some(MetricInput {
            kind,
            label: found.name.to_owned(),
            name: display_name(found.name, found.labels()),
            selector: selector.map(|it| it.as_str().to_owned()).unwrap_or_default(),
            address: None,
            band: Band::new(
                milli(found.low_watermark),
                milli(found.high_watermark),
                rules.tolerance,
            ),
            value: asked,
        })
    }

    /// Gives up on what is not answered by then, as upstream never does: an object whose metrics are answered one after the
    /// other, each just in time, would keep its place among those that wait for all that time.
    async fn with_deadline(
        &self,
        until: Instant,
        asked: impl Future<Output = Result<MetricValue, MetricError>>,
    ) -> Result<MetricValue, MetricError> {
        if self.config.compat == Compat::Upstream {
            return asked.await;
        }
        let late =
            || MetricError::Failed("the metrics of the object take too long together".to_owned());
        if Instant::now() >= until {
            return Err(late());
        }
        timeout_at(until, asked).await.unwrap_or_else(|_| Err(late()))
    }

    /// The annotation by which an external metric is a query of a Prometheus, and the query.
    fn query_annotation<'a>(
        &self,
        seat: &'a ObjectState,
        metric: &MetricSpec,
        name: &str,
    ) -> Option<(&'a str, &'a str)> {
        if source_type(metric)? != MetricSourceType::External
            || self.config.compat == Compat::Upstream
        {
            return None;
        }
        let mut annotations = seat.object.annotations().iter();
        let (key, query) = annotations.find(|(key, _)| queried_metric(key) == Some(name))?;
        Some((key, query))
    }

    async fn fetch_query(
        &self,
        key: &ObjectKey,
        seat: &ObjectState,
        annotation: &str,
        query: &str,
    ) -> Result<MetricValue, MetricError> {
        if self.promql().is_none() {
            return Err(MetricError::Failed(format!(
                "annotation {annotation} asks a Prometheus, and none is known: set --prometheus-address"
            )));
        }
        if query.len() > MAX_VALUE_BYTES {
            return Err(MetricError::Failed(format!(
                "annotation {annotation} has {} bytes, and at most {MAX_VALUE_BYTES} are taken: shorten the query, or record it in \
                 the Prometheus",
                query.len()
            )));
        }
        self.query_prometheus(&key.namespace, query, self.clock.now(), seat.last_reconcile).await
    }

    /// Asks the Prometheus for an object of this namespace.
    pub(super) async fn query_prometheus(
        &self,
        namespace: &str,
        query: &str,
        now: Time,
        had: Option<Time>,
    ) -> Result<MetricValue, MetricError> {
        let Some(queries) = self.promql() else {
            return Err(MetricError::Failed("none is known: set --prometheus-address".to_owned()));
        };
        let call = ServiceCall { service: "Prometheus", kind: "the Prometheus", namespace };
        let asked = queries.get(namespace, query, now, had);
        self.circuit_breaker.call(call, self.config.prometheus.timeout, asked).await
    }

    async fn fetch_from_metrics_api(
        &self,
        key: &ObjectKey,
        kind: MetricSourceType,
        metric: &MetricSpec,
    ) -> Result<MetricValue, MetricError> {
        let found = metric_block(metric).map_err(|why| MetricError::Failed(why.to_string()))?;
        let limit = self.metrics_api_timeout();
        let selector = Selector::from_label_selector(found.selector)
            .map_err(|why| MetricError::Failed(format!("the selector of {}: {why}", found.name)))?;
        let (client, selector): (&Client, &str) = (&self.client, selector.as_str());
        let container = match kind {
            MetricSourceType::ContainerResource => metric.container_resource.as_ref(),
            _ => None,
        };
        let container = container.map(|it| it.container.as_str());
        match kind {
            MetricSourceType::External
            | MetricSourceType::Prometheus
            | MetricSourceType::Recommender => {
                let service = "the external metrics API";
                let call = ServiceCall { service, kind: service, namespace: &key.namespace };
                let asked =
                    fetch_external_metric(client, &key.namespace, found.name, selector, limit);
                self.circuit_breaker.call(call, limit, asked).await
            }
            MetricSourceType::Resource | MetricSourceType::ContainerResource => {
                let service = "the resource metrics API";
                let call = ServiceCall { service, kind: service, namespace: &key.namespace };
                let asked = fetch_resource_metric(
                    client,
                    &key.namespace,
                    found.name,
                    container,
                    selector,
                    limit,
                );
                self.circuit_breaker.call(call, limit, asked).await
            }
        }
    }

    /// How long a metrics API may take: who waits for longer than a period misses a turn, and bounds that changed meanwhile.
    fn metrics_api_timeout(&self) -> Duration {
        let Self { config, .. } = self;
        match config.compat {
            Compat::Upstream => config.request_timeout,
            Compat::Plimsoll => config.request_timeout.min(config.period.max(MIN_METRIC_TIMEOUT)),
        }
    }

    async fn query_recommender(
        &self,
        filled: &WatermarkPodAutoscalerSpec,
        recommender: &RecommenderSpec,
        occasion: &RecommendContext<'_>,
    ) -> Result<MetricValue, MetricError> {
        let tls = recommender.tls_config.as_ref();
        let body = request_body(&recommend_request(filled, recommender), occasion);
        let defaults = &self.config.recommender_tls;
        let asked =
            self.metric_clients.recommenders.recommend(&recommender.url, tls, defaults, &body);
        let service = redact_url(&recommender.url);
        let namespace = occasion.namespace;
        let call = ServiceCall { service: &service, kind: "recommenders", namespace };
        let asked = self.circuit_breaker.call(call, RECOMMENDER_TIMEOUT, asked).await;
        asked.map(MetricValue::Recommendation).map_err(|why| match why {
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
    asked: Result<MetricValue, MetricError>,
) -> MetricInput {
    let milli = |mark: Option<Quantity>| mark.map(Quantity::milli_value);
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
        value: asked,
    }
}
