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

use crate::{
    act::{
        Fence, WriteStats,
        access::may_make,
        fence::Clocks,
        jitter,
        lease::{self, Observed},
        writes::{Answer, WriteKind},
    },
    clock::Clock,
};

pub use self::options::{ElectionError, ElectionOptions};
use self::state::Seen;
pub use self::state::{ElectionState, Standing};

/// A standby looks at least this often, whatever its retry period: a handover shall not take longer than 2 s.
const LONGEST_LOOK: Duration = Duration::from_millis(800);
/// How much longer a look may come by chance.
const LOOK_SPREAD: f64 = 0.5;
/// How long a stop waits for the answer of a request under way, and then for the release.
const STOP_LIMIT: Duration = Duration::from_secs(1);

/// A contender.
#[derive(Debug)]
pub struct Election {
    leases: Api<Lease>,
    options: ElectionOptions,
    fence: Fence,
    stats: Arc<WriteStats>,
    turn: Arc<tokio::sync::Mutex<()>>,
    says: Option<Says>,
    observed: Observed,
    /// Since when the lease is gone that another one had.
    absent: Option<Instant>,
    /// As this process wrote it last, when nobody is known to have written since.
    own: Option<Lease>,
    seen: watch::Sender<Seen>,
}

/// What is told with each renewal.
struct Says(Box<dyn Fn() -> Option<(&'static str, String)> + Send + Sync>);

impl std::fmt::Debug for Says {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Says")
    }
}

/// What a step found.
enum Step {
    /// Held, by a request that was sent then.
    Held(Instant),
    /// Not held, and not to be had before then.
    Waits(Option<Instant>),
}

impl Election {
    /// A contender that moves this fence. Does nothing before it runs.
    pub fn new(client: Client, options: ElectionOptions, fence: Fence) -> Self {
        let leases = Api::namespaced(client, &options.namespace);
        let seen = Seen { standing: Standing::Starting, holder: None, transitions: 0 };
        Self {
            leases,
            options,
            fence,
            stats: Arc::default(),
            turn: Arc::default(),
            says: None,
            observed: Observed::default(),
            absent: None,
            own: None,
            seen: watch::Sender::new(seen),
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
    pub fn with_turn(mut self, turn: Arc<tokio::sync::Mutex<()>>) -> Self {
        self.turn = turn;
        self
    }

    /// Has the Lease tell this with each renewal: an annotation, whose text is asked for each time.
    #[must_use]
    pub fn saying(
        mut self,
        says: impl Fn() -> Option<(&'static str, String)> + Send + Sync + 'static,
    ) -> Self {
        self.says = Some(Says(Box::new(says)));
        self
    }

    /// How it stands, also after it has moved away to run.
    pub fn state(&self) -> ElectionState {
        ElectionState { fence: self.fence.clone(), seen: self.seen.subscribe() }
    }

    /// Contends until told to stop, and then hands the Lease over. Who loses it goes on as a standby.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        self.fence.release();
        tokio::pin!(shutdown);
        loop {
            let limit = self.options.renew_deadline / 2;
            let began = Clocks::now();
            let found = {
                let step = tokio::time::timeout(limit, self.step());
                tokio::pin!(step);
                tokio::select! {
                    biased;
                    found = &mut step => found,
                    () = &mut shutdown => {
                        // Cut off, the request could still take the lease for a process that is gone.
                        let _ = tokio::time::timeout(STOP_LIMIT, step).await;
                        break;
                    }
                }
            };
            let wait = match found {
                Ok(Ok(step)) => self.stands(&step, began),
                Ok(Err(why)) => self.fails(&why),
                Err(_) => self.unreachable(&format!("no answer within {limit:?}")),
            };
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                () = tokio::time::sleep(wait) => {}
            }
        }
        self.fence.release();
        if tokio::time::timeout(STOP_LIMIT, self.resign()).await.is_err() {
            tracing::warn!(lease = %self.options.name, "failed to release leader lease: no answer in time");
        }
        self.publish(Standing::Standby);
    }

    /// One try to renew or to take the lease. Leaves the fence alone: whoever runs this decides on it.
    async fn step(&mut self) -> kube::Result<Step> {
        let turn = Arc::clone(&self.turn);
        let _turn = turn.lock().await;
        if let Some(own) = self.own.take() {
            match self.claim(&own).await? {
                Some(sent) => return Ok(Step::Held(sent)),
                // Somebody else wrote it. Look again before anything else.
                None => {
                    tracing::debug!(lease = %self.options.name, "the lease was changed by others");
                }
            }
        }
        let lease = self.leases.get_opt(&self.options.name).await?;
        let now = Instant::now();
        if let Some(lease) = &lease {
            self.observed.see(&lease.spec.clone().unwrap_or_default(), now, self.blind());
            self.saw(lease);
        }
        // A lease that somebody deleted is still its holder's: who holds it does not know yet.
        let ElectionOptions { identity, lease_duration, .. } = &self.options;
        let expires = self.observed.expires(identity, *lease_duration);
        if expires.is_some_and(|expires| now < expires) {
            return Ok(Step::Waits(expires));
        }
        let Some(lease) = lease else {
            // Somebody may have taken it since this process looked last, and hold it still: whoever has seen
            // the lease of another one waits as long as any holder may count on it.
            if self.observed.is_of_another(&self.options.identity) {
                let expires = *self.absent.get_or_insert(now) + self.options.lease_duration;
                if now < expires {
                    return Ok(Step::Waits(Some(expires)));
                }
            }
            return self.create().await;
        };
        self.absent = None;
        Ok(self.claim(&lease).await?.map_or(Step::Waits(None), Step::Held))
    }

    /// Writes the lease over exactly the one that was read. `None` when it is another one by now.
    async fn claim(&mut self, read: &Lease) -> kube::Result<Option<Instant>> {
        let options = &self.options;
        let now = Clock::wall().now().into();
        let mut claimed = lease::claimed(read, &options.identity, options.lease_duration, now);
        self.tell(&mut claimed);
        let sent = Instant::now();
        let answer = self.leases.replace(&options.name, &PostParams::default(), &claimed).await;
        self.count(&answer, sent);
        self.wrote(answer, sent)
    }

    fn tell(&self, lease: &mut Lease) {
        if let Some((key, text)) = self.says.as_ref().and_then(|says| (says.0)()) {
            lease::annotate(lease, key, text);
        }
    }

    async fn create(&mut self) -> kube::Result<Step> {
        let ElectionOptions { name, namespace, identity, lease_duration, .. } = &self.options;
        let [create, ..] = self.options.rules();
        may_make(&self.leases, create).await?;
        let now = Clock::wall().now().into();
        let mut first = lease::first(name, namespace, identity, *lease_duration, now);
        self.tell(&mut first);
        let sent = Instant::now();
        let answer = self.leases.create(&PostParams::default(), &first).await;
        self.count(&answer, sent);
        // A namespace that does not exist is no race that was lost.
        if let Err(kube::Error::Api(status)) = &answer
            && status.code == 404
        {
            return answer.map(|_| Step::Waits(None));
        }
        Ok(self.wrote(answer, sent)?.map_or(Step::Waits(None), Step::Held))
    }

    fn wrote(
        &mut self,
        answer: kube::Result<Lease>,
        sent: Instant,
    ) -> kube::Result<Option<Instant>> {
        match answer {
            Ok(stored) => {
                let record = stored.spec.clone().unwrap_or_default();
                self.observed.see(&record, Instant::now(), Duration::ZERO);
                self.saw(&stored);
                self.own = Some(stored);
                Ok(Some(sent))
            }
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
            Err(why) => Err(why),
        }
    }

    /// Moves the fence by what a step found, and says how long to wait for the next one.
    fn stands(&mut self, step: &Step, began: Clocks) -> Duration {
        let was_held = self.fence.is_held();
        let name = &self.options.name;
        match step {
            Step::Held(sent) => {
                self.fence.hold_since(began, *sent + self.hold());
                if !was_held {
                    tracing::info!(lease = %name, "became leader");
                }
                self.publish(Standing::Leading);
                self.options.retry_period
            }
            Step::Waits(expires) => {
                self.fence.release();
                if was_held {
                    tracing::warn!(lease = %name, "stopped leading: another process holds the lease");
                }
                self.publish(Standing::Standby);
                let look = jitter::spread(self.look(), LOOK_SPREAD);
                let expires = expires.map(|at| at.saturating_duration_since(Instant::now()));
                // Not before the instant itself, or the look would come to nothing.
                expires.map_or(look, |left| look.min(left + Duration::from_millis(1)))
            }
        }
    }

    fn fails(&mut self, why: &kube::Error) -> Duration {
        match why {
            kube::Error::Api(status) if status.code == 403 => {
                let ElectionOptions { name, namespace, .. } = &self.options;
                let [create, get, update] = self.options.rules();
                let line = format!(
                    "the lease {namespace}/{name} may not be used, so nothing is written: {}; \
                     add to the role: {create}, {get}, {update}",
                    status.message
                );
                if !matches!(self.seen.borrow().standing, Standing::Forbidden(_)) {
                    tracing::error!("{line}");
                }
                self.fails_as(Standing::Forbidden(line.into()))
            }
            // The Display of kube's own error repeats the whole Status in its debug form.
            kube::Error::Api(status) => {
                self.unreachable(&format!("{}: {}", status.code, status.message))
            }
            why => self.unreachable(&why.to_string()),
        }
    }

    fn unreachable(&mut self, why: &str) -> Duration {
        let ElectionOptions { name, namespace, .. } = &self.options;
        let line = format!("the lease {namespace}/{name} cannot be read or written: {why}");
        if !matches!(self.seen.borrow().standing, Standing::Unreachable(_)) {
            tracing::warn!("{line}");
        }
        self.fails_as(Standing::Unreachable(line.into()))
    }

    /// Who has no answer may still count on the last one, until the fence runs out.
    fn fails_as(&mut self, standing: Standing) -> Duration {
        if !self.fence.is_held() {
            self.publish(standing);
        }
        jitter::spread(self.look(), LOOK_SPREAD)
    }

    /// How long a request that was sent lets this process write. Others wait for the whole lease
    /// duration from a later instant, so the two never overlap.
    fn hold(&self) -> Duration {
        self.options.renew_deadline.min(self.options.lease_duration.mul_f64(0.9))
    }

    fn look(&self) -> Duration {
        (self.options.retry_period / 2).min(LONGEST_LOOK)
    }

    /// How much of the time between two looks a standby counts for itself: less than what lies between
    /// the end of the holder's fence and the end of its lease.
    fn blind(&self) -> Duration {
        let apart = self.options.lease_duration.saturating_sub(self.hold());
        self.look().mul_f64(1.0 + LOOK_SPREAD).min(apart / 2)
    }

    /// Clears the holder, so that the next one need not wait.
    async fn resign(&mut self) {
        const TRIES: usize = 3;
        let turn = Arc::clone(&self.turn);
        let _turn = turn.lock().await;
        for _ in 0..TRIES {
            let lease = match self.own.take() {
                Some(own) => Some(own),
                None => self.leases.get_opt(&self.options.name).await.ok().flatten(),
            };
            let ours = lease.filter(|lease| lease::holder(lease) == Some(&*self.options.identity));
            let Some(lease) = ours else { return };
            let released = lease::released(&lease, Clock::wall().now().into());
            let sent = Instant::now();
            let parameters = PostParams::default();
            let answer = self.leases.replace(&self.options.name, &parameters, &released).await;
            self.count(&answer, sent);
            match answer {
                Ok(stored) => {
                    self.saw(&stored);
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

    fn count(&self, answer: &kube::Result<Lease>, sent: Instant) {
        self.stats.count(WriteKind::Lease, Answer::of(answer), sent.elapsed());
    }

    fn saw(&self, lease: &Lease) {
        let holder = lease::holder(lease);
        let transitions = lease::transitions(lease);
        self.seen.send_if_modified(|seen| {
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

    fn publish(&self, standing: Standing) {
        self.seen.send_if_modified(|seen| {
            let changes = seen.standing != standing;
            seen.standing = standing;
            changes
        });
    }
}
