//! The objects of the well-known kinds, with the fields that are read of them.

use std::collections::BTreeMap;

use k8s_openapi::api::{apps, batch, core};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::ObjectMeta;
use serde::Deserialize;

use super::{Controller, WellKnown};
use crate::observe::selector::{Selector, SelectorError};

/// The part of a controller that selects by a `LabelSelector`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct BySelector {
    /// As in the object.
    pub selector: Option<LabelSelector>,
}

/// The part of a ReplicationController, which selects by plain labels.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ByLabels {
    /// As in the object.
    pub selector: Option<BTreeMap<String, String>>,
}

/// The part of a CronJob: its pods are known by the labels that they will be given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ByTemplate {
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

impl BySelector {
    fn read(&self) -> Result<Selector, SelectorError> {
        Selector::from_label_selector(self.selector.as_ref())
    }
}

impl ByLabels {
    #[allow(clippy::unnecessary_wraps, reason = "the three parts answer alike")]
    fn read(&self) -> Result<Selector, SelectorError> {
        let labels = self.selector.as_ref();
        Ok(labels.map_or_else(Selector::everything, Selector::of_labels))
    }
}

impl ByTemplate {
    #[allow(clippy::unnecessary_wraps, reason = "the three parts answer alike")]
    fn read(&self) -> Result<Selector, SelectorError> {
        let labels = self.job_template.spec.template.metadata.labels.as_ref();
        Ok(labels.map_or_else(Selector::everything, Selector::of_labels))
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
        }

        impl Controller for $name {
            const KIND: WellKnown = WellKnown::$kind;

            fn selector(&self) -> Result<Selector, SelectorError> {
                self.spec.read()
            }
        }
    )*};
}

controllers! {
    SlimDaemonSet: apps::v1::DaemonSet, DaemonSet, BySelector;
    SlimDeployment: apps::v1::Deployment, Deployment, BySelector;
    SlimReplicaSet: apps::v1::ReplicaSet, ReplicaSet, BySelector;
    SlimStatefulSet: apps::v1::StatefulSet, StatefulSet, BySelector;
    SlimReplicationController: core::v1::ReplicationController, ReplicationController, ByLabels;
    SlimJob: batch::v1::Job, Job, BySelector;
    SlimCronJob: batch::v1::CronJob, CronJob, ByTemplate;
}
