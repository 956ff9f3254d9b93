//! Whether new pods will be sized: what the admission controller says of itself in its Lease.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{ResourceExt as _, api::Api};
use plimsoll_core::types::Time;

use super::{Role, config::AdmissionCheck};
use plimsoll_core::{types::compat::Compat, updater::guard::Admission};

const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Upstream's pauses between tries.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(300)];

/// What came of asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
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
pub(super) struct Logged(Mutex<Option<(Standing, String)>>);

impl Logged {
    fn log(&self, check: &AdmissionCheck, standing: Standing, why: &str) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_some_and(|(known, before)| *known == standing && before == why) {
            return;
        }
        let AdmissionCheck { namespace, name, .. } = check;
        let was_ready = matches!(&*last, None | Some((Standing::Ready, _)));
        *last = Some((standing, why.to_owned()));
        drop(last);
        match standing {
            Standing::Ready if was_ready => {}
            Standing::Ready => {
                tracing::info!(namespace, lease = name, "admission controller is ready again");
            }
            Standing::Stale | Standing::Unreadable | Standing::Forbidden => {
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

impl Role {
    /// Asks now.
    pub(super) async fn admission_standing(&self) -> Standing {
        let Some(check) = &self.config.admission else { return Standing::Ready };
        self.ask_admission(check).await.0
    }

    /// Asks now, and logs what has changed since the last pass.
    pub(super) async fn watch_admission(&self) -> Standing {
        let Some(check) = &self.config.admission else { return Standing::Ready };
        let (standing, why) = self.ask_admission(check).await;
        self.admission_logged.log(check, standing, &why);
        standing
    }

    /// How it stands, and why it is not ready.
    async fn ask_admission(&self, check: &AdmissionCheck) -> (Standing, String) {
        let leases = Api::<Lease>::namespaced(self.client.clone(), &check.namespace);
        let mut pauses = PAUSES.into_iter();
        let lease = loop {
            let asked = tokio::time::timeout(REQUEST_LIMIT, leases.get(&check.name)).await;
            match asked {
                Ok(Ok(lease)) => break lease,
                Ok(Err(kube::Error::Api(status))) if !may_pass(status.code) => {
                    let is_forbidden = status.code == 403;
                    let standing =
                        if is_forbidden { Standing::Forbidden } else { Standing::Unreadable };
                    return (standing, status.message.clone());
                }
                _ => {}
            }
            let Some(pause) = pauses.next() else {
                return (Standing::Unreadable, "the API server gave no answer".to_owned());
            };
            tokio::time::sleep(pause).await;
        };
        let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
        let holder = lease.spec.as_ref().and_then(|spec| spec.holder_identity.as_deref());
        let seen = Admission::Lease {
            created: lease.creation_timestamp().map(|at| Time::from(at.0)),
            renewed: renewed.map(|at| Time::from(at.0)),
            // Upstream does not look at who holds it.
            is_held: self.config.settings.compat == Compat::Upstream
                || holder.is_some_and(|holder| !holder.is_empty()),
        };
        // Leases are renewed on real time, whatever clock this process runs on.
        let now = crate::clock::Clock::wall().now();
        if seen.is_ready(now, check.timeout) {
            return (Standing::Ready, String::new());
        }
        (Standing::Stale, format!("its Lease was not renewed within {:?}", check.timeout))
    }
}

/// Whether a refusal may be another answer in a moment.
const fn may_pass(code: u16) -> bool {
    matches!(code, 429 | 500 | 503 | 504)
}
