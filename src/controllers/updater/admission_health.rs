//! Whether the admission controller will size new pods, according to the Lease that it renews.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, ResourceExt as _, api::Api};
use plimsoll_core::types::Time;

use super::config::AdmissionCheck;
use plimsoll_core::{types::compat::Compat, updater::guard::AdmissionLeaseStatus};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Upstream's delays between attempts.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(300)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionHealth {
    /// New pods will be sized, or the check is disabled.
    Ready,
    /// The Lease was not renewed in time.
    Stale,
    /// The Lease could not be read or does not exist.
    Unreadable,
    /// This process has no permission to read the Lease.
    Forbidden,
}

/// The last logged health. Every pass checks the Lease, but only changes are logged.
#[derive(Debug, Default)]
pub(super) struct AdmissionLog(Mutex<Option<(AdmissionHealth, String)>>);

impl AdmissionLog {
    pub fn log(&self, check: &AdmissionCheck, health: AdmissionHealth, why: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last
            .as_ref()
            .is_some_and(|(last_health, last_reason)| *last_health == health && last_reason == why)
        {
            return;
        }
        let AdmissionCheck { namespace, name, .. } = check;
        let was_ready = matches!(&*last, None | Some((AdmissionHealth::Ready, _)));
        *last = Some((health, why.to_owned()));
        drop(last);
        match health {
            AdmissionHealth::Ready if was_ready => {}
            AdmissionHealth::Ready => {
                tracing::info!(namespace, lease = name, "admission controller is ready again");
            }
            AdmissionHealth::Stale | AdmissionHealth::Unreadable | AdmissionHealth::Forbidden => {
                tracing::warn!(
                    namespace,
                    lease = name,
                    why,
                    "admission controller is not ready: no pod is evicted until its Lease is renewed"
                );
            }
        }
    }
}

impl AdmissionCheck {
    /// Returns the health, and why the admission controller is not ready.
    pub(super) async fn run(&self, client: &Client, compat: Compat) -> (AdmissionHealth, String) {
        let leases = Api::<Lease>::namespaced(client.clone(), &self.namespace);
        let mut delays = RETRY_DELAYS.into_iter();
        let lease = loop {
            let response = tokio::time::timeout(REQUEST_TIMEOUT, leases.get(&self.name)).await;
            match response {
                Ok(Ok(lease)) => break lease,
                Ok(Err(kube::Error::Api(status))) if !is_transient(status.code) => {
                    let health = if status.code == 403 {
                        AdmissionHealth::Forbidden
                    } else {
                        AdmissionHealth::Unreadable
                    };
                    return (health, status.message.clone());
                }
                _ => {}
            }
            let Some(delay) = delays.next() else {
                return (AdmissionHealth::Unreadable, "no response from the API server".to_owned());
            };
            tokio::time::sleep(delay).await;
        };
        // Leases are renewed in real time, even if this process runs on a simulated clock.
        let now = crate::cluster::clock::Clock::wall().now();
        if self.is_ready(&lease, compat, now) {
            return (AdmissionHealth::Ready, String::new());
        }
        (AdmissionHealth::Stale, format!("its Lease was not renewed within {:?}", self.timeout))
    }

    /// Whether the admission controller that renews the Lease will size new pods.
    pub(crate) fn is_ready(&self, lease: &Lease, compat: Compat, now: Time) -> bool {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        let lease_status = AdmissionLeaseStatus::Lease {
            created: lease.creation_timestamp().map(|at| Time::from(at.0)),
            renewed: renewed.map(|at| Time::from(at.0)),
            // Upstream ignores the holder.
            is_held: compat == Compat::Upstream || holder.is_some_and(|holder| !holder.is_empty()),
        };
        lease_status.is_ready(now, self.timeout)
    }
}

/// Whether an error with this HTTP status is worth a retry.
const fn is_transient(code: u16) -> bool {
    matches!(code, 429 | 500 | 503 | 504)
}
