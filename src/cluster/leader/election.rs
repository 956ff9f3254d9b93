//! Leader election: acquires and renews a Lease, and keeps the fence open only while the Lease is certainly held.

mod config;
mod state;

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Client, api::Api};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{
    clock::Clock,
    leader::{
        Fence,
        election_rules::{self, ObservedRecord},
        fence::Clocks,
        jitter,
    },
    write::{WriteError, WriteStats, object_client::ObjectClient, stats::WriteKind},
};

pub use self::config::ElectionConfig;
use self::state::LeaseObservation;
pub use self::state::{ElectionState, LeaderState};

/// Upper bound of a standby's poll interval, whatever its retry period: a handover should take at most 2 s.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(800);
/// The fraction by which a poll interval is extended at random.
const POLL_JITTER: f64 = 0.5;
/// How long a shutdown waits for a request in flight, and then for the release.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Election {
    lease: ObjectClient<Lease>,
    config: ElectionConfig,
    /// Identity of this process; see [`identity`](election_rules::identity).
    identity: String,
    fence: Fence,
    lease_lock: Arc<tokio::sync::Mutex<()>>,
    lease_annotation: Option<LeaseAnnotation>,
    observed: ObservedRecord,
    /// Since when a Lease is missing that another process held.
    missing_since: Option<Instant>,
    /// The Lease as this process wrote it last, unless it is known that another client wrote it since.
    last_written: Option<Lease>,
    observation: watch::Sender<LeaseObservation>,
    /// Holds whether this process may lead; `None` if it always may.
    may_lead: Option<watch::Receiver<bool>>,
}

