//! The well-known kinds of controllers, reduced to the fields that are read.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps, batch, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ObjectMeta;
use plimsoll_core::{
    coordination::{ContainerRequests, TemplateRequests},
    types::quantity::Quantity,
};
use serde::{Deserialize, de::IgnoredAny};

use super::{Controller, Owner, WellKnown};
use crate::cluster::{
    cache::selector::{Selector, SelectorError},
    watch::partial_objects::{Container, ResourceAmounts},
};

/// The spec of a controller with a selector of type `S`: that of a ReplicationController is a map of labels.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ControllerSpec<S> {
    selector: Option<S>,
    replicas: Option<i32>,
    template: PodTemplate,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerStatus {
    /// The nodes that should run a pod of a DaemonSet.
    pub desired_number_scheduled: Option<i32>,
    /// Current replicas, where the kind counts them.
    pub replicas: Option<i32>,
}

/// The spec of a CronJob, whose pods are selected by the labels of its pod template.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct CronJobSpec {
    job_template: JobTemplate,
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
#[serde(default)]
struct PodTemplate {
    metadata: TemplateMeta,
    spec: TemplateSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TemplateSpec {
    containers: Vec<Container>,
    init_containers: Vec<Container>,
    /// Resources of the pod as a whole.
    resources: Option<IgnoredAny>,
}

impl PodTemplate {
    /// `None` if the pod as a whole has resources, which containers do not tell.
    fn requests(&self) -> Option<TemplateRequests> {
        let TemplateSpec { containers, init_containers, resources } = &self.spec;
        let is_sidecar = |init: &&Container| init.restart_policy.as_deref() == Some("Always");
        let running = containers.iter().chain(init_containers.iter().filter(is_sidecar));
        resources.is_none().then(|| running.map(container_requests).collect())
    }
}

fn container_requests(container: &Container) -> ContainerRequests {
    let ResourceAmounts { cpu, memory } = container.resources.requests;
    let milli = |amount: Option<Quantity>| amount.map(Quantity::milli_value);
    ContainerRequests { name: container.name.clone(), cpu: milli(cpu), memory: milli(memory) }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    labels: Option<BTreeMap<String, String>>,
}

trait PodSelector: Sized {
    fn canonical(selector: Option<&Self>) -> Result<Selector, SelectorError>;
}

impl PodSelector for LabelSelector {
    fn canonical(selector: Option<&Self>) -> Result<Selector, SelectorError> {
        Selector::from_label_selector(selector)
    }
}

impl PodSelector for BTreeMap<String, String> {
    fn canonical(labels: Option<&Self>) -> Result<Selector, SelectorError> {
        Ok(labels.map_or_else(Selector::everything, Selector::from_labels))
    }
}

trait Spec {
    fn selector(&self) -> Result<Selector, SelectorError>;

    fn replicas(&self) -> Option<i32> {
        None
    }

    fn template(&self) -> Option<TemplateRequests> {
        None
    }
}

impl<S: PodSelector> Spec for ControllerSpec<S> {
    fn selector(&self) -> Result<Selector, SelectorError> {
        PodSelector::canonical(self.selector.as_ref())
    }

    fn replicas(&self) -> Option<i32> {
        self.replicas
    }

    fn template(&self) -> Option<TemplateRequests> {
        self.template.requests()
    }
}

impl Spec for CronJobSpec {
    fn selector(&self) -> Result<Selector, SelectorError> {
        PodSelector::canonical(self.job_template.spec.template.metadata.labels.as_ref())
    }
}

macro_rules! controllers {
    ($($name:ident: $inherit:path, $kind:ident, $spec:ty;)*) => {$(
        #[doc = concat!("A ", stringify!($kind), ", reduced to the fields that are read.")]
        #[derive(Clone, Debug, Deserialize, kube::Resource)]
        #[resource(inherit = $inherit)]
        pub struct $name {
            pub metadata: ObjectMeta,
            #[serde(default)]
            pub spec: $spec,
            #[serde(default)]
            pub status: ControllerStatus,
        }

        impl Controller for $name {
            const KIND: WellKnown = WellKnown::$kind;

            fn selector(&self) -> Result<Selector, SelectorError> {
                Spec::selector(&self.spec)
            }

            fn replicas(&self) -> Option<u32> {
                let replicas = match Self::KIND {
                    WellKnown::DaemonSet => self.status.desired_number_scheduled,
                    _ => Spec::replicas(&self.spec),
                };
                replicas.and_then(|count| u32::try_from(count).ok())
            }

            fn current(&self) -> Option<i32> {
                self.status.replicas
            }

            fn template(&self) -> Option<TemplateRequests> {
                let owners = self.metadata.owner_references.as_deref().unwrap_or_default();
                // The target of an autoscaler is the topmost controller.
                let is_topmost = Owner::controller_of(owners).is_none();
                is_topmost.then(|| Spec::template(&self.spec)).flatten()
            }
        }
    )*};
}

type Labels = BTreeMap<String, String>;

controllers! {
    SlimDaemonSet: apps::v1::DaemonSet, DaemonSet, ControllerSpec<LabelSelector>;
    SlimDeployment: apps::v1::Deployment, Deployment, ControllerSpec<LabelSelector>;
    SlimReplicaSet: apps::v1::ReplicaSet, ReplicaSet, ControllerSpec<LabelSelector>;
    SlimStatefulSet: apps::v1::StatefulSet, StatefulSet, ControllerSpec<LabelSelector>;
    SlimReplicationController: core::v1::ReplicationController, ReplicationController, ControllerSpec<Labels>;
    SlimJob: batch::v1::Job, Job, ControllerSpec<LabelSelector>;
    SlimCronJob: batch::v1::CronJob, CronJob, CronJobSpec;
}
