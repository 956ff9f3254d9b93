//! The election: takes and renews a Lease, and holds the fence exactly as long as the Lease is certain.

mod options;
mod state;

use std::{future::Future, sync::Arc, time::Duration};

use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Client,
    api::{Api, PostParams},
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::cluster::{
    clock::Clock,
    leader::{
        Fence,
        fence::Clocks,
        jitter,
        lease::{self, ObservedRecord},
    },
    write::{
        WriteStats,
        access_review::ensure_can_create,
        stats::{WriteKind, WriteOutcome},
    },
};

pub use self::options::{ElectionError, ElectionOptions};
use self::state::LeaseObservation;
pub use self::state::{ElectionState, LeaderState};

/// A standby looks at least this often, whatever its retry period: a handover shall not take longer than 2 s.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(800);
/// How much longer a look may come by chance.
const POLL_JITTER: f64 = 0.5;
/// How long a stop waits for the answer of a request under way, and then for the release.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);

/// A contender.
#[derive(Debug)]
pub struct Election {
    leases: Api<Lease>,
    options: ElectionOptions,
    fence: Fence,
    stats: Arc<WriteStats>,
    lease_lock: Arc<tokio::sync::Mutex<()>>,
    lease_annotation: Option<LeaseAnnotation>,
    observed: ObservedRecord,
    /// Since when the lease is gone that another one had.
    missing_since: Option<Instant>,
    /// As this process wrote it last, when nobody is known to have written since.
    last_written: Option<Lease>,
    observation: watch::Sender<LeaseObservation>,
}

/// What is told with each renewal.
struct LeaseAnnotation(Box<dyn Fn() -> Option<(&'static str, String)> + Send + Sync>);

impl std::fmt::Debug for LeaseAnnotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Says")
    }
}

/// What a step found.
enum LeaseStep {
    /// Held, by a request that was sent then.
    Held(Instant),
    /// Not held, and not to be had before then.
    NotHeld(Option<Instant>),
}

impl Election {
    /// A contender that moves this fence. Does nothing before it runs.
    pub fn new(client: Client, options: ElectionOptions, fence: Fence) -> Self {
        let leases = Api::namespaced(client, &options.namespace);
        let seen =
            LeaseObservation { leader_state: LeaderState::Starting, holder: None, transitions: 0 };
        Self {
            leases,
            options,
            fence,
            stats: Arc::default(),
            lease_lock: Arc::default(),
            lease_annotation: None,
            observed: ObservedRecord::default(),
            missing_since: None,
            last_written: None,
            observation: watch::Sender::new(seen),
        }
    }

    /// Counts its writes into these.
    #[must_use]
    pub fn with_stats(mut self, stats: Arc<WriteStats>) -> Self {
        self.stats = stats;
        self
    }

    /// Takes this turn for as long as it reads and writes the Lease: whoever else of this process writes something on it
    /// takes the same, so that neither costs the other its lead.
    #[must_use]
    pub fn with_lease_lock(mut self, turn: Arc<tokio::sync::Mutex<()>>) -> Self {
        self.lease_lock = turn;
        self
    }

