//! Autoscalers, nodes and limits of namespaces, reduced to what the checks use.

use k8s_openapi::{
    api::{
        autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec},
        core::v1::Node,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use plimsoll_core::{
    api::vpa::{TargetRef, VerticalPodAutoscaler},
    diagnosis::facts::{
        BudgetFacts, HpaFacts, LimitRangeFacts, NodeFacts, QuotaFacts, Reading, ScalerFacts,
        VpaFacts,
    },
    rightsizing::survey::{Amounts, Resource},
    types::quantity::Quantity,
};
use serde::Deserialize;

use super::{ListReader, list_reader::ListedResource};
use crate::cluster::cache::{limit_range::PartialLimitRange, resource_quota::PartialResourceQuota};

/// Metrics of a WatermarkPodAutoscaler have another form, and are not needed.
#[derive(Deserialize)]
struct Wpa {
    metadata: ObjectMeta,
    spec: WpaSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WpaSpec {
    scale_target_ref: TargetRef,
}

/// Without a check of their targets, which exist until that is known better.
pub(crate) async fn vpas(reader: &ListReader<'_>) -> Reading<Vec<VpaFacts>> {
    let resource = ListedResource::new("autoscaling.k8s.io/v1", "verticalpodautoscalers");
    let reduce = |VerticalPodAutoscaler { metadata, spec, status }| {
        let recommendation = status.and_then(|status| status.recommendation).unwrap_or_default();
        let targets = recommendation.container_recommendations.into_iter().map(|container| {
            let amounts = Amounts {
                cpu: container.target.get(&"cpu".into()).map(Quantity::to_cpu),
                memory: container.target.get(&"memory".into()).map(Quantity::to_memory),
            };
            (container.container_name.into(), amounts)
        });
        let targets = targets.collect();
        let [namespace, name] = names(metadata);
        Some(VpaFacts { namespace, name, spec, targets, target_exists: Ok(true) })
    };
    reader.collect(&resource, reduce).await
}

pub(crate) async fn hpas(reader: &ListReader<'_>) -> Reading<Vec<HpaFacts>> {
    let resource = ListedResource::new("autoscaling/v2", "horizontalpodautoscalers");
    let reduce = |HorizontalPodAutoscaler { metadata, spec, .. }| {
        let spec = spec.unwrap_or_default();
        let utilization = spec.metrics.unwrap_or_default().into_iter().filter_map(|metric| {
            let MetricSpec { container_resource, resource, .. } = metric;
            let (name, container, target) = match (container_resource, resource) {
                (Some(of), _) => (of.name, Some(of.container.into()), of.target),
                (None, Some(of)) => (of.name, None, of.target),
                (None, None) => return None,
            };
            target.average_utilization?;
            match name.as_str() {
                "cpu" => Some((Resource::Cpu, container)),
                "memory" => Some((Resource::Memory, container)),
                _ => None,
            }
        });
        let utilization = utilization.collect();
        let target = spec.scale_target_ref;
        let target =
            TargetRef { api_version: target.api_version, kind: target.kind, name: target.name };
        let [namespace, name] = names(metadata);
        Some(HpaFacts { scaler: ScalerFacts { namespace, name, target }, utilization })
    };
    reader.collect(&resource, reduce).await
}

pub(crate) async fn wpas(reader: &ListReader<'_>) -> Reading<Vec<ScalerFacts>> {
    let resource = ListedResource::new("datadoghq.com/v1alpha1", "watermarkpodautoscalers");
    let reduce = |Wpa { metadata, spec }| {
        let [namespace, name] = names(metadata);
        Some(ScalerFacts { namespace, name, target: spec.scale_target_ref })
    };
    reader.collect(&resource, reduce).await
}

pub(super) fn names(metadata: ObjectMeta) -> [Box<str>; 2] {
    [metadata.namespace, metadata.name].map(|name| name.unwrap_or_default().into())
}

pub(crate) async fn nodes(reader: &ListReader<'_>) -> Reading<Vec<NodeFacts>> {
    let reduce = |node: Node| {
        // A kubelet that has not reported yet is not known to be old.
        let info = node.status?.node_info.filter(|info| !info.kubelet_version.is_empty())?;
        let [_, name] = names(node.metadata);
        let is_linux = info.operating_system != "windows";
        Some(NodeFacts { name, kubelet: info.kubelet_version.into(), is_linux })
    };
    reader.collect(&ListedResource::of_cluster("v1", "nodes"), reduce).await
}

pub(crate) async fn budgets(reader: &ListReader<'_>) -> Reading<Vec<BudgetFacts>> {
    let reduce = |PodDisruptionBudget { metadata, status, .. }| {
        let status = status.unwrap_or_default();
        let is_observed =
            status.observed_generation.unwrap_or(0) >= metadata.generation.unwrap_or(0);
        let [namespace, name] = names(metadata);
        Some(BudgetFacts {
            namespace,
            name,
            expected_pods: status.expected_pods,
            desired_healthy: status.desired_healthy,
            is_observed,
        })
    };
    reader.collect(&ListedResource::new("policy/v1", "poddisruptionbudgets"), reduce).await
}

pub(crate) async fn limit_ranges(reader: &ListReader<'_>) -> Reading<Vec<LimitRangeFacts>> {
    let reduce = |range: PartialLimitRange| {
        let [namespace, name] = names(range.metadata);
        Some(LimitRangeFacts { namespace, name, items: range.spec.limits })
    };
    reader.collect(&ListedResource::new("v1", "limitranges"), reduce).await
}

/// Only those without scopes: the others apply to some of the pods.
pub(crate) async fn quotas(reader: &ListReader<'_>) -> Reading<Vec<QuotaFacts>> {
    let reduce = |quota: PartialResourceQuota| {
        let namespace = quota.metadata.namespace.clone().unwrap_or_default().into();
        let quota = quota.quota();
        let (name, hard, used) = (quota.name, quota.hard, quota.used);
        quota.scopes.is_empty().then_some(QuotaFacts { namespace, name, hard, used })
    };
    reader.collect(&ListedResource::new("v1", "resourcequotas"), reduce).await
}
