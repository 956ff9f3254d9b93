//! Which optional writes RBAC allows, checked once at the start, and whether the API server supports in-place resize.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use kube::Client;
use parking_lot::Mutex;

use super::config::UpdaterConfig;
use crate::cluster::{
    leader::Fence,
    write::{AccessReview, AccessRule, check_access},
};
use plimsoll_core::types::compat::Compat;

/// How long the answer whether the API server supports in-place resize is cached.
const RECHECK_INTERVAL: Duration = Duration::from_mins(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before another attempt after a failed access review.
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one right of its own")]
pub(super) struct AllowedWrites {
    pub workload_state: bool,
    /// The disruption ledger, in the Lease.
    pub ledger: bool,
    pub conditions: bool,
    pub events: bool,
    pub scale: bool,
    /// Targets of HorizontalPodAutoscalers.
    pub targets: bool,
}

/// Whether and what this process may write, with the cached results of access reviews and of API discovery.
pub(super) struct Permissions {
    config: Arc<UpdaterConfig>,
    client: Client,
    fence: Fence,
    allowed_writes: OnceLock<AllowedWrites>,
    resize_support: Mutex<Option<(Instant, bool)>>,
}

impl Permissions {
    /// The permissions of a process that has not reviewed its access yet.
    pub fn new(config: Arc<UpdaterConfig>, client: Client, fence: Fence) -> Self {
        let (allowed_writes, resize_support) = (OnceLock::new(), Mutex::default());
        Self { config, client, fence, allowed_writes, resize_support }
    }

    /// Whether this process may act: its permissions are known and it leads. A dry run writes nothing and needs neither.
    pub fn may_act(&self) -> bool {
        self.config.dry_run.is_some()
            || (self.allowed_writes.get().is_some() && self.fence.is_granted())
    }

    pub fn allowed_writes(&self) -> AllowedWrites {
        match self.config.dry_run {
            // A dry run reports what it would do with all permissions.
            Some(dry) => {
                let targets = self.config.retarget_hpas;
                AllowedWrites {
                    events: dry.events,
                    scale: true,
                    targets,
                    ..AllowedWrites::default()
                }
            }
            None => self.allowed_writes.get().copied().unwrap_or_default(),
        }
    }

    /// Reviews the access of this process, and retries until it succeeds.
    pub async fn discover(&self) {
        let group = "autoscaling.k8s.io";
        let lease = &self.config.election;
        let mut rules = vec![
            AccessRule::new("patch", group, "verticalpodautoscalers"),
            AccessRule::new("update", "coordination.k8s.io", "leases")
                .in_namespace(&lease.namespace)
                .for_name(&lease.name),
            AccessRule::new("patch", group, "verticalpodautoscalers/status"),
            AccessRule::new("create", "", "events"),
            AccessRule::new("patch", "apps", "deployments/scale"),
        ];
        if self.config.retarget_hpas {
            let hpas = |verb| AccessRule::new(verb, "autoscaling", "horizontalpodautoscalers");
            rules.extend([hpas("get"), hpas("patch")]);
        }
        let reviews = loop {
            let reviews = check_access(&self.client, &rules).await;
            if reviews.iter().all(|review| !matches!(review, AccessReview::Unknown(_))) {
                break reviews;
            }
            tracing::warn!(
                "failed to review the permissions of this process; no pod is updated until this succeeds"
            );
            tokio::time::sleep(RETRY_DELAY).await;
        };
        let allowed = |index: usize| reviews.get(index).is_some_and(AccessReview::is_allowed);
        let extras = self.config.settings.compat == Compat::Plimsoll;
        let surges = extras && self.config.settings.guards.surge;
        if surges && !allowed(4) {
            tracing::warn!(
                rule = %rules[4],
                "RBAC rule is missing; workloads with a single replica are updated without a surge"
            );
        }
        let missing = [5, 6].into_iter().find(|index| !allowed(*index));
        if let Some(index) = missing.filter(|_| self.config.retarget_hpas) {
            tracing::warn!(
                rule = %rules[index],
                "RBAC rule is missing; requests that a HorizontalPodAutoscaler scales by are not changed"
            );
        }
        for (index, consequence) in [
            (0, "the state of workloads is lost when this process restarts"),
            (1, "the disruption ledger is lost when this process restarts"),
            (2, "VPAs have no condition that reports why their updates are held back"),
        ] {
            if extras && !allowed(index) {
                tracing::warn!(rule = %rules[index], "RBAC rule is missing; {consequence}");
            }
        }
        let allowed_writes = AllowedWrites {
            workload_state: extras && allowed(0) && self.config.settings.guards.needs_state(),
            ledger: extras && allowed(1) && self.config.settings.guards.needs_state(),
            conditions: extras && allowed(2),
            events: allowed(3),
            scale: surges && allowed(4),
            targets: extras && self.config.retarget_hpas && missing.is_none(),
        };
        // Set only once, so it cannot fail.
        let _ = self.allowed_writes.set(allowed_writes);
    }

    /// Whether the API server supports in-place resize according to API discovery; `None` if discovery has never
    /// succeeded. Upstream does not check.
    pub async fn supports_resize(&self) -> Option<bool> {
        if self.config.settings.compat == Compat::Upstream {
            return Some(true);
        }
        let cached = *self.resize_support.lock();
        if let Some((_, is_supported)) =
            cached.filter(|(read_at, _)| read_at.elapsed() < RECHECK_INTERVAL)
        {
            return Some(is_supported);
        }
        match discover_resize(&self.client).await {
            Some(is_supported) => {
                *self.resize_support.lock() = Some((Instant::now(), is_supported));
                Some(is_supported)
            }
            // Keep the last result.
            None => cached.map(|(_, is_supported)| is_supported),
        }
    }
}

/// Whether the API server supports in-place resize; `None` if discovery failed.
pub(crate) async fn discover_resize(client: &Client) -> Option<bool> {
    let request = tokio::time::timeout(REQUEST_TIMEOUT, client.list_core_api_resources("v1"));
    let list = request.await.ok()?.ok()?;
    Some(list.resources.iter().any(|resource| resource.name == "pods/resize"))
}
