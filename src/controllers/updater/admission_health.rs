//! Whether new pods will be sized: what the admission controller says of itself in its Lease.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{ResourceExt as _, api::Api};
use plimsoll_core::types::Time;

use super::{Updater, config::AdmissionCheck};
use plimsoll_core::{types::compat::Compat, updater::guard::AdmissionLeaseStatus};

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Upstream's pauses between tries.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(300)];

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdmissionHealth {
    /// New pods will be sized, or nobody is to ask.
    Ready,
    /// The Lease is too old.
    Stale,
    /// It could not be read, or is not there.
    Unreadable,
    /// This process may not read it.
    Forbidden,
}

/// What was logged last. It is asked in every pass, and what lasts is logged when it begins and when it ends.
#[derive(Debug, Default)]
pub(super) struct AdmissionLog(Mutex<Option<(AdmissionHealth, String)>>);

impl AdmissionLog {
    fn log(&self, check: &AdmissionCheck, standing: AdmissionHealth, why: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_some_and(|(known, before)| *known == standing && before == why) {
            return;
        }
        let AdmissionCheck { namespace, name, .. } = check;
        let was_ready = matches!(&*last, None | Some((AdmissionHealth::Ready, _)));
        *last = Some((standing, why.to_owned()));
        drop(last);
        match standing {
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

impl Updater {
    /// Asks now.
    pub(super) async fn admission_health(&self) -> AdmissionHealth {
        let Some(check) = &self.config.admission_check else { return AdmissionHealth::Ready };
        self.read_admission_lease(check).await.0
    }

    /// Asks now, and logs what has changed since the last pass.
    pub(super) async fn check_admission(&self) -> AdmissionHealth {
        let Some(check) = &self.config.admission_check else { return AdmissionHealth::Ready };
        let (standing, why) = self.read_admission_lease(check).await;
        self.admission_log.log(check, standing, &why);
        standing
    }

    /// How it stands, and why it is not ready.
    async fn read_admission_lease(&self, check: &AdmissionCheck) -> (AdmissionHealth, String) {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &check.namespace);
        let mut pauses = RETRY_DELAYS.into_iter();
        let lease = loop {
            let asked = tokio::time::timeout(REQUEST_TIMEOUT, leases.get(&check.name)).await;
            match asked {
                Ok(Ok(lease)) => break lease,
                Ok(Err(kube::Error::Api(status))) if !is_transient(status.code) => {
                    let is_forbidden = status.code == 403;
                    let standing = if is_forbidden {
                        AdmissionHealth::Forbidden
                    } else {
                        AdmissionHealth::Unreadable
                    };
                    return (standing, status.message.clone());
                }
                _ => {}
            }
            let Some(pause) = pauses.next() else {
                return (AdmissionHealth::Unreadable, "the API server gave no answer".to_owned());
            };
            tokio::time::sleep(pause).await;
        };
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        let seen = AdmissionLeaseStatus::Lease {
            created: lease.creation_timestamp().map(|at| Time::from(at.0)),
            renewed: renewed.map(|at| Time::from(at.0)),
            // Upstream does not look at who holds it.
            is_held: self.config.settings.compat == Compat::Upstream
                || holder.is_some_and(|holder| !holder.is_empty()),
        };
        // Leases are renewed on real time, whatever clock this process runs on.
        let now = crate::cluster::clock::Clock::wall().now();
        if seen.is_ready(now, check.timeout) {
            return (AdmissionHealth::Ready, String::new());
        }
        (AdmissionHealth::Stale, format!("its Lease was not renewed within {:?}", check.timeout))
    }
}

/// Whether a refusal may be another answer in a moment.
const fn is_transient(code: u16) -> bool {
    matches!(code, 429 | 500 | 503 | 504)
}
