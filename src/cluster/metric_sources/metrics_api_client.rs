//! A client of the metrics APIs of the cluster: `metrics.k8s.io`, `external.metrics.k8s.io` and `custom.metrics.k8s.io`,
//! through one circuit breaker.

use std::{future::Future, pin::Pin, time::Duration};

use kube::Client;
use plimsoll_core::{
    scaling::{MetricError, MetricValue},
    types::quantity::Quantity,
};

use super::{
    circuit_breaker::{CircuitBreaker, ServiceCall},
    custom_metrics::{CustomMetric, CustomValue, ServedVersion, fetch_custom_metric},
    external_metrics::{fetch_external_metric, fetch_external_values},
    resource_metrics::fetch_resource_metric,
};

const RESOURCE: &str = "the resource metrics API";
const EXTERNAL: &str = "the external metrics API";
const CUSTOM: &str = "the custom metrics API";

/// Sends one request for each call. Selectors are text, empty for all.
pub struct MetricsApiClient {
    client: Client,
    custom_version: ServedVersion,
    pub(super) circuit_breaker: CircuitBreaker,
    timeout: Duration,
}

impl MetricsApiClient {
    /// Each request takes `timeout` at most. At most `max_in_flight` wait for an unresponsive API.
    pub fn new(client: Client, timeout: Duration, max_in_flight: usize) -> Self {
        Self {
            client,
            custom_version: ServedVersion::default(),
            circuit_breaker: CircuitBreaker::new(max_in_flight),
            timeout,
        }
    }

    /// The usage of a resource by each pod, or by one container of each.
    pub async fn usage(
        &self,
        namespace: &str,
        resource: &str,
        container: Option<&str>,
        selector: &str,
    ) -> Result<MetricValue, MetricError> {
        let Self { client, timeout, .. } = self;
        let request =
            fetch_resource_metric(client, namespace, resource, container, selector, *timeout);
        self.call(RESOURCE, namespace, request).await
    }

    pub async fn external_sum(
        &self,
        namespace: &str,
        metric: &str,
        selector: &str,
    ) -> Result<MetricValue, MetricError> {
        let request =
            fetch_external_metric(&self.client, namespace, metric, selector, self.timeout);
        self.call(EXTERNAL, namespace, request).await
    }

    /// The value of each series of an external metric. An error is a one-line message.
    pub async fn external_values(
        &self,
        namespace: &str,
        metric: &str,
        selector: &str,
    ) -> Result<Vec<Quantity>, String> {
        let request =
            fetch_external_values(&self.client, namespace, metric, selector, self.timeout);
        self.call_with_message(EXTERNAL, namespace, Box::pin(request)).await
    }

    /// The values of a custom metric, one for each object. An error is a one-line message.
    pub async fn custom_values(
        &self,
        metric: &CustomMetric<'_>,
    ) -> Result<Vec<CustomValue>, String> {
        let request = fetch_custom_metric(&self.client, &self.custom_version, metric, self.timeout);
        self.call_with_message(CUSTOM, metric.namespace, Box::pin(request)).await
    }

    /// The request is boxed, because it is large.
    async fn call_with_message<T>(
        &self,
        service: &str,
        namespace: &str,
        request: Pin<Box<impl Future<Output = Result<T, String>>>>,
    ) -> Result<T, String> {
        let request = async { request.await.map_err(MetricError::Failed) };
        self.call(service, namespace, request).await.map_err(|why| why.to_string())
    }

    async fn call<T>(
        &self,
        service: &str,
        namespace: &str,
        request: impl Future<Output = Result<T, MetricError>>,
    ) -> Result<T, MetricError> {
        let call = ServiceCall { service, kind: service, namespace };
        self.circuit_breaker.call(call, self.timeout, request).await
    }
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
    use kube::client::Body;
    use serde_json::json;
    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;
    use crate::cluster::metric_sources::custom_metrics::MeasuredObject;

    const LIMIT: Duration = Duration::from_secs(10);

    /// A client of an API server that never responds to requests of namespace `a`.
    fn api_client(discoveries: &Arc<AtomicUsize>) -> MetricsApiClient {
        let discoveries = Arc::clone(discoveries);
        let server = service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let discoveries = Arc::clone(&discoveries);
            async move {
                let body = match path.as_str() {
                    "/apis/custom.metrics.k8s.io" => {
                        discoveries.fetch_add(1, Ordering::Relaxed);
                        let version = |version: &str| json!({"groupVersion": format!("custom.metrics.k8s.io/{version}"), "version": version});
                        json!({"name": "custom.metrics.k8s.io",
                            "versions": [version("v1beta1"), version("v1beta2")]})
                    }
                    _ if path.contains("/namespaces/a/") => pending().await,
                    _ if path.contains("custom.metrics.k8s.io/v1beta2/") => {
                        json!({"items": [{"describedObject": {"name": "web-1"}, "value": "7"}]})
                    }
                    _ if path.contains("external.metrics.k8s.io/v1beta1/") => {
                        json!({"items": [{"value": "1500m"}, {"value": "2"}]})
                    }
                    _ => json!({"items": []}),
                };
                Ok::<_, Infallible>(Response::new(Body::from(body.to_string().into_bytes())))
            }
        });
        MetricsApiClient::new(Client::new(server, "default"), LIMIT, 4)
    }

    async fn custom(client: &MetricsApiClient, namespace: &str) -> Result<i64, String> {
        let of = MeasuredObject::Pods { selector: "" };
        let metric = CustomMetric { namespace, of, name: "rps", selector: "" };
        let values = client.custom_values(&metric).await?;
        Ok(values.iter().map(|value| value.value.milli_value()).sum())
    }

    async fn external(client: &MetricsApiClient, namespace: &str) -> Result<i64, String> {
        let values = client.external_values(namespace, "jobs", "").await?;
        Ok(values.iter().map(|value| value.milli_value()).sum())
    }

    #[tokio::test(start_paused = true)]
    async fn metrics_that_hang_in_one_namespace_delay_no_other_namespace() {
        let discoveries = Arc::default();
        let client = api_client(&discoveries);
        for _ in 0..5 {
            for error in [custom(&client, "a").await, external(&client, "a").await] {
                let error = error.expect_err("no response");
                assert!(error.contains("did not arrive within 10s"), "{error}");
            }
        }
        let began = Instant::now();
        let hanging = futures::future::join(custom(&client, "a"), external(&client, "a"));
        let others = async {
            assert_eq!(custom(&client, "b").await, Ok(7000));
            assert_eq!(external(&client, "b").await, Ok(3500));
            assert_eq!(began.elapsed(), Duration::ZERO);
            // One request of a namespace that does not respond may wait, the others fail at once.
            for error in [custom(&client, "a").await, external(&client, "a").await] {
                let error = error.expect_err("the circuit is open");
                assert!(error.contains("circuit open for namespace a"), "{error}");
            }
            assert_eq!(began.elapsed(), Duration::ZERO);
        };
        let both = Box::pin(futures::future::join(hanging, others));
        let ((custom, external), ()) = both.await;
        assert!(custom.is_err() && external.is_err(), "{custom:?} {external:?}");
        // The cache has a clock of its own, on which no time has passed.
        assert_eq!(discoveries.load(Ordering::Relaxed), 1);
    }
}
