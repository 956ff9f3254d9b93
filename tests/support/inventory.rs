//! Lists all objects of a cluster.

use std::collections::BTreeMap;

use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::discovery::{Discovery, verbs};
use kube::{Client, ResourceExt as _};

use super::wait;

/// Kinds of objects that the control plane creates and deletes itself.
const TRANSIENT: [&str; 4] = ["Event", "EndpointSlice", "Endpoints", "ComponentStatus"];

/// An object, identified by what is needed to delete it.
#[derive(Clone, Debug)]
pub struct ClusterObject {
    pub resource: ApiResource,
    pub namespace: Option<String>,
    pub name: String,
}

/// All objects of all kinds, by title, except events, endpoints and metrics. Only metadata is read.
pub async fn all_objects(client: &Client) -> BTreeMap<String, ClusterObject> {
    // API groups appear and disappear with CRDs.
    let discovered = wait::until("the kinds of the cluster are known", || async {
        Discovery::new(client.clone()).run().await.ok()
    })
    .await;
    let mut all = BTreeMap::new();
    for group in discovered.groups().filter(|group| !group.name().ends_with("metrics.k8s.io")) {
        for (resource, capabilities) in group.recommended_resources() {
            let is_transient = TRANSIENT.contains(&resource.kind.as_str());
            if is_transient || !capabilities.supports_operation(verbs::LIST) {
                continue;
            }
            let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
            let list = wait::until_ok(&format!("{} are listed", resource.plural), || async {
                match api.list_metadata(&ListParams::default()).await {
                    Ok(list) => Ok(list.items),
                    // Its CRD has been deleted meanwhile.
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
                    Err(why) => Err(why.to_string()),
                }
            })
            .await;
            for object in list {
                let (namespace, name) = (object.namespace(), object.name_any());
                let found = ClusterObject { resource: resource.clone(), namespace, name };
                all.insert(found.title(), found);
            }
        }
    }
    all
}

// === impl ClusterObject ===

impl ClusterObject {
    /// `Kind namespace/name`.
    pub fn title(&self) -> String {
        let namespace = self.namespace.as_deref().unwrap_or_default();
        format!("{} {namespace}/{}", self.resource.kind, self.name)
    }

    /// The API to read and delete it.
    pub fn api(&self, client: &Client) -> Api<DynamicObject> {
        match &self.namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource),
            None => Api::all_with(client.clone(), &self.resource),
        }
    }
}
