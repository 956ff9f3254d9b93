//! The workloads of a controller, and the scale of each: from a watch where that is enough, otherwise from the API server.
//!
//! A watched scale is never written back: before replicas are changed, the scale is fetched, and the decision is made
//! again if it differs.

use std::{future::pending, sync::Arc, time::Duration};

use kube::Client;

use super::{WatchScope, WatchScopes};
use crate::cluster::{
    cache::{
        controllers::{
            Controller, SlimDeployment, SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
        },
        replica_pod::CachedPod,
    },
    target::scale::{ObjectReference, ScaleClient, ScaleReadError, ScaleState, ScaleSubresource},
    watch::{WatchFactory, WatchOptions, WatchableObject, watch},
    write::{AccessReview, AccessRule, WriteContext, WriteError, check_access},
};
use crate::controllers::runtime::watch_set::WatchSet;
use plimsoll_core::{api::scale_target::ScaleTarget, types::compat::Compat};

/// Maximum number of attempts to write replicas, after conflicts.
const MAX_CONFLICT_RETRIES: usize = 5;
/// How long to wait for initial lists of scales; none of them is required.
pub(super) const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of permission checks for watches that are not allowed.
const ACCESS_RECHECK_INTERVAL: Duration = Duration::from_mins(5);

/// A scale, and where it came from.
#[derive(Clone, Debug)]
pub(in crate::controllers) enum ObservedScale {
    /// From a watch: good for decisions, but not for writes.
    Watched(ScaleState),
    /// Fetched by this reconcile.
    Fetched(Box<ScaleSubresource>),
}

impl ObservedScale {
    pub fn values(&self) -> &ScaleState {
        match self {
            Self::Watched(state) => state,
            Self::Fetched(scale) => &scale.state,
        }
    }
}

pub(in crate::controllers) struct Workloads<P: CachedPod> {
    pub scopes: WatchScopes<P>,
    pub scales: ScaleClient,
    compat: Compat,
}

impl<P: CachedPod> Workloads<P> {
    /// Workloads of these namespaces, or of all if empty. With `Compat::Upstream` every read goes to the API server.
    pub fn new(namespaces: &[String], scales: ScaleClient, compat: Compat) -> Arc<Self> {
        Arc::new(Self { scopes: WatchScopes::new(namespaces), scales, compat })
    }

    /// Begins to watch the kind of a target. Upstream watches no scales.
    pub fn ensure_watched(&self, scope: &WatchScope<P>, namespace: &str, target: &ScaleTarget) {
        if self.compat == Compat::Plimsoll {
            scope.scales.ensure_watched(&self.target(namespace, target));
        }
    }

    pub(in crate::controllers) fn target(
        &self,
        namespace: &str,
        target: &ScaleTarget,
    ) -> ObjectReference {
        ObjectReference {
            namespace: namespace.into(),
            api_version: self.version_of(&target.api_version, &target.kind).into(),
            kind: target.kind.as_str().into(),
            name: target.name.as_str().into(),
        }
    }

