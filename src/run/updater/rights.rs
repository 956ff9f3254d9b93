//! What this process may do beyond what upstream's may, asked once at the start; and what the server can do at all.

use std::{
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use super::{Role, Stop};
use crate::act::{Rule, Verdict, may};
use plimsoll_core::types::compat::Compat;

/// How long whether the server can resize pods is not asked again.
const ASK_AGAIN: Duration = Duration::from_mins(5);
const REQUEST_LIMIT: Duration = Duration::from_secs(10);
/// After a question that was not answered.
const PAUSE: Duration = Duration::from_secs(2);

/// What is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one right of its own")]
pub(super) struct Rights {
    memory: bool,
    ledger: bool,
    conditions: bool,
    events: bool,
    scale: bool,
}

/// What is known of that, and of the server.
#[derive(Debug, Default)]
pub(super) struct Known {
    rights: OnceLock<Rights>,
    resizes: Mutex<Option<(Instant, bool)>>,
}

impl Role {
    /// Whether anything may be done: what is allowed is known, and this process leads. A dry run does nothing, and leads
    /// nobody.
    pub(super) fn may_act(&self) -> bool {
        self.config.dry_run.is_some()
            || (self.known.rights.get().is_some() && self.permit.fence().is_held())
    }

    fn rights(&self) -> Rights {
        match self.config.dry_run {
            // What it would do with all rights is what it says.
            Some(dry) => Rights { events: dry.events, scale: true, ..Rights::default() },
            None => self.known.rights.get().copied().unwrap_or_default(),
        }
    }

    /// Whether what is remembered of workloads stands on their VPAs.
    pub(super) fn keeps_memory(&self) -> bool {
        self.rights().memory
    }

    /// Whether what was changed in the cluster stands in the Lease.
    pub(super) fn keeps_ledger(&self) -> bool {
        self.rights().ledger
    }

    /// Whether VPAs say why their pods are left alone.
    pub(super) fn keeps_conditions(&self) -> bool {
        self.rights().conditions
    }

    /// Whether a workload may get a second replica for a while.
    pub(super) fn may_scale(&self) -> bool {
        self.rights().scale
    }

    /// Whether events are written.
    pub(super) fn may_tell(&self) -> bool {
        self.rights().events
    }

    /// Asks what is allowed, until it is answered.
    pub(super) async fn find_rights(self: Arc<Self>, stop: Stop) {
        let group = "autoscaling.k8s.io";
        let lease = &self.config.election;
        let rules = [
            Rule::new("patch", group, "verticalpodautoscalers"),
            Rule::new("update", "coordination.k8s.io", "leases")
                .within(&lease.namespace)
                .named(&lease.name),
            Rule::new("patch", group, "verticalpodautoscalers/status"),
            Rule::new("create", "", "events"),
            Rule::new("patch", "apps", "deployments/scale"),
        ];
        let verdicts = loop {
            let verdicts = tokio::select! {
                () = stop.stopped() => return,
                verdicts = may(&self.client, &rules) => verdicts,
            };
            if verdicts.iter().all(|verdict| !matches!(verdict, Verdict::Unknown(_))) {
                break verdicts;
            }
            tracing::warn!("what this process may do cannot be found out: nothing is done before");
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        };
        let allowed = |at: usize| verdicts.get(at).is_some_and(Verdict::is_allowed);
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
        let rights = Rights {
            memory: extras && allowed(0) && self.config.settings.guards.remembers(),
            ledger: extras && allowed(1) && self.config.settings.guards.remembers(),
            conditions: extras && allowed(2),
            events: allowed(3),
            scale: surges && allowed(4),
        };
        // It is asked once only.
        let _ = self.known.rights.set(rights);
    }

    /// Whether the server can resize pods, as its discovery tells; nothing when it does not tell, and never did. Upstream
    /// does not ask.
    pub(super) async fn resizes_are_served(&self) -> Option<bool> {
        if self.config.settings.compat == Compat::Upstream {
            return Some(true);
        }
        let lock = || self.known.resizes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *lock();
        if let Some((_, served)) = before.filter(|(asked, _)| asked.elapsed() < ASK_AGAIN) {
            return Some(served);
        }
        let asked = tokio::time::timeout(REQUEST_LIMIT, self.client.list_core_api_resources("v1"));
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
