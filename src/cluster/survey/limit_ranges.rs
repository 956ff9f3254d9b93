//! The requests and limits that LimitRanges set in containers without any.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::ObjectMeta;
use plimsoll_core::rightsizing::survey::{Amounts, Container};
use serde::Deserialize;

use super::objects::amounts;
use crate::cluster::watch::partial_objects::{ResourceAmounts, lean_metadata};

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SurveyedLimitRange {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: LimitRangeSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LimitRangeSpec {
    limits: Vec<LimitRangeItem>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LimitRangeItem {
    #[serde(rename = "type")]
    kind: Box<str>,
    default: ResourceAmounts,
    default_request: ResourceAmounts,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ContainerDefaults {
    requests: Amounts,
    limits: Amounts,
}

#[derive(Debug, Default)]
pub(super) struct DefaultResources(BTreeMap<Box<str>, BTreeMap<Box<str>, ContainerDefaults>>);

impl DefaultResources {
    /// Adds the defaults of a LimitRange, if it has any for containers.
    pub fn add(&mut self, range: &SurveyedLimitRange) {
        let of_container = |item: &&LimitRangeItem| &*item.kind == "Container";
        let Some(item) = range.spec.limits.iter().find(of_container) else { return };
        let (requests, limits) = (amounts(&item.default_request), amounts(&item.default));
        if requests == Amounts::default() && limits == Amounts::default() {
            return;
        }
        let namespace = range.metadata.namespace.as_deref().unwrap_or_default();
        let name = range.metadata.name.as_deref().unwrap_or_default();
        let ranges = self.0.entry(namespace.into()).or_default();
        ranges.insert(name.into(), ContainerDefaults { requests, limits });
    }

    /// Sets what containers of a namespace do not set themselves, as the API server does when it admits their pods. With
    /// several LimitRanges, whose order is undefined there, the first by name counts.
    pub fn apply(&self, namespace: &str, containers: &mut Arc<[Container]>) {
        for (name, defaults) in self.0.get(namespace).into_iter().flatten() {
            for container in Arc::make_mut(containers) {
                let before = (container.requests, container.limits);
                // A limit of its own is the request too, before any LimitRange is considered.
                let Amounts { cpu, memory } = container.limits;
                let requests = Amounts {
                    cpu: defaults.requests.cpu.filter(|_| cpu.is_none()),
                    memory: defaults.requests.memory.filter(|_| memory.is_none()),
                };
                fill(&mut container.requests, requests);
                fill(&mut container.limits, defaults.limits);
                if before != (container.requests, container.limits) {
                    container.limit_range.get_or_insert_with(|| name.clone());
                }
            }
        }
    }
}

fn fill(own: &mut Amounts, default: Amounts) {
    own.cpu = own.cpu.or(default.cpu);
    own.memory = own.memory.or(default.memory);
}
