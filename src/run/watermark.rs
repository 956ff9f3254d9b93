//! The watermark controller as a process: its parts, how they start, and how they end.
//!
//! ```text
//!   feeds ──▶ book: objects, whose turn it is ──▶ look, by several workers
//!   feeds ──▶ pods ─────────────────────────────┐   │
//!   scales: watched, or asked for ──────────────┼─▶ deciding ──▶ booked ──▶ replicas ──▶ status, events
//!   asking: metrics APIs, recommenders, PromQL ─┘                              rows ──▶ metrics
//! ```

mod asking;
mod book;
mod condition;
pub mod config;
mod counting;
mod deciding;
pub mod explained;
mod feeds;
pub(in crate::run) mod gates;
mod look;
mod probes;
mod rows;
mod seat;
pub mod switch;
mod target;
mod telling;
mod turns;
mod waits;
mod working;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicI64, AtomicU64},
    },
    time::Duration,
};

use anyhow::Result;
use kube::Client;
use tokio::sync::Semaphore;

use self::{
    asking::{AGENT, Sources},
    book::Book,
    config::WatermarkConfig,
    counting::{Counting, Objects},
    feeds::Feeds,
    waits::Waits,
};
use super::{
    client,
    desk::Desk,
    liveness::{Clients, Liveness},
    pulse::Pulse,
    replicas::Workloads,
    tasks::{Group, Signals, Stop, Tasks, until_told},
    vitals::Condition,
};
use crate::{
    act::{
        Election, ElectionState, EventWriter, Events, Fence, Limiter, Permit, WriteStats, events,
    },
    clock::Clock,
    metrics::{Pace, PrometheusCalls, Traffic, WatermarkMetrics, WatermarkObjects},
    observe::{
        scale::{Lifetimes, Scales},
        scaled_pod::KeptPod,
        selector::Selector,
        watch::Reader,
    },
};

/// Who says so, in events.
const COMPONENT: &str = "wpa_controller";
/// How long events that wait to be written may take at the end.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// All parts of a watermark controller.
pub struct Role {
    config: WatermarkConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    reader: Reader,
    feeds: Feeds,
    book: Book,
    workloads: Arc<Workloads>,
    sources: Sources,
    permit: Permit,
    events: Events,
    traffic: Traffic,
    pace: Pace,
    metrics: WatermarkMetrics,
    stats: Arc<WriteStats>,
    pulse: Pulse,
    condition: Condition,
    /// How many may write mere values at once: the others have turns to keep.
    values: Semaphore,
    /// Room for looks that wait for somebody, and whose worker goes on meanwhile.
    aside: Arc<Semaphore>,
    /// Whom values are waited for.
    waits: Waits,
    /// How the election stands, if there is one.
    election: OnceLock<ElectionState>,
    /// Looks so far.
    looks: AtomicU64,
    /// When the server dropped last what a status tells of a decision, in nanoseconds; 0 if it does not.
    last_dropped: AtomicI64,
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("lease", &self.config.election.name).finish_non_exhaustive()
    }
}

/// A watermark controller that runs.
#[derive(Debug)]
pub struct Running {
    role: Arc<Role>,
    address: SocketAddr,
    health: SocketAddr,
    election: Option<ElectionState>,
    workers: Group,
    /// What ends last: the lease and the listeners.
    holders: Group,
}

/// Runs until one of these signals.
pub async fn run(config: WatermarkConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    until_told(signals, starting, Running::stop).await
}

/// Clients for the API server, by kubeconfig or from inside of the cluster.
pub async fn connect(config: &WatermarkConfig) -> Result<Clients> {
    client::connect(config.kubeconfig.as_deref(), AGENT).await
}

