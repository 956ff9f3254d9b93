//! What this process may do beyond what upstream's may, asked once at the start; and what the server can do at all.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use super::{ShutdownToken, Updater};
use crate::cluster::write::{AccessReview, AccessRule, check_access};
use plimsoll_core::types::compat::Compat;

/// How long whether the server can resize pods is not asked again.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// After a question that was not answered.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// What is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one right of its own")]
pub(super) struct AllowedWrites {
    workload_state: bool,
    ledger: bool,
    conditions: bool,
    events: bool,
    scale: bool,
}

/// What is known of that, and of the server.
#[derive(Debug, Default)]
pub(super) struct Permissions {
    allowed_writes: OnceLock<AllowedWrites>,
    resize_support: Mutex<Option<(Instant, bool)>>,
}

impl Updater {
    /// Whether anything may be done: what is allowed is known, and this process leads. A dry run does nothing, and leads
    /// nobody.
    pub(super) fn may_act(&self) -> bool {
        self.config.dry_run.is_some()
            || (self.permissions.allowed_writes.get().is_some() && self.permit.fence().is_granted())
    }

    fn allowed_writes(&self) -> AllowedWrites {
        match self.config.dry_run {
            // What it would do with all rights is what it says.
            Some(dry) => {
                AllowedWrites { events: dry.events, scale: true, ..AllowedWrites::default() }
            }
            None => self.permissions.allowed_writes.get().copied().unwrap_or_default(),
        }
    }

    /// Whether what is remembered of workloads stands on their VPAs.
    pub(super) fn persists_workload_state(&self) -> bool {
        self.allowed_writes().workload_state
    }

    /// Whether what was changed in the cluster stands in the Lease.
    pub(super) fn persists_ledger(&self) -> bool {
        self.allowed_writes().ledger
    }

    /// Whether VPAs say why their pods are left alone.
    pub(super) fn writes_conditions(&self) -> bool {
        self.allowed_writes().conditions
    }

    /// Whether a workload may get a second replica for a while.
    pub(super) fn may_scale(&self) -> bool {
        self.allowed_writes().scale
    }

    /// Whether events are written.
    pub(super) fn may_write_events(&self) -> bool {
        self.allowed_writes().events
    }

    /// Asks what is allowed, until it is answered.
    pub(super) async fn discover_permissions(self: Arc<Self>, stop: ShutdownToken) {
        let group = "autoscaling.k8s.io";
        let lease = &self.config.election;
        let rules = [
            AccessRule::new("patch", group, "verticalpodautoscalers"),
            AccessRule::new("update", "coordination.k8s.io", "leases")
                .in_namespace(&lease.namespace)
                .for_name(&lease.name),
            AccessRule::new("patch", group, "verticalpodautoscalers/status"),
            AccessRule::new("create", "", "events"),
            AccessRule::new("patch", "apps", "deployments/scale"),
        ];
        let verdicts = loop {
            let verdicts = tokio::select! {
                () = stop.cancelled() => return,
                verdicts = check_access(&self.client, &rules) => verdicts,
            };
            if verdicts.iter().all(|verdict| !matches!(verdict, AccessReview::Unknown(_))) {
                break verdicts;
            }
            tracing::warn!("what this process may do cannot be found out: nothing is done before");
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RETRY_DELAY) => {}
            }
        };
        let allowed = |at: usize| verdicts.get(at).is_some_and(AccessReview::is_allowed);
        let extras = self.config.settings.compat == Compat::Plimsoll;
        let surges = extras && self.config.settings.guards.surge;
        if surges && !allowed(4) {
            tracing::warn!("not allowed: {}; single replicas get no second one", rules[4]);
        }
        for (at, lost) in [
            (0, "what was done to a workload is forgotten when this process ends"),
            (1, "what was changed in the cluster is forgotten when this process ends"),
            (2, "VPAs do not say why their pods are left alone"),
        ] {
            if extras && !allowed(at) {
                tracing::warn!("not allowed: {}; {lost}", rules[at]);
            }
        }
        let rights = AllowedWrites {
            workload_state: extras && allowed(0) && self.config.settings.guards.needs_state(),
            ledger: extras && allowed(1) && self.config.settings.guards.needs_state(),
            conditions: extras && allowed(2),
            events: allowed(3),
            scale: surges && allowed(4),
        };
        // It is asked once only.
        let _ = self.permissions.allowed_writes.set(rights);
    }

    /// Whether the server can resize pods, as its discovery tells; nothing when it does not tell, and never did. Upstream
    /// does not ask.
    pub(super) async fn supports_resize(&self) -> Option<bool> {
        if self.config.settings.compat == Compat::Upstream {
            return Some(true);
        }
        let lock =
            || self.permissions.resize_support.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *lock();
        if let Some((_, served)) = before.filter(|(asked, _)| asked.elapsed() < RECHECK_INTERVAL) {
            return Some(served);
        }
        let asked =
            tokio::time::timeout(REQUEST_TIMEOUT, self.client.list_core_api_resources("v1"));
        match asked.await {
            Ok(Ok(list)) => {
                let served = list.resources.iter().any(|one| one.name == "pods/resize");
                *lock() = Some((Instant::now(), served));
                Some(served)
            }
            // What was known holds on.
            _ => before.map(|(_, served)| served),
        }
    }
}
