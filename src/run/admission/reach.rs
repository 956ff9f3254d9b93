//! Whether API servers reach the webhook, as far as this process can tell, and the Lease that says so.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use super::{Role, Stop};
use crate::{
    act::{WebhookLease, lease},
    certificate::{Bundle, leaf},
    run::{liveness, vitals::Condition},
    serve::webhook::{Trust, reach},
};
use plimsoll_core::types::compat::Compat;

/// A look at the own port takes no longer, unless the Lease is renewed more often than that.
const PATIENCE: Duration = Duration::from_secs(5);
/// Looks are no further apart, however seldom the Lease is renewed: readiness hangs on them.
const SELDOM: Duration = Duration::from_secs(10);
/// After so many looks that found nothing it is not ready any more. One may be late on a busy machine.
const LOOKS: u32 = 3;

/// What the last looks found.
#[derive(Debug, Default)]
pub(super) struct Reached(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    last: Option<Instant>,
    trouble: Option<String>,
}

impl Reached {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of a look, and says in the log what has changed.
    fn note(&self, found: &Result<(), String>) {
        let mut known = self.lock();
        let was_reached = known.last.is_some() && known.trouble.is_none();
        match found {
            Ok(()) => {
                if !was_reached {
                    tracing::info!("the webhook answers on its own port");
                }
                known.last = Some(Instant::now());
                known.trouble = None;
            }
            Err(why) => {
                if known.trouble.as_ref() != Some(why) {
                    tracing::warn!("{why}");
                }
                known.trouble = Some(why.clone());
            }
        }
    }

    /// Whether it answered lately, or why not.
    pub fn lately(&self, within: Duration) -> Result<(), String> {
        let known = self.lock();
        match known.last {
            Some(last) if last.elapsed() <= within => Ok(()),
            _ => Err(known
                .trouble
                .clone()
                .unwrap_or_else(|| "the webhook was not looked at yet".to_owned())),
        }
    }
}

impl Role {
    /// How often the own port is looked at.
    fn between_looks(&self) -> Duration {
        self.config.lease.interval.min(SELDOM)
    }

    /// Whether the webhook answered lately, or why not.
    pub(super) fn reached_lately(&self) -> Result<(), String> {
        self.reached.lately(self.between_looks() * LOOKS + PATIENCE)
    }

    /// Calls the own port as an API server would.
    async fn look(&self) -> Result<(), String> {
        let Some(shown) = self.certificates.shown() else {
            return Err("there is no certificate to show yet".to_owned());
        };
        let name = self.config.server_name();
        let own = Bundle::read(&shown.authority);
        // Where nobody here says who stands for it, API servers may know all the same.
        let trust = match leaf(&shown.chain) {
            Some(leaf) if own.is_empty() => Trust::Exactly(leaf),
            _ => Trust::Authorities(own.roots()),
        };
        let limit = PATIENCE.min(self.between_looks());
        let address = self.webhook_address;
        reach(address, name, trust, limit).await.map_err(|why| why.to_string())
    }

    /// Whether an API server that was told of the webhook would believe it.
    fn is_believed(&self) -> Result<(), String> {
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
            (self.certificates.registered(), self.certificates.shown())
        else {
            return Err("nobody knows how the webhook is registered".to_owned());
        };
        let (name, now) = (self.config.server_name(), self.clock.now());
        registered.accepts(&shown.chain, name, now).map_err(|why| {
            format!("the API server is registered to trust others than the webhook: {why}")
        })
    }

    /// Looks at the own port, and renews the Lease while API servers get through.
    pub(super) async fn keep_reachable(self: Arc<Self>, stop: Stop) {
        let wanted = &self.config.lease;
        let condition = Condition::new("admission-controller", wanted.interval);
        let permit = liveness::unlimited(&self.permit);
        let mut lease = WebhookLease::new(
            self.liveness.client(),
            &wanted.namespace,
            &wanted.name,
            &lease::hostname(),
            wanted.interval,
        )
        .with_stats(Arc::clone(&self.stats));
        let mut renewed = Instant::now();
        let mut silent: Option<String> = None;
        loop {
            let found = tokio::select! {
                () = stop.stopped() => return,
                found = self.look() => found,
            };
            self.metrics.set_reachable(found.is_ok());
            self.reached.note(&found);
            let believed = self.is_believed();
            if self.registration.is_some() {
                self.metrics.set_registered(believed.is_ok());
            }
            let through = found.and(believed);
            if renewed.elapsed() >= wanted.interval && !self.is_draining() {
                {
                    let mut vitals = condition.lock();
                    vitals.objects = self.seen.vpa_count() as u64;
                    vitals.last_pass = Some(self.clock.now());
                }
                lease.say(condition.annotation(self.config.compat));
                let done = match &through {
                    Ok(()) => tokio::select! {
                        () = stop.stopped() => return,
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
                self.between_looks().min(wanted.interval.saturating_sub(renewed.elapsed()))
            } else {
                Duration::from_millis(500).min(self.between_looks())
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(pause.max(Duration::from_millis(10))) => {}
            }
        }
    }
}
