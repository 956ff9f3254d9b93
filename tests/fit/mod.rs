//! From a recommendation to the resources of one pod: golden vectors, fixes, properties.

mod capping;
mod fixes;
mod limits;
mod pod_ranges;
mod properties;
mod quotas;
mod sizes;

use plimsoll_core::{
    api::{
        ResourceList, ResourceName, VerticalPodAutoscaler,
        vpa::{ContainerRecommendation, Recommendation, VerticalPodAutoscalerStatus},
    },
    sizing::{
        Container, LimitRangeItem, Plan, Pod, Processed, Ranges, Refusal, Resources, Rules, Size,
    },
    types::{compat::Compat, quantity::Quantity},
};
use serde_json::{Value, json};

/// `cpu 1, memory 2Gi`; nothing for an empty text.
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

/// As [`list`] reads it.
pub fn text(list: &ResourceList) -> String {
    let entries: Vec<String> =
        list.iter().map(|(name, amount)| format!("{name} {amount}")).collect();
    entries.join(", ")
}

/// `requests; limits`, each as a list; a part that is left out is absent.
pub fn resources(text: &str) -> Resources {
    let mut parts = text.split(';').map(|part| Some(list(part)).filter(|list| !list.is_empty()));
    Resources { requests: parts.next().flatten(), limits: parts.next().flatten() }
}

/// A pod of containers c1, c2, ... with these resources.
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

/// `c1: target | lower | upper`, as lists.
pub fn said(text: &str) -> ContainerRecommendation {
    let (name, lists) = text.split_once(':').expect("a container and its numbers");
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

/// A VPA with container policies and a recommendation.
#[expect(clippy::needless_pass_by_value, reason = "what calls it makes it in place")]
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
    let mut vpa: VerticalPodAutoscaler = serde_json::from_value(object).expect("a VPA");
    let recommendation = Recommendation {
        container_recommendations: recommendations.iter().map(|text| said(text)).collect(),
    };
    vpa.status = Some(VerticalPodAutoscalerStatus {
        recommendation: Some(recommendation),
        ..VerticalPodAutoscalerStatus::default()
    });
    vpa
}

/// Entries of LimitRanges, as the API writes them.
pub fn ranges(items: Value) -> Ranges {
    let items: Vec<LimitRangeItem> =
        serde_json::from_value(items).expect("entries of a LimitRange");
    Ranges::merge(&items)
}

pub fn process(
    pod: &Pod,
    vpa: &VerticalPodAutoscaler,
    ranges: &Ranges,
    compat: Compat,
) -> Result<Vec<Processed>, Refusal> {
    let processed =
        plimsoll_core::sizing::processed(pod, &Plan::of(vpa), ranges, Rules::of(compat));
    processed.map(Option::unwrap_or_default)
}

pub fn size(
    pod: &Pod,
    vpa: &VerticalPodAutoscaler,
    ranges: &Ranges,
    compat: Compat,
) -> Result<Vec<Size>, Refusal> {
    plimsoll_core::sizing::sizes(pod, &Plan::of(vpa), Some(ranges), Rules::of(compat))
}

/// `c1: target | lower | upper` of each container.
pub fn targets(processed: &[Processed]) -> Vec<String> {
    let line = |one: &Processed| format!("{}: {}", one.said.container_name, text(&one.said.target));
    processed.iter().map(line).collect()
}

pub fn items(reasons: &[plimsoll_core::sizing::Reason]) -> Vec<String> {
    reasons.iter().filter_map(plimsoll_core::sizing::Reason::item).collect()
}
