//! Several roles in one process: one client, one watch of each kind, one page of metrics.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};

use super::{
    AdmissionConfig, RecommenderConfig, UpdaterConfig, WatermarkConfig,
    admission::AdmissionHandle,
    recommender::RecommenderHandle,
    runtime::{
        client,
        config::Address,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, PreparedController, prepare},
        liveness::{Clients, Liveness},
        shutdown::{Signals, TaskGroup, run_until_signal},
    },
    updater::UpdaterHandle,
    watermark::WatermarkHandle,
};
use crate::cluster::{clock::Clock, server::AdminServer};

/// The roles of a process, each with what it is configured by.
#[derive(Clone, Debug, Default)]
pub struct AllInOneConfig {
    /// Where all of them are scraped and probed.
    pub addresses: Vec<Address>,
    /// The recommender.
    pub recommender: Option<RecommenderConfig>,
    /// The updater.
    pub updater: Option<UpdaterConfig>,
    /// The admission controller.
    pub admission: Option<AdmissionConfig>,
    /// The watermark controller.
    pub watermark: Option<WatermarkConfig>,
}

/// Controllers that run in one process.
#[derive(Debug)]
pub struct AllInOneHandle {
    addresses: Vec<SocketAddr>,
    recommender: Option<RecommenderHandle>,
    updater: Option<UpdaterHandle>,
    admission: Option<AdmissionHandle>,
    watermark: Option<WatermarkHandle>,
    listeners: TaskGroup,
    /// Stopped with the last task that runs on it.
    _liveness: Liveness,
}

/// Runs until one of these signals.
pub async fn run(config: AllInOneConfig, signals: Signals) -> Result<()> {
    let agent = concat!("plimsoll/", env!("CARGO_PKG_VERSION"));
    let starting = async {
        let clients = client::connect(config.kubeconfig()?, agent).await?;
        start(config, clients, Clock::wall()).await
    };
    Box::pin(run_until_signal(signals, starting, AllInOneHandle::stop)).await
}

/// Starts all controllers, with time from this clock.
pub async fn start(
    config: AllInOneConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<AllInOneHandle> {
    config.validate()?;
    let mut context = ControllerContext::for_all_in_one(clients.into(), clock)?;
    let mut listeners = Vec::new();
    for address in &config.addresses {
        listeners.push(context.liveness.bind(address).await?);
    }
    let addresses: Vec<SocketAddr> = listeners.iter().map(AdminServer::address).collect();
    if addresses.is_empty() {
        bail!("there is no address to serve metrics and health at");
    }
    // All are put together before the first of them watches anything.
    let recommender = prepare_some(config.recommender, &mut context).await?;
    let updater = prepare_some(config.updater, &mut context).await?;
    let admission = prepare_some(config.admission, &mut context).await?;
    let watermark = prepare_some(config.watermark, &mut context).await?;
    let first = || vec![addresses[0]];
    let mut handle = AllInOneHandle {
        recommender: recommender.map(|prepared| prepared.start(first())),
        updater: updater.map(|prepared| prepared.start(first())),
        admission: admission.map(|prepared| prepared.start(first())),
        watermark: watermark.map(|prepared| prepared.start(first())),
        addresses,
        listeners: TaskGroup::default(),
        _liveness: context.liveness.clone(),
    };
    context.serve(listeners, &mut handle.listeners);
    Ok(handle)
}

async fn prepare_some<C: ControllerConfig>(
    config: Option<C>,
    context: &mut ControllerContext,
) -> Result<Option<PreparedController<C::Controller>>> {
    match config {
        Some(config) => prepare(config, context).await.map(Some),
        None => Ok(None),
    }
}

async fn stop_some<C: Controller>(handle: Option<ControllerHandle<C>>) {
    if let Some(handle) = handle {
        handle.stop().await;
    }
}

impl AllInOneConfig {
    /// By which file the API server is found: the same for all.
    fn kubeconfig(&self) -> Result<Option<&std::path::Path>> {
        let files = [
            self.recommender.as_ref().map(|config| &config.kubeconfig),
            self.updater.as_ref().map(|config| &config.kubeconfig),
            self.admission.as_ref().map(|config| &config.kubeconfig),
            self.watermark.as_ref().map(|config| &config.kubeconfig),
        ];
        let mut files = files.into_iter().flatten();
        let first = files.next().context("there is no role to run: name some with --roles")?;
        if files.any(|other| other != first) {
            bail!("roles that run together look at one cluster: give --kubeconfig once, for all");
        }
        Ok(first.as_deref())
    }

    /// What would have roles get in each other's way.
    fn validate(&self) -> Result<()> {
        self.kubeconfig()?;
        let leases = [
            self.recommender.as_ref().map(|config| ("recommender", &config.election)),
            self.updater.as_ref().map(|config| ("updater", &config.election)),
            self.watermark.as_ref().map(|config| ("watermark", &config.election)),
        ];
        let leases: Vec<_> = leases.into_iter().flatten().filter(|(_, it)| it.enabled).collect();
        for (at, (role, lease)) in leases.iter().enumerate() {
            let same = |other: &&(_, &crate::controllers::runtime::config::ElectionConfig)| {
                (&other.1.namespace, &other.1.name) == (&lease.namespace, &lease.name)
            };
            if let Some((other, _)) = leases[..at].iter().find(same) {
                bail!(
                    "{other} and {role} would lead by one Lease, {}/{}: give each a name of its own, as in \
                     --{role}.leader-elect-resource-name",
                    lease.namespace,
                    lease.name
                );
            }
        }
        Ok(())
    }
}

impl AllInOneHandle {
    /// Where all of them serve metrics and health.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The recommender, if it is one of them.
    pub const fn recommender(&self) -> Option<&RecommenderHandle> {
        self.recommender.as_ref()
    }

    /// The updater, if it is one of them.
    pub const fn updater(&self) -> Option<&UpdaterHandle> {
        self.updater.as_ref()
    }

    /// The admission controller, if it is one of them.
    pub const fn admission(&self) -> Option<&AdmissionHandle> {
        self.admission.as_ref()
    }

    /// The watermark controller, if it is one of them.
    pub const fn watermark(&self) -> Option<&WatermarkHandle> {
        self.watermark.as_ref()
    }

    /// Stops all of them at the same time, and then the listeners of metrics and probes.
    pub async fn stop(mut self) {
        tokio::join!(
            stop_some(self.recommender),
            stop_some(self.updater),
            stop_some(self.admission),
            stop_some(self.watermark),
        );
        self.listeners.shut_down().await;
    }
}
