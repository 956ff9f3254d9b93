//! Builds the requests for the metrics of an object from its spec and annotations.

use std::collections::BTreeMap;

use super::validation::{MetricBlock, metric_block};
use crate::{
    api::{
        annotations::{MAX_VALUE_BYTES, QUERY},
        wpa::{MetricSpec, RecommenderSpec, WatermarkPodAutoscalerSpec},
    },
    scaling::{
        MetricError, MetricRequest, MetricSourceType, PodsNotReady,
        external_recommender::{RecommendContext, RecommendRequest, request_body},
    },
    types::compat::Compat,
};

/// What the requests for the metrics of an object depend on besides its spec.
#[derive(Clone, Copy, Debug)]
pub struct MetricRequestBuilder<'a> {
    pub annotations: &'a BTreeMap<String, String>,
    /// With [`Compat::Upstream`] no annotation is read.
    pub compat: Compat,
    pub has_prometheus: bool,
    pub ready_pods: &'a Result<u32, PodsNotReady>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct RequestedMetric<'a> {
    pub kind: MetricSourceType,
    pub block: MetricBlock<'a>,
    /// The request, or why none is sent.
    pub request: Result<MetricRequest, MetricError>,
}

impl<'a> MetricRequestBuilder<'a> {
    /// Builds the request for a metric; `None` for an invalid metric. The usage of pods is not requested if no pod is ready.
    pub fn build<'m>(&self, metric: &'m MetricSpec) -> Option<RequestedMetric<'m>> {
        let block = metric_block(metric).ok()?;
        let (name, selector) = (block.name.to_owned(), block.selector.cloned());
        let if_ready = |request| match self.ready_pods {
            Ok(_) => Ok(request),
            Err(why) => Err(MetricError::PodsNotReady(why.clone())),
        };
        let (kind, request) = match metric.kind.as_str() {
            "External" => {
                if let Some((annotation, query)) = self.query_annotation(block.name) {
                    (MetricSourceType::Prometheus, self.promql_request(annotation, query))
                } else {
                    let request = MetricRequest::External { metric: name, selector };
                    (MetricSourceType::External, Ok(request))
                }
            }
            "ContainerResource" => {
                let container = metric.container_resource.as_ref()?.container.clone();
                let request =
                    MetricRequest::ContainerResource { resource: name, container, selector };
                (MetricSourceType::ContainerResource, if_ready(request))
            }
            "Resource" => {
                let request = MetricRequest::Resource { resource: name, selector };
                (MetricSourceType::Resource, if_ready(request))
            }
            _ => return None,
        };
        Some(RequestedMetric { kind, block, request })
    }

    /// The annotation that replaces an external metric by a PromQL query, and the query.
    fn query_annotation(&self, metric: &str) -> Option<(&'a str, &'a str)> {
        if self.compat == Compat::Upstream {
            return None;
        }
        let mut annotations = self.annotations.iter();
        let (key, query) = annotations.find(|(key, _)| queried_metric(key) == Some(metric))?;
        Some((key, query))
    }

    fn promql_request(&self, annotation: &str, query: &str) -> Result<MetricRequest, MetricError> {
        if !self.has_prometheus {
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
        Ok(MetricRequest::PromQl { query: query.to_owned() })
    }
}

/// The metric whose PromQL query an annotation contains.
pub fn queried_metric(annotation: &str) -> Option<&str> {
    QUERY.metric_of(annotation)
}

