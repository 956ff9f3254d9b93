//! The scale of a target: as a watch tells of it where that is enough, and else asked for.
//!
//! What is decided by a watch is never written by it: whoever is about to change replicas reads the scale first, and decides
//! anew where it is another one.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::{WatchScope, Workloads};
use crate::cluster::{
    cache::controllers::{
        Controller, SlimDeployment, SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
    },
    target::scale::{ObjectReference, ScaleReadError, ScaleState, ScaleSubresource},
    watch::{WatchOptions, watch},
    write::{AccessReview, AccessRule, WriteContext, WriteError, check_access},
};
use crate::controllers::runtime::shutdown::{ShutdownToken, Tasks};
use plimsoll_core::{api::scale_target::ScaleTarget, types::compat::Compat};

/// How often replicas are tried to be written at once.
const MAX_CONFLICT_RETRIES: usize = 5;
/// Lists of scales that are on their way are waited for, but nobody relies on them.
const INITIAL_LIST_TIMEOUT: Duration = Duration::from_secs(5);
/// Until it is asked again whether a kind may be watched.
const ACCESS_RECHECK_INTERVAL: Duration = Duration::from_mins(5);

/// A scale, and how it is known.
#[derive(Clone, Debug)]
pub(in crate::controllers) enum ObservedScale {
    /// As a watch told last: good for a look, and for nothing that is written.
    Watched(ObjectReference, ScaleState),
    /// Asked for by this look.
    Fetched(Box<ScaleSubresource>),
}

impl ObservedScale {
    /// What it says.
    pub fn values(&self) -> &ScaleState {
        match self {
            Self::Watched(_, told) => told,
            Self::Fetched(fresh) => &fresh.state,
        }
    }
}

impl Workloads {
    /// What an object of this namespace names.
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

