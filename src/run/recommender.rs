//! The recommender as a process: its parts, how they start, and how they end.
//!
//! ```text
//!   feeds ──▶ state: index + fleet ◀── pass (usage, kills, decisions) ──▶ outbox ──▶ statuses
//!   targets ──▶ │                          every interval, at once at first
//!               ├──▶ history: load on first sight, save when due, collect orphans ──▶ storage
//!               └──▶ series: read on first sight, taken in a VPA at a time ◀── Prometheus
//!   election ──▶ fence ──▶ permit: without it nothing is written
//! ```

mod clocks_ahead;
mod explanations;
mod feeds;
mod fetching;
mod history;
mod intake;
mod kills;
mod lead;
mod pass;
mod probes;
mod publish;
mod rows;
mod save;
mod series;
mod sources;
pub(super) mod state;
mod targets;
mod throttling;
mod turn;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
    time::Duration,
};

use anyhow::Result;
use kube::Client;
use plimsoll_storage::{Storage, prometheus::history::PrometheusHistory};
use tokio::sync::{Notify, watch};

pub use self::pass::Summary;
use self::{
    explanations::Explanations, feeds::Feeds, fetching::Fetching, publish::Publisher, rows::Rows,
    series::Series, state::State,
};
use super::{
    client,
    config::RecommenderConfig,
    desk::{Desk, Member},
    liveness::{Clients, Liveness},
    pulse::Pulse,
    shown::{show_feeds, show_writes},
    tasks::{Group, Signals, Stop, Tasks, until_told},
    vitals::Condition,
};
use crate::{
    act::{ElectionState, Fence, Limiter, Outbox, Permit, Term, WriteStats},
    clock::Clock,
    metrics::{Health, ObjectMetrics, RecommenderMetrics, Traffic},
    observe::{
        controllers::Controllers, index::Index, scale::Lifetimes, target::Targets, watch::Reader,
    },
};
use plimsoll_core::{recommender::Fleet, types::compat::Compat};

/// Pauses after a storage that cannot be reached.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How long statuses that wait to be written may take at the end.
const LAST_STATUSES: Duration = Duration::from_secs(5);

/// So many times as long is an answer about a target good for that stays the same: half an hour in place of ten minutes.
const STEADY_TARGETS: u32 = 3;

/// All parts of a recommender.
pub struct Role {
    config: RecommenderConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    reader: Reader,
    state: State,
    feeds: Feeds,
    controllers: Arc<Controllers>,
    targets: Targets,
    storage: Arc<dyn Storage>,
    /// Where history comes from beside that, if it does.
    series: Option<Arc<Series>>,
    /// A Prometheus, where usage or history is read from one.
    prometheus: Option<Arc<PrometheusHistory>>,
    permit: Permit,
    /// Where statuses go to be written.
    outbox: Outbox,
    metrics: RecommenderMetrics,
    health: Health,
    traffic: Traffic,
    stats: Arc<WriteStats>,
    pulse: Pulse,
    condition: Condition,
    /// Whether it was ready once.
    was_ready: AtomicBool,
    saver: Saver,
    /// How many pods the last answer about usage lacked.
    lacking: AtomicU64,
    /// Why numbers are what they are, on the way to VPAs that say it themselves.
    explanations: Explanations,
    /// A VPA appeared whose history has to be read.
    news: Notify,
    /// A VPA appeared whose workload has to be found.
    found: Notify,
    /// Stored history was read.
    loaded: Notify,
    /// Whether the latest attempt to read it failed.
    unreadable: AtomicBool,
    /// The term of leading in which what another writer stored was taken over.
    caught_up: watch::Sender<Option<Term>>,
    passes: watch::Sender<(u64, Summary)>,
}

/// Wakes the saver before its time.
#[derive(Debug, Default)]
struct Saver(Notify);

impl Saver {
    fn wake(&self) {
        self.0.notify_one();
    }

    async fn woken(&self) {
        self.0.notified().await;
    }
}

/// A recommender that runs.
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
pub async fn run(config: RecommenderConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    until_told(signals, starting, Running::stop).await
}

