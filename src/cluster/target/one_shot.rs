//! Reads what a single VPA needs with individual requests: its target, the chain of its owners, and its pods.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{ListParams, ObjectList},
};
use serde::de::DeserializeOwned;

use super::scale::{CacheLifetimes, ObjectReference, RequestGate, Scale, ScaleClient};
use crate::cluster::{
    cache::{
        controllers::{
            Controller, ControllerCache, Owner, SlimCronJob, SlimDaemonSet, SlimDeployment,
            SlimJob, SlimReplicaSet, SlimReplicationController, SlimStatefulSet, WellKnown,
        },
        selector::Selector,
        updater_pod::UpdaterPod,
    },
    metrics_api::list_stream::error_message,
    target::{TargetResolution, TargetResolver},
    watch::{
        maybe_object::MaybeObject,
        partial_objects::{PartialNode, PartialPod},
    },
};
use plimsoll_core::api::{VerticalPodAutoscaler, vpa::TargetRef};

/// Maximum length of an owner chain; a longer one is a cycle.
const MAX_OWNER_CHAIN: usize = 12;

/// Page size of a list.
const PAGE_SIZE: u32 = 500;

/// A failed read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read: {why}")]
pub struct LookupError {
    /// The object or list.
    pub what: String,
    /// The error.
    pub why: String,
}

impl LookupError {
    fn new(what: impl Into<String>, why: &kube::Error) -> Self {
        Self { what: what.into(), why: error_message(why) }
    }
}

