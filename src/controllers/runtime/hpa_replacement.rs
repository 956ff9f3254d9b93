//! Whether `plimsoll horizontal --mode=replace` scales the HorizontalPodAutoscalers of the cluster, according to the Lease that
//! it renews. A Lease that cannot be read, that is not renewed, or that names another mode means that it does not.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::{api::coordination::v1::Lease, apimachinery::pkg::apis::meta::v1::MicroTime};
use kube::{
    Client, ResourceExt as _,
    api::{Api, ListParams},
};
use parking_lot::Mutex;
use plimsoll_core::{
    api::role_health::{self, REPLACE_MODE, RoleHealth},
    types::Time,
};

/// The Lease of the horizontal controller, with the default of its `--leader-elect-resource-name`.
pub(crate) const LEASE: &str = "plimsoll-horizontal";
/// The default of its `--leader-elect-resource-namespace`.
pub(crate) const DEFAULT_NAMESPACE: &str = "kube-system";
const POLL_INTERVAL: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Used for a Lease without `leaseDurationSeconds`.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);

#[derive(Debug, Default)]
pub(crate) struct HpaReplacement(Mutex<Observation>);

#[derive(Debug, Default)]
struct Observation {
    renewed: Option<MicroTime>,
    /// How long it counts after its last observed renewal, while the mode is `replace` and it has a holder.
    lease_duration: Option<Duration>,
    /// When a renewal was last observed, which takes two polls: timestamps of other machines are not compared with the clock
    /// of this one.
    last_change: Option<Instant>,
    /// Why the last poll failed.
    error: Option<String>,
}

impl HpaReplacement {
    pub fn is_active(&self) -> bool {
        self.0.lock().is_active(Instant::now())
    }

