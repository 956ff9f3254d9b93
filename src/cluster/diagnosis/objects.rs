//! Autoscalers, nodes and limits of namespaces, reduced to what the checks use.

use k8s_openapi::{
    api::{
        autoscaling::v2::{HorizontalPodAutoscaler, MetricSpec},
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

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectName {
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// Metrics of a WatermarkPodAutoscaler have another form, and are not needed.
#[derive(Deserialize)]
struct Wpa {
    metadata: ObjectName,
    spec: WpaSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WpaSpec {
    scale_target_ref: TargetRef,
}

#[derive(Deserialize)]
struct Node {
    metadata: ObjectName,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeStatus {
    node_info: NodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct NodeInfo {
    kubelet_version: Box<str>,
    operating_system: Box<str>,
}

/// Without a check of their targets, which exist until that is known better.
pub(crate) async fn vpas(reader: &ListReader<'_>) -> Reading<Vec<VpaFacts>> {
    let mut vpas = Vec::new();
    let resource = ListedResource::new("autoscaling.k8s.io/v1", "verticalpodautoscalers");
    let add = |VerticalPodAutoscaler { metadata, spec, status }| {
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
        vpas.push(VpaFacts { namespace, name, spec, targets, target_exists: Ok(true) });
    };
    reader.fold(&resource, add).await?;
    Ok(vpas)
}

pub(crate) async fn hpas(reader: &ListReader<'_>) -> Reading<Vec<HpaFacts>> {
    let mut hpas = Vec::new();
    let resource = ListedResource::new("autoscaling/v2", "horizontalpodautoscalers");
    let add = |HorizontalPodAutoscaler { metadata, spec, .. }| {
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
        hpas.push(HpaFacts { scaler: ScalerFacts { namespace, name, target }, utilization });
    };
    reader.fold(&resource, add).await?;
    Ok(hpas)
}

pub(crate) async fn wpas(reader: &ListReader<'_>) -> Reading<Vec<ScalerFacts>> {
    let mut wpas = Vec::new();
    let resource = ListedResource::new("datadoghq.com/v1alpha1", "watermarkpodautoscalers");
    let add = |Wpa { metadata: ObjectName { namespace, name }, spec }: Wpa| {
        wpas.push(ScalerFacts { namespace, name, target: spec.scale_target_ref });
    };
    reader.fold(&resource, add).await?;
    Ok(wpas)
}

/// The namespace and the name of an object.
fn names(metadata: ObjectMeta) -> [Box<str>; 2] {
    [metadata.namespace, metadata.name].map(|name| name.unwrap_or_default().into())
}

pub(crate) async fn nodes(reader: &ListReader<'_>) -> Reading<Vec<NodeFacts>> {
    let mut nodes = Vec::new();
    let add = |Node { metadata, status }: Node| {
        let NodeInfo { kubelet_version, operating_system } = status.node_info;
        // A kubelet that has not reported yet is not known to be old.
        if !kubelet_version.is_empty() {
            let is_linux = &*operating_system != "windows";
            nodes.push(NodeFacts { name: metadata.name, kubelet: kubelet_version, is_linux });
        }
    };
    reader.fold(&ListedResource::of_cluster("v1", "nodes"), add).await?;
    Ok(nodes)
}

pub(crate) async fn budgets(reader: &ListReader<'_>) -> Reading<Vec<BudgetFacts>> {
    let mut budgets = Vec::new();
    let add = |PodDisruptionBudget { metadata, status, .. }| {
        let status = status.unwrap_or_default();
        let is_observed =
            status.observed_generation.unwrap_or(0) >= metadata.generation.unwrap_or(0);
        let [namespace, name] = names(metadata);
        budgets.push(BudgetFacts {
            namespace,
            name,
            expected_pods: status.expected_pods,
            desired_healthy: status.desired_healthy,
            is_observed,
        });
    };
    reader.fold(&ListedResource::new("policy/v1", "poddisruptionbudgets"), add).await?;
    Ok(budgets)
}

pub(crate) async fn limit_ranges(reader: &ListReader<'_>) -> Reading<Vec<LimitRangeFacts>> {
    let mut ranges = Vec::new();
    let add = |range: PartialLimitRange| {
        let [namespace, name] = names(range.metadata);
        ranges.push(LimitRangeFacts { namespace, name, items: range.spec.limits });
    };
    reader.fold(&ListedResource::new("v1", "limitranges"), add).await?;
    Ok(ranges)
}

/// Only those without scopes: the others apply to some of the pods.
pub(crate) async fn quotas(reader: &ListReader<'_>) -> Reading<Vec<QuotaFacts>> {
    let mut quotas = Vec::new();
    let add = |quota: PartialResourceQuota| {
        let namespace = quota.metadata.namespace.clone().unwrap_or_default().into();
        let quota = quota.quota();
        if quota.scopes.is_empty() {
            let (name, hard, used) = (quota.name, quota.hard, quota.used);
            quotas.push(QuotaFacts { namespace, name, hard, used });
        }
    };
    reader.fold(&ListedResource::new("v1", "resourcequotas"), add).await?;
    Ok(quotas)
}
