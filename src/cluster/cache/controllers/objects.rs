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
    watch::partial_objects::ResourceAmounts,
};

#[derive(Clone, Debug, Default, Deserialize)]
pub struct SelectorSpec {
    pub selector: Option<LabelSelector>,
    #[serde(default)]
    pub replicas: Option<i32>,
    #[serde(default)]
    template: PodTemplate,
}

/// The spec of a ReplicationController, whose selector is a map of labels.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LabelMapSpec {
    pub selector: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub replicas: Option<i32>,
    #[serde(default)]
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
    containers: Vec<TemplateContainer>,
    init_containers: Vec<TemplateContainer>,
    /// Resources of the pod as a whole.
    resources: Option<IgnoredAny>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TemplateContainer {
    name: Box<str>,
    restart_policy: Option<Box<str>>,
    resources: TemplateResources,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateResources {
    requests: ResourceAmounts,
}

impl PodTemplate {
    /// `None` if the pod as a whole has resources, which containers do not tell.
    fn requests(&self) -> Option<TemplateRequests> {
        let TemplateSpec { containers, init_containers, resources } = &self.spec;
        let is_sidecar =
            |init: &&TemplateContainer| init.restart_policy.as_deref() == Some("Always");
        let running = containers.iter().chain(init_containers.iter().filter(is_sidecar));
        resources.is_none().then(|| running.map(TemplateContainer::requests).collect())
    }
}

impl TemplateContainer {
    fn requests(&self) -> ContainerRequests {
        let ResourceAmounts { cpu, memory } = self.resources.requests;
        let milli = |amount: Option<Quantity>| amount.map(Quantity::milli_value);
        ContainerRequests { name: self.name.clone(), cpu: milli(cpu), memory: milli(memory) }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    labels: Option<BTreeMap<String, String>>,
}

trait ControllerSpec {
    fn selector(&self) -> Result<Selector, SelectorError>;

    fn replicas(&self) -> Option<i32>;

    fn template(&self) -> Option<TemplateRequests>;
}

impl ControllerSpec for SelectorSpec {
    fn selector(&self) -> Result<Selector, SelectorError> {
        Selector::from_label_selector(self.selector.as_ref())
    }

    fn replicas(&self) -> Option<i32> {
        self.replicas
    }

    fn template(&self) -> Option<TemplateRequests> {
        self.template.requests()
    }
}

impl ControllerSpec for LabelMapSpec {
    fn selector(&self) -> Result<Selector, SelectorError> {
        let labels = self.selector.as_ref();
        Ok(labels.map_or_else(Selector::everything, Selector::from_labels))
    }

    fn replicas(&self) -> Option<i32> {
        self.replicas
    }

    fn template(&self) -> Option<TemplateRequests> {
        self.template.requests()
    }
}

impl ControllerSpec for CronJobSpec {
    fn selector(&self) -> Result<Selector, SelectorError> {
        let labels = self.job_template.spec.template.metadata.labels.as_ref();
        Ok(labels.map_or_else(Selector::everything, Selector::from_labels))
    }

    fn replicas(&self) -> Option<i32> {
        None
    }

    fn template(&self) -> Option<TemplateRequests> {
        None
    }
}

macro_rules! controllers {
    ($($name:ident: $inherit:path, $kind:ident, $spec:ident;)*) => {$(
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
                ControllerSpec::selector(&self.spec)
            }

            fn replicas(&self) -> Option<u32> {
                let replicas = match Self::KIND {
                    WellKnown::DaemonSet => self.status.desired_number_scheduled,
                    _ => ControllerSpec::replicas(&self.spec),
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
                is_topmost.then(|| ControllerSpec::template(&self.spec)).flatten()
            }
        }
    )*};
}

controllers! {
    SlimDaemonSet: apps::v1::DaemonSet, DaemonSet, SelectorSpec;
    SlimDeployment: apps::v1::Deployment, Deployment, SelectorSpec;
    SlimReplicaSet: apps::v1::ReplicaSet, ReplicaSet, SelectorSpec;
    SlimStatefulSet: apps::v1::StatefulSet, StatefulSet, SelectorSpec;
    SlimReplicationController: core::v1::ReplicationController, ReplicationController, LabelMapSpec;
    SlimJob: batch::v1::Job, Job, SelectorSpec;
    SlimCronJob: batch::v1::CronJob, CronJob, CronJobSpec;
}