    pub async fn run_poll_loop(self: Arc<Self>, client: Client, namespace: String) {
        let leases = Api::<Lease>::namespaced(client, &namespace);
        // RBAC may allow to list this Lease alone, or all Leases.
        let only = ListParams::default().fields(&format!("metadata.name={LEASE}"));
        loop {
            let response = tokio::time::timeout(REQUEST_TIMEOUT, leases.list(&only)).await;
            let result = match response {
                Ok(Ok(list)) => Ok(list.items.into_iter().next()),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("no response from the API server".to_owned()),
            };
            self.record(result, &namespace);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Records the result of a poll, and logs what changed.
    fn record(&self, result: Result<Option<Lease>, String>, namespace: &str) {
        let now = Instant::now();
        let mut observation = self.0.lock();
        let (was_active, error) = (observation.is_active(now), observation.error.clone());
        observation.observe(result, now);
        let is_active = observation.is_active(now);
        if let Some(why) = observation.error.as_ref().filter(|why| error.as_ref() != Some(why)) {
            tracing::warn!(
                namespace,
                lease = LEASE,
                %why,
                "cannot read the Lease of the horizontal controller; requests that HorizontalPodAutoscalers scale by are not \
                 changed even if it replaces the HPA controller"
            );
        }
        match (was_active, is_active) {
            (false, true) => tracing::info!("the HPA controller of the cluster is replaced"),
            (true, false) => {
                tracing::info!("the HPA controller of the cluster is not replaced any more");
            }
            _ => {}
        }
    }
}

impl Observation {
    fn is_active(&self, now: Instant) -> bool {
        let age = self.last_change.map(|at| now.saturating_duration_since(at));
        // A renewal is observed up to one interval late.
        self.lease_duration.zip(age).is_some_and(|(duration, age)| age <= duration + POLL_INTERVAL)
    }

    /// Records the result of a poll; there may be no Lease.
    fn observe(&mut self, result: Result<Option<Lease>, String>, now: Instant) {
        let lease = match result {
            Ok(Some(lease)) => lease,
            Ok(None) => {
                *self = Self::default();
                return;
            }
            // It counts until it would expire.
            Err(error) => {
                self.error = Some(error);
                return;
            }
        };
        self.error = None;
        self.lease_duration = replacing_for(&lease);
        let renewed = lease.spec.and_then(|spec| spec.renew_time);
        if let (Some(before), Some(renewed)) = (&self.renewed, &renewed)
            && before != renewed
        {
            self.last_change = Some(now);
        }
        self.renewed = renewed;
    }
}

/// Whether the HPA controller of the cluster is replaced, according to a single read of the Lease. Renewals cannot be observed
/// with one, so this compares the clock of the holder with the clock of this machine.
pub(crate) fn is_replaced_at(lease: &Lease, wall: Time) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let duration = replacing_for(lease);
    renewed.zip(duration).is_some_and(|(at, duration)| Time::from(at.0).later(duration) > wall)
}

/// How long a renewal of the Lease counts; `None` if it has no holder, or if the holder does not report the mode.
fn replacing_for(lease: &Lease) -> Option<Duration> {
    let text = lease.annotations().get(role_health::ANNOTATION)?;
    let health = serde_json::from_str::<RoleHealth>(text).ok()?;
    let spec = lease.spec.as_ref()?;
    let is_held = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    let seconds = spec.lease_duration_seconds.and_then(|count| u64::try_from(count).ok());
    let duration = seconds.map_or(DEFAULT_LEASE_DURATION, Duration::from_secs);
    (is_held && health.mode.as_deref() == Some(REPLACE_MODE)).then_some(duration)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const EARLY: &str = "2026-01-01T00:00:00.000000Z";
    const LATE: &str = "2026-01-01T00:00:02.000000Z";

    fn lease(renewed: &str, mode: &str, holder: &str) -> Lease {
        let health = json!({"role": "horizontal", "mode": mode}).to_string();
        let lease = json!({
            "metadata": {"name": LEASE, "annotations": {role_health::ANNOTATION: health}},
            "spec": {"renewTime": renewed, "leaseDurationSeconds": 15, "holderIdentity": holder},
        });
        serde_json::from_value(lease).expect("a Lease")
    }

    #[test]
    fn the_hpa_controller_is_replaced_while_a_lease_of_that_mode_is_renewed() {
        let start = Instant::now();
        let mut observed = Observation::default();
        assert!(!observed.is_active(start));
        observed.observe(Ok(Some(lease(EARLY, "replace", "a"))), start);
        assert!(!observed.is_active(start), "it could be an old one");
        observed.observe(Ok(Some(lease(LATE, "replace", "a"))), start);
        assert!(observed.is_active(start));
        observed.observe(Err("no response".to_owned()), start);
        assert!(observed.is_active(start), "it has not expired");
        let expired = start + Duration::from_secs(21);
        observed.observe(Ok(Some(lease(LATE, "replace", "a"))), expired);
        assert!(!observed.is_active(expired));
    }

    #[test]
    fn a_single_read_uses_the_renew_time() {
        let wall = |text: &str| serde_json::from_value::<Time>(json!(text)).expect("a time");
        let replaced = lease(EARLY, "replace", "a");
        assert!(is_replaced_at(&replaced, wall("2026-01-01T00:00:14Z")));
        assert!(!is_replaced_at(&replaced, wall("2026-01-01T00:00:15Z")));
        let shadowed = lease(EARLY, "shadow", "a");
        assert!(!is_replaced_at(&shadowed, wall("2026-01-01T00:00:01Z")));
    }

    #[test]
    fn another_mode_a_released_lease_or_none_does_not_replace() {
        let start = Instant::now();
        let (other, released) = (lease(LATE, "adopted", "a"), lease(LATE, "replace", ""));
        for then in [Some(other), Some(released), None] {
            let mut observed = Observation::default();
            observed.observe(Ok(Some(lease(EARLY, "replace", "a"))), start);
            let renewed = lease("2026-01-01T00:00:01.000000Z", "replace", "a");
            observed.observe(Ok(Some(renewed)), start);
            assert!(observed.is_active(start));
            observed.observe(Ok(then), start);
            assert!(!observed.is_active(start));
        }
        let mut without = lease(LATE, "replace", "a");
        without.metadata.annotations = None;
        let mut observed = Observation::default();
        observed.observe(Ok(Some(lease(EARLY, "replace", "a"))), start);
        observed.observe(Ok(Some(without)), start);
        assert!(!observed.is_active(start), "it does not name its mode");
    }
}
