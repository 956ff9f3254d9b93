//! Values of Pods, Object and External metrics from the metrics APIs, where no other controller reads them.

use kube::Client;
use plimsoll_core::hpa::{Answer, Fetched, MetricRequest, samples::PodValue};

use super::config::HorizontalConfig;
use crate::cluster::{
    metric_sources::{
        custom_metrics::{CustomMetric, CustomValue, MeasuredObject},
        metrics_api_client::MetricsApiClient,
    },
    target::scale::ScaleClient,
};

/// Reads the metrics of objects.
pub(super) struct OwnMetrics {
    apis: MetricsApiClient,
}

impl OwnMetrics {
    /// A client whose requests have the timeout of those to the API server.
    pub fn new(config: &HorizontalConfig, client: Client) -> Self {
        let apis =
            MetricsApiClient::new(client, config.settings.request_timeout, config.settings.workers);
        Self { apis }
    }

    /// The response to a request of an object in this namespace; `None` if the request is not one for these APIs. `kinds`
    /// knows the resources of kinds.
    pub async fn answer(
        &self,
        kinds: &ScaleClient,
        namespace: &str,
        request: &MetricRequest,
    ) -> Option<Fetched> {
        Some(match request {
            MetricRequest::External { metric, metric_selector } => {
                let selector = metric_selector.to_string();
                let values = self.apis.external_values(namespace, metric, &selector);
                values.await.map(Answer::External)
            }
            MetricRequest::Pods { selector, metric, metric_selector } => {
                let (selector, series) = (selector.to_string(), metric_selector.to_string());
                let of = MeasuredObject::Pods { selector: &selector };
                let metric = CustomMetric { namespace, of, name: metric, selector: &series };
                self.apis.custom_values(&metric).await.map(pod_values)
            }
            MetricRequest::Object { group, kind, name, is_namespaced, metric, metric_selector } => {
                let resource;
                let of = if *is_namespaced {
                    resource = match kinds.resource(group, kind).await {
                        Ok(resource) => resource,
                        Err(why) => return Some(Err(why)),
                    };
                    MeasuredObject::Object { resource: &resource, name }
                } else {
                    MeasuredObject::Namespace
                };
                let selector = metric_selector.to_string();
                let metric = CustomMetric { namespace, of, name: metric, selector: &selector };
                self.apis.custom_values(&metric).await.and_then(|values| object_value(&values))
            }
            MetricRequest::Resource { .. } | MetricRequest::Prometheus { .. } => return None,
        })
    }
}

fn pod_values(values: Vec<CustomValue>) -> Answer {
    let values = values.into_iter().map(|value| PodValue {
        pod: value.object,
        value: value.value,
        timestamp: value.at,
        window_seconds: value.window_seconds,
    });
    Answer::Pods(values.collect())
}

/// The only value. The error has upstream's message.
fn object_value(values: &[CustomValue]) -> Fetched {
    match values {
        [value] => Ok(Answer::Object(value.value)),
        values => Err(format!(
            "the custom metrics API server returned {} results when we asked for exactly one",
            values.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::{Time, quantity::Quantity};

    use super::*;

    #[test]
    fn values_keep_their_times_and_an_object_has_exactly_one() {
        let value = |object: &str, value: &str| CustomValue {
            object: object.to_owned(),
            value: value.parse::<Quantity>().expect("a quantity"),
            at: Time::from_secs(7),
            window_seconds: Some(30),
        };
        let values = vec![value("web-1", "5"), value("web-2", "0")];
        let Answer::Pods(pods) = pod_values(values.clone()) else { panic!("other values") };
        let pods = pods.iter().map(|one| (&*one.pod, one.value.milli_value(), one.window_seconds));
        assert_eq!(pods.collect::<Vec<_>>(), [("web-1", 5000, Some(30)), ("web-2", 0, Some(30))]);
        assert_eq!(pod_values(Vec::new()), Answer::Pods(Vec::new()));
        let first = values.first().expect("a value").clone();
        assert_eq!(object_value(std::slice::from_ref(&first)), Ok(Answer::Object(first.value)));
        for (values, count) in [(&[][..], 0), (&values, 2)] {
            let message = format!(
                "the custom metrics API server returned {count} results when we asked for exactly one"
            );
            assert_eq!(object_value(values), Err(message));
        }
    }
}
