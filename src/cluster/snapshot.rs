//! The cluster at one time, for commands: plain data from LIST requests, which are sent page by page, without watches.

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use futures::future::join_all;
use k8s_openapi::{
    NamespaceResourceScope,
    api::{
        autoscaling::v2::HorizontalPodAutoscaler, coordination::v1::Lease, core::v1::Pod,
        policy::v1::PodDisruptionBudget,
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, Resource, ResourceExt as _, api::ListParams};
use plimsoll_core::api::{VerticalPodAutoscaler, vpa::TargetRef, wpa::WatermarkPodAutoscaler};
use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error as _};
use serde_json::value::RawValue;

use super::{
    cache::{
        controllers::{
            Controller, ControllerCache, SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob,
            SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
        },
        limit_range::PartialLimitRange,
        resource_quota::PartialResourceQuota,
        updater_pod::UpdaterPod,
    },
    list_stream::error_message,
    paged_requests::list_pages,
    target::{
        TargetResolution, TargetResolver,
        scale::{CacheLifetimes, RequestGate},
    },
    watch::{
        maybe_object::{InvalidObject, MaybeObject},
        partial_objects::{PartialNode, PartialPod},
    },
};

/// Why a list could not be read. An empty list is no error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to read {what}: {why}")]
pub struct ReadError {
    pub what: String,
    pub cause: ReadErrorCause,
    pub why: String,
}

/// The kinds of errors that commands handle differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadErrorCause {
    Forbidden,
    /// The API server does not serve the kind: its CRD is not installed.
    NotServed,
    NotRequested,
    Failed,
}

/// The objects of one kind, sorted by namespace and name.
#[derive(Clone, Debug)]
pub struct List<K> {
    pub objects: Vec<K>,
    pub invalid: Vec<InvalidObject>,
}

pub type Listed<K> = Result<List<K>, ReadError>;

/// A pod, as the recommender and the updater use it.
#[derive(kube::Resource, Clone, Debug)]
#[resource(inherit = "Pod")]
pub struct SnapshotPod {
    pub metadata: ObjectMeta,
    pub updater: Arc<UpdaterPod>,
    pub recommender: PartialPod,
}

/// Decodes both forms: they are reduced differently.
impl<'de> Deserialize<'de> for SnapshotPod {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = <&RawValue>::deserialize(from)?.get();
        let updater: UpdaterPod = serde_json::from_str(text).map_err(D::Error::custom)?;
        let recommender = serde_json::from_str(text).map_err(D::Error::custom)?;
        Ok(Self { metadata: updater.metadata.clone(), updater: Arc::new(updater), recommender })
    }
}

impl SnapshotPod {
    /// Whether the recommender watches it.
    pub fn is_started(&self) -> bool {
        self.phase() != "Pending"
    }

    /// Whether the updater watches it: it is scheduled and has not terminated.
    pub fn is_running(&self) -> bool {
        let is_scheduled =
            self.recommender.spec.node_name.as_ref().is_some_and(|node| !node.is_empty());
        is_scheduled && !matches!(self.phase(), "Succeeded" | "Failed")
    }

    fn phase(&self) -> &str {
        self.recommender.status.phase.as_deref().unwrap_or_default()
    }
}

/// What to read. Controllers, LimitRanges and so on are read in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotPart {
    Vpas,
    Wpas,
    Hpas,
    Pods,
    Controllers,
    Constraints,
    DisruptionBudgets,
    Nodes,
}

#[derive(Clone, Debug)]
pub struct ClusterSnapshot {
    pub vpas: Listed<VerticalPodAutoscaler>,
    pub wpas: Listed<WatermarkPodAutoscaler>,
    pub hpas: Listed<HorizontalPodAutoscaler>,
    pub pods: Listed<SnapshotPod>,
    /// Controllers of the well-known kinds. Kinds that could not be read are not synced.
    pub controllers: Arc<ControllerCache>,
    /// The kinds of controllers that could not be read.
    pub controller_errors: Vec<ReadError>,
    pub limit_ranges: Listed<PartialLimitRange>,
    pub quotas: Listed<PartialResourceQuota>,
    pub disruption_budgets: Listed<PodDisruptionBudget>,
    pub nodes: Listed<PartialNode>,
    pub leases: BTreeMap<String, Listed<Lease>>,
}