    /// Has the Lease tell this with each renewal: an annotation, whose text is asked for each time.
    #[must_use]
    pub fn with_lease_annotation(
        mut self,
        says: impl Fn() -> Option<(&'static str, String)> + Send + Sync + 'static,
    ) -> Self {
        self.lease_annotation = Some(LeaseAnnotation(Box::new(says)));
        self
    }

    /// How it stands, also after it has moved away to run.
    pub fn state(&self) -> ElectionState {
        ElectionState { fence: self.fence.clone(), observation: self.observation.subscribe() }
    }

    /// Contends until told to stop, and then hands the Lease over. Who loses it goes on as a standby.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        self.fence.revoke();
        tokio::pin!(shutdown);
        loop {
            let limit = self.options.renew_deadline / 2;
            let began = Clocks::now();
            let found = {
                let step = tokio::time::timeout(limit, self.try_acquire_or_renew());
                tokio::pin!(step);
                tokio::select! {
                    biased;
                    found = &mut step => found,
                    () = &mut shutdown => {
                        // Cut off, the request could still take the lease for a process that is gone.
                        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, step).await;
                        break;
                    }
                }
            };
            let wait = match found {
                Ok(Ok(step)) => self.on_step(&step, began),
                Ok(Err(why)) => self.on_error(&why),
                Err(_) => self.on_unreachable(&format!("no answer within {limit:?}")),
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.fence.revoke();
        if tokio::time::timeout(SHUTDOWN_TIMEOUT, self.release()).await.is_err() {
            tracing::warn!(lease = %self.options.name, "failed to release leader lease: no answer in time");
        }
        self.set_leader_state(LeaderState::Standby);
    }

    /// One try to renew or to take the lease. Leaves the fence alone: whoever runs this decides on it.
    async fn try_acquire_or_renew(&mut self) -> kube::Result<LeaseStep> {
        let turn = Arc::clone(&self.lease_lock);
        let _turn = turn.lock().await;
        if let Some(own) = self.last_written.take() {
            match self.update_lease(&own).await? {
                Some(sent) => return Ok(LeaseStep::Held(sent)),
                // Somebody else wrote it. Look again before anything else.
                None => {
                    tracing::debug!(lease = %self.options.name, "the lease was changed by others");
                }
            }
        }
        let lease = self.leases.get_opt(&self.options.name).await?;
        let now = Instant::now();
        if let Some(lease) = &lease {
            self.observed.observe(
                &lease.spec.clone().unwrap_or_default(),
                now,
                self.unobserved_allowance(),
            );
            self.on_observed(lease);
        }
        // A lease that somebody deleted is still its holder's: who holds it does not know yet.
        let ElectionOptions { identity, lease_duration, .. } = &self.options;
        let expires = self.observed.expires_at(identity, *lease_duration);
        if expires.is_some_and(|expires| now < expires) {
            return Ok(LeaseStep::NotHeld(expires));
        }
        let Some(lease) = lease else {
            // Somebody may have taken it since this process looked last, and hold it still: whoever has seen
            // the lease of another one waits as long as any holder may count on it.
            if self.observed.held_by_other(&self.options.identity) {
                let expires = *self.missing_since.get_or_insert(now) + self.options.lease_duration;
                if now < expires {
                    return Ok(LeaseStep::NotHeld(Some(expires)));
                }
            }
            return self.create().await;
        };
        self.missing_since = None;
        Ok(self.update_lease(&lease).await?.map_or(LeaseStep::NotHeld(None), LeaseStep::Held))
    }

    /// Writes the lease over exactly the one that was read. `None` when it is another one by now.
    async fn update_lease(&mut self, read: &Lease) -> kube::Result<Option<Instant>> {
        let options = &self.options;
        let now = Clock::wall().now().into();
        let mut claimed =
            lease::acquired_lease(read, &options.identity, options.lease_duration, now);
        self.annotate(&mut claimed);
        let sent = Instant::now();
        let answer = self.leases.replace(&options.name, &PostParams::default(), &claimed).await;
        self.count_write(&answer, sent);
        self.on_written(answer, sent)
    }

    fn annotate(&self, lease: &mut Lease) {
        if let Some((key, text)) = self.lease_annotation.as_ref().and_then(|says| (says.0)()) {
            lease::annotate(lease, key, text);
        }
    }

    async fn create(&mut self) -> kube::Result<LeaseStep> {
        let ElectionOptions { name, namespace, identity, lease_duration, .. } = &self.options;
        let [create, ..] = self.options.rules();
        ensure_can_create(&self.leases, create).await?;
        let now = Clock::wall().now().into();
        let mut first = lease::new_lease(name, namespace, identity, *lease_duration, now);
        self.annotate(&mut first);
        let sent = Instant::now();
        let answer = self.leases.create(&PostParams::default(), &first).await;
        self.count_write(&answer, sent);
        // A namespace that does not exist is no race that was lost.
        if let Err(kube::Error::Api(status)) = &answer
            && status.code == 404
        {
            return answer.map(|_| LeaseStep::NotHeld(None));
        }
        Ok(self.on_written(answer, sent)?.map_or(LeaseStep::NotHeld(None), LeaseStep::Held))
    }

    fn on_written(
        &mut self,
        answer: kube::Result<Lease>,
        sent: Instant,
    ) -> kube::Result<Option<Instant>> {
        match answer {
            Ok(stored) => {
                let record = stored.spec.clone().unwrap_or_default();
                self.observed.observe(&record, Instant::now(), Duration::ZERO);
                self.on_observed(&stored);
                self.last_written = Some(stored);
                Ok(Some(sent))
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Moves the fence by what a step found, and says how long to wait for the next one.
    fn on_step(&mut self, step: &LeaseStep, began: Clocks) -> Duration {
        let was_held = self.fence.is_granted();
        let name = &self.options.name;
        match step {
            LeaseStep::Held(sent) => {
                self.fence.grant_since(began, *sent + self.grant_duration());
                if !was_held {
                    tracing::info!(lease = %name, "became leader");
                }
                self.set_leader_state(LeaderState::Leading);
                self.options.retry_period
            }
            LeaseStep::NotHeld(expires) => {
                self.fence.revoke();
                if was_held {
                    tracing::warn!(lease = %name, "stopped leading: another process holds the lease");
                }
                self.set_leader_state(LeaderState::Standby);
                let look = jitter::jittered(self.poll_interval(), POLL_JITTER);
                let expires = expires.map(|at| at.saturating_duration_since(Instant::now()));
                // Not before the instant itself, or the look would come to nothing.
                expires.map_or(look, |left| look.min(left + Duration::from_millis(1)))
            }
        }
    }

    fn on_error(&mut self, why: &kube::Error) -> Duration {
        match why {
            kube::Error::Api(status) if status.code == 403 => {
                let ElectionOptions { name, namespace, .. } = &self.options;
                let [create, get, update] = self.options.rules();
                let line = format!(
                    "the lease {namespace}/{name} may not be used, so nothing is written: {}; \
                     add to the role: {create}, {get}, {update}",
                    status.message
                );
                if !matches!(self.observation.borrow().leader_state, LeaderState::Forbidden(_)) {
                    tracing::error!("{line}");
                }
                self.set_failed(LeaderState::Forbidden(line.into()))
            }
            // The Display of kube's own error repeats the whole Status in its debug form.
            kube::Error::Api(status) => {
                self.on_unreachable(&format!("{}: {}", status.code, status.message))
            }
            why => self.on_unreachable(&why.to_string()),
        }
    }

    fn on_unreachable(&mut self, why: &str) -> Duration {
        let ElectionOptions { name, namespace, .. } = &self.options;
        let line = format!("the lease {namespace}/{name} cannot be read or written: {why}");
        if !matches!(self.observation.borrow().leader_state, LeaderState::Unreachable(_)) {
            tracing::warn!("{line}");
        }
        self.set_failed(LeaderState::Unreachable(line.into()))
    }

    /// Who has no answer may still count on the last one, until the fence runs out.
    fn set_failed(&mut self, standing: LeaderState) -> Duration {
        if !self.fence.is_granted() {
            self.set_leader_state(standing);
        }
        jitter::jittered(self.poll_interval(), POLL_JITTER)
    }

    /// How long a request that was sent lets this process write. Others wait for the whole lease
    /// duration from a later instant, so the two never overlap.
    fn grant_duration(&self) -> Duration {
        self.options.renew_deadline.min(self.options.lease_duration.mul_f64(0.9))
    }

    fn poll_interval(&self) -> Duration {
        (self.options.retry_period / 2).min(MAX_POLL_INTERVAL)
    }

    /// How much of the time between two looks a standby counts for itself: less than what lies between
    /// the end of the holder's fence and the end of its lease.
    fn unobserved_allowance(&self) -> Duration {
        let apart = self.options.lease_duration.saturating_sub(self.grant_duration());
        self.poll_interval().mul_f64(1.0 + POLL_JITTER).min(apart / 2)
    }

    /// Clears the holder, so that the next one need not wait.
    async fn release(&mut self) {
        const TRIES: usize = 3;
        let turn = Arc::clone(&self.lease_lock);
        let _turn = turn.lock().await;
        for _ in 0..TRIES {
            let lease = match self.last_written.take() {
                Some(own) => Some(own),
                None => self.leases.get_opt(&self.options.name).await.ok().flatten(),
            };
            let ours = lease.filter(|lease| lease::holder(lease) == Some(&*self.options.identity));
            let Some(lease) = ours else { return };
            let released = lease::released_lease(&lease, Clock::wall().now().into());
            let sent = Instant::now();
            let parameters = PostParams::default();
            let answer = self.leases.replace(&self.options.name, &parameters, &released).await;
            self.count_write(&answer, sent);
            match answer {
                Ok(stored) => {
                    self.on_observed(&stored);
                    tracing::info!(lease = %self.options.name, "released leader lease");
                    return;
                }
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(why) => {
                    tracing::warn!(lease = %self.options.name, %why, "failed to release leader lease");
                    return;
                }
            }
        }
    }

    fn count_write(&self, answer: &kube::Result<Lease>, sent: Instant) {
        self.stats.count(WriteKind::Lease, WriteOutcome::from_result(answer), sent.elapsed());
    }

    fn on_observed(&self, lease: &Lease) {
        let holder = lease::holder(lease);
        let transitions = lease::transitions(lease);
        self.observation.send_if_modified(|seen| {
            if seen.holder.as_deref() == holder && seen.transitions == transitions {
                return false;
            }
            let is_other = |holder: &&str| !holder.is_empty() && *holder != self.options.identity;
            if seen.holder.as_deref() != holder
                && let Some(leader) = holder.filter(is_other)
            {
                tracing::info!(lease = %self.options.name, leader, "new leader elected");
            }
            (seen.holder, seen.transitions) = (holder.map(Arc::from), transitions);
            true
        });
    }

    fn set_leader_state(&self, standing: LeaderState) {
        self.observation.send_if_modified(|seen| {
            let changes = seen.leader_state != standing;
            seen.leader_state = standing;
            changes
        });
    }
}