    /// A version that is left out is that of the kind everybody has. Upstream looks into the core group.
    fn version_of<'a>(&self, version: &'a str, kind: &str) -> &'a str {
        if !version.is_empty() || self.compat == Compat::Upstream {
            return version;
        }
        match kind {
            "Deployment" | "StatefulSet" | "ReplicaSet" => "apps/v1",
            _ => version,
        }
    }

    /// The scale of a target. It is asked for where no watch tells it, where a watch is behind what was seen or written of it
    /// before, and where a change is booked: what becomes of that hangs on what the scale is now.
    /// `seen` is the version of it that was seen or written last.
    pub(in crate::controllers) async fn observe_scale(
        &self,
        of: ObjectReference,
        is_booked: bool,
        seen: &mut Option<u64>,
    ) -> Result<ObservedScale, ScaleReadError> {
        if self.compat == Compat::Plimsoll
            && !is_booked
            && let Some(told) = self.scopes.scale(&of)
            && told.version >= *seen
        {
            *seen = told.version;
            return Ok(ObservedScale::Watched(of, told));
        }
        let fresh = self.fetch_scale(&of, seen).await?;
        Ok(ObservedScale::Fetched(Box::new(fresh)))
    }

    /// The scale of a target, asked for now.
    pub(in crate::controllers) async fn fetch_scale(
        &self,
        of: &ObjectReference,
        seen: &mut Option<u64>,
    ) -> Result<ScaleSubresource, ScaleReadError> {
        let fresh = self.scales.fetch(of).await?;
        // Not the greater one of the two: a cluster that was restored from a backup counts its versions anew.
        *seen = fresh.state.version;
        Ok(fresh)
    }

    /// Writes replicas. Controllers write the same object all the time: as long as it is to have what it was taken to have,
    /// ours tries again with what it is by now.
    pub(in crate::controllers) async fn update_scale(
        &self,
        pen: WriteContext<'_>,
        fresh: &ScaleSubresource,
        to: i32,
        seen: &mut Option<u64>,
    ) -> Result<(), WriteError> {
        // Nothing that a watch told before is known to be from after this.
        *seen = Some(u64::MAX);
        let mut written = pen.update_scale(&fresh.path, &fresh.with_replicas(to)).await;
        if self.compat == Compat::Plimsoll {
            for _ in 1..MAX_CONFLICT_RETRIES {
                if !matches!(written, Err(WriteError::Conflict(_))) {
                    break;
                }
                match self.scales.fetch(&fresh.target).await {
                    Ok(again)
                        if again.state.spec_replicas == fresh.state.spec_replicas
                            && again.state.uid == fresh.state.uid =>
                    {
                        written = pen.update_scale(&again.path, &again.with_replicas(to)).await;
                    }
                    _ => break,
                }
            }
        }
        let version = written?;
        *seen = version.or(*seen);
        Ok(())
    }

    /// Waits for the lists of scales that objects have asked for, for a while: without them everybody would be asked for
    /// at once.
    pub(in crate::controllers) async fn wait_for_initial_lists(&self) {
        let all = async {
            for feed in self.scopes.scale_watches() {
                feed.wait_until_synced().await;
            }
        };
        // Whether they came or not: who is not known is asked for.
        let _ = tokio::time::timeout(INITIAL_LIST_TIMEOUT, all).await;
    }

    /// Watches the kinds that tell their scales, each from when somebody follows one of it. Upstream asks each time.
    pub(in crate::controllers) fn start_scale_watches(
        self: &Arc<Self>,
        stop: &ShutdownToken,
        tasks: &mut Tasks,
    ) {
        if self.compat == Compat::Upstream {
            return;
        }
        for scope in self.scopes.all() {
            self.start_kind_watch::<SlimDeployment>(scope, stop, tasks);
            self.start_kind_watch::<SlimStatefulSet>(scope, stop, tasks);
            self.start_kind_watch::<SlimReplicaSet>(scope, stop, tasks);
            self.start_kind_watch::<SlimReplicationController>(scope, stop, tasks);
        }
    }

    fn start_kind_watch<K>(
        self: &Arc<Self>,
        scope: &Arc<WatchScope>,
        stop: &ShutdownToken,
        tasks: &mut Tasks,
    ) where
        K: Controller
            + Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Clone
            + Debug
            + DeserializeOwned
            + Send
            + 'static,
    {
        let (role, scope, stop) = (Arc::clone(self), Arc::clone(scope), stop.clone());
        tasks.spawn(async move {
            let feed = tokio::select! {
                () = stop.cancelled() => return,
                feed = scope.scales.wait_until_needed::<K>() => feed,
            };
            let Some(feed) = feed else { return };
            let only = scope.namespace.as_deref();
            tokio::select! {
                () = stop.cancelled() => return,
                () = role.wait_until_watch_allowed(feed.name(), K::KIND.group(), only) => {}
            }
            let apply = |change| scope.scales.apply::<K>(change);
            let objects = role.watch_factory.objects::<K>(only);
            watch(objects, WatchOptions::default(), feed, apply, stop.cancelled()).await;
        });
    }

    /// Ready once objects of a kind may be watched, which the original's rights do not let.
    async fn wait_until_watch_allowed(
        &self,
        resource: &'static str,
        group: &'static str,
        only: Option<&str>,
    ) {
        let rules = ["list", "watch"].map(|verb| {
            let rule = AccessRule::new(verb, group, resource);
            only.map_or(rule.clone(), |only| rule.in_namespace(only))
        });
        let mut is_told = false;
        loop {
            let verdicts = check_access(&self.client, &rules).await;
            // What nobody knows is tried.
            let Some(denied) = verdicts.iter().position(|verdict| *verdict == AccessReview::Denied)
            else {
                return;
            };
            if !std::mem::replace(&mut is_told, true) {
                tracing::info!(
                    "not allowed: {}; the scale of each of the {resource} is asked for at each look",
                    rules[denied]
                );
            }
            tokio::time::sleep(ACCESS_RECHECK_INTERVAL).await;
        }
    }
}