impl ReadError {
    pub(crate) fn new(what: &str, error: &kube::Error) -> Self {
        let cause = match error {
            kube::Error::Api(status) if status.code == 403 => ReadErrorCause::Forbidden,
            // Not every 404 has a reason.
            kube::Error::Api(status) if status.code == 404 => ReadErrorCause::NotServed,
            _ => ReadErrorCause::Failed,
        };
        Self { what: what.to_owned(), cause, why: error_message(error) }
    }

    fn not_requested(what: &str) -> Self {
        let (what, why) = (what.to_owned(), "not part of the snapshot".to_owned());
        Self { what, cause: ReadErrorCause::NotRequested, why }
    }

    pub fn is_forbidden(&self) -> bool {
        self.cause == ReadErrorCause::Forbidden
    }
}

impl ClusterSnapshot {
    /// Reads these parts of a namespace, or of the cluster, concurrently. Errors are stored per list.
    pub async fn read(client: &Client, namespace: Option<&str>, parts: &[SnapshotPart]) -> Self {
        Reader { client, namespace, parts, target_kinds: None }.read().await
    }

    /// Like [`Self::read`], but of the controllers only those by which targets of these kinds are resolved, so that users
    /// need no permission for the others.
    pub async fn read_for_targets(
        client: &Client,
        namespace: &str,
        parts: &[SnapshotPart],
        target_kinds: &[&str],
    ) -> Self {
        let target_kinds = Some(target_kinds);
        Reader { client, namespace: Some(namespace), parts, target_kinds }.read().await
    }

    /// The Lease of this name; `None` if it does not exist.
    pub fn lease(&self, namespace: &str, name: &str) -> Result<Option<&Lease>, ReadError> {
        let leases = match self.leases.get(namespace) {
            Some(listed) => listed.as_ref().map_err(Clone::clone)?,
            None => return Err(ReadError::not_requested(&leases_of(namespace))),
        };
        Ok(leases.objects.iter().find(|lease| lease.name_any() == name))
    }

    /// Resolves owners and targets with the controllers of the snapshot, and with requests about kinds that are not well
    /// known.
    pub fn target_resolver(&self, client: &Client) -> TargetResolver {
        let gate: RequestGate = Arc::new(|_| Box::pin(std::future::ready(())));
        let controllers = Arc::clone(&self.controllers);
        TargetResolver::new(client.clone(), controllers, gate, CacheLifetimes::default())
    }

    /// Resolves the target of a VPA with [`Self::target_resolver`]. If it is not known because controllers could not be
    /// read, that is the error, of controllers of its kind if there is one.
    pub async fn resolve_target(
        &self,
        targets: &TargetResolver,
        namespace: &str,
        target: &TargetRef,
    ) -> Result<TargetResolution, ReadError> {
        let resolution = targets.resolve(namespace, target).await;
        let is_of_kind = |error: &&ReadError| error.what.starts_with(&format!("{}s ", target.kind));
        let errors = &self.controller_errors;
        match (&resolution, errors.iter().find(is_of_kind).or(errors.first())) {
            (TargetResolution::Unavailable { .. }, Some(error)) => Err(error.clone()),
            _ => Ok(resolution),
        }
    }
}

pub async fn read_leases(
    client: &Client,
    namespaces: impl IntoIterator<Item = &str>,
) -> BTreeMap<String, Listed<Lease>> {
    let lists = namespaces.into_iter().map(|namespace| async move {
        let api = Api::namespaced(client.clone(), namespace);
        (namespace.to_owned(), list(api, &leases_of(namespace), ListParams::default()).await)
    });
    join_all(lists).await.into_iter().collect()
}

