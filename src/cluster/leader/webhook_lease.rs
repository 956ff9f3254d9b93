//! The Lease by which updaters know that API servers reach the webhook: they evict no pods while it is stale. Its name
//! and its fields are upstream's.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Client, api::Api};
use plimsoll_storage::WritePermit;

use crate::cluster::{
    clock::Clock,
    leader::election_rules,
    write::{WriteError, WriteStats, object_client::ObjectClient, stats::WriteKind},
};

/// Upstream's delays between attempts.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(300)];

#[derive(Debug)]
pub struct WebhookLease {
    lease: ObjectClient<Lease>,
    holder: String,
    interval: Duration,
    annotation: Option<(&'static str, String)>,
}

impl WebhookLease {
    /// Creates a client for the Lease of this name. All replicas renew it, each with its hostname as the holder.
    pub fn new(
        client: Client,
        namespace: &str,
        name: &str,
        holder: &str,
        interval: Duration,
        stats: Arc<WriteStats>,
    ) -> Self {
        let leases = Api::namespaced(client, namespace);
        let lease = ObjectClient::new(leases, name, WriteKind::WebhookLease, interval, stats);
        Self { lease, holder: holder.to_owned(), interval, annotation: None }
    }

    /// Sets an annotation that each renewal writes.
    pub fn set_annotation(&mut self, annotation: Option<(&'static str, String)>) {
        self.annotation = annotation;
    }

    /// Renews the Lease, with retries, within one interval in total, as in upstream.
    pub async fn renew(&self, permit: &dyn WritePermit) -> Result<(), WriteError> {
        let tries = async {
            for pause in RETRY_DELAYS {
                match self.try_renew(permit).await {
                    Err(error) if error.is_retryable() => {
                        tokio::time::sleep(pause).await;
                    }
                    result => return result,
                }
            }
            self.try_renew(permit).await
        };
        let timed_out = |_| Err(WriteError::NoResponse(format!("not within {:?}", self.interval)));
        tokio::time::timeout(self.interval, tries).await.unwrap_or_else(timed_out)
    }

    async fn try_renew(&self, permit: &dyn WritePermit) -> Result<(), WriteError> {
        let read = self.lease.get().await?;
        if read.is_none() {
            self.lease.ensure_can_create().await?;
        }
        permit.acquire().await?;
        let written = match read {
            Some(lease) => self.lease.replace(&self.renewed_lease(lease)).await,
            None => self.lease.create(&self.new_lease()).await,
        };
        match written {
            // Another replica has just written it, which is as good.
            Ok(_) | Err(WriteError::Conflict(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn renewed_lease(&self, mut lease: Lease) -> Lease {
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        spec.holder_identity = Some(self.holder.clone());
        spec.renew_time = Some(MicroTime(Clock::wall().now().into()));
        if let Some((key, text)) = &self.annotation {
            election_rules::annotate(&mut lease, key, text.clone());
        }
        lease
    }

    /// Without a renew time, as upstream creates it: the creation time counts instead.
    fn new_lease(&self) -> Lease {
        let seconds = i32::try_from(self.interval.as_secs()).unwrap_or(i32::MAX);
        let spec = LeaseSpec {
            holder_identity: Some(self.holder.clone()),
            // The API rejects zero; upstream would send it for intervals below a second, and fail.
            lease_duration_seconds: Some(seconds.max(1)),
            ..LeaseSpec::default()
        };
        Lease { metadata: self.lease.metadata(), spec: Some(spec) }
    }
}
