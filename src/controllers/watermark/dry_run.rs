//! Turns the dry run of single objects on and off: finds those that are meant, and writes what is wanted of each.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, api::ListParams, core::Status};
use serde::Deserialize;

use crate::{cluster::write::set_dry_run, controllers::runtime::cluster::Cluster};
use plimsoll_core::api::wpa::WatermarkPodAutoscaler;

/// How many objects are asked for at once.
const PAGE_SIZE: u32 = 500;

/// As much of an object as there is to be told.
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

/// Which objects are meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObjectSelection {
    /// One, in the namespace of the kubeconfig's context unless another is said.
    One {
        /// Its namespace.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// Those of a namespace, of the context's unless another is said.
    InNamespace {
        /// The namespace.
        namespace: Option<String>,
        /// Which labels they have; empty for any.
        selector: String,
    },
    /// Those of all namespaces.
    AllNamespaces {
        /// Which labels they have; empty for any.
        selector: String,
    },
}

/// An object, and whether it only computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunSetting {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it is in dry run.
    pub dry_run: bool,
}

/// The objects that are meant, in the order of the server; or one line about why they are not known.
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

/// One object.
pub async fn find_one(
    cluster: &Cluster,
    namespace: &str,
    name: &str,
) -> Result<DryRunSetting, String> {
    let api = Api::<DryRunObject>::namespaced(cluster.client.clone(), namespace);
    let about = format!("WatermarkPodAutoscaler {namespace}/{name}");
    let found = api.get(name).await.map_err(|why| error_message(&about, &why))?;
    Ok(DryRunSetting {
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        dry_run: found.spec.dry_run,
    })
}

/// Turns one object's dry run on or off; or says in one line why it is as it was.
pub async fn switch_dry_run(
    cluster: &Cluster,
    object: &DryRunSetting,
    on: bool,
) -> Result<(), String> {
    let DryRunSetting { namespace, name, .. } = object;
    let written = set_dry_run(&cluster.client, (namespace, name), on).await;
    let about = format!("dry-run option of WatermarkPodAutoscaler {namespace}/{name}");
    written.map_err(|why| error_message(&about, &why))
}

async fn list_objects(
    api: Api<DryRunObject>,
    selector: &str,
) -> Result<Vec<DryRunSetting>, String> {
    let mut found = Vec::new();
    let mut wanted = ListParams::default().limit(PAGE_SIZE);
    if !selector.is_empty() {
        wanted = wanted.labels(selector);
    }
    loop {
        let page = api
            .list(&wanted)
            .await
            .map_err(|why| error_message("WatermarkPodAutoscalers", &why))?;
        found.extend(page.items.into_iter().map(|object| DryRunSetting {
            namespace: object.metadata.namespace.unwrap_or_default(),
            name: object.metadata.name.unwrap_or_default(),
            dry_run: object.spec.dry_run,
        }));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => wanted = wanted.continue_token(&token),
            None => return Ok(found),
        }
    }
}

/// Nothing found is a mistake of whoever asked: a script that switched nothing is not to go on.
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

fn error_message(about: &str, why: &kube::Error) -> String {
    match why {
        kube::Error::Api(status) if status.code == 404 && is_missing_object(status) => {
            format!("{about} not found")
        }
        kube::Error::Api(status) if status.code == 404 => format!(
            "{about}: this cluster has no such kind: plimsoll crds | kubectl apply --server-side -f -"
        ),
        kube::Error::Api(status) => format!("{about}: {}", status.message),
        why => format!("{about}: {why}"),
    }
}

/// Whether it is the object that is missing, and not its kind: a server that knows no such path names nothing.
fn is_missing_object(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}
