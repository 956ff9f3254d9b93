//! The objects of the well-known kinds, with the fields that are read of them.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps, batch, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::{Controller, WellKnown};
use crate::cluster::cache::selector::{Selector, SelectorError};

/// The part of a controller that selects by a `LabelSelector`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SelectorSpec {
    /// As in the object.
    pub selector: Option<LabelSelector>,
    /// As in the object.
    #[serde(default)]
    pub replicas: Option<i32>,
}

/// The part of a ReplicationController, which selects by plain labels.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct LabelMapSpec {
    /// As in the object.
    pub selector: Option<BTreeMap<String, String>>,
    /// As in the object.
    #[serde(default)]
    pub replicas: Option<i32>,
}

/// What is read of what became of a controller.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ControllerStatus {
    /// Nodes that a DaemonSet is to have a pod on.
    pub desired_number_scheduled: Option<i32>,
    /// Pods that there are, where the kind counts them.
    pub replicas: Option<i32>,
}

/// The part of a CronJob: its pods are known by the labels that they will be given.
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
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    labels: Option<BTreeMap<String, String>>,
}

impl SelectorSpec {
    fn read(&self) -> Result<Selector, SelectorError> {
        Selector::from_label_selector(self.selector.as_ref())
    }

    fn replicas(&self) -> Option<i32> {
        self.replicas
    }
}

impl LabelMapSpec {
    #[allow(clippy::unnecessary_wraps, reason = "the three parts answer alike")]
    fn read(&self) -> Result<Selector, SelectorError> {
        let labels = self.selector.as_ref();
        Ok(labels.map_or_else(Selector::everything, Selector::from_labels))
    }

    fn replicas(&self) -> Option<i32> {
        self.replicas
    }
}

impl CronJobSpec {
    #[allow(clippy::unnecessary_wraps, reason = "the three parts answer alike")]
    fn read(&self) -> Result<Selector, SelectorError> {
        let labels = self.job_template.spec.template.metadata.labels.as_ref();
        Ok(labels.map_or_else(Selector::everything, Selector::from_labels))
    }

    #[allow(clippy::unused_self, reason = "the three parts answer alike")]
    fn replicas(&self) -> Option<i32> {
        None
    }
}

macro_rules! controllers {
    ($($name:ident: $inherit:path, $kind:ident, $spec:ident;)*) => {$(
        #[doc = concat!("A ", stringify!($kind), ", with what is read of it.")]
        #[derive(Clone, Debug, Deserialize, kube::Resource)]
        #[resource(inherit = $inherit)]
        pub struct $name {
            /// As in the object.
            pub metadata: ObjectMeta,
            /// As in the object.
            #[serde(default)]
            pub spec: $spec,
            /// As in the object.
            #[serde(default)]
            pub status: ControllerStatus,
        }

        impl Controller for $name {
            const KIND: WellKnown = WellKnown::$kind;

            fn selector(&self) -> Result<Selector, SelectorError> {
                self.spec.read()
            }

            fn replicas(&self) -> Option<u32> {
                let told = match Self::KIND {
                    WellKnown::DaemonSet => self.status.desired_number_scheduled,
                    _ => self.spec.replicas(),
                };
                told.and_then(|count| u32::try_from(count).ok())
            }

            fn current(&self) -> Option<i32> {
                self.status.replicas
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
