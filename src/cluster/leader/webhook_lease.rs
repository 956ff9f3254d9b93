//! The Lease that says that the webhook can be reached: updaters evict nothing while it is old. It is upstream's, with
//! its name and fields; who renews it must know that it is so.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Client,
    api::{Api, ObjectMeta, PostParams},
};
use plimsoll_storage::{NotLeader, WritePermit};

use crate::cluster::{
    clock::Clock,
    leader::lease,
    write::{
        AccessRule, WriteStats,
        access_review::ensure_can_create,
        request::{self, RequestError},
        stats::WriteKind,
    },
};

const KIND: WriteKind = WriteKind::WebhookLease;
/// Upstream's tries, and the pauses between them.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(300)];

/// Why the Lease was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum WebhookLeaseError {
    /// This process may not write now.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// The server refused, or gave no answer.
    #[error("the Lease {lease} was not renewed, and updaters will stop: {why}")]
    Failed {
        /// Namespace and name.
        lease: String,
        /// What came of it.
        why: RequestError,
    },
}

/// Renews the Lease.
#[derive(Debug)]
pub struct WebhookLease {
    leases: Api<Lease>,
    namespace: String,
    name: String,
    holder: String,
    interval: Duration,
    stats: Arc<WriteStats>,
    /// An annotation that it has from then on.
    annotation: Option<(&'static str, String)>,
}

impl WebhookLease {
    /// Of that name, as this holder, which is the name of the machine: all replicas renew the same one.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        holder: &str,
        interval: Duration,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            holder: holder.to_owned(),
            interval,
            stats: Arc::default(),
            annotation: None,
        }
    }

    /// Counts its writes into these.
    #[must_use]
    pub fn with_stats(mut self, stats: Arc<WriteStats>) -> Self {
        self.stats = stats;
        self
    }

    /// Has the Lease tell this from the next renewal on.
    pub fn set_annotation(&mut self, says: Option<(&'static str, String)>) {
        self.annotation = says;
    }

    /// Says that the webhook is reachable. All of it takes one interval at most, as with upstream.
    pub async fn renew(&self, permit: &dyn WritePermit) -> Result<(), WebhookLeaseError> {
        let tries = async {
            for pause in RETRY_DELAYS {
                match self.try_renew(permit).await {
                    Err(WebhookLeaseError::Failed { why, .. }) if why.is_retryable() => {
                        tokio::time::sleep(pause).await;
                    }
                    done => return done,
                }
            }
            self.try_renew(permit).await
        };
        match tokio::time::timeout(self.interval, tries).await {
            Ok(done) => done,
            Err(_) => {
                Err(self
                    .failed(RequestError::NoResponse(format!("not within {:?}", self.interval))))
            }
        }
    }

    async fn try_renew(&self, permit: &dyn WritePermit) -> Result<(), WebhookLeaseError> {
        let failed = |why| self.failed(why);
        let read = request::read_with_timeout(self.interval, self.leases.get_opt(&self.name)).await;
        let parameters = PostParams::default();
        let Some(mut lease) = read.map_err(failed)? else {
            let rule = AccessRule::new("create", "coordination.k8s.io", "leases");
            let made = ensure_can_create(&self.leases, rule.in_namespace(&self.namespace)).await;
            made.map_err(|why| failed(why.into()))?;
            permit.acquire().await?;
            let first = self.new_lease();
            let asked = self.leases.create(&parameters, &first);
            let made = request::write_counted(&self.stats, KIND, self.interval, asked).await;
            // Another replica has made it: that is as good.
            return ignore_status(made, 409).map_err(failed);
        };
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.holder.clone());
        spec.renew_time = Some(MicroTime(Clock::wall().now().into()));
        if let Some((key, text)) = &self.annotation {
            lease::annotate(&mut lease, key, text.clone());
        }
        permit.acquire().await?;
        let asked = self.leases.replace(&self.name, &parameters, &lease);
        let renewed = request::write_counted(&self.stats, KIND, self.interval, asked).await;
        // Another replica has renewed it: that is as good.
        ignore_status(renewed, 409).map_err(failed)
    }

    /// As upstream makes it: without a time of renewal, because that it was just made says as much.
    fn new_lease(&self) -> Lease {
        let metadata = ObjectMeta {
            name: Some(self.name.clone()),
            namespace: Some(self.namespace.clone()),
            ..ObjectMeta::default()
        };
        let seconds = i32::try_from(self.interval.as_secs()).unwrap_or(i32::MAX);
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            // The API refuses zero; upstream would send it for intervals below a second, and fail.
            lease_duration_seconds: Some(seconds.max(1)),
            ..LeaseSpec::default()
        };
        Lease { metadata, spec: Some(spec) }
    }

    fn failed(&self, why: RequestError) -> WebhookLeaseError {
        WebhookLeaseError::Failed { lease: format!("{}/{}", self.namespace, self.name), why }
    }
}

fn ignore_status<T>(answer: Result<T, RequestError>, code: u16) -> Result<(), RequestError> {
    match answer {
        Err(failed) if failed.code() != Some(code) => Err(failed),
        _ => Ok(()),
    }
}
