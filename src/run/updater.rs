//! The updater as a process: its parts, how they start, and how they end.
//!
//! ```text
//!   feeds ──▶ seen: VPAs, pods, LimitRanges ──▶ matching: workloads ──▶ pass: decide, a step at a time
//!                                                                          │
//!   heartbeats, standing: may it be trusted? ──────────────────────────────┤
//!                                                                          ▼
//!   recollection: book ──▶ acting: evict, resize ──▶ telling: conditions, events, metrics
//! ```

mod acting;
mod asking;
mod boosts;
pub mod config;
mod events;
mod explained;
mod feeds;
mod ground;
mod heartbeats;
mod matching;
mod pass;
mod probes;
mod recollection;
mod rights;
mod standing;
mod surges;
mod telling;

use std::{fmt, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Result;
use kube::Client;
use plimsoll_core::types::Time;
use tokio::sync::watch;

use self::{
    asking::Asking,
    boosts::Boosts,
    config::UpdaterConfig,
    feeds::{Feeds, Seen},
    heartbeats::Heartbeats,
    pass::Passes,
    rights::Known,
    standing::Logged,
    telling::{Conditions, Rows, Told},
};
pub use self::{
    explained::{PodConfig, PodError, explain},
    pass::Summary,
};
use super::{
    client,
    desk::{Desk, Member},
    liveness::{Clients, Liveness},
    pulse::Pulse,
    quotas::Quotas,
    shown::{show_feeds, show_writes},
    tasks::{Group, Signals, Stop, Tasks, until_told},
    vitals::Condition,
};
use crate::{
    act::{
        Election, ElectionState, EventWriter, Events, Fence, LedgerLease, Limiter, Outbox, Permit,
        WriteStats, events,
    },
    clock::Clock,
    metrics::{ObjectMetrics, Pace, Traffic, UpdaterMetrics},
    observe::{controllers::Controllers, target::Targets, watch::Reader},
};
use plimsoll_core::{types::compat::Compat, updater::guard::ledger};

/// Who says so, in events.
const COMPONENT: &str = "vpa-updater";
/// How many conditions are written at once.
const WRITERS: usize = 4;
/// Between two looks whether this process leads by now.
const LOOK: Duration = Duration::from_millis(100);
/// How long conditions and events that wait to be written may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// All parts of an updater.
pub struct Role {
    config: UpdaterConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    reader: Reader,
    feeds: Feeds,
    seen: Seen,
    controllers: Arc<Controllers>,
    targets: Targets,
    asking: Asking,
    asking_for_boosts: Asking,
    permit: Permit,
    /// None where nothing may ever pass.
    evictions: Option<Limiter>,
    resizes: Option<Limiter>,
    ledger: LedgerLease,
    heartbeats: Heartbeats,
    admission_logged: Logged,
    known: Known,
    boosts: Boosts,
    told: Told,
    outbox: Outbox,
    events: Events,
    metrics: UpdaterMetrics,
    traffic: Traffic,
    pace: Pace,
    stats: Arc<WriteStats>,
    pulse: Pulse,
    condition: Condition,
    quotas: Quotas,
    passes: watch::Sender<(u64, Summary)>,
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("lease", &self.config.election.name).finish_non_exhaustive()
    }
}

/// An updater that runs.
#[derive(Debug)]
pub struct Running {
    role: Arc<Role>,
    address: SocketAddr,
    election: Option<ElectionState>,
    workers: Group,
    /// What ends last: the lease and the listener.
    holders: Group,
}

/// Runs until one of these signals.
pub async fn run(config: UpdaterConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    until_told(signals, starting, Running::stop).await
}

/// Clients for the API server, by kubeconfig or from inside of the cluster.
pub async fn connect(config: &UpdaterConfig) -> Result<Clients> {
    let agent = concat!("plimsoll-updater/", env!("CARGO_PKG_VERSION"));
    client::connect(config.kubeconfig.as_deref(), agent).await
}

