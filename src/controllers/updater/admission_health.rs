//! Whether the admission controller will size new pods, according to the Lease that it renews.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, ResourceExt as _, api::Api};
use parking_lot::Mutex;

use super::Shared;
use crate::cluster::clock::Clock;
use plimsoll_core::{
    types::{Time, compat::Compat},
    updater::guard::is_admission_ready,
};

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

/// The Lease that the admission controller renews while it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionCheck {
    pub name: String,
    pub namespace: String,
    /// The maximum age of the last renewal.
    pub timeout: Duration,
}

impl AdmissionCheck {
    /// Returns the health, and why the admission controller is not ready.
    async fn run(&self, client: &Client, compat: Compat) -> (AdmissionHealth, String) {
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
        let now = Clock::wall().now();
        if self.is_ready(&lease, compat, now) {
            return (AdmissionHealth::Ready, String::new());
        }
        (AdmissionHealth::Stale, format!("its Lease was not renewed within {:?}", self.timeout))
    }

    /// Whether the admission controller that renews the Lease will size new pods.
    pub(crate) fn is_ready(&self, lease: &Lease, compat: Compat, now: Time) -> bool {
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        let created = lease.creation_timestamp().map(|at| Time::from(at.0));
        let renewed = renewed.map(|at| Time::from(at.0));
        // Upstream ignores the holder.
        let is_held = compat == Compat::Upstream || holder.is_some_and(|holder| !holder.is_empty());
        is_admission_ready(created, renewed, is_held, self.timeout, now)
    }
}

/// Checks the admission controller before each pass.
pub(super) struct AdmissionMonitor {
    pub shared: Arc<Shared>,
    pub client: Client,
    /// The last health with its reason: only changes are logged.
    pub last_logged: Mutex<Option<(AdmissionHealth, String)>>,
}

impl AdmissionMonitor {
    pub async fn check(&self) -> AdmissionHealth {
        let Some(check) = &self.shared.config.admission_check else {
            return AdmissionHealth::Ready;
        };
        let (health, why) = check.run(&self.client, self.shared.config.settings.compat).await;
        self.log(check, health, &why);
        let label = match health {
            AdmissionHealth::Ready => return health,
            AdmissionHealth::Stale => "invalid",
            AdmissionHealth::Unreadable | AdmissionHealth::Forbidden => "error",
        };
        self.shared.metrics.admission_invalid.with_labels([label]).increment();
        health
    }

    fn log(&self, check: &AdmissionCheck, health: AdmissionHealth, why: &str) {
        let mut last = self.last_logged.lock();
        if last.as_ref().is_some_and(|last| last.0 == health && last.1 == why) {
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

/// Whether an error with this HTTP status is worth a retry.
const fn is_transient(code: u16) -> bool {
    matches!(code, 429 | 500 | 503 | 504)
}
