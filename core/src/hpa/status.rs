//! `status` of a HorizontalPodAutoscaler: formats values, and detects changes.

use k8s_openapi::api::autoscaling::v2::{
    self as api, HorizontalPodAutoscalerStatus, MetricStatus, MetricValueStatus,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use super::{
    proposal::Proposal,
    spec::{Metric, Source},
};
use crate::types::{Quantity, quantity::Format};

/// Formats milli-units for the status.
fn amount(milli: i64, format: Format) -> ApiQuantity {
    ApiQuantity(Quantity::from_milli(milli, format).to_string())
}

fn of_resource(name: &str) -> Format {
    if name == "memory" { Format::BinarySi } else { Format::DecimalSi }
}

/// The status entry of a metric; empty if the metric has no proposal.
pub fn of_metric(metric: &Metric, proposal: Option<&Proposal>) -> MetricStatus {
    let mut status = MetricStatus::default();
    let Some(proposal) = proposal else { return status };
    let average = |format| MetricValueStatus {
        average_value: Some(amount(proposal.value, format)),
        average_utilization: proposal.utilization,
        value: None,
    };
    // The target decides whether the value or the average is reported.
    let value_or_average = |is_average: bool| {
        let shown = Some(amount(proposal.value, Format::DecimalSi));
        if is_average {
            MetricValueStatus { average_value: shown, ..MetricValueStatus::default() }
        } else {
            MetricValueStatus { value: shown, ..MetricValueStatus::default() }
        }
    };
    match &metric.source {
        Source::Resource { resource, .. } => {
            let current = average(of_resource(resource));
            status.resource = Some(api::ResourceMetricStatus { name: resource.clone(), current });
        }
        Source::ContainerResource { resource, container, .. } => {
            status.container_resource = Some(api::ContainerResourceMetricStatus {
                name: resource.clone(),
                container: container.clone(),
                current: average(of_resource(resource)),
            });
        }
        Source::Pods { metric, .. } => {
            let current = average(Format::DecimalSi);
            status.pods = Some(api::PodsMetricStatus { metric: metric.to_api(), current });
        }
        Source::Object { described, metric, target } => {
            status.object = Some(api::ObjectMetricStatus {
                described_object: described.clone(),
                metric: metric.to_api(),
                current: value_or_average(target.type_name == "AverageValue"),
            });
        }
        Source::External { metric, target } => {
            let current = value_or_average(target.average_value.is_some());
            status.external = Some(api::ExternalMetricStatus { metric: metric.to_api(), current });
        }
        // Only metrics of the spec are in the status.
        Source::Prometheus { .. } | Source::Unknown => return status,
    }
    status.type_.clone_from(&metric.type_name);
    status
}

/// A status without the values of metrics, which change with every sample.
#[must_use]
pub fn without_values(status: &HorizontalPodAutoscalerStatus) -> HorizontalPodAutoscalerStatus {
    HorizontalPodAutoscalerStatus { current_metrics: None, ..status.clone() }
}

/// Whether two statuses differ. An empty list is equal to a missing one.
pub fn differs(
    stored: &HorizontalPodAutoscalerStatus,
    wanted: &HorizontalPodAutoscalerStatus,
) -> bool {
    let normalize = |status: &HorizontalPodAutoscalerStatus| {
        let mut status = status.clone();
        status.conditions = status.conditions.filter(|list| !list.is_empty());
        status.current_metrics = status.current_metrics.filter(|list| !list.is_empty());
        status.current_replicas = status.current_replicas.filter(|count| *count != 0);
        status
    };
    normalize(stored) != normalize(wanted)
}