pub fn recommender_request(
    spec: &WatermarkPodAutoscalerSpec,
    recommender: &RecommenderSpec,
    context: &RecommendContext<'_>,
) -> MetricRequest {
    let request = RecommendRequest {
        target: &spec.scale_target_ref,
        min_replicas: spec.min_replicas.unwrap_or(0),
        max_replicas: spec.max_replicas,
        target_type: &recommender.target_type,
        low_watermark: recommender.low_watermark,
        high_watermark: recommender.high_watermark,
        settings: &recommender.settings,
    };
    MetricRequest::Recommender {
        url: recommender.url.clone(),
        tls_config: recommender.tls_config.clone(),
        body: request_body(&request, context),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
    use serde_json::{Value, json};

    use super::*;

    const ANNOTATION: &str = "query.plimsoll.dev/requests";

    fn metric(kind: &str, block: &str, fields: &Value) -> MetricSpec {
        serde_json::from_value(json!({"type": kind, block: fields})).expect("a metric")
    }

    fn external(name: &str) -> MetricSpec {
        let labels = json!({"matchLabels": {"app": "web"}});
        metric("External", "external", &json!({"metricName": name, "metricSelector": labels}))
    }

    fn resource() -> MetricSpec {
        metric("Resource", "resource", &json!({"name": "cpu", "metricSelector": {}}))
    }

    fn container_resource() -> MetricSpec {
        let fields = json!({"name": "memory", "container": "main"});
        metric("ContainerResource", "containerResource", &fields)
    }

    fn builder(annotations: &BTreeMap<String, String>) -> MetricRequestBuilder<'_> {
        let (compat, ready_pods) = (Compat::Plimsoll, &Ok(1));
        MetricRequestBuilder { annotations, compat, has_prometheus: true, ready_pods }
    }

    #[test]
    fn a_metric_is_requested_from_the_api_of_its_type() {
        let web = [("app".to_owned(), "web".to_owned())].into();
        let labels = LabelSelector { match_labels: Some(web), match_expressions: None };
        let text = str::to_owned;
        for (metric, kind, request) in [
            (
                external("requests"),
                MetricSourceType::External,
                MetricRequest::External { metric: text("requests"), selector: Some(labels) },
            ),
            (
                resource(),
                MetricSourceType::Resource,
                MetricRequest::Resource {
                    resource: text("cpu"),
                    selector: Some(LabelSelector::default()),
                },
            ),
            (
                container_resource(),
                MetricSourceType::ContainerResource,
                MetricRequest::ContainerResource {
                    resource: text("memory"),
                    container: text("main"),
                    selector: None,
                },
            ),
        ] {
            let annotations = BTreeMap::new();
            let built = builder(&annotations).build(&metric).expect("a valid metric");
            assert_eq!((built.kind, built.request), (kind, Ok(request)));
            assert_eq!(Ok(built.block), metric_block(&metric));
        }
    }

    #[test]
    fn an_invalid_metric_is_not_requested() {
        for (kind, block) in [("Pods", "resource"), ("Resource", "containerResource")] {
            let metric = metric(kind, block, &json!({"name": "cpu", "container": "main"}));
            assert_eq!(builder(&BTreeMap::new()).build(&metric), None);
        }
    }

    #[test]
    fn usage_of_pods_is_not_requested_if_no_pod_is_ready() {
        let annotations = [(ANNOTATION.to_owned(), "up".to_owned())].into();
        let none_ready = Err(PodsNotReady::NoPods);
        let builder = MetricRequestBuilder { ready_pods: &none_ready, ..builder(&annotations) };
        let request = |metric: &MetricSpec| builder.build(metric).expect("a valid metric").request;
        for metric in [resource(), container_resource()] {
            assert_eq!(request(&metric), Err(MetricError::PodsNotReady(PodsNotReady::NoPods)));
        }
        for metric in [external("requests"), external("latency")] {
            assert!(request(&metric).is_ok(), "{metric:?}");
        }
    }

    #[test]
    fn a_query_annotation_replaces_the_external_metric_of_its_name() {
        let text = "sum(rate(requests[1m]))";
        let annotations = [(ANNOTATION.to_owned(), text.to_owned())].into();
        let builder = builder(&annotations);
        let upstream = MetricRequestBuilder { compat: Compat::Upstream, ..builder };
        for (builder, metric, kind) in [
            (builder, external("requests"), MetricSourceType::Prometheus),
            (builder, external("latency"), MetricSourceType::External),
            (builder, resource(), MetricSourceType::Resource),
            (upstream, external("requests"), MetricSourceType::External),
        ] {
            let built = builder.build(&metric).expect("a valid metric");
            assert_eq!(built.kind, kind);
            let query = MetricRequest::PromQl { query: text.to_owned() };
            assert_eq!(built.request == Ok(query), kind == MetricSourceType::Prometheus);
        }
        assert_eq!(queried_metric(ANNOTATION), Some("requests"));
        assert_eq!(queried_metric("plimsoll.dev/monitor"), None);
    }

    #[test]
    fn a_query_annotation_without_a_server_or_of_too_many_bytes_is_an_error() {
        let too_long = "a".repeat(MAX_VALUE_BYTES + 1);
        for (query, has_prometheus, error) in [
            (
                &*too_long,
                true,
                Some(
                    "annotation query.plimsoll.dev/requests has 16385 bytes, but the maximum is 16384: shorten the query \
                     or use a recording rule",
                ),
            ),
            (&too_long[1..], true, None),
            (
                &*too_long,
                false,
                Some(
                    "annotation query.plimsoll.dev/requests needs a Prometheus server: set --prometheus-address",
                ),
            ),
        ] {
            let annotations = [(ANNOTATION.to_owned(), query.to_owned())].into();
            let builder = MetricRequestBuilder { has_prometheus, ..builder(&annotations) };
            let metric = external("requests");
            let built = builder.build(&metric).expect("a valid metric");
            assert_eq!(built.kind, MetricSourceType::Prometheus);
            assert_eq!(built.request.err().map(|why| why.to_string()).as_deref(), error);
        }
    }
}
