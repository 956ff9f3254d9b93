//! Requests for metric values.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;

use crate::api::scale_target::TlsConfig;

/// A request for one [`MetricValue`](super::MetricValue), for an object whose namespace the caller knows.
#[derive(Clone, Debug, PartialEq)]
pub enum MetricRequest {
    /// The usage of a resource by each pod.
    Resource {
        /// Name of the resource, such as `cpu`.
        resource: String,
        /// Selects the pods; `None` selects none.
        selector: Option<LabelSelector>,
    },
    /// The usage of a resource by one container of each pod.
    ContainerResource {
        /// Name of the resource, such as `cpu`.
        resource: String,
        container: String,
        /// Selects the pods; `None` selects none.
        selector: Option<LabelSelector>,
    },
    /// The sum of the series of an external metric.
    External {
        metric: String,
        /// Selects the series; `None` selects none.
        selector: Option<LabelSelector>,
    },
    /// The sum of the result of a Prometheus query.
    PromQl { query: String },
    Recommender {
        url: String,
        /// TLS settings of the object, if it has any.
        tls_config: Option<TlsConfig>,
        /// Body of the HTTP request; see [`request_body`](super::external_recommender::request_body).
        body: Value,
    },
}
