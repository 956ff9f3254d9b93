//! The lifecycle of a controller: build it, start it, run it until a signal, and stop it in order.

use std::{net::SocketAddr, ops::Deref, sync::Arc, time::Duration};

use anyhow::Result;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{
    client,
    config::ProcessConfig,
    context::ControllerContext,
    liveness_thread::{Clients, Liveness},
    shutdown::{Signals, TaskGroup, run_until_signal},
};
use crate::cluster::{
    clock::Clock,
    leader::{Election, ElectionState},
    server::{AdminServer, Probes},
    watch::WatchFactory,
};

/// Time limit for flushing queued writes when a leader stops.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);

pub trait ControllerConfig: Send + Sized + 'static {
    type Controller: Controller<Config = Self>;

    fn process(&self) -> &ProcessConfig;
}

pub trait Controller: Probes + Sized + 'static {
    type Config: ControllerConfig<Controller = Self>;

    const USER_AGENT: &str;

    /// Builds the controller. Nothing is watched or written yet.
    fn new(
        config: Self::Config,
        context: &mut ControllerContext,
    ) -> impl Future<Output = Result<Arc<Self>>> + Send;

    /// Logs the start with the most important settings.
    fn log_start(&self, addresses: &[SocketAddr]);

    /// Its leader election; `None` if it writes without a Lease.
    fn election(&self) -> Option<Election>;

    /// Spawns the tasks that run until shutdown.
    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks);

    /// Prepares for shutdown while requests are still served.
    fn begin_shutdown(&self) -> impl Future<Output = ()> + Send {
        async {}
    }

    /// Flushes queued writes, after the workers have stopped and before the Lease is released.
    fn drain(&self, deadline: Instant) -> impl Future<Output = ()> + Send;

    /// Updates gauges before a scrape.
    fn refresh_metrics(&self);
}

/// The tasks of a controller, in the order in which they are stopped.
#[derive(Debug, Default)]
pub struct ControllerTasks {
    /// Servers of requests other than metrics and probes.
    pub(crate) servers: TaskGroup,
    /// Watches and loops.
    pub(crate) workers: TaskGroup,
    /// Tasks that are needed until the last write: the Lease, write queues, and the listeners of metrics and probes.
    pub(crate) until_end: TaskGroup,
}

pub struct ControllerHandle<C> {
    controller: Arc<C>,
    addresses: Vec<SocketAddr>,
    election: Option<ElectionState>,
    tasks: ControllerTasks,
}

pub async fn run<C: ControllerConfig>(config: C, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    run_until_signal(signals, starting, ControllerHandle::stop).await
}

/// Creates clients for the API server, from the kubeconfig or the in-cluster configuration.
pub async fn connect<C: ControllerConfig>(config: &C) -> Result<Clients> {
    client::connect(config.process().kubeconfig.as_deref(), C::Controller::USER_AGENT).await
}

/// Starts a controller, with time from this clock.
pub async fn start<C: ControllerConfig>(
    config: C,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<ControllerHandle<C::Controller>> {
    // On the heap, because the future would be large.
    let mut context =
        Box::new(ControllerContext::new(clients.into(), clock, WatchFactory::dedicated)?);
    let mut listeners = Vec::new();
    for address in &config.process().addresses {
        listeners.push(context.liveness.bind(address).await?);
    }
    let addresses = listeners.iter().map(AdminServer::address).collect();
    let prepared = ControllerHandle::<C::Controller>::prepare(config, &mut context);
    let handle = Box::pin(prepared).await?;
    let mut handle = handle.start(addresses, &context.liveness);
    context.serve(listeners, &mut handle.tasks.until_end);
    Ok(handle)
}

impl<C: Controller> ControllerHandle<C> {
    /// Builds a controller, whose tasks have not started.
    pub(crate) async fn prepare(
        config: C::Config,
        context: &mut ControllerContext,
    ) -> Result<Self> {
        let controller = Box::pin(C::new(config, context)).await?;
        context.controllers.push(Arc::clone(&controller) as _);
        let tasks = std::mem::take(&mut context.tasks);
        Ok(Self { controller, addresses: Vec::new(), election: None, tasks })
    }

    /// Starts its tasks. Metrics and probes are served at these addresses.
    pub(crate) fn start(mut self, addresses: Vec<SocketAddr>, liveness: &Liveness) -> Self {
        self.controller.log_start(&addresses);
        self.addresses = addresses;
        self.election = self.controller.election().map(|election| {
            let state = election.state();
            let run = |stop: CancellationToken| election.run(stop.cancelled_owned());
            self.tasks.until_end.spawn_on(liveness.runtime(), run);
            state
        });
        self.controller.start(&mut self.tasks);
        self
    }

    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn health(&self) -> SocketAddr {
        self.addresses[self.addresses.len() - 1]
    }

    pub const fn election(&self) -> Option<&ElectionState> {
        self.election.as_ref()
    }

    pub fn ready(&self) -> Result<(), Vec<String>> {
        self.controller.check_readiness()
    }

    /// Stops it in order: requests in progress are answered, work in progress is completed, queued writes are written, and
    /// then the Lease is released.
    pub async fn stop(mut self) {
        self.controller.begin_shutdown().await;
        self.tasks.servers.shut_down().await;
        self.tasks.workers.shut_down().await;
        self.controller.drain(Instant::now() + FLUSH_TIMEOUT).await;
        self.tasks.until_end.shut_down().await;
    }
}

impl<C> Deref for ControllerHandle<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.controller
    }
}