    /// Defaults an empty API version to that of the built-in kind. Upstream uses the core group.
    fn version_of<'a>(&self, version: &'a str, kind: &str) -> &'a str {
        if !version.is_empty() || self.compat == Compat::Upstream {
            return version;
        }
        match kind {
            "Deployment" | "StatefulSet" | "ReplicaSet" => "apps/v1",
            _ => version,
        }
    }

    /// The scale of a target. It is fetched if no watch has it, if the watch is behind `seen` (the resource version
    /// last seen or written), or if a change is pending, whose outcome depends on the current scale.
    pub(in crate::controllers) async fn observe_scale(
        &self,
        target: ObjectReference,
        is_pending: bool,
        seen: &mut Option<u64>,
    ) -> Result<ObservedScale, ScaleReadError> {
        if self.compat == Compat::Plimsoll
            && !is_pending
            && let Some(watched) = self.scopes.scale(&target)
            && watched.version >= *seen
        {
            *seen = watched.version;
            return Ok(ObservedScale::Watched(watched));
        }
        let fetched = self.fetch_scale(&target, seen).await?;
        Ok(ObservedScale::Fetched(Box::new(fetched)))
    }

    pub(in crate::controllers) async fn fetch_scale(
        &self,
        target: &ObjectReference,
        seen: &mut Option<u64>,
    ) -> Result<ScaleSubresource, ScaleReadError> {
        let fetched = self.scales.fetch(target).await?;
        // Not the maximum of the two: versions start over when a cluster is restored from a backup.
        *seen = fetched.state.version;
        Ok(fetched)
    }

    /// Writes replicas. Other controllers write the same object all the time: after a conflict it retries with the
    /// current object, as long as its replicas are unchanged.
    pub(in crate::controllers) async fn update_scale(
        &self,
        writer: WriteContext<'_>,
        fetched: &ScaleSubresource,
        replicas: i32,
        seen: &mut Option<u64>,
    ) -> Result<(), WriteError> {
        // No version from the watch is known to be newer than this write, so the next read must fetch.
        *seen = Some(u64::MAX);
        let mut result = writer.update_scale(&fetched.path, &fetched.with_replicas(replicas)).await;
        if self.compat == Compat::Plimsoll {
            for _ in 1..MAX_CONFLICT_RETRIES {
                if !matches!(result, Err(WriteError::Conflict(_))) {
                    break;
                }
                match self.scales.fetch(&fetched.target).await {
                    Ok(current)
                        if current.state.spec_replicas == fetched.state.spec_replicas
                            && current.state.uid == fetched.state.uid =>
                    {
                        result = writer
                            .update_scale(&current.path, &current.with_replicas(replicas))
                            .await;
                    }
                    _ => break,
                }
            }
        }
        let version = result?;
        *seen = version.or(*seen);
        Ok(())
    }

    /// Waits a limited time for the initial lists of scales: without them all scales would be fetched at once.
    pub(in crate::controllers) async fn wait_for_initial_lists(&self) {
        let synced = async {
            for status in self.scopes.scale_watches() {
                status.wait_until_synced().await;
            }
        };
        // Ignore a timeout: scales that are not cached are fetched.
        let _ = tokio::time::timeout(INITIAL_LIST_TIMEOUT, synced).await;
    }

    /// Adds watches of scalable kinds, each of which begins as soon as an object with that kind of target exists. Upstream
    /// uses no watches.
    pub(in crate::controllers) fn add_scale_watches(self: &Arc<Self>, watches: &WatchSet) {
        if self.compat == Compat::Upstream {
            return;
        }
        for scope in self.scopes.all() {
            let (this, scope) = (|| Arc::clone(self), || Arc::clone(scope));
            let factory = || watches.factory.clone();
            watches.add_task(this().run_scale_watch::<SlimDeployment>(scope(), factory()));
            watches.add_task(this().run_scale_watch::<SlimStatefulSet>(scope(), factory()));
            watches.add_task(this().run_scale_watch::<SlimReplicaSet>(scope(), factory()));
            watches
                .add_task(this().run_scale_watch::<SlimReplicationController>(scope(), factory()));
        }
    }

    async fn run_scale_watch<K: Controller + WatchableObject>(
        self: Arc<Self>,
        scope: Arc<WatchScope<P>>,
        factory: WatchFactory,
    ) {
        let Some(status) = scope.scales.wait_until_needed::<K>().await else { return };
        let namespace = scope.namespace.as_deref();
        wait_until_watch_allowed(&factory.client, status.name, K::KIND.group(), namespace).await;
        let apply = |change| scope.scales.apply::<K>(change);
        let objects = factory.objects::<K>(namespace);
        watch(objects, WatchOptions::default(), status, apply, pending()).await;
    }
}

/// Returns once objects of a kind may be watched, which upstream's RBAC does not allow.
async fn wait_until_watch_allowed(
    client: &Client,
    resource: &'static str,
    group: &'static str,
    namespace: Option<&str>,
) {
    let rules = AccessRule::for_watch(group, resource, namespace);
    let mut is_logged = false;
    loop {
        let reviews = check_access(client, &rules).await;
        // If the permission is unknown, try.
        let Some(denied) = reviews.iter().position(|review| *review == AccessReview::Denied) else {
            return;
        };
        if !std::mem::replace(&mut is_logged, true) {
            tracing::info!(
                rule = %rules[denied],
                resource,
                "RBAC rule is missing; fetching scales on every reconcile"
            );
        }
        tokio::time::sleep(ACCESS_RECHECK_INTERVAL).await;
    }
}
