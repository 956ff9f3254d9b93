//! Fetches metric values from the metrics APIs, Prometheus and recommenders, through one circuit breaker.

use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _, stream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::Client;
use tokio::time::{Instant, timeout_at};

use super::{
    circuit_breaker::ServiceCall,
    external_recommender::{RecommenderClient, redact_url},
    metrics_api_client::MetricsApiClient,
    promql::PromqlCache,
    query_client::QueryClient,
};
use crate::cluster::cache::selector::Selector;
use plimsoll_core::{
    api::scale_target::TlsConfig,
    scaling::{MetricError, MetricRequest, MetricValue},
    types::Time,
};

const MAX_CONCURRENT_REQUESTS: usize = 4;

/// Fetches values from all sources that a [`MetricRequest`] may name.
pub struct MetricsClient {
    apis: MetricsApiClient,
    queries: QueryClient,
    recommenders: RecommenderClient,
    /// TLS settings for recommenders of objects that specify none.
    recommender_tls: TlsConfig,
    /// The timeout of all metrics of an object together.
    total_timeout: Option<Duration>,
}

/// Timeouts of metric requests. Prometheus and recommenders have their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricTimeouts {
    pub metrics_api: Duration,
    /// The timeout of all metrics of an object together. Without it, many that each respond just in time occupy the caller
    /// for all that time.
    pub total: Option<Duration>,
}

/// What is known about the object that needs the values.
#[derive(Clone, Copy, Debug)]
pub struct FetchContext<'a> {
    pub namespace: &'a str,
    pub now: Time,
    /// When the object last used values. Values from before are not used again.
    pub last_reconcile: Option<Time>,
}

impl MetricsClient {
    /// At most `max_in_flight` requests wait for an unresponsive service. `recommender_tls` completes the TLS settings of
    /// objects.
    pub fn new(
        client: Client,
        promql: Option<PromqlCache>,
        recommenders: RecommenderClient,
        recommender_tls: TlsConfig,
        timeouts: MetricTimeouts,
        max_in_flight: usize,
    ) -> Self {
        let MetricTimeouts { metrics_api, total } = timeouts;
        let apis = MetricsApiClient::new(client, metrics_api, max_in_flight);
        let queries = QueryClient::new(promql, max_in_flight);
        Self { apis, queries, recommenders, recommender_tls, total_timeout: total }
    }

    pub const fn has_prometheus(&self) -> bool {
        self.queries.promql.is_some()
    }

    /// Fetches all values of an object, several concurrently, within the total timeout. An error in place of a request is
    /// returned in place of its value.
    pub async fn fetch(
        &self,
        context: &FetchContext<'_>,
        requests: &[Result<MetricRequest, MetricError>],
    ) -> Vec<Result<MetricValue, MetricError>> {
        let deadline = self.total_timeout.map(|total| Instant::now() + total);
        let fetch = |request| {
            let fetched = async move {
                match request {
                    Ok(request) => self.fetch_one(context, request).await,
                    Err(why) => Err(MetricError::clone(why)),
                }
            };
            // Boxed, because the future of a query is large.
            fail_after(deadline, fetched.boxed()).boxed()
        };
        let fetched: Vec<_> = requests.iter().map(Result::as_ref).map(fetch).collect();
        stream::iter(fetched).buffered(MAX_CONCURRENT_REQUESTS).collect().await
    }

    /// Fetches one value. It is not subject to the total timeout.
    pub async fn fetch_one(
        &self,
        context: &FetchContext<'_>,
        request: &MetricRequest,
    ) -> Result<MetricValue, MetricError> {
        let namespace = context.namespace;
        match request {
            MetricRequest::Resource { resource, selector } => {
                self.fetch_usage(namespace, resource, None, selector.as_ref()).await
            }
            MetricRequest::ContainerResource { resource, container, selector } => {
                self.fetch_usage(namespace, resource, Some(container), selector.as_ref()).await
            }
            MetricRequest::External { metric, selector } => {
                let selector = api_selector(metric, selector.as_ref())?;
                self.apis.external_sum(namespace, metric, selector.as_str()).await
            }
            MetricRequest::PromQl { query } => {
                self.queries.fetch(namespace, query, context.now, context.last_reconcile).await
            }
            MetricRequest::Recommender { url, tls_config, body } => {
                let service = redact_url(url);
                let call = ServiceCall { service: &service, kind: "recommenders", namespace };
                let (tls, defaults) = (tls_config.as_ref(), &self.recommender_tls);
                let request = self.recommenders.recommend(url, tls, defaults, body);
                let limit = self.recommenders.timeout;
                let response = self.apis.circuit_breaker.call(call, limit, request).await;
                response.map(MetricValue::Recommendation)
            }
        }
    }