/// Returns an annotation to write with each renewal.
type LeaseAnnotation = Box<dyn Fn() -> Option<(&'static str, String)> + Send + Sync>;

/// Returns once the channel holds this value; never if there is none.
async fn wait_until(may_lead: Option<&mut watch::Receiver<bool>>, value: bool) {
    let Some(may_lead) = may_lead else { return std::future::pending().await };
    if may_lead.wait_for(|holds| *holds == value).await.is_err() {
        // It does not change any more.
        std::future::pending::<()>().await;
    }
}

enum LeaseStep {
    /// The Lease is held, by a request that was sent at this time.
    Held(Instant),
    /// The Lease is not held, and cannot be acquired before this time.
    NotHeld(Option<Instant>),
}

impl Election {
    /// A candidate that controls this fence. Does nothing before [`Self::run`].
    pub fn new(
        client: Client,
        config: ElectionConfig,
        identity: String,
        fence: Fence,
        stats: Arc<WriteStats>,
    ) -> Self {
        let leases = Api::namespaced(client, &config.namespace);
        // A whole attempt, with its requests, has a shorter limit.
        let limit = config.renew_deadline;
        let lease = ObjectClient::new(leases, &config.name, WriteKind::Lease, limit, stats);
        let initial =
            LeaseObservation { leader_state: LeaderState::Starting, holder: None, transitions: 0 };
        Self {
            lease,
            config,
            identity,
            fence,
            lease_lock: Arc::default(),
            lease_annotation: None,
            observed: ObservedRecord::default(),
            missing_since: None,
            last_written: None,
            observation: watch::Sender::new(initial),
            may_lead: None,
        }
    }

    /// Takes part only while this holds true, and releases the Lease when it does not. The code that sets it to false closes the
    /// fence as well, after that.
    #[must_use]
    pub fn only_while(mut self, may_lead: watch::Receiver<bool>) -> Self {
        self.may_lead = Some(may_lead);
        self
    }

    /// Holds this lock while it reads and writes the Lease. Other code in this process that writes the Lease takes the same
    /// lock, so that neither conflicts with the other.
    #[must_use]
    pub fn with_lease_lock(mut self, lock: Arc<tokio::sync::Mutex<()>>) -> Self {
        self.lease_lock = lock;
        self
    }

    /// Writes an annotation with each renewal. `annotation` is called for each.
    #[must_use]
    pub fn with_lease_annotation(
        mut self,
        annotation: impl Fn() -> Option<(&'static str, String)> + Send + Sync + 'static,
    ) -> Self {
        self.lease_annotation = Some(Box::new(annotation));
        self
    }

    /// The state of the election, also after `self` has moved into [`Self::run`].
    pub fn state(&self) -> ElectionState {
        ElectionState { fence: self.fence.clone(), observation: self.observation.subscribe() }
    }

    /// Runs until shutdown is requested, and then releases the Lease. A leader that loses the Lease continues as a standby.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        self.fence.revoke();
        tokio::pin!(shutdown);
        loop {
            if !self.may_lead() {
                self.step_down().await;
                tokio::select! {
                    biased;
                    () = &mut shutdown => break,
                    () = wait_until(self.may_lead.as_mut(), true) => {}
                }
            }
            let limit = self.config.renew_deadline / 2;
            let started = Clocks::now();
            let result = {
                let step = tokio::time::timeout(limit, self.try_acquire_or_renew());
                tokio::pin!(step);
                tokio::select! {
                    biased;
                    result = &mut step => result,
                    () = &mut shutdown => {
                        // A cancelled request could still acquire the Lease for a process that is gone.
                        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, step).await;
                        break;
                    }
                }
            };
            let wait = match result {
                Ok(Ok(step)) => self.on_step(&step, started),
                Ok(Err(why)) => self.on_error(&why),
                Err(_) => self.on_unreachable(&format!("request timed out after {limit:?}")),
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = wait_until(self.may_lead.as_mut(), false) => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.step_down().await;
    }

    fn may_lead(&self) -> bool {
        self.may_lead.as_ref().is_none_or(|may_lead| *may_lead.borrow())
    }

    /// Permits no more writes, and releases the Lease if this process holds it.
    async fn step_down(&mut self) {
        self.fence.revoke();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.release()).await.is_err() {
            tracing::warn!(lease = %self.config.name, "failed to release leader lease: request timed out");
        }
        self.set_leader_state(LeaderState::Standby);
    }

    /// One attempt to acquire or renew the Lease. Does not touch the fence: the caller does.
    async fn try_acquire_or_renew(&mut self) -> Result<LeaseStep, WriteError> {
        let lock = Arc::clone(&self.lease_lock);
        let _guard = lock.lock().await;
        if let Some(own) = self.last_written.take() {
            match self.write_lease(Some(&own)).await? {
                Some(sent) => return Ok(LeaseStep::Held(sent)),
                // Another client wrote it. Read it again first.
                None => {
                    tracing::debug!(lease = %self.config.name, "leader lease was changed by another client");
                }
            }
        }
        let lease = self.lease.get().await?;
        let now = Instant::now();
        if let Some(lease) = &lease {
            self.observed.observe(
                &lease.spec.clone().unwrap_or_default(),
                now,
                self.unobserved_allowance(),
            );
            self.on_observed(lease);
        }
        // A Lease that was deleted still belongs to its holder, who does not know of the deletion yet.
        let (identity, lease_duration) = (&self.identity, self.config.lease_duration);
        let expires = self.observed.expires_at(identity, lease_duration);
        if expires.is_some_and(|expires| now < expires) {
            return Ok(LeaseStep::NotHeld(expires));
        }
        if lease.is_some() {
            self.missing_since = None;
        } else if self.observed.held_by_other(identity) {
            // Another process may have acquired it since the last read, and still hold it. A process that has observed
            // another holder waits for as long as any holder may rely on the Lease.
            let expires = *self.missing_since.get_or_insert(now) + lease_duration;
            if now < expires {
                return Ok(LeaseStep::NotHeld(Some(expires)));
            }
        }
        let sent = self.write_lease(lease.as_ref()).await?;
        Ok(sent.map_or(LeaseStep::NotHeld(None), LeaseStep::Held))
    }

    /// Creates the Lease, or replaces it if it is unchanged since it was read. `None` if another client has written it.
    async fn write_lease(&mut self, read: Option<&Lease>) -> Result<Option<Instant>, WriteError> {
        let (identity, lease_duration) = (&self.identity, self.config.lease_duration);
        if read.is_none() {
            self.lease.ensure_can_create().await?;
        }
        let now = Clock::wall().now().into();
        let mut claimed = if let Some(read) = read {
            election_rules::acquired_lease(read, identity, lease_duration, now)
        } else {
            let metadata = self.lease.metadata();
            election_rules::new_lease(metadata, identity, lease_duration, now)
        };
        let annotation = self.lease_annotation.as_ref().and_then(|annotation| annotation());
        if let Some((key, text)) = annotation {
            election_rules::annotate(&mut claimed, key, text);
        }
        let sent = Instant::now();
        let result = match read {
            Some(_) => self.lease.replace(&claimed).await,
            None => self.lease.create(&claimed).await,
        };
        match result {
            Ok(stored) => {
                let record = stored.spec.clone().unwrap_or_default();
                self.observed.observe(&record, Instant::now(), Duration::ZERO);
                self.on_observed(&stored);
                self.last_written = Some(stored);
                Ok(Some(sent))
            }
            Err(WriteError::NotFound | WriteError::Conflict(_)) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Updates the fence from the result of an attempt. Returns how long to wait before the next one.
    fn on_step(&mut self, step: &LeaseStep, started: Clocks) -> Duration {
        let was_held = self.fence.is_granted();
        let name = &self.config.name;
        match step {
            LeaseStep::Held(sent) => {
                if !self.may_lead() {
                    return Duration::ZERO;
                }
                self.fence.grant_since(started, *sent + self.grant_duration());
                if !self.may_lead() {
                    // It changed between the two.
                    self.fence.revoke();
                    return Duration::ZERO;
                }
                if !was_held {
                    tracing::info!(lease = %name, "became leader");
                }
                self.set_leader_state(LeaderState::Leading);
                self.config.retry_period
            }
            LeaseStep::NotHeld(expires) => {
                self.fence.revoke();
                if was_held {
                    tracing::warn!(lease = %name, "stopped leading: another process holds the lease");
                }
                self.set_leader_state(LeaderState::Standby);
                let poll = jitter::jittered(self.poll_interval(), POLL_JITTER);
                let expires = expires.map(|at| at.saturating_duration_since(Instant::now()));
                // Not before the expiry itself, or the attempt would be useless.
                expires.map_or(poll, |remaining| poll.min(remaining + Duration::from_millis(1)))
            }
        }
    }

    fn on_error(&mut self, error: &WriteError) -> Duration {
        if error.code() != Some(403) {
            return self.on_unreachable(&error.to_string());
        }
        let ElectionConfig { name, namespace, .. } = &self.config;
        let [create, get, update] = ["create", "get", "update"].map(|verb| self.lease.rule(verb));
        let message = format!(
            "not allowed to use leader Lease {namespace}/{name}, nothing is written: {}; \
             add to the role: {create}, {get}, {update}",
            error.message()
        );
        if !matches!(self.observation.borrow().leader_state, LeaderState::Forbidden(_)) {
            tracing::error!("{message}");
        }
        self.set_failed(LeaderState::Forbidden(message.into()))
    }

    fn on_unreachable(&mut self, why: &str) -> Duration {
        let ElectionConfig { name, namespace, .. } = &self.config;
        let message = format!("failed to get or update leader Lease {namespace}/{name}: {why}");
        if !matches!(self.observation.borrow().leader_state, LeaderState::Unreachable(_)) {
            tracing::warn!("{message}");
        }
        self.set_failed(LeaderState::Unreachable(message.into()))
    }

    /// Without a response the last renewal still counts, until the fence expires.
    fn set_failed(&mut self, state: LeaderState) -> Duration {
        if !self.fence.is_granted() {
            self.set_leader_state(state);
        }
        jitter::jittered(self.poll_interval(), POLL_JITTER)
    }

    /// How long after sending a renewal this process may write. Other processes wait for the whole lease duration from a
    /// later instant, so the two never overlap.
    fn grant_duration(&self) -> Duration {
        self.config.renew_deadline.min(self.config.lease_duration.mul_f64(0.9))
    }

    fn poll_interval(&self) -> Duration {
        (self.config.retry_period / 2).min(MAX_POLL_INTERVAL)
    }

    /// How much of the time between two polls a standby counts as expired: less than the time between the expiry of the
    /// holder's fence and that of its Lease.
    fn unobserved_allowance(&self) -> Duration {
        let margin = self.config.lease_duration.saturating_sub(self.grant_duration());
        self.poll_interval().mul_f64(1.0 + POLL_JITTER).min(margin / 2)
    }

    /// Clears the holder, so that the next leader need not wait.
    async fn release(&mut self) {
        const TRIES: usize = 3;
        let lock = Arc::clone(&self.lease_lock);
        let _guard = lock.lock().await;
        for _ in 0..TRIES {
            let lease = match self.last_written.take() {
                Some(own) => Some(own),
                None => self.lease.get().await.ok().flatten(),
            };
            let held = lease.filter(|lease| election_rules::holder(lease) == Some(&*self.identity));
            let Some(lease) = held else { return };
            let released = election_rules::released_lease(&lease, Clock::wall().now().into());
            match self.lease.replace(&released).await {
                Ok(stored) => {
                    self.on_observed(&stored);
                    tracing::info!(lease = %self.config.name, "released leader lease");
                    return;
                }
                Err(WriteError::Conflict(_)) => {}
                Err(error) => {
                    tracing::warn!(lease = %self.config.name, %error, "failed to release leader lease");
                    return;
                }
            }
        }
    }

    fn on_observed(&self, lease: &Lease) {
        let holder = election_rules::holder(lease);
        let transitions = election_rules::transitions(lease);
        self.observation.send_if_modified(|observation| {
            if observation.holder.as_deref() == holder && observation.transitions == transitions {
                return false;
            }
            let is_other = |holder: &&str| !holder.is_empty() && *holder != self.identity;
            if observation.holder.as_deref() != holder
                && let Some(leader) = holder.filter(is_other)
            {
                tracing::info!(lease = %self.config.name, leader, "new leader elected");
            }
            (observation.holder, observation.transitions) = (holder.map(Arc::from), transitions);
            true
        });
    }

    fn set_leader_state(&self, state: LeaderState) {
        self.observation.send_if_modified(|observation| {
            let has_changed = observation.leader_state != state;
            observation.leader_state = state;
            has_changed
        });
    }
}
