//! Objects reduced to what a survey needs. A page of full objects is decoded into these and dropped.

use std::{collections::BTreeMap, sync::Arc};

use kube::core::ObjectMeta;
use plimsoll_core::{
    rightsizing::{
        runtime_hints::{EnvValue, runtime_hint},
        survey::{
            Amounts, Container, ContainerRole, ReplicaRange, Resource, RunningAmounts,
            UtilizationTarget,
        },
    },
    types::{quantity::Quantity, units::MilliCpu},
};
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_json::value::RawValue;

use super::pod_groups::SharedValues;
use crate::cluster::{
    cache::controllers::Owner,
    watch::partial_objects::{ResourceAmounts, Resources, lean_metadata},
};

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SurveyedPod {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodPhase,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodPhase {
    pub phase: Option<Box<str>>,
    container_statuses: Vec<ContainerStatus>,
    init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ContainerStatus {
    name: Box<str>,
    /// What the container runs with; a resize in place may be pending.
    resources: Option<Resources>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub node_name: Option<Box<str>>,
    restart_policy: Option<Box<str>>,
    containers: Vec<PodContainer>,
    init_containers: Vec<PodContainer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PodContainer {
    name: Box<str>,
    restart_policy: Option<Box<str>>,
    resources: Resources,
    command: Vec<String>,
    args: Vec<String>,
    env: Vec<Variable>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Variable {
    name: Box<str>,
    value: Option<Box<str>>,
    value_from: Option<VariableSource>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct VariableSource {
    resource_field_ref: Option<ResourceField>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceField {
    resource: Box<str>,
}

/// A controller of any kind.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct SurveyedController {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    pub spec: ControllerSpec,
    #[serde(default, deserialize_with = "or_default")]
    pub status: ControllerStatus,
}

/// In custom resources these fields may have any type and meaning: what does not fit is unknown.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ControllerSpec {
    #[serde(deserialize_with = "or_default")]
    pub replicas: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    template: PodTemplate,
    #[serde(deserialize_with = "or_default")]
    job_template: JobTemplate,
    /// The Deployment whose pod template a Rollout uses.
    #[serde(deserialize_with = "or_default")]
    pub workload_ref: Option<Owner>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct PodTemplate {
    spec: PodSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobTemplate {
    spec: JobTemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct JobTemplateSpec {
    template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ControllerStatus {
    #[serde(deserialize_with = "or_default")]
    pub replicas: Option<u32>,
    #[serde(deserialize_with = "or_default")]
    pub desired_number_scheduled: Option<u32>,
}

/// An object of which the metadata and this part of the spec are read.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Surveyed<S> {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: S,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct VpaSpec {
    pub target_ref: Owner,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct HpaSpec {
    pub scale_target_ref: Owner,
    min_replicas: Option<u32>,
    max_replicas: Option<u32>,
    metrics: Vec<HpaMetric>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct HpaMetric {
    resource: Option<ResourceMetric>,
    container_resource: Option<ResourceMetric>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ResourceMetric {
    name: Box<str>,
    container: Option<Box<str>>,
    target: MetricTarget,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MetricTarget {
    average_utilization: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct SurveyedWpa {
    #[serde(default, deserialize_with = "lean_metadata")]
    pub metadata: ObjectMeta,
    #[serde(default, deserialize_with = "or_default")]
    pub spec: WpaSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct WpaSpec {
    pub scale_target_ref: Owner,
}

impl SurveyedPod {
    /// The containers with what they run with.
    pub fn running(&self) -> impl Iterator<Item = (&str, RunningAmounts)> {
        let statuses =
            self.status.container_statuses.iter().chain(&self.status.init_container_statuses);
        let actual: BTreeMap<&str, &Resources> =
            statuses.filter_map(|one| Some((&*one.name, one.resources.as_ref()?))).collect();
        let containers = self.spec.containers.iter().chain(&self.spec.init_containers);
        containers.map(move |one| {
            let spec = running(&one.resources);
            let actual = actual.get(&*one.name).map(|resources| running(resources));
            let actual = actual.filter(|actual| *actual != RunningAmounts::default());
            (&*one.name, actual.map_or(spec, |actual| without_rounding(spec, actual)))
        })
    }

    /// Whether its containers end, so that the pod is a run or a part of one.
    pub fn ends(&self) -> bool {
        matches!(self.spec.restart_policy.as_deref(), Some("Never" | "OnFailure"))
    }
    /// Whether all of its containers have terminated for good.
    pub fn is_finished(&self) -> bool {
        matches!(self.status.phase.as_deref(), Some("Succeeded" | "Failed"))
    }
}

fn running(of: &Resources) -> RunningAmounts {
    RunningAmounts { requests: amounts(&of.requests), limits: amounts(&of.limits) }
}

/// The actual amounts, with the CPU of the spec where both differ by no more than the rounding of CPU shares.
fn without_rounding(spec: RunningAmounts, actual: RunningAmounts) -> RunningAmounts {
    let cpu = |spec: Option<MilliCpu>, actual: Option<MilliCpu>| match (spec, actual) {
        (Some(spec), Some(actual)) if (spec.0 - actual.0).abs() <= (spec.0 / 100).max(2) => {
            Some(spec)
        }
        (_, actual) => actual,
    };
    RunningAmounts {
        requests: Amounts { cpu: cpu(spec.requests.cpu, actual.requests.cpu), ..actual.requests },
        limits: Amounts { cpu: cpu(spec.limits.cpu, actual.limits.cpu), ..actual.limits },
    }
}

impl ControllerSpec {
    /// The pod template; `None` if the kind has none, or none of this form.
    pub fn pod_template(&self) -> Option<&PodSpec> {
        let templates = [&self.template.spec, &self.job_template.spec.template.spec];
        templates.into_iter().find(|template| !template.containers.is_empty())
    }
}

impl PodSpec {
    /// The containers: init containers and sidecars first, in their order.
    pub fn containers(&self, shared: &mut SharedValues) -> Arc<[Container]> {
        let init = self.init_containers.iter().map(|container| {
            let is_sidecar = container.restart_policy.as_deref() == Some("Always");
            let role = if is_sidecar { ContainerRole::Sidecar } else { ContainerRole::Init };
            (container, role)
        });
        let all = init.chain(self.containers.iter().map(|one| (one, ContainerRole::Main)));
        let containers = all.map(|(container, role)| container.surveyed(role, shared)).collect();
        shared.containers.share(containers)
    }
}

impl PodContainer {
    fn surveyed(&self, role: ContainerRole, shared: &mut SharedValues) -> Container {
        let env: Vec<_> = self.env.iter().map(|one| (one.name.clone(), one.env_value())).collect();
        let Resources { requests, limits } = &self.resources;
        Container {
            name: shared.texts.intern(&self.name),
            role,
            // Those of the template alone: the request of its pods is the limit if there is only a limit.
            requests: amounts(requests),
            limits: amounts(limits),
            running: None,
            limit_range: None,
            resources_unknown: false,
            runtime: runtime_hint(&self.command, &self.args, &env).map(Box::new),
        }
    }
}

impl Variable {
    fn env_value(&self) -> EnvValue {
        let field = self.value_from.as_ref().map(|source| source.resource_field_ref.as_ref());
        match (field, &self.value) {
            (Some(Some(field)), _) if &*field.resource == "limits.memory" => EnvValue::MemoryLimit,
            (Some(_), _) => EnvValue::Other,
            (None, value) => EnvValue::Literal(value.clone().unwrap_or_default()),
        }
    }
}

impl HpaSpec {
    /// The metrics whose targets are relative to requests.
    pub fn utilization_targets(&self, name: &str) -> Vec<UtilizationTarget> {
        let target = |(metric, of): (usize, &HpaMetric)| {
            let measured = of.container_resource.as_ref().or(of.resource.as_ref())?;
            Some(UtilizationTarget {
                kind: "HorizontalPodAutoscaler".into(),
                name: name.into(),
                metric,
                resource: resource(&measured.name)?,
                container: of.container_resource.as_ref().and_then(|one| one.container.clone()),
                percent: measured.target.average_utilization?,
            })
        };
        self.metrics.iter().enumerate().filter_map(target).collect()
    }

    /// How many replicas it may set.
    pub fn replica_range(&self, name: &str) -> ReplicaRange {
        ReplicaRange {
            autoscaler: name.into(),
            // The default of the API.
            min: Some(self.min_replicas.unwrap_or(1)),
            max: self.max_replicas,
            has_other_metrics: self.metrics.len() > self.utilization_targets(name).len(),
        }
    }
}

/// CPU or memory by its name in objects and series.
pub(super) fn resource(name: &str) -> Option<Resource> {
    match name {
        "cpu" => Some(Resource::Cpu),
        "memory" => Some(Resource::Memory),
        _ => None,
    }
}

pub(super) fn amounts(of: &ResourceAmounts) -> Amounts {
    Amounts { cpu: of.cpu.map(Quantity::to_cpu), memory: of.memory.map(Quantity::to_memory) }
}

/// The default of what cannot be decoded.
fn or_default<'de, D: Deserializer<'de>, T: Default + DeserializeOwned>(
    from: D,
) -> Result<T, D::Error> {
    let json = Box::<RawValue>::deserialize(from)?;
    Ok(serde_json::from_str(json.get()).unwrap_or_default())
}
