//! Checks whether API servers can reach the webhook, as far as this process can tell, and renews the Lease that
//! reports it.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{AdmissionController, config::LeaseConfig};
use crate::{
    cluster::{
        leader::{WebhookLease, election_rules},
        server::{
            certificate::{CaBundle, leaf_certificate},
            webhook::{ServerTrust, check_webhook},
        },
    },
    controllers::runtime::{liveness_thread, role_health::HealthReporter},
};
use plimsoll_core::types::compat::Compat;

/// Timeout of a self-check, unless the Lease is renewed more often than that.
const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Upper limit for the interval of self-checks, however rarely the Lease is renewed: readiness depends on them.
const MAX_SELF_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Number of failed checks after which the webhook is not ready. A single check may be late on a busy machine.
const FAILURE_THRESHOLD: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct SelfCheck(Mutex<SelfCheckState>);

#[derive(Debug, Default)]
struct SelfCheckState {
    last_success: Option<Instant>,
    last_error: Option<String>,
}

impl SelfCheck {
    fn lock(&self) -> MutexGuard<'_, SelfCheckState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, result: &Result<(), String>) {
        let mut state = self.lock();
        let was_ok = state.last_success.is_some() && state.last_error.is_none();
        match result {
            Ok(()) => {
                if !was_ok {
                    tracing::info!("webhook self-check succeeded");
                }
                state.last_success = Some(Instant::now());
                state.last_error = None;
            }
            Err(error) => {
                if state.last_error.as_ref() != Some(error) {
                    tracing::warn!(%error, "webhook self-check failed");
                }
                state.last_error = Some(error.clone());
            }
        }
    }

    /// Whether a check passed within this time; otherwise the last error.
    pub fn passed_within(&self, max_age: Duration) -> Result<(), String> {
        let state = self.lock();
        match state.last_success {
            Some(last_success) if last_success.elapsed() <= max_age => Ok(()),
            _ => Err(state
                .last_error
                .clone()
                .unwrap_or_else(|| "the webhook has not been checked yet".to_owned())),
        }
    }
}

impl AdmissionController {
    fn self_check_interval(&self) -> Duration {
        self.config.lease.interval.min(MAX_SELF_CHECK_INTERVAL)
    }

    /// Whether the webhook passed a recent self-check; otherwise the last error.
    pub(super) fn recent_self_check(&self) -> Result<(), String> {
        self.self_check
            .passed_within(self.self_check_interval() * FAILURE_THRESHOLD + SELF_CHECK_TIMEOUT)
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
        let limit = SELF_CHECK_TIMEOUT.min(self.self_check_interval());
        let address = self.webhook_address;
        check_webhook(address, name, trust, limit).await.map_err(|error| error.to_string())
    }

    /// Whether an API server that uses the webhook configuration would trust the served certificate.
    fn check_trusted_by_api_server(&self) -> Result<(), String> {
        if self.registration.is_none() {
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
    pub(super) async fn run_self_check_loop(self: Arc<Self>) {
        let lease_config = &self.config.lease;
        let health = HealthReporter::new("admission-controller", lease_config.interval);
        let permit = liveness_thread::without_rate_limit(&self.permit);
        let mut lease = WebhookLease::new(
            self.liveness.client(),
            &lease_config.namespace,
            &lease_config.name,
            &election_rules::hostname(),
            lease_config.interval,
            Arc::clone(&self.write_stats),
        );
        let mut last_renewal = Instant::now();
        let mut last_failure: Option<String> = None;
        loop {
            let self_check = self.call_own_webhook().await;
            self.metrics.reachable.set_bool(self_check.is_ok());
            self.self_check.record(&self_check);
            let trusted = self.check_trusted_by_api_server();
            if self.registration.is_some() {
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
                self.self_check_interval()
                    .min(lease_config.interval.saturating_sub(last_renewal.elapsed()))
            } else {
                Duration::from_millis(500).min(self.self_check_interval())
            };
            tokio::time::sleep(pause.max(Duration::from_millis(10))).await;
        }
    }
}