fn leases_of(namespace: &str) -> String {
    format!("Leases of namespace {namespace}")
}

struct Reader<'a> {
    client: &'a Client,
    /// `None` for the cluster.
    namespace: Option<&'a str>,
    parts: &'a [SnapshotPart],
    /// The kinds of targets to resolve; `None` for any.
    target_kinds: Option<&'a [&'a str]>,
}

impl Reader<'_> {
    async fn read(&self) -> ClusterSnapshot {
        let (vpas, wpas, hpas, pods, (controllers, controller_errors), constraints, budgets, nodes) = tokio::join!(
            self.list(SnapshotPart::Vpas),
            self.list(SnapshotPart::Wpas),
            self.list(SnapshotPart::Hpas),
            self.list(SnapshotPart::Pods),
            self.controllers(),
            async {
                let part = SnapshotPart::Constraints;
                tokio::join!(self.list(part), self.list(part))
            },
            self.list(SnapshotPart::DisruptionBudgets),
            self.nodes(),
        );
        ClusterSnapshot {
            vpas,
            wpas,
            hpas,
            pods,
            controllers,
            controller_errors,
            limit_ranges: constraints.0,
            quotas: constraints.1,
            disruption_budgets: budgets,
            nodes,
            leases: BTreeMap::new(),
        }
    }

    async fn list<K>(&self, part: SnapshotPart) -> Listed<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + DeserializeOwned,
    {
        let kind = K::kind(&());
        let (api, what) = match self.namespace {
            Some(namespace) => (
                Api::namespaced(self.client.clone(), namespace),
                format!("{kind}s of namespace {namespace}"),
            ),
            None => (Api::all(self.client.clone()), format!("{kind}s of the cluster")),
        };
        self.requested(part, &what)?;
        // Boxed, because a dozen lists are read concurrently.
        Box::pin(list(api, &what, ListParams::default())).await
    }

    async fn nodes(&self) -> Listed<PartialNode> {
        self.requested(SnapshotPart::Nodes, "Nodes")?;
        Box::pin(list(Api::all(self.client.clone()), "Nodes", ListParams::default())).await
    }

    fn requested(&self, part: SnapshotPart, what: &str) -> Result<(), ReadError> {
        if self.parts.contains(&part) {
            return Ok(());
        }
        Err(ReadError::not_requested(what))
    }

    async fn controllers(&self) -> (Arc<ControllerCache>, Vec<ReadError>) {
        let cache = ControllerCache::new();
        let results = tokio::join!(
            self.controllers_of::<SlimDaemonSet>(&cache),
            self.controllers_of::<SlimDeployment>(&cache),
            self.controllers_of::<SlimReplicaSet>(&cache),
            self.controllers_of::<SlimStatefulSet>(&cache),
            self.controllers_of::<SlimReplicationController>(&cache),
            self.controllers_of::<SlimJob>(&cache),
            self.controllers_of::<SlimCronJob>(&cache),
        );
        let results: [Result<(), ReadError>; 7] = results.into();
        (Arc::new(cache), results.into_iter().filter_map(Result::err).collect())
    }

    async fn controllers_of<K>(&self, cache: &ControllerCache) -> Result<(), ReadError>
    where
        K: Controller + Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug,
    {
        let kind = K::kind(&());
        if self.target_kinds.is_some_and(|targets| !targets.iter().any(|one| resolves(&kind, one)))
        {
            return Ok(());
        }
        for controller in self.list::<K>(SnapshotPart::Controllers).await?.objects {
            cache.put(&controller);
        }
        cache.finish_list(K::KIND);
        Ok(())
    }
}

/// Whether controllers of this kind are needed to resolve a target: of the same kind, or above it.
fn resolves(kind: &str, target: &str) -> bool {
    kind == target || matches!((kind, target), ("Deployment", "ReplicaSet") | ("CronJob", "Job"))
}