/// Starts all parts, with time from this clock.
pub async fn start(
    config: WatermarkConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<Running> {
    let mut desk = Desk::alone(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let health = desk.liveness.bind(&config.health).await?;
    let mut running = prepare(config, &mut desk)?.begin(admin.address(), health.address());
    let stop = running.holders.stop();
    desk.serve(vec![admin, health], &stop, running.holders.tasks());
    Ok(running)
}

/// A watermark controller that does nothing yet.
pub(super) struct Prepared(Arc<Role>, EventWriter);

/// Puts the parts together.
pub(super) fn prepare(config: WatermarkConfig, desk: &mut Desk) -> Result<Prepared> {
    let (role, writer) = Role::new(config, desk)?;
    let config = &role.config;
    let objects = WatermarkObjects::new(
        Arc::new(Objects(Arc::downgrade(&role))),
        config.object_metrics.cardinality(),
        config.label_set,
        &config.labels_as_tags,
    );
    desk.registry.add_watermarks(objects);
    desk.add(Arc::clone(&role) as _);
    Ok(Prepared(role, writer))
}

impl Prepared {
    /// Starts its tasks. It is scraped there, and probed there.
    pub fn begin(self, address: SocketAddr, health: SocketAddr) -> Running {
        let Self(role, writer) = self;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            %address,
            %health,
            dry_run = role.config.dry_run.is_some(),
            "watermark controller starts"
        );
        let (mut workers, mut holders) = (Group::new(), Group::new());
        let (work_stop, hold_stop) = (workers.stop(), holders.stop());
        let election = role.start_election(&hold_stop, holders.tasks());
        holders.tasks().spawn(writer.run(hold_stop.stopped()));
        role.start_feeds(&work_stop, workers.tasks());
        workers.tasks().spawn(Arc::clone(&role).keep_condition(work_stop.clone()));
        role.workloads.start_scales(&work_stop, workers.tasks());
        for worker in 0..role.config.workers.max(1) {
            workers.tasks().spawn(Arc::clone(&role).work(worker, work_stop.clone()));
        }
        Running { role, address, health, election, workers, holders }
    }
}

impl Running {
    /// Where it serves metrics.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves health.
    pub const fn health(&self) -> SocketAddr {
        self.health
    }

    /// How often an object was looked at.
    pub fn looks(&self) -> u64 {
        self.role.looks.load(std::sync::atomic::Ordering::Acquire)
    }

    /// Whether nobody has a turn that has come.
    pub fn is_idle(&self) -> bool {
        self.role.book.is_idle(self.role.clock.now())
    }

    /// How many pods of a namespace are ready and not on their way out, as the watch tells.
    pub fn ready_pods(&self, namespace: &str) -> usize {
        let counts =
            |kept: &KeptPod| matches!(kept.pod.ready, Some((true, _))) && !kept.pod.is_leaving;
        let all = self.role.workloads.scopes.pods(namespace, &Selector::everything(), counts);
        all.into_iter().filter(|counted| *counted).count()
    }

    /// How the election stands, if there is one.
    pub const fn election(&self) -> Option<&ElectionState> {
        self.election.as_ref()
    }

    /// Whether it is ready, or what is missing.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        crate::serve::Probes::ready(&*self.role)
    }

    /// Ends it in order: looks under way are finished, what is known is told, and then the lease is handed over.
    pub async fn stop(mut self) {
        self.workers.end().await;
        if self.role.permit.fence().is_held() {
            self.role.events.drain(tokio::time::Instant::now() + LAST_WORDS).await;
        }
        self.holders.end().await;
    }
}

impl Role {
    fn new(config: WatermarkConfig, desk: &mut Desk) -> Result<(Arc<Self>, EventWriter)> {
        let metrics = WatermarkMetrics::new(&mut desk.registry);
        metrics.set_workers(config.workers);
        let pace = Pace::new(&mut desk.registry, "watermark");
        let queries = PrometheusCalls::new(&mut desk.registry, "watermark");
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = Limiter::new(config.qps, config.burst);
        // Nobody leads in a dry run, and nothing is written but events.
        let alone = config.dry_run.is_some() || !config.election.on;
        let fence = if alone { Fence::open() } else { Fence::closed() };
        let permit = Permit::new(fence, limiter.clone());
        // As with upstream, whoever reads scales does not wait for whoever writes.
        let reads = Limiter::new(config.qps, config.burst);
        let gate = Arc::new(move || {
            let reads = reads.clone();
            Box::pin(async move { reads.acquire().await }) as _
        });
        let lifetimes = Lifetimes { patience: config.request_timeout, ..Lifetimes::default() };
        let stats = Arc::clone(&desk.stats);
        let (told, writer) = events(client.clone(), permit.clone(), Arc::clone(&stats), COMPONENT);
        let workloads = Workloads::new(
            &config.namespaces,
            Scales::new(client.clone(), gate, lifetimes),
            client.clone(),
            desk.reader.clone(),
            config.compat,
        );
        let feeds = Feeds::new(Arc::clone(&workloads));
        let role = Self {
            book: Book::new(feeds.scopes().len()),
            feeds,
            workloads,
            sources: Sources::new(
                &config,
                &clock,
                Arc::new(Counting::new(metrics.clone())),
                queries,
            )?,
            permit,
            events: told,
            traffic: desk.traffic.clone(),
            liveness: desk.liveness.clone(),
            reader: desk.reader.clone(),
            pace,
            metrics,
            stats,
            pulse: Pulse::default(),
            condition: Condition::new("watermark", config.period),
            values: Semaphore::new((config.workers / 4).max(1)),
            aside: Arc::new(Semaphore::new(working::room(&config))),
            waits: Waits::new(config.workers),
            election: OnceLock::new(),
            looks: AtomicU64::new(0),
            last_dropped: AtomicI64::new(0),
            config,
            clock,
            client,
        };
        Ok((Arc::new(role), writer))
    }

    fn start_election(self: &Arc<Self>, stop: &Stop, tasks: &mut Tasks) -> Option<ElectionState> {
        let wanted = &self.config.election;
        if !wanted.on || self.config.dry_run.is_some() {
            return None;
        }
        let options = wanted.options(wanted.name.clone());
        let fence = self.permit.fence().clone();
        let (condition, compat) = (self.condition.clone(), self.config.compat);
        let election = Election::new(self.liveness.client(), options, fence)
            .with_stats(Arc::clone(&self.stats))
            .saying(move || condition.annotation(compat));
        let state = self.election.get_or_init(|| election.state()).clone();
        tasks.spawn_on(election.run(stop.stopped()), self.liveness.runtime());
        Some(state)
    }

    fn may_act(&self) -> bool {
        self.permit.fence().is_held()
    }
}
