//! Adopts, releases, pauses and resumes HorizontalPodAutoscalers on behalf of a user: reads them, and patches the version
//! that was read.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::autoscaling::v2::HorizontalPodAutoscaler, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::ListParams};
use plimsoll_core::hpa::takeover::transition::{
    self, CurrentObject, Refusal, Transition, TransitionPatch,
};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    cluster::{paged_requests::list_pages, write::patch_hpa},
    controllers::runtime::command_client::Cluster,
};

/// The part of an object that is needed here. The behavior is as the API server sent it, so that nothing of it gets lost.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "HorizontalPodAutoscaler")]
pub struct TakeoverObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: TakeoverSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct TakeoverSpec {
    #[serde(default)]
    behavior: Value,
}

impl TakeoverObject {
    pub fn namespace(&self) -> &str {
        self.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The tool that applies the object from a repository, if one is named.
    pub fn gitops_tool(&self) -> Option<&'static str> {
        transition::gitops_tool(&self.metadata)
    }

    pub fn plan(&self, transition: Transition) -> Result<TransitionPatch, Refusal> {
        let object = CurrentObject { metadata: &self.metadata, behavior: &self.spec.behavior };
        transition::plan(transition, &object)
    }
}

/// Reads an object. The error is a one-line message.
pub async fn find(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<TakeoverObject, String> {
    let api = Api::<TakeoverObject>::namespaced(cluster.client.clone(), namespace);
    let subject = format!("HorizontalPodAutoscaler {namespace}/{name}");
    api.get(name).await.map_err(|error| error_message(&subject, &error))
}

/// Lists the objects of a namespace, or of all, that `release` has something to do with.
pub async fn find_adopted(
    cluster: &Cluster,
    namespace: Option<&str>,
) -> Result<Vec<TakeoverObject>, String> {
    let client = cluster.client.clone();
    let api = namespace.map_or_else(
        || Api::<TakeoverObject>::all(client.clone()),
        |namespace| Api::namespaced(client.clone(), namespace),
    );
    let none = BTreeMap::new();
    let is_adopted = |object: &TakeoverObject| {
        transition::is_adopted(object.metadata.annotations.as_ref().unwrap_or(&none))
    };
    let mut objects = Vec::new();
    let pages = list_pages(&api, ListParams::default(), |page| {
        objects.extend(page.into_iter().filter(is_adopted));
    });
    pages.await.map_err(|why| error_message("HorizontalPodAutoscalers", &why))?;
    Ok(objects)
}

/// Patches the version of the object that was read. The error is a one-line message.
pub async fn apply(
    cluster: &Cluster,
    object: &TakeoverObject,
    patch: &TransitionPatch,
) -> Result<(), String> {
    let (namespace, name) = (object.namespace(), object.name());
    let version = object.metadata.resource_version.as_deref().unwrap_or_default();
    let body = patch.body_for_version(version);
    let written = patch_hpa(&cluster.client, (namespace, name), &body).await;
    let subject = format!("HorizontalPodAutoscaler {namespace}/{name}");
    written.map_err(|error| error_message(&subject, &error))
}

fn error_message(subject: &str, error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 404 => format!("{subject} not found"),
        kube::Error::Api(status) if status.code == 409 => {
            format!(
                "{subject} was changed by someone else at the same time; nothing is written, try again"
            )
        }
        kube::Error::Api(status) => format!("{subject}: {}", status.message),
        error => format!("{subject}: {error}"),
    }
}
