//! Checks whether API servers can reach the webhook, as far as this process can tell, and renews the Lease that
//! reports it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{
    certificates::Certificates,
    config::{AdmissionConfig, LeaseConfig},
    watches::WatchStores,
};
use crate::{
    cluster::{
        clock::Clock,
        leader::WebhookLease,
        server::{
            certificate::{CaBundle, leaf_certificate},
            webhook::{ServerTrust, check_webhook},
        },
        write::Permit,
    },
    controllers::runtime::role_health::HealthReporter,
    telemetry::AdmissionMetrics,
};
use parking_lot::Mutex;
use plimsoll_core::types::compat::Compat;

/// Timeout of a self-check, unless the Lease is renewed more often than that.
const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper limit for the interval of self-checks, however rarely the Lease is renewed: readiness depends on them.
const MAX_SELF_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Number of failed checks after which the webhook is not ready. A single check may be late on a busy machine.
const FAILURE_THRESHOLD: u32 = 3;

pub(super) struct SelfCheck {
    pub config: Arc<AdmissionConfig>,
    pub clock: Clock,
    pub stores: Arc<WatchStores>,
    pub webhook_address: SocketAddr,
    pub certificates: Arc<Certificates>,
    pub metrics: AdmissionMetrics,
    pub draining: AtomicBool,
    pub last: Mutex<LastCheck>,
}

#[derive(Debug, Default)]
pub(super) struct LastCheck {
    success: Option<Instant>,
    error: Option<String>,
}

impl SelfCheck {
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    fn record(&self, result: &Result<(), String>) {
        let mut last = self.last.lock();
        let was_ok = last.success.is_some() && last.error.is_none();
        match result {
            Ok(()) => {
                if !was_ok {
                    tracing::info!("webhook self-check succeeded");
                }
                last.success = Some(Instant::now());
                last.error = None;
            }
            Err(error) => {
                if last.error.as_ref() != Some(error) {
                    tracing::warn!(%error, "webhook self-check failed");
                }
                last.error = Some(error.clone());
            }
        }
    }

    fn interval(&self) -> Duration {
        self.config.lease.interval.min(MAX_SELF_CHECK_INTERVAL)
    }

    /// Whether the webhook passed a recent self-check; otherwise the last error.
    pub fn recent(&self) -> Result<(), String> {
        let max_age = self.interval() * FAILURE_THRESHOLD + SELF_CHECK_TIMEOUT;
        let last = self.last.lock();
        match last.success {
            Some(success) if success.elapsed() <= max_age => Ok(()),
            _ => Err(last
                .error
                .clone()
                .unwrap_or_else(|| "the webhook has not been checked yet".to_owned())),
        }
    }

    /// Connects to its own port like an API server.
    async fn call_own_webhook(&self) -> Result<(), String> {
        let Some(serving) = self.certificates.lock().serving.clone() else {
            return Err("no certificate is available yet".to_owned());
        };
        let name = self.config.server_name();
        let own = CaBundle::parse(&serving.authority);
        // If the CA is not known here, API servers may still know it: pin the certificate.
        let trust = match leaf_certificate(&serving.chain) {
            Some(leaf) if own.is_empty() => ServerTrust::PinnedCertificate(leaf),
            _ => ServerTrust::Authorities(own.root_store()),
        };
        let limit = SELF_CHECK_TIMEOUT.min(self.interval());
        let address = self.webhook_address;
        check_webhook(address, name, trust, limit).await.map_err(|error| error.to_string())
    }

    /// Whether an API server that uses the webhook configuration would trust the served certificate.
    fn check_trusted_by_api_server(&self) -> Result<(), String> {
        if self.config.registration.is_none() {
            return Ok(());
        }
        if !self.certificates.lock().was_registered {
            return Err("the webhook is not registered yet".to_owned());
        }
        // Upstream renews the Lease once it tried to register, whatever the result.
        if self.config.compat == Compat::Upstream {
            return Ok(());
        }
        let (name, now) = (self.config.server_name(), self.clock.now());
        let (registered, serving) = {
            let state = self.certificates.lock();
            (state.registered.clone(), state.serving.clone())
        };
        let (Some(registered), Some(serving)) = (registered, serving) else {
            return Err("the webhook configuration has not been read".to_owned());
        };
        registered.verify(&serving.chain, name, now).map_err(|error| {
            format!("the CA bundle of the webhook configuration does not verify the served certificate: {error}")
        })
    }

    /// Runs self-checks, and renews the Lease while they pass.
    pub async fn run(self: Arc<Self>, mut lease: WebhookLease, permit: Permit) {
        let lease_config = &self.config.lease;
        let health = HealthReporter::new("admission-controller", lease_config.interval);
        let mut last_renewal = Instant::now();
        let mut last_failure: Option<String> = None;
        loop {
            let self_check = self.call_own_webhook().await;
            self.metrics.reachable.set_bool(self_check.is_ok());
            self.record(&self_check);
            let trusted = self.check_trusted_by_api_server();
            if self.config.registration.is_some() {
                self.metrics.registered.with_labels([]).set_bool(trusted.is_ok());
            }
            let result = self_check.and(trusted);
            if last_renewal.elapsed() >= lease_config.interval && !self.is_draining() {
                {
                    let mut status = health.lock();
                    status.objects = self.stores.vpa_count() as u64;
                    status.last_pass = Some(self.clock.now());
                }
                lease.set_annotation(health.annotation(self.config.compat));
                let renewal = match &result {
                    Ok(()) => lease.renew(&permit).await.map_err(|error| {
                        let LeaseConfig { namespace, name, .. } = lease_config;
                        format!("failed to renew Lease {namespace}/{name}: {error}")
                    }),
                    Err(error) => Err(format!(
                        "not renewing Lease {}/{}; updaters will pause until it is renewed: {error}",
                        lease_config.namespace, lease_config.name
                    )),
                };
                last_renewal = Instant::now();
                match renewal {
                    Ok(()) if last_failure.is_some() => {
                        tracing::info!("resumed renewing the webhook's Lease");
                        last_failure = None;
                    }
                    Err(error) if last_failure.as_ref() != Some(&error) => {
                        tracing::warn!("{error}");
                        last_failure = Some(error);
                    }
                    _ => {}
                }
            }
            // Check again soon, so that readiness does not wait for a full interval.
            let pause = if result.is_ok() {
                self.interval().min(lease_config.interval.saturating_sub(last_renewal.elapsed()))
            } else {
                Duration::from_millis(500).min(self.interval())
            };
            tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        }
    }
}
