//! What one VPA needs of the cluster, by single requests: its target with the chain of its owners, and its pods.

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

/// No chain of owners is longer; a longer one goes in a circle.
const MAX_OWNER_CHAIN: usize = 12;

/// Objects a page of a list.
const PAGE_SIZE: u32 = 500;

/// What could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} cannot be read: {why}")]
pub struct LookupError {
    /// What was asked for.
    pub what: String,
    /// What happened.
    pub why: String,
}

impl LookupError {
    fn new(what: impl Into<String>, why: &kube::Error) -> Self {
        Self { what: what.into(), why: error_message(why) }
    }
}

/// A VPA, if it is there.
pub async fn find_vpa(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Option<VerticalPodAutoscaler>, LookupError> {
    let api = Api::<VerticalPodAutoscaler>::namespaced(client.clone(), namespace);
    let what = || format!("VerticalPodAutoscaler {namespace}/{name}");
    get(&api, name).await.map_err(|why| LookupError::new(what(), &why))
}

/// A pod, if it is there, whatever became of it.
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

/// An object, if it is there. A kind that the cluster does not know has no objects.
async fn get<K>(api: &Api<K>, name: &str) -> kube::Result<Option<K>>
where
    K: Clone + Debug + DeserializeOwned,
{
    match api.get(name).await {
        Ok(object) => Ok(Some(object)),
        // Not all of them give a reason.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(why) => Err(why),
    }
}

/// The names of all VPAs of a namespace; none where the cluster does not know what a VPA is.
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

/// The VPAs of a namespace, or of all; none where the cluster does not know what a VPA is.
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

/// Where the target of a VPA leads: as the recommender finds it among all controllers, but only those that
/// matter are asked for.
pub async fn find_target(
    client: &Client,
    namespace: &str,
    target: &TargetRef,
    patience: Duration,
) -> Result<TargetResolution, LookupError> {
    let gate: RequestGate = Arc::new(|| Box::pin(std::future::ready(())));
    let lifetimes = CacheLifetimes { request_timeout: patience, ..CacheLifetimes::default() };
    let scales = ScaleClient::new(client.clone(), Arc::clone(&gate), lifetimes);
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
            None => match &*scales.get(&key).await {
                Scale::Found { owner, .. } => owner.clone(),
                _ => None,
            },
        };
        next = owner.map(|owner| ObjectReference::from_owner(namespace, owner));
    }
    // What was not found is not there.
    for kind in WellKnown::ALL {
        controllers.finish_list(kind);
    }
    let targets = TargetResolver::new(client.clone(), controllers, gate, lifetimes);
    Ok(targets.resolve(namespace, target).await)
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
    let found = get(&api, &key.name).await.map_err(|why| LookupError::new(what(), &why))?;
    let Some(found) = found else { return Ok(None) };
    controllers.put(&found);
    Ok(Owner::controller_of(found.meta().owner_references.as_deref().unwrap_or_default()))
}

/// The pods of a namespace that are meant, as the recommender watches them: those that are not pending.
pub async fn find_pods(
    client: &Client,
    namespace: &str,
    selector: &Selector,
) -> Result<Vec<PartialPod>, LookupError> {
    let api = Api::<MaybeObject<PartialPod>>::namespaced(client.clone(), namespace);
    let what = format!("pods of namespace {namespace}");
    list(api, &what, selector.as_str(), "status.phase!=Pending").await
}

/// All pods of the cluster, for what DaemonSets take of nodes.
pub async fn find_all_pods(client: &Client) -> Result<Vec<PartialPod>, LookupError> {
    let api = Api::<MaybeObject<PartialPod>>::all(client.clone());
    list(api, "pods of the cluster", "", "status.phase!=Pending").await
}

/// All nodes.
pub async fn find_nodes(client: &Client) -> Result<Vec<PartialNode>, LookupError> {
    list(Api::<MaybeObject<PartialNode>>::all(client.clone()), "nodes", "", "").await
}

/// Reads a list page by page; what cannot be read in it is left out, as a watch leaves it out.
async fn list<K>(
    api: Api<MaybeObject<K>>,
    what: &str,
    labels: &str,
    fields: &str,
) -> Result<Vec<K>, LookupError>
where
    MaybeObject<K>: Clone + Debug + DeserializeOwned,
{
    let (mut all, mut token) = (Vec::new(), None::<String>);
    loop {
        let mut parameters = ListParams::default().labels(labels).fields(fields).limit(PAGE_SIZE);
        parameters.continue_token = token;
        let page = api.list(&parameters).await.map_err(|why| LookupError::new(what, &why))?;
        let ObjectList { items, metadata, .. } = page;
        all.extend(items.into_iter().filter_map(|item| item.0.ok()));
        token = metadata.continue_.filter(|token| !token.is_empty());
        if token.is_none() {
            return Ok(all);
        }
    }
}