    async fn fetch_usage(
        &self,
        namespace: &str,
        resource: &str,
        container: Option<&str>,
        selector: Option<&LabelSelector>,
    ) -> Result<MetricValue, MetricError> {
        let selector = api_selector(resource, selector)?;
        self.apis.usage(namespace, resource, container, selector.as_str()).await
    }
}

/// Fails a request that does not finish before the deadline.
async fn fail_after(
    deadline: Option<Instant>,
    request: impl Future<Output = Result<MetricValue, MetricError>>,
) -> Result<MetricValue, MetricError> {
    let Some(deadline) = deadline else { return request.await };
    let timed_out =
        || MetricError::Failed("timed out fetching all metrics of the object".to_owned());
    if Instant::now() >= deadline {
        return Err(timed_out());
    }
    timeout_at(deadline, request).await.unwrap_or_else(|_| Err(timed_out()))
}

fn api_selector(metric: &str, selector: Option<&LabelSelector>) -> Result<Selector, MetricError> {
    Selector::from_label_selector(selector)
        .map_err(|why| MetricError::Failed(format!("invalid selector of metric {metric}: {why}")))
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        future::pending,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::{Request, Response};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelectorRequirement;
    use kube::client::Body;
    use tower::service_fn;

    use super::*;
    use crate::cluster::metric_sources::external_recommender::RequestLimits;

    const CONTEXT: FetchContext<'_> =
        FetchContext { namespace: "shop", now: Time::from_secs(0), last_reconcile: None };

    /// A client of an API server that counts requests and never responds.
    fn metrics_client(requests: &Arc<AtomicUsize>, total: Option<Duration>) -> MetricsClient {
        let timeouts = MetricTimeouts { metrics_api: Duration::from_secs(10), total };
        let limits = RequestLimits::default();
        let recommenders = RecommenderClient::new("test", Arc::new(()), limits);
        let requests = Arc::clone(requests);
        let server = service_fn(move |_: Request<Body>| {
            requests.fetch_add(1, Ordering::Relaxed);
            pending::<Result<Response<Body>, Infallible>>()
        });
        let client = Client::new(server, "default");
        MetricsClient::new(client, None, recommenders, TlsConfig::default(), timeouts, 100)
    }

    fn external(selector: LabelSelector) -> MetricRequest {
        MetricRequest::External { metric: "requests".to_owned(), selector: Some(selector) }
    }

    async fn errors(
        client: &MetricsClient,
        requests: &[Result<MetricRequest, MetricError>],
    ) -> Vec<String> {
        let fetched = client.fetch(&CONTEXT, requests).await;
        fetched.into_iter().map(|value| value.expect_err("no value").to_string()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_after_the_total_timeout_fail_without_a_request() {
        let in_total = "timed out fetching all metrics of the object";
        let requests: Vec<_> = (0..12).map(|_| Ok(external(LabelSelector::default()))).collect();
        for (total, sent, too_late) in [(Some(Duration::from_secs(15)), 8, 8), (None, 12, 0)] {
            let counted = Arc::default();
            let errors = errors(&metrics_client(&counted, total), &requests).await;
            assert_eq!(counted.load(Ordering::Relaxed), sent, "{errors:?}");
            let (own, cut) = errors.split_at(12 - too_late);
            assert!(cut.iter().all(|error| error == in_total), "{cut:?}");
            let api = "unable to fetch metrics from external metrics API: ";
            assert!(own.iter().all(|error| error.starts_with(api)), "{own:?}");
        }
    }

    #[tokio::test]
    async fn errors_are_returned_in_the_order_of_the_requests() {
        let counted = Arc::default();
        let client = metrics_client(&counted, None);
        let unknown = LabelSelectorRequirement {
            key: "app".to_owned(),
            operator: "Near".to_owned(),
            values: None,
        };
        let selector =
            LabelSelector { match_expressions: Some(vec![unknown]), ..LabelSelector::default() };
        let requests = [
            Ok(external(selector)),
            Err(MetricError::NotANumber),
            Ok(MetricRequest::PromQl { query: "up".to_owned() }),
        ];
        let expected = [
            "invalid selector of metric requests: \"Near\" is not a label selector operator for app: use In, NotIn, \
             Exists or DoesNotExist",
            "the value is not a number",
            "no Prometheus server is configured: set --prometheus-address",
        ];
        assert_eq!(errors(&client, &requests).await, expected);
        assert_eq!(counted.load(Ordering::Relaxed), 0);
    }
}
