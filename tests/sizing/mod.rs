//! Computes the resources of a pod from a recommendation: golden vectors, fixes and properties.

mod capping;
mod container_resources;
mod fixes;
mod limits;
mod pod_limit_ranges;
mod properties;
mod quotas;

use plimsoll_core::{
    api::{
        ResourceList, ResourceName, VerticalPodAutoscaler,
        vpa::{ContainerRecommendation, Recommendation, VerticalPodAutoscalerStatus},
    },
    sizing::{
        CappedRecommendation, Container, LimitRangeItem, NamespaceLimitRanges, Pod, Resources,
        SizedContainer, SizingError, SizingRules, SizingSpec,
    },
    types::{compat::Compat, quantity::Quantity},
};
use serde_json::{Value, json};

/// Parses `cpu 1, memory 2Gi`. An empty string is an empty list.
pub fn list(text: &str) -> ResourceList {
    text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(entry).collect()
}

fn entry(text: &str) -> (ResourceName, Quantity) {
    let (name, amount) = text.split_once(' ').unwrap_or(("", text));
    (ResourceName::from(name), quantity(amount))
}

pub fn quantity(text: &str) -> Quantity {
    text.trim().parse().expect("a quantity")
}

/// Formats a list as [`list`] parses it.
pub fn text(list: &ResourceList) -> String {
    let entries: Vec<String> =
        list.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    entries.join(", ")
}

/// Parses `requests; limits`, each as a list. A missing part is absent.
pub fn resources(text: &str) -> Resources {
    let mut parts = text.split(';').map(|part| Some(list(part)).filter(|list| !list.is_empty()));
    Resources { requests: parts.next().flatten(), limits: parts.next().flatten() }
}

/// Returns a pod of containers c1, c2, ... with these resources.
pub fn pod(containers: &[&str]) -> Pod {
    let container = |(index, text): (usize, &&str)| Container {
        name: format!("c{}", index + 1).into(),
        spec: resources(text),
        ..Container::default()
    };
    Pod {
        namespace: "default".into(),
        name: "pod".into(),
        containers: containers.iter().enumerate().map(container).collect(),
        ..Pod::default()
    }
}

/// Parses `c1: target | lower | upper`, as lists.
pub fn container_recommendation(text: &str) -> ContainerRecommendation {
    let (name, lists) = text.split_once(':').expect("container with amounts");
    let mut lists = lists.split('|').map(list);
    let mut next = || lists.next().unwrap_or_default();
    ContainerRecommendation {
        container_name: name.into(),
        target: next(),
        lower_bound: next(),
        upper_bound: next(),
        uncapped_target: ResourceList::EMPTY,
    }
}

/// Returns a VPA with these container policies and this recommendation.
#[expect(clippy::needless_pass_by_value, reason = "callers pass a temporary")]
pub fn vpa(policies: Value, recommendations: &[&str]) -> VerticalPodAutoscaler {
    let mut spec = json!({"targetRef": {"kind": "Deployment", "name": "web"}});
    if !policies.is_null() {
        spec["resourcePolicy"] = json!({"containerPolicies": policies});
    }
    let object = json!({
        "apiVersion": "autoscaling.k8s.io/v1",
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": spec,
    });
    let mut vpa: VerticalPodAutoscaler = serde_json::from_value(object).expect("valid VPA");
    let recommendation = Recommendation {
        container_recommendations: recommendations
            .iter()
            .map(|text| container_recommendation(text))
            .collect(),
    };
    vpa.status = Some(VerticalPodAutoscalerStatus {
        recommendation: Some(recommendation),
        ..VerticalPodAutoscalerStatus::default()
    });
    vpa
}

/// Parses the entries of LimitRanges, as the API writes them.
pub fn ranges(items: Value) -> NamespaceLimitRanges {
    let items: Vec<LimitRangeItem> =
        serde_json::from_value(items).expect("valid LimitRange entries");
    NamespaceLimitRanges::merge(&items)
}

pub fn process(
    pod: &Pod,
    vpa: &VerticalPodAutoscaler,
    ranges: &NamespaceLimitRanges,
    compat: Compat,
) -> Result<Vec<CappedRecommendation>, SizingError> {
    let processed = plimsoll_core::sizing::cap_recommendation(
        pod,
        &SizingSpec::from_vpa(vpa),
        ranges,
        SizingRules::for_compat(compat),
    );
    processed.map(Option::unwrap_or_default)
}

pub fn size(
    pod: &Pod,
    vpa: &VerticalPodAutoscaler,
    ranges: &NamespaceLimitRanges,
    compat: Compat,
) -> Result<Vec<SizedContainer>, SizingError> {
    plimsoll_core::sizing::size_containers(
        pod,
        &SizingSpec::from_vpa(vpa),
        Some(ranges),
        SizingRules::for_compat(compat),
    )
}

/// Formats each container as `c1: target | lower | upper`.
pub fn targets(processed: &[CappedRecommendation]) -> Vec<String> {
    let line = |capped: &CappedRecommendation| {
        format!("{}: {}", capped.recommendation.container_name, text(&capped.recommendation.target))
    };
    processed.iter().map(line).collect()
}

pub fn reason_items(reasons: &[plimsoll_core::sizing::SizingReason]) -> Vec<String> {
    reasons.iter().filter_map(plimsoll_core::sizing::SizingReason::annotation_text).collect()
}