/// Clients for the API server, by kubeconfig or from inside of the cluster.
pub async fn connect(config: &RecommenderConfig) -> Result<Clients> {
    let agent = concat!("plimsoll-recommender/", env!("CARGO_PKG_VERSION"));
    client::connect(config.kubeconfig.as_deref(), agent).await
}

/// Starts all parts, with time from this clock.
pub async fn start(
    config: RecommenderConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<Running> {
    let mut desk = Desk::alone(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let mut running = prepare(config, &mut desk)?.begin(admin.address());
    let stop = running.holders.stop();
    desk.serve(vec![admin], &stop, running.holders.tasks());
    Ok(running)
}

/// A recommender that does nothing yet.
pub(super) struct Prepared(Arc<Role>);

/// Puts the parts together.
pub(super) fn prepare(config: RecommenderConfig, desk: &mut Desk) -> Result<Prepared> {
    let registry = &mut desk.registry;
    let (metrics, health) = (RecommenderMetrics::new(registry), Health::new(registry));
    kills::foresee(&health);
    let role = Role::new(config, desk, metrics, health)?;
    let cardinality = role.config.object_metrics.cardinality();
    let rows = Arc::new(Rows(Arc::downgrade(&role)));
    desk.registry.add_objects(ObjectMetrics::new(rows, cardinality));
    desk.add(Arc::clone(&role) as _);
    Ok(Prepared(role))
}

impl Prepared {
    /// Starts its tasks. It is scraped and probed there.
    pub fn begin(self, address: SocketAddr) -> Running {
        let role = self.0;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            recommender = role.config.name,
            %address,
            storage = role.storage.name(),
            "recommender starts"
        );
        let (mut workers, mut holders) = (Group::new(), Group::new());
        let (work_stop, hold_stop) = (workers.stop(), holders.stop());
        let election = role.start_election(&hold_stop, holders.tasks());
        role.start_feeds(&work_stop, workers.tasks());
        role.start_loops(&work_stop, workers.tasks());
        {
            let (role, hold_stop) = (Arc::clone(&role), hold_stop.clone());
            holders.tasks().spawn(async move { role.outbox.run(hold_stop.stopped()).await });
        }
        Running { role, address, election, workers, holders }
    }
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("name", &self.config.name).finish_non_exhaustive()
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

    /// Number of statuses that wait to be written.
    pub fn waiting_statuses(&self) -> usize {
        self.role.outbox.len()
    }

    /// Number of VPAs whose history has changes that are not saved.
    pub fn unsaved(&self) -> usize {
        self.role.state.lock().fleet.unsaved().0
    }

    /// Ends it in order: the loops first, then everything that is known is written, then the lease is
    /// handed over.
    pub async fn stop(mut self) {
        self.workers.end().await;
        let role = &self.role;
        role.take_last_kills();
        // Who may not write waits for nobody.
        if role.may_write() {
            role.outbox.drain(tokio::time::Instant::now() + LAST_STATUSES).await;
            role.save_all().await;
        }
        self.holders.end().await;
    }
}

impl Role {
    fn start_loops(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) {
        tasks.spawn(Arc::clone(self).keep_finding_targets(stop.clone()));
        match &self.series {
            Some(series) => {
                let of = || (Arc::clone(self), Arc::clone(series), stop.clone());
                let (own, from, until) = of();
                tasks.spawn(own.keep_asking_for_throttling(from, until));
                let (own, from, until) = of();
                tasks.spawn(own.keep_reading(from, until))
            }
            None => tasks.spawn(Arc::clone(self).keep_loading(stop.clone())),
        };
        tasks.spawn(Arc::clone(self).keep_saving(stop.clone()));
        tasks.spawn(Arc::clone(self).keep_leading(stop.clone()));
        let beating = Arc::clone(self).keep_beating(stop.clone());
        tasks.spawn_on(beating, self.liveness.runtime());
        tasks.spawn(Arc::clone(self).ask_for_explanations(stop.clone()));
        tasks.spawn(Arc::clone(self).turn(stop.clone()));
    }

    fn new(
        config: RecommenderConfig,
        desk: &Desk,
        metrics: RecommenderMetrics,
        health: Health,
    ) -> Result<Arc<Self>> {
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = Limiter::new(config.qps, config.burst);
        let fence = if config.election.on { Fence::closed() } else { Fence::open() };
        let permit = Permit::new(fence, limiter.clone());
        let controllers = Arc::new(Controllers::new());
        let spare = limiter.clone();
        let gate = Arc::new(move || {
            let limiter = limiter.clone();
            Box::pin(async move { limiter.acquire().await }) as _
        });
        // Statuses, checkpoints and the heartbeat go before questions that nobody waits for.
        let spare = Arc::new(move || {
            let limiter = spare.clone();
            Box::pin(async move { limiter.acquire_spare().await }) as _
        });
        let lifetimes = Lifetimes { growth: STEADY_TARGETS, ..Lifetimes::default() };
        let controllers_known = Arc::clone(&controllers);
        let targets =
            Targets::new(client.clone(), controllers_known, gate, lifetimes).with_spare(spare);
        let prometheus = sources::open_prometheus(&config, &clock, &metrics, health.queries())?;
        let storage = sources::open_storage(&config, &client, &clock, prometheus.as_ref())?;
        let series = sources::open_series(&config, prometheus.as_ref());
        let index = Index::new(config.scope.clone(), &config.name);
        let mut fleet = Fleet::new(config.settings.clone(), config.compat);
        // Until it is known whether the clock can be right.
        fleet.keep_expired(true);
        let state = State::new(index, fleet, config.native_sidecars, config.cap_to_largest_node);
        // Upstream's never says so.
        if series.is_some() && config.compat == Compat::Plimsoll {
            state.lock().fetching = Fetching::after(config.interval);
        }
        let counts = Arc::clone(&desk.stats);
        let condition = Condition::new("recommender", config.interval);
        Ok(Arc::new_cyclic(|role| Self {
            outbox: Outbox::new(
                client.clone(),
                permit.clone(),
                config.workers,
                Arc::new(Publisher(role.clone())),
            )
            .with_stats(Arc::clone(&counts)),
            feeds: Feeds::new(config.cap_to_largest_node),
            config,
            clock,
            client,
            liveness: desk.liveness.clone(),
            reader: desk.reader.clone(),
            traffic: desk.traffic.clone(),
            state,
            controllers,
            targets,
            storage,
            series,
            prometheus,
            permit,
            metrics,
            health,
            stats: counts,
            pulse: Pulse::default(),
            condition,
            was_ready: AtomicBool::new(false),
            saver: Saver::default(),
            lacking: AtomicU64::new(0),
            explanations: Explanations::default(),
            news: Notify::new(),
            found: Notify::new(),
            loaded: Notify::new(),
            unreadable: AtomicBool::new(false),
            caught_up: watch::Sender::new(None),
            passes: watch::Sender::new((0, Summary::default())),
        }))
    }

    /// Counts what was found since the last pass: nobody else may see it any more.
    fn take_last_kills(&self) {
        let now = self.clock.now();
        self.take_kills(now, true);
        self.take_kills(now, false);
    }
}

impl Member for Role {
    fn refresh(&self) {
        show_feeds(&self.traffic, self.feeds.all());
        let (vpas, pods, unsaved, held, sources) = {
            let core = self.state.lock();
            // Where nothing is written, nothing waits to be.
            let unsaved = self.storage.writer().map_or(0, |_| core.fleet.unsaved().0);
            let held = core.fleet.kept_expired();
            (core.index.vpa_count(), core.index.pod_count(), unsaved, held, core.index.sources())
        };
        self.traffic.set_feed_objects(self.feeds.vpas.name(), vpas);
        self.traffic.set_feed_objects(self.feeds.pods.name(), pods);
        self.metrics.set_requests_read(sources);
        self.health.pace().set_leader(self.permit.fence().is_held());
        self.health.set_history_state(self.progress());
        self.health.set_write_queue("status", self.outbox.len());
        self.health.set_write_queue("checkpoint", unsaved);
        self.health.set_write_queue("checkpoint_held", held);
        show_writes(&self.traffic, &self.stats);
    }
}
