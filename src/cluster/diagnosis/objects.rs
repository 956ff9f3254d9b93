//! Autoscalers, nodes and limits of namespaces, reduced to what the checks use.

use plimsoll_core::{
    api::vpa::{TargetRef, VerticalPodAutoscalerSpec, VerticalPodAutoscalerStatus},
    diagnosis::facts::{
        BudgetFacts, HpaFacts, LimitRangeFacts, NodeFacts, QuotaFacts, Reading, ScalerFacts,
        VpaFacts,
    },
    rightsizing::survey::{Amounts, Resource},
    types::quantity::Quantity,
};
use serde::Deserialize;

use super::{ListReader, paged_list::ListedResource};
use crate::cluster::cache::{limit_range::PartialLimitRange, resource_quota::PartialResourceQuota};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectName {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub generation: i64,
}

#[derive(Deserialize)]
struct Vpa {
    metadata: ObjectName,
    spec: VerticalPodAutoscalerSpec,
    #[serde(default)]
    status: Option<VerticalPodAutoscalerStatus>,
}

#[derive(Deserialize)]
struct Scaler {
    metadata: ObjectName,
    spec: ScalerSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ScalerSpec {
    scale_target_ref: TargetRef,
    #[serde(default)]
    metrics: Option<Vec<Metric>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metric {
    #[serde(default)]
    resource: Option<ResourceMetric>,
    #[serde(default)]
    container_resource: Option<ResourceMetric>,
}

#[derive(Deserialize)]
struct ResourceMetric {
    #[serde(default)]
    name: Box<str>,
    #[serde(default)]
    container: Option<Box<str>>,
    #[serde(default)]
    target: MetricTarget,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MetricTarget {
    average_utilization: Option<i64>,
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

#[derive(Deserialize)]
struct Budget {
    metadata: ObjectName,
    #[serde(default)]
    status: BudgetStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct BudgetStatus {
    observed_generation: i64,
    expected_pods: i32,
    desired_healthy: i32,
}

/// Without a check of their targets, which exist until that is known better.
pub(crate) async fn vpas(reader: &ListReader<'_>) -> Reading<Vec<VpaFacts>> {
    let mut vpas = Vec::new();
    let resource = ListedResource::new("autoscaling.k8s.io/v1", "verticalpodautoscalers");
    let add = |Vpa { metadata, spec, status }: Vpa| {
        let recommendation = status.and_then(|status| status.recommendation).unwrap_or_default();
        let targets = recommendation.container_recommendations.into_iter().map(|container| {
            let amounts = Amounts {
                cpu: container.target.get(&"cpu".into()).map(Quantity::to_cpu),
                memory: container.target.get(&"memory".into()).map(Quantity::to_memory),
            };
            (container.container_name.into(), amounts)
        });
        let targets = targets.collect();
        let ObjectName { namespace, name, .. } = metadata;
        vpas.push(VpaFacts { namespace, name, spec, targets, target_exists: Ok(true) });
    };
    reader.fold(&resource, add).await?;
    Ok(vpas)
}

pub(crate) async fn hpas(reader: &ListReader<'_>) -> Reading<Vec<HpaFacts>> {
    let mut hpas = Vec::new();
    let resource = ListedResource::new("autoscaling/v2", "horizontalpodautoscalers");
    let add = |Scaler { metadata, spec }: Scaler| {
        let metrics = spec.metrics.unwrap_or_default().into_iter();
        let utilization = metrics.filter_map(|metric| {
            let of = metric.container_resource.or(metric.resource)?;
            of.target.average_utilization?;
            let resource = match &*of.name {
                "cpu" => Resource::Cpu,
                "memory" => Resource::Memory,
                _ => return None,
            };
            Some((resource, of.container))
        });
        let utilization = utilization.collect();
        hpas.push(HpaFacts { scaler: scaler(metadata, spec.scale_target_ref), utilization });
    };
    reader.fold(&resource, add).await?;
    Ok(hpas)
}

pub(crate) async fn wpas(reader: &ListReader<'_>) -> Reading<Vec<ScalerFacts>> {
    let mut wpas = Vec::new();
    let resource = ListedResource::new("datadoghq.com/v1alpha1", "watermarkpodautoscalers");
    let add = |wpa: Wpa| wpas.push(scaler(wpa.metadata, wpa.spec.scale_target_ref));
    reader.fold(&resource, add).await?;
    Ok(wpas)
}

fn scaler(metadata: ObjectName, target: TargetRef) -> ScalerFacts {
    let ObjectName { namespace, name, .. } = metadata;
    ScalerFacts { namespace, name, target }
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
    let add = |Budget { metadata, status }: Budget| {
        let ObjectName { namespace, name, generation } = metadata;
        budgets.push(BudgetFacts {
            namespace,
            name,
            expected_pods: status.expected_pods,
            desired_healthy: status.desired_healthy,
            is_observed: status.observed_generation >= generation,
        });
    };
    reader.fold(&ListedResource::new("policy/v1", "poddisruptionbudgets"), add).await?;
    Ok(budgets)
}

pub(crate) async fn limit_ranges(reader: &ListReader<'_>) -> Reading<Vec<LimitRangeFacts>> {
    let mut ranges = Vec::new();
    let add = |range: PartialLimitRange| {
        ranges.push(LimitRangeFacts {
            namespace: range.metadata.namespace.unwrap_or_default().into(),
            name: range.metadata.name.unwrap_or_default().into(),
            items: range.spec.limits,
        });
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