pub async fn list<K>(api: Api<MaybeObject<K>>, what: &str, selected: ListParams) -> Listed<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let mut found = List { objects: Vec::new(), invalid: Vec::new() };
    let pages = list_pages(&api, selected, |items| {
        for MaybeObject(object) in items {
            match object {
                Ok(mut object) => {
                    object.meta_mut().managed_fields = None;
                    found.objects.push(object);
                }
                Err(invalid) => found.invalid.push(invalid),
            }
        }
    });
    pages.await.map_err(|error| ReadError::new(what, &error))?;
    found.objects.sort_by_cached_key(|object| (object.namespace(), object.name_any()));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;
    use crate::cluster::cache::controllers::{Lookup, WellKnown};

    /// The responses of an API server with two pages of pods, without the VPA CRD, and with lists that fail.
    fn respond(request: &Request<Body>) -> http::Result<Response<Body>> {
        let list = |items: Value, next: &str| {
            let metadata = json!({"resourceVersion": "7", "continue": next});
            (200, json!({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}))
        };
        let failure = |code: u16| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": "no", "reason": "", "code": code});
            (code, status)
        };
        let pod = |name: &str, phase: &str| {
            json!({"metadata": {"name": name, "namespace": "shop"},
                "spec": {"nodeName": "node", "containers": []}, "status": {"phase": phase}})
        };
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let (code, body) = match path.rsplit('/').next().unwrap_or_default() {
            "pods" if query.contains("continue=next") => list(json!([pod("a", "Succeeded")]), ""),
            "pods" => {
                let invalid = json!({"metadata": {"name": "c"}, "spec": 5});
                list(json!([pod("b", "Running"), invalid]), "next")
            }
            "verticalpodautoscalers" => failure(404),
            "resourcequotas" => failure(403),
            "replicasets" => failure(500),
            _ => list(json!([]), ""),
        };
        Response::builder().status(code).body(body.to_string().into_bytes().into())
    }

    #[tokio::test]
    async fn a_list_is_read_to_its_end_and_forbidden_not_served_and_empty_are_distinct() {
        let parts = [
            SnapshotPart::Vpas,
            SnapshotPart::Pods,
            SnapshotPart::Controllers,
            SnapshotPart::Constraints,
        ];
        let client =
            Client::new(service_fn(|request: Request<Body>| ready(respond(&request))), "default");
        let snapshot = ClusterSnapshot::read(&client, Some("shop"), &parts).await;
        let pods = snapshot.pods.expect("is readable");
        let running = |pod: &SnapshotPod| (pod.name_any(), pod.is_running());
        let running: Vec<_> = pods.objects.iter().map(running).collect();
        assert_eq!(running, [("a".to_owned(), false), ("b".to_owned(), true)]);
        assert_eq!(pods.invalid[0].metadata.name.as_deref(), Some("c"));
        assert!(snapshot.limit_ranges.expect("is readable").objects.is_empty());
        let quotas = snapshot.quotas.expect_err("is forbidden");
        assert_eq!(
            quotas.to_string(),
            "failed to read ResourceQuotas of namespace shop: HTTP 403: no"
        );
        assert!(quotas.is_forbidden());
        let cause = |error: Option<ReadError>| error.map(|error| error.cause);
        assert_eq!(cause(snapshot.vpas.err()), Some(ReadErrorCause::NotServed));
        assert_eq!(cause(snapshot.nodes.err()), Some(ReadErrorCause::NotRequested));
        let [error] = &snapshot.controller_errors[..] else { panic!("one kind failed") };
        assert_eq!(
            (&*error.what, error.cause),
            ("ReplicaSets of namespace shop", ReadErrorCause::Failed)
        );
        let find = |kind| snapshot.controllers.find(kind, "shop", "web");
        assert_eq!(find(WellKnown::ReplicaSet), Lookup::NotSynced);
        assert_eq!(find(WellKnown::Deployment), Lookup::Missing);
    }
}
