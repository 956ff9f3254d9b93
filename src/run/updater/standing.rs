//! Whether new pods will be sized: what the admission controller says of itself in its Lease.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{ResourceExt as _, api::Api};
use plimsoll_storage::Time;

use super::Role;
use crate::{compat::Compat, update::guard::Admission};

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

impl Role {
    /// Asks now.
    pub(super) async fn admission_standing(&self) -> Standing {
        let Some(check) = &self.config.admission else { return Standing::Ready };
        let leases = Api::<Lease>::namespaced(self.client.clone(), &check.namespace);
        let mut pauses = PAUSES.into_iter();
        let lease = loop {
            let asked = tokio::time::timeout(REQUEST_LIMIT, leases.get(&check.name)).await;
            match asked {
                Ok(Ok(lease)) => break lease,
                Ok(Err(kube::Error::Api(status))) if !may_pass(status.code) => {
                    tracing::warn!(lease = check.name, namespace = check.namespace, why = %status.message, "the admission controller's Lease cannot be read");
                    let is_forbidden = status.code == 403;
                    return if is_forbidden { Standing::Forbidden } else { Standing::Unreadable };
                }
                _ => {}
            }
            let Some(pause) = pauses.next() else {
                tracing::warn!(
                    lease = check.name,
                    namespace = check.namespace,
                    "the admission controller's Lease cannot be read"
                );
                return Standing::Unreadable;
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
        if seen.is_ready(now, check.timeout) { Standing::Ready } else { Standing::Stale }
    }
}

/// Whether a refusal may be another answer in a moment.
const fn may_pass(code: u16) -> bool {
    matches!(code, 429 | 500 | 503 | 504)
}
