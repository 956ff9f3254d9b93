//! The scale of a target: as a watch tells of it where that is enough, and else asked for.
//!
//! What is decided by a watch is never written by it: whoever is about to change replicas reads the scale first, and decides
//! anew where it is another one.

use std::{fmt::Debug, sync::Arc, time::Duration};

use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::de::DeserializeOwned;

use super::{
    super::tasks::{Stop, Tasks},
    Scope, Workloads,
};
use crate::{
    act::{Pen, Rule, Unwritten, Verdict, may},
    observe::{
        controllers::{
            Controller, SlimDeployment, SlimReplicaSet, SlimReplicationController, SlimStatefulSet,
        },
        scale::{FreshScale, ObjectKey, ToldScale, Unscaled},
        watch::{Options, watch},
    },
};
use plimsoll_core::{api::scaled::ScaleTarget, types::compat::Compat};

/// How often replicas are tried to be written at once.
const TRIES: usize = 5;
/// Lists of scales that are on their way are waited for, but nobody relies on them.
const FIRST_LIST: Duration = Duration::from_secs(5);
/// Until it is asked again whether a kind may be watched.
const ASK_AGAIN: Duration = Duration::from_mins(5);

/// A scale, and how it is known.
#[derive(Clone, Debug)]
pub(in crate::run) enum Sight {
    /// As a watch told last: good for a look, and for nothing that is written.
    Watched(ObjectKey, ToldScale),
    /// Asked for by this look.
    Asked(Box<FreshScale>),
}

impl Sight {
    /// What it says.
    pub fn told(&self) -> &ToldScale {
        match self {
            Self::Watched(_, told) => told,
            Self::Asked(fresh) => &fresh.told,
        }
    }
}

impl Workloads {
    /// What an object of this namespace names.
    pub(in crate::run) fn target(&self, namespace: &str, target: &ScaleTarget) -> ObjectKey {
        ObjectKey {
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
    pub(in crate::run) async fn scale(
        &self,
        of: ObjectKey,
        is_booked: bool,
        seen: &mut Option<u64>,
    ) -> Result<Sight, Unscaled> {
        if self.compat == Compat::Plimsoll
            && !is_booked
            && let Some(told) = self.scopes.scale(&of)
            && told.version >= *seen
        {
            *seen = told.version;
            return Ok(Sight::Watched(of, told));
        }
        let fresh = self.fresh_scale(&of, seen).await?;
        Ok(Sight::Asked(Box::new(fresh)))
    }

    /// The scale of a target, asked for now.
    pub(in crate::run) async fn fresh_scale(
        &self,
        of: &ObjectKey,
        seen: &mut Option<u64>,
    ) -> Result<FreshScale, Unscaled> {
        let fresh = self.scales.fresh(of).await?;
        // Not the greater one of the two: a cluster that was restored from a backup counts its versions anew.
        *seen = fresh.told.version;
        Ok(fresh)
    }

    /// Writes replicas. Controllers write the same object all the time: as long as it is to have what it was taken to have,
    /// ours tries again with what it is by now.
    pub(in crate::run) async fn put_scale(
        &self,
        pen: Pen<'_>,
        fresh: &FreshScale,
        to: i32,
        seen: &mut Option<u64>,
    ) -> Result<(), Unwritten> {
        // Nothing that a watch told before is known to be from after this.
        *seen = Some(u64::MAX);
        let mut written = pen.scale(&fresh.path, &fresh.with_replicas(to)).await;
        if self.compat == Compat::Plimsoll {
            for _ in 1..TRIES {
                if !matches!(written, Err(Unwritten::Changed(_))) {
                    break;
                }
                match self.scales.fresh(&fresh.of).await {
                    Ok(again)
                        if again.told.wanted == fresh.told.wanted
                            && again.told.uid == fresh.told.uid =>
                    {
                        written = pen.scale(&again.path, &again.with_replicas(to)).await;
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
    pub(in crate::run) async fn first_scales(&self) {
        let all = async {
            for feed in self.scopes.scale_feeds() {
                feed.synced().await;
            }
        };
        // Whether they came or not: who is not known is asked for.
        let _ = tokio::time::timeout(FIRST_LIST, all).await;
    }

    /// Watches the kinds that tell their scales, each from when somebody follows one of it. Upstream asks each time.
    pub(in crate::run) fn start_scales(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) {
        if self.compat == Compat::Upstream {
            return;
        }
        for scope in self.scopes.all() {
            self.start_kind::<SlimDeployment>(scope, stop, tasks);
            self.start_kind::<SlimStatefulSet>(scope, stop, tasks);
            self.start_kind::<SlimReplicaSet>(scope, stop, tasks);
            self.start_kind::<SlimReplicationController>(scope, stop, tasks);
        }
    }

    fn start_kind<K>(self: &Arc<Self>, scope: &Arc<Scope>, stop: &Stop, tasks: &mut Tasks)
    where
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
                () = stop.stopped() => return,
                feed = scope.scales.wanted::<K>() => feed,
            };
            let Some(feed) = feed else { return };
            let only = scope.only.as_deref();
            tokio::select! {
                () = stop.stopped() => return,
                () = role.may_watch(feed.name(), K::KIND.group(), only) => {}
            }
            let apply = |change| scope.scales.apply::<K>(change);
            let objects = role.reader.objects::<K>(only);
            watch(objects, Options::default(), feed, apply, stop.stopped()).await;
        });
    }

    /// Ready once objects of a kind may be watched, which the original's rights do not let.
    async fn may_watch(&self, resource: &'static str, group: &'static str, only: Option<&str>) {
        let rules = ["list", "watch"].map(|verb| {
            let rule = Rule::new(verb, group, resource);
            only.map_or(rule.clone(), |only| rule.within(only))
        });
        let mut is_told = false;
        loop {
            let verdicts = may(&self.client, &rules).await;
            // What nobody knows is tried.
            let Some(denied) = verdicts.iter().position(|verdict| *verdict == Verdict::Denied)
            else {
                return;
            };
            if !std::mem::replace(&mut is_told, true) {
                tracing::info!(
                    "not allowed: {}; the scale of each of the {resource} is asked for at each look",
                    rules[denied]
                );
            }
            tokio::time::sleep(ASK_AGAIN).await;
        }
    }
}