/// Starts all parts, with time from this clock.
pub async fn start(
    config: UpdaterConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<Running> {
    let mut desk = Desk::alone(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let mut running = prepare(config, &mut desk).begin(admin.address());
    let stop = running.holders.stop();
    desk.serve(vec![admin], &stop, running.holders.tasks());
    Ok(running)
}

/// An updater that does nothing yet.
pub(super) struct Prepared(Arc<Role>, EventWriter);

/// Puts the parts together.
pub(super) fn prepare(config: UpdaterConfig, desk: &mut Desk) -> Prepared {
    let (role, writer) = Role::new(config, desk);
    let cardinality = role.config.object_metrics.cardinality();
    let rows = Arc::new(Rows(Arc::downgrade(&role)));
    desk.registry.add_objects(ObjectMetrics::new(rows, cardinality));
    desk.add(Arc::clone(&role) as _);
    Prepared(role, writer)
}

impl Prepared {
    /// Starts its tasks. It is scraped and probed there.
    pub fn begin(self, address: SocketAddr) -> Running {
        let Self(role, writer) = self;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            %address,
            dry_run = role.config.dry_run.is_some(),
            "updater starts"
        );
        let (mut workers, mut holders) = (Group::new(), Group::new());
        let (work_stop, hold_stop) = (workers.stop(), holders.stop());
        let election = role.start_election(&hold_stop, holders.tasks());
        holders.tasks().spawn(writer.run(hold_stop.stopped()));
        {
            let (role, hold_stop) = (Arc::clone(&role), hold_stop.clone());
            holders.tasks().spawn(async move { role.outbox.run(hold_stop.stopped()).await });
        }
        role.start_feeds(&work_stop, workers.tasks());
        workers.tasks().spawn(Arc::clone(&role).find_rights(work_stop.clone()));
        workers.tasks().spawn(Arc::clone(&role).keep_watching_heartbeats(work_stop.clone()));
        workers.tasks().spawn(Arc::clone(&role).keep_unboosting(work_stop.clone()));
        workers.tasks().spawn(Arc::clone(&role).turn(work_stop.clone()));
        Running { role, address, election, workers, holders }
    }
}

impl Running {
    /// Where it serves metrics and health.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Number of passes so far, and what the last one did.
    pub fn passes(&self) -> watch::Receiver<(u64, Summary)> {
        self.role.passes.subscribe()
    }

    /// How the election stands, if there is one.
    pub const fn election(&self) -> Option<&ElectionState> {
        self.election.as_ref()
    }

    /// Whether it is ready, or what is missing.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        crate::serve::Probes::ready(&*self.role)
    }

    /// Ends it in order: the step under way is finished, what is known is told, and then the lease is handed over.
    pub async fn stop(mut self) {
        self.workers.end().await;
        if self.role.permit.fence().is_held() {
            let deadline = tokio::time::Instant::now() + LAST_WORDS;
            tokio::join!(self.role.outbox.drain(deadline), self.role.events.drain(deadline));
        }
        self.holders.end().await;
    }
}

