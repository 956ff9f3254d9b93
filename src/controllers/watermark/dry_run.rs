//! Turns the dry run of objects on and off: finds the selected objects and patches their specs.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, api::ListParams, core::Status};
use serde::Deserialize;

use crate::{
    cluster::{paged_requests::list_pages, write::set_dry_run},
    controllers::runtime::command_client::Cluster,
};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;

/// The part of an object that is needed here.
#[derive(kube::Resource, Clone, Debug, Deserialize)]
#[resource(inherit = "WatermarkPodAutoscaler")]
struct DryRunObject {
    #[serde(default)]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: DryRunSpec,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DryRunSpec {
    dry_run: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectSelection {
    One {
        /// Namespace of the object; `None` for that of the kubeconfig's current context.
        namespace: Option<String>,
        name: String,
    },
    InNamespace {
        /// The namespace; `None` for that of the kubeconfig's current context.
        namespace: Option<String>,
        /// Label selector; empty for all objects.
        selector: String,
    },
    AllNamespaces {
        /// Label selector; empty for all objects.
        selector: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunSetting {
    pub namespace: String,
    pub name: String,
    pub dry_run: bool,
}

/// Finds the selected objects, in the order of the API server. The error is a one-line message.
pub async fn find(
    cluster: &Cluster,
    which: &ObjectSelection,
) -> Result<Vec<DryRunSetting>, String> {
    match which {
        ObjectSelection::One { namespace, name } => {
            let namespace = namespace.as_ref().unwrap_or(&cluster.namespace);
            Ok(vec![find_one(cluster, namespace, name).await?])
        }
        ObjectSelection::InNamespace { namespace, selector } => {
            let namespace = namespace.as_ref().unwrap_or(&cluster.namespace);
            let found =
                list_objects(Api::namespaced(cluster.client.clone(), namespace), selector).await?;
            require_any(found, &format!(" in namespace {namespace}"), selector)
        }
        ObjectSelection::AllNamespaces { selector } => {
            let found = list_objects(Api::all(cluster.client.clone()), selector).await?;
            require_any(found, "", selector)
        }
    }
}

pub async fn find_one(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<DryRunSetting, String> {
    let api = Api::<DryRunObject>::namespaced(cluster.client.clone(), namespace);
    let subject = format!("WatermarkPodAutoscaler {namespace}/{name}");
    let found = api.get(name).await.map_err(|why| error_message(&subject, &why))?;
    Ok(DryRunSetting {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        dry_run: found.spec.dry_run,
    })
}

/// Turns the dry run of one object on or off. The error is a one-line message.
pub async fn switch_dry_run(
    cluster: &Cluster,
    object: &DryRunSetting,
    on: bool,
) -> Result<(), String> {
    let DryRunSetting { namespace, name, .. } = object;
    let written = set_dry_run(&cluster.client, (namespace, name), on).await;
    let subject = format!("dry-run option of WatermarkPodAutoscaler {namespace}/{name}");
    written.map_err(|why| error_message(&subject, &why))
}

async fn list_objects(
    api: Api<DryRunObject>,
    selector: &str,
) -> Result<Vec<DryRunSetting>, String> {
    let mut parameters = ListParams::default();
    if !selector.is_empty() {
        parameters = parameters.labels(selector);
    }
    let mut objects = Vec::new();
    let listed = list_pages(&api, parameters, |page| objects.extend(page)).await;
    listed.map_err(|why| error_message("WatermarkPodAutoscalers", &why))?;
    let setting = |object: DryRunObject| DryRunSetting {
        namespace: object.metadata.namespace.unwrap_or_default(),
        name: object.metadata.name.unwrap_or_default(),
        dry_run: object.spec.dry_run,
    };
    Ok(objects.into_iter().map(setting).collect())
}

/// Fails if no object was found: a script that changed nothing should not continue.
fn require_any(
    found: Vec<DryRunSetting>,
    place: &str,
    selector: &str,
) -> Result<Vec<DryRunSetting>, String> {
    if !found.is_empty() {
        return Ok(found);
    }
    let labels = if selector.is_empty() { String::new() } else { format!(" with {selector}") };
    Err(format!("no WatermarkPodAutoscaler{labels}{place}"))
}

fn error_message(subject: &str, why: &kube::Error) -> String {
    match why {
        kube::Error::Api(status) if status.code == 404 && is_missing_object(status) => {
            format!("{subject} not found")
        }
        kube::Error::Api(status) if status.code == 404 => format!(
            "{subject}: the CRD is not installed; run plimsoll crds | kubectl apply --server-side -f -"
        ),
        kube::Error::Api(status) => format!("{subject}: {}", status.message),
        why => format!("{subject}: {why}"),
    }
}

/// Whether the object is missing rather than its CRD: for an unknown resource, the API server names no object.
fn is_missing_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}