/// A VPA; `None` if it does not exist.
pub async fn find_vpa(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<VerticalPodAutoscaler>, LookupError> {
    let api = Api::<VerticalPodAutoscaler>::namespaced(client.clone(), namespace);
    let what = || format!("VerticalPodAutoscaler {namespace}/{name}");
    get(&api, name).await.map_err(|why| LookupError::new(what(), &why))
}

/// A pod in any phase; `None` if it does not exist.
pub async fn find_updater_pod(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<UpdaterPod>, LookupError> {
    let api = Api::<UpdaterPod>::namespaced(client.clone(), namespace);
    let what = || format!("Pod {namespace}/{name}");
    get(&api, name).await.map_err(|why| LookupError::new(what(), &why))
}

/// The names of all pods of a namespace.
pub async fn find_pod_names(client: &Client, namespace: &str) -> Result<Vec<String>, LookupError> {
    let api = Api::<UpdaterPod>::namespaced(client.clone(), namespace);
    let list = api.list_metadata(&ListParams::default()).await;
    let list =
        list.map_err(|why| LookupError::new(format!("pods of namespace {namespace}"), &why))?;
    Ok(list.items.into_iter().filter_map(|pod| pod.metadata.name).collect())
}

/// An object; `None` if it does not exist. A kind that the cluster does not know has no objects.
async fn get<K>(api: &Api<K>, name: &str) -> kube::Result<Option<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    match api.get(name).await {
        Ok(object) => Ok(Some(object)),
        // Not every 404 has a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(why) => Err(why),
    }
}

/// The names of all VPAs of a namespace; `None` if the cluster has no VPA CRD.
pub async fn find_vpa_names(
    client: &Client,
    namespace: &str,
) -> Result<Option<Vec<String>>, LookupError> {
    let api = Api::<VerticalPodAutoscaler>::namespaced(client.clone(), namespace);
    match api.list_metadata(&ListParams::default()).await {
        Ok(list) => {
            let names = list.items.into_iter().filter_map(|vpa| vpa.metadata.name);
            Ok(Some(names.collect()))
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(why) => {
            let what = format!("VerticalPodAutoscalers of namespace {namespace}");
            Err(LookupError::new(what, &why))
        }
    }
}

/// The VPAs of a namespace or of the cluster; `None` if the cluster has no VPA CRD.
pub async fn find_vpas(
    client: &Client,
    namespace: Option<&str>,
) -> Result<Option<Vec<VerticalPodAutoscaler>>, LookupError> {
    let api = match namespace {
        Some(namespace) => {
            Api::<MaybeObject<VerticalPodAutoscaler>>::namespaced(client.clone(), namespace)
        }
        None => Api::all(client.clone()),
    };
    match api.list(&ListParams::default().limit(1)).await {
        Ok(_) => list(api, "VerticalPodAutoscalers", "", "").await.map(Some),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(why) => Err(LookupError::new("VerticalPodAutoscalers", &why)),
    }
}

/// Resolves the target of a VPA as the recommender does, but fetches only the controllers that this needs.
pub async fn find_target(
    client: &Client,
    namespace: &str,
    target: &TargetRef,
    patience: Duration,
) -> Result<TargetResolution, LookupError> {
    let gate: RequestGate = Arc::new(|| Box::pin(std::future::ready(())));
    let lifetimes = CacheLifetimes { request_timeout: patience, ..CacheLifetimes::default() };
    let scale_client = ScaleClient::new(client.clone(), Arc::clone(&gate), lifetimes);
    let controllers = Arc::new(ControllerCache::new());
    let mut next = Some(ObjectReference {
        namespace: namespace.into(),
        api_version: target.api_version.as_deref().unwrap_or_default().into(),
        kind: target.kind.as_str().into(),
        name: target.name.as_str().into(),
    });
    let mut length = 0;
    while let Some(key) = next.take().filter(|_| length < MAX_OWNER_CHAIN) {
        length += 1;
        let owner = match WellKnown::from_kind(&key.kind) {
            Some(kind) => fetch(client, &controllers, kind, &key).await?,
            None => match &*scale_client.get(&key).await {
                Scale::Found { owner, .. } => owner.clone(),
                _ => None,
            },
        };
        next = owner.map(|owner| ObjectReference::from_owner(namespace, owner));
    }
    // Every object that was needed has been fetched; all others do not exist.
    for kind in WellKnown::ALL {
        controllers.finish_list(kind);
    }
    let resolver = TargetResolver::new(client.clone(), controllers, gate, lifetimes);
    Ok(resolver.resolve(namespace, target).await)
}

async fn fetch(
    client: &Client,
    controllers: &ControllerCache,
    kind: WellKnown,
    key: &ObjectReference,
) -> Result<Option<Owner>, LookupError> {
    match kind {
        WellKnown::DaemonSet => fetch_one::<SlimDaemonSet>(client, controllers, key).await,
        WellKnown::Deployment => fetch_one::<SlimDeployment>(client, controllers, key).await,
        WellKnown::ReplicaSet => fetch_one::<SlimReplicaSet>(client, controllers, key).await,
        WellKnown::StatefulSet => fetch_one::<SlimStatefulSet>(client, controllers, key).await,
        WellKnown::ReplicationController => {
            fetch_one::<SlimReplicationController>(client, controllers, key).await
        }
        WellKnown::Job => fetch_one::<SlimJob>(client, controllers, key).await,
        WellKnown::CronJob => fetch_one::<SlimCronJob>(client, controllers, key).await,
    }
}

async fn fetch_one<K>(
    client: &Client,
    controllers: &ControllerCache,
    key: &ObjectReference,
) -> Result<Option<Owner>, LookupError>
where
    K: Controller
        + Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Clone
        + Debug
        + DeserializeOwned,
{
    let api = Api::<K>::namespaced(client.clone(), &key.namespace);
    let what = || format!("{} {}/{}", key.kind, key.namespace, key.name);
    let object = get(&api, &key.name).await.map_err(|why| LookupError::new(what(), &why))?;
    let Some(object) = object else { return Ok(None) };
    controllers.put(&object);
    Ok(Owner::controller_of(object.meta().owner_references.as_deref().unwrap_or_default()))
}

/// The pods that match a selector, as the recommender watches them: without pending ones.
pub async fn find_pods(
    client: &Client,
    namespace: &str,
    selector: &Selector,
) -> Result<Vec<PartialPod>, LookupError> {
    let api = Api::<MaybeObject<PartialPod>>::namespaced(client.clone(), namespace);
    let what = format!("pods of namespace {namespace}");
    list(api, &what, selector.as_str(), "status.phase!=Pending").await
}

/// All pods of the cluster, to compute the requests of DaemonSet pods.
pub async fn find_all_pods(client: &Client) -> Result<Vec<PartialPod>, LookupError> {
    let api = Api::<MaybeObject<PartialPod>>::all(client.clone());
    list(api, "pods of the cluster", "", "status.phase!=Pending").await
}

/// All nodes.
pub async fn find_nodes(client: &Client) -> Result<Vec<PartialNode>, LookupError> {
    list(Api::<MaybeObject<PartialNode>>::all(client.clone()), "nodes", "", "").await
}

/// Reads a list page by page. Skips invalid objects, as a watch does.
async fn list<K>(
    api: Api<MaybeObject<K>>,
    what: &str,
    labels: &str,
    fields: &str,
) -> Result<Vec<K>, LookupError>
where
    MaybeObject<K>: Clone + Debug + DeserializeOwned,
{
    let (mut objects, mut token) = (Vec::new(), None::<String>);
    loop {
        let mut parameters = ListParams::default().labels(labels).fields(fields).limit(PAGE_SIZE);
        parameters.continue_token = token;
        let page = api.list(&parameters).await.map_err(|why| LookupError::new(what, &why))?;
        let ObjectList { items, metadata, .. } = page;
        objects.extend(items.into_iter().filter_map(|item| item.0.ok()));
        token = metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(objects);
        }
    }
}
