//! The cluster for the horizontal controllers: Deployments with pods in the state that their controllers and nodes would
//! write, and a HorizontalPodAutoscaler for each.

use futures::future::join_all;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use kube::api::{Api, ListParams};
use plimsoll_core::hpa::takeover::{MODE, ObjectMode};
use serde_json::{Value, json};

use super::{
    support::{
        Testbed,
        bulk_objects::{self, ApiWrite, collection},
    },
    workload::Workload,
};

const GROUP: &str = "autoscaling/v2";
const IN_A_NAMESPACE: usize = 100;
/// Page size of the status polls.
const PAGE: u32 = 500;
/// Pods of each object.
pub const PODS: usize = 2;
/// The metric of all objects with an adapter's metric.
pub const METRIC: &str = "load";

/// Where the value of an object's metric comes from. Each object has one, in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Cpu,
    Memory,
    ContainerMemory,
    Pods,
    Object,
    External,
}

impl Source {
    const ALL: [Self; 6] =
        [Self::Cpu, Self::Memory, Self::ContainerMemory, Self::Pods, Self::Object, Self::External];

    /// Whether the value comes from an adapter, and not from `metrics.k8s.io`.
    pub fn is_adapter(self) -> bool {
        matches!(self, Self::Pods | Self::Object | Self::External)
    }

    /// The metric in the spec. The targets are those values that [`super::metrics_api`] serves on average.
    fn spec(self, name: &str) -> Value {
        let metric = json!({"name": METRIC});
        match self {
            Self::Cpu => json!({"type": "Resource", "resource": {"name": "cpu",
                "target": {"type": "Utilization", "averageUtilization": 50}}}),
            Self::Memory => json!({"type": "Resource", "resource": {"name": "memory",
                "target": {"type": "AverageValue", "averageValue": "100Mi"}}}),
            Self::ContainerMemory => json!({"type": "ContainerResource", "containerResource": {
                "name": "memory", "container": "main",
                "target": {"type": "AverageValue", "averageValue": "100Mi"}}}),
            Self::Pods => json!({"type": "Pods", "pods": {"metric": metric,
                "target": {"type": "AverageValue", "averageValue": "100"}}}),
            Self::Object => json!({"type": "Object", "object": {"metric": metric,
                "describedObject": {"apiVersion": "v1", "kind": "Service", "name": name},
                "target": {"type": "Value", "value": "100"}}}),
            Self::External => json!({"type": "External", "external": {
                "metric": {"name": METRIC, "selector": {"matchLabels": {"app": name}}},
                "target": {"type": "AverageValue", "averageValue": "50"}}}),
        }
    }
}

/// An object and its workload, which have the same name.
#[derive(Clone, Debug)]
pub struct Object {
    pub namespace: String,
    pub name: String,
    pub source: Source,
    /// Whether ours scales it, in place of kube-controller-manager.
    pub is_driven: bool,
}

impl Object {
    /// Its Deployment.
    pub fn workload(&self) -> Workload<'_> {
        Workload { namespace: &self.namespace, name: &self.name, pods: PODS }
    }

    /// The names of its pods.
    pub fn pods(&self) -> impl Iterator<Item = String> {
        (0..PODS).map(|number| self.workload().pod_name(number))
    }

    fn create(&self) -> ApiWrite {
        let mut object = json!({
            "apiVersion": GROUP, "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": self.name},
                "minReplicas": 1, "maxReplicas": 10, "metrics": [self.source.spec(&self.name)],
            },
        });
        if self.is_driven {
            object["metadata"]["annotations"] = json!({MODE.name: ObjectMode::Drive.as_str()});
            let disabled = json!({"selectPolicy": "Disabled"});
            object["spec"]["behavior"] = json!({"scaleUp": disabled, "scaleDown": disabled});
        }
        ApiWrite::create(collection(GROUP, &self.namespace, "horizontalpodautoscalers"), &object)
    }
}

/// Creates this many objects with metrics of all sources, which kube-controller-manager scales.
pub async fn create(bed: &Testbed, count: usize) -> Vec<Object> {
    create_each(bed, count, |index| (Source::ALL[index % Source::ALL.len()], false)).await
}

/// Creates all objects, each with this source, and driven by ours or not. Stops the controllers of the testbed, including
/// its kube-controller-manager.
pub async fn create_each(
    bed: &Testbed,
    count: usize,
    properties: impl Fn(usize) -> (Source, bool),
) -> Vec<Object> {
    let wanted = count.div_ceil(IN_A_NAMESPACE);
    let namespaces = join_all((0..wanted).map(|_| bed.namespace("team"))).await;
    bulk_objects::stop_controllers(bed).await;
    let objects: Vec<_> = (0..count)
        .map(|index| {
            let (source, is_driven) = properties(index);
            Object {
                namespace: namespaces[index / IN_A_NAMESPACE].clone(),
                name: format!("workload-{index}"),
                source,
                is_driven,
            }
        })
        .collect();
    let client = bed.client();
    let workloads = objects.iter().map(Object::workload);
    bulk_objects::send(&client, workloads.clone().flat_map(Workload::objects)).await;
    let creations = objects.iter().map(Object::create);
    bulk_objects::send(&client, workloads.flat_map(Workload::statuses).chain(creations)).await;
    objects
}

/// The number of objects whose status has a value.
pub async fn decided(bed: &Testbed) -> usize {
    let api = Api::<HorizontalPodAutoscaler>::all(bed.client());
    let (mut decided, mut page) = (0, ListParams::default().limit(PAGE));
    loop {
        let Ok(found) = api.list(&page).await else { return 0 };
        decided += found.items.iter().filter(|object| has_value(object)).count();
        match found.metadata.continue_.filter(|next| !next.is_empty()) {
            Some(next) => page = page.continue_token(&next),
            None => return decided,
        }
    }
}

fn has_value(object: &HorizontalPodAutoscaler) -> bool {
    let conditions = object.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "ScalingActive" && one.status == "True")
}
