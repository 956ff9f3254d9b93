//! Whether API servers reach the webhook, as far as this process can tell, and the Lease that says so.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{AdmissionController, ShutdownToken};
use crate::{
    cluster::{
        leader::{WebhookLease, lease},
        server::{
            certificate::{CaBundle, leaf_certificate},
            webhook::{ServerTrust, check_webhook},
        },
    },
    controllers::runtime::{liveness, role_health::HealthReporter},
};
use plimsoll_core::types::compat::Compat;

/// A look at the own port takes no longer, unless the Lease is renewed more often than that.
const SELF_CHECK_TIMEOUT: Duration = Duration::from_secs(5);
/// Looks are no further apart, however seldom the Lease is renewed: readiness hangs on them.
const MAX_SELF_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// After so many looks that found nothing it is not ready any more. One may be late on a busy machine.
const FAILURE_THRESHOLD: u32 = 3;

/// What the last looks found.
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

    /// Takes note of a look, and says in the log what has changed.
    fn record(&self, found: &Result<(), String>) {
        let mut known = self.lock();
        let was_reached = known.last_success.is_some() && known.last_error.is_none();
        match found {
            Ok(()) => {
                if !was_reached {
                    tracing::info!("the webhook answers on its own port");
                }
                known.last_success = Some(Instant::now());
                known.last_error = None;
            }
            Err(why) => {
                if known.last_error.as_ref() != Some(why) {
                    tracing::warn!("{why}");
                }
                known.last_error = Some(why.clone());
            }
        }
    }

    /// Whether it answered lately, or why not.
    pub fn passed_within(&self, within: Duration) -> Result<(), String> {
        let known = self.lock();
        match known.last_success {
            Some(last) if last.elapsed() <= within => Ok(()),
            _ => Err(known
                .last_error
                .clone()
                .unwrap_or_else(|| "the webhook was not looked at yet".to_owned())),
        }
    }
}

impl AdmissionController {
    /// How often the own port is looked at.
    fn self_check_interval(&self) -> Duration {
        self.config.lease.interval.min(MAX_SELF_CHECK_INTERVAL)
    }

    /// Whether the webhook answered lately, or why not.
    pub(super) fn recent_self_check(&self) -> Result<(), String> {
        self.self_check
            .passed_within(self.self_check_interval() * FAILURE_THRESHOLD + SELF_CHECK_TIMEOUT)
    }

    /// Calls the own port as an API server would.
    async fn call_own_webhook(&self) -> Result<(), String> {
        let Some(shown) = self.certificates.serving_pair() else {
            return Err("there is no certificate to show yet".to_owned());
        };
        let name = self.config.server_name();
        let own = CaBundle::parse(&shown.authority);
        // Where nobody here says who stands for it, API servers may know all the same.
        let trust = match leaf_certificate(&shown.chain) {
            Some(leaf) if own.is_empty() => ServerTrust::PinnedCertificate(leaf),
            _ => ServerTrust::Authorities(own.root_store()),
        };
        let limit = SELF_CHECK_TIMEOUT.min(self.self_check_interval());
        let address = self.webhook_address;
        check_webhook(address, name, trust, limit).await.map_err(|why| why.to_string())
    }

    /// Whether an API server that was told of the webhook would believe it.
    fn check_trusted_by_api_server(&self) -> Result<(), String> {
        if self.registration.is_none() {
            return Ok(());
        }
        if !self.certificates.was_registered() {
            return Err("the webhook is not registered yet".to_owned());
        }
        // Upstream renews once it has tried to register, whatever became of that.
        if self.config.compat == Compat::Upstream {
            return Ok(());
        }
        let (Some(registered), Some(shown)) =
            (self.certificates.registered_bundle(), self.certificates.serving_pair())
        else {
            return Err("nobody knows how the webhook is registered".to_owned());
        };
        let (name, now) = (self.config.server_name(), self.clock.now());
        registered.verify(&shown.chain, name, now).map_err(|why| {
            format!("the API server is registered to trust others than the webhook: {why}")
        })
    }

    /// Looks at the own port, and renews the Lease while API servers get through.
    pub(super) async fn run_self_check_loop(self: Arc<Self>, stop: ShutdownToken) {
        let wanted = &self.config.lease;
        let condition = HealthReporter::new("admission-controller", wanted.interval);
        let permit = liveness::without_rate_limit(&self.permit);
        let mut lease = WebhookLease::new(
            self.liveness.client(),
            &wanted.namespace,
            &wanted.name,
            &lease::hostname(),
            wanted.interval,
        )
        .with_stats(Arc::clone(&self.write_stats));
        let mut renewed = Instant::now();
        let mut silent: Option<String> = None;
        loop {
            let found = tokio::select! {
                () = stop.cancelled() => return,
                found = self.call_own_webhook() => found,
            };
            self.metrics.set_reachable(found.is_ok());
            self.self_check.record(&found);
            let believed = self.check_trusted_by_api_server();
            if self.registration.is_some() {
                self.metrics.set_registered(believed.is_ok());
            }
            let through = found.and(believed);
            if renewed.elapsed() >= wanted.interval && !self.is_draining() {
                {
                    let mut vitals = condition.lock();
                    vitals.objects = self.stores.vpa_count() as u64;
                    vitals.last_pass = Some(self.clock.now());
                }
                lease.set_annotation(condition.annotation(self.config.compat));
                let done = match &through {
                    Ok(()) => tokio::select! {
                        () = stop.cancelled() => return,
                        done = lease.renew(&permit) => done.map_err(|why| why.to_string()),
                    },
                    Err(why) => Err(format!(
                        "the Lease {}/{} is not renewed, and updaters will stop: {why}",
                        wanted.namespace, wanted.name
                    )),
                };
                renewed = Instant::now();
                match done {
                    Ok(()) if silent.is_some() => {
                        tracing::info!("the webhook's Lease is renewed again");
                        silent = None;
                    }
                    Err(why) if silent.as_ref() != Some(&why) => {
                        tracing::warn!("{why}");
                        silent = Some(why);
                    }
                    _ => {}
                }
            }
            // Whoever waits for the first answer should not wait for a whole turn.
            let pause = if through.is_ok() {
                self.self_check_interval().min(wanted.interval.saturating_sub(renewed.elapsed()))
            } else {
                Duration::from_millis(500).min(self.self_check_interval())
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause.max(Duration::from_millis(10))) => {}
            }
        }
    }
}