impl Role {
    fn new(config: UpdaterConfig, desk: &mut Desk) -> (Arc<Self>, EventWriter) {
        let metrics = UpdaterMetrics::new(&mut desk.registry);
        let pace = Pace::new(&mut desk.registry, "updater");
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = Limiter::new(config.qps, config.burst);
        let is_dry = config.dry_run.is_some();
        // Nobody leads in a dry run, and nothing is written but events.
        let alone = is_dry || !config.election.on;
        let fence = if alone { Fence::open() } else { Fence::closed() };
        let permit = Permit::new(fence, limiter.clone());
        let controllers = Arc::new(Controllers::new());
        let gate = Arc::new(move || {
            let limiter = limiter.clone();
            Box::pin(async move { limiter.acquire().await }) as _
        });
        let lifetimes = crate::observe::scale::Lifetimes::default();
        let targets = Targets::new(client.clone(), Arc::clone(&controllers), gate, lifetimes);
        let stats = Arc::clone(&desk.stats);
        let condition = Condition::new("updater", config.interval);
        let (told, writer) = events(client.clone(), permit.clone(), Arc::clone(&stats), COMPONENT);
        let of_lease = (&config.election.namespace, &config.election.name);
        let ledger = LedgerLease::new(desk.liveness.client(), of_lease.0, of_lease.1, ledger::KEY)
            .with_stats(Arc::clone(&stats))
            .with_runtime(desk.liveness.runtime().clone());
        let role = Arc::new_cyclic(|role| Self {
            outbox: Outbox::new(
                client.clone(),
                permit.clone(),
                WRITERS,
                Arc::new(Conditions(role.clone())),
            )
            .with_stats(Arc::clone(&stats)),
            evictions: config.evictions.limiter(),
            resizes: config.resizes.limiter(),
            config,
            clock,
            client,
            liveness: desk.liveness.clone(),
            reader: desk.reader.clone(),
            feeds: Feeds::new(),
            seen: Seen::default(),
            controllers,
            targets,
            asking: Asking::default(),
            asking_for_boosts: Asking::default(),
            permit,
            ledger,
            heartbeats: Heartbeats::default(),
            admission_logged: Logged::default(),
            known: Known::default(),
            boosts: Boosts::default(),
            told: Told::default(),
            events: told,
            metrics,
            traffic: desk.traffic.clone(),
            pace,
            stats,
            pulse: Pulse::default(),
            condition,
            quotas: Quotas::default(),
            passes: watch::Sender::new((0, Summary::default())),
        });
        (role, writer)
    }

    fn start_election(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) -> Option<ElectionState> {
        let wanted = &self.config.election;
        if !wanted.on || self.config.dry_run.is_some() {
            return None;
        }
        let options = wanted.options(wanted.name.clone());
        let fence = self.permit.fence().clone();
        let (condition, compat) = (self.condition.clone(), self.config.settings.compat);
        let election = Election::new(self.liveness.client(), options, fence)
            .with_stats(Arc::clone(&self.stats))
            .with_turn(self.ledger.turn())
            .saying(move || condition.annotation(compat));
        let state = election.state();
        tasks.spawn_on(election.run(stop.stopped()), self.liveness.runtime());
        Some(state)
    }

    /// The loop. Upstream's first pass comes an interval after the start, ours at once.
    async fn turn(self: Arc<Self>, stop: Stop) {
        tokio::select! {
            () = stop.stopped() => return,
            () = self.feeds.synced() => {}
        }
        if self.config.settings.compat == Compat::Upstream {
            let first = self.clock.now().later(self.config.interval);
            tokio::select! {
                () = stop.stopped() => return,
                () = self.clock.sleep_until(first) => {}
            }
        }
        let mut passes = Passes::default();
        let mut planned: Option<Time> = None;
        loop {
            self.pulse.beat();
            let began = self.clock.now();
            let lag = planned.map_or(0, |planned| began.nanos_since(planned).max(0));
            self.pace.set_lag(Duration::from_nanos(lag.unsigned_abs()));
            // A pass is not cut off: the step under way is finished, and the next one is not begun.
            let summary = self.pass(&mut passes, &stop).await;
            self.pulse.beat();
            tracing::debug!(?summary, "pass done");
            self.passes.send_modify(|(count, last)| {
                *count += 1;
                *last = summary;
            });
            let (now, interval) = (self.clock.now(), self.config.interval);
            let next = began.later(interval);
            // Counted from now if the clock was set: neither a burst of passes nor a long silence.
            let next = if next < now || next > now.later(interval) { now } else { next };
            planned = Some(next);
            if !summary.is_blind {
                self.pace.succeeded(now);
            }
            let acts = self.may_act();
            let leads = async {
                while acts || !self.may_act() {
                    tokio::time::sleep(LOOK).await;
                }
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = self.clock.sleep_until(next) => {}
                () = leads => {}
            }
        }
    }
}

impl Member for Role {
    fn refresh(&self) {
        show_feeds(&self.traffic, self.feeds.all().chain(self.quotas.feed()));
        let (vpas, pods) = self.seen.counts();
        self.traffic.set_feed_objects(self.feeds.vpas.name(), vpas);
        self.traffic.set_feed_objects(self.feeds.pods.name(), pods);
        self.pace.set_leader(self.permit.fence().is_held());
        show_writes(&self.traffic, &self.stats);
    }
}
