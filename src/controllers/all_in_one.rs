//! Several controllers in one process: they share one client, one watch per kind, and one metrics endpoint.

use std::{collections::HashMap, net::SocketAddr};

use anyhow::{Context as _, Result, bail};

use super::{
    AdmissionConfig, HorizontalConfig, RecommenderConfig, UpdaterConfig, WatermarkConfig,
    admission::AdmissionHandle,
    horizontal::HorizontalHandle,
    recommender::RecommenderHandle,
    runtime::{
        client,
        config::Address,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle},
        liveness_thread::{Clients, Liveness},
        shutdown::TaskGroup,
    },
    updater::UpdaterHandle,
    watermark::WatermarkHandle,
};
use crate::cluster::{clock::Clock, server::AdminServer, watch::WatchFactory};

/// The controllers to run, each with its configuration.
#[derive(Clone, Debug, Default)]
pub struct AllInOneConfig {
    /// Addresses of metrics and probes, shared by all controllers.
    pub addresses: Vec<Address>,
    pub recommender: Option<RecommenderConfig>,
    pub updater: Option<UpdaterConfig>,
    pub admission: Option<AdmissionConfig>,
    pub watermark: Option<WatermarkConfig>,
    pub horizontal: Option<HorizontalConfig>,
}

/// Controllers that run in one process.
pub struct AllInOneHandle {
    /// Addresses of metrics and probes.
    pub addresses: Vec<SocketAddr>,
    /// The recommender, if it is one of them.
    pub recommender: Option<RecommenderHandle>,
    /// The updater, if it is one of them.
    pub updater: Option<UpdaterHandle>,
    admission: Option<AdmissionHandle>,
    /// The watermark controller, if it is one of them.
    pub watermark: Option<WatermarkHandle>,
    horizontal: Option<HorizontalHandle>,
    listeners: TaskGroup,
    /// Stopped with the last task that runs on it.
    _liveness: Liveness,
}

/// Connects to the cluster and starts all controllers.
pub async fn connect_and_start(config: AllInOneConfig) -> Result<AllInOneHandle> {
    let agent = concat!("plimsoll/", env!("CARGO_PKG_VERSION"));
    let clients = client::connect(config.kubeconfig()?, agent).await?;
    Box::pin(start(config, clients, Clock::wall())).await
}

/// Starts all controllers, with time from this clock.
pub async fn start(
    config: AllInOneConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<AllInOneHandle> {
    config.validate()?;
    let mut context = ControllerContext::new(clients.into(), clock, WatchFactory::shared)?;
    let mut listeners = Vec::new();
    for address in &config.addresses {
        listeners.push(context.liveness.bind(address).await?);
    }
    let addresses: Vec<SocketAddr> = listeners.iter().map(AdminServer::address).collect();
    if addresses.is_empty() {
        bail!("no address to serve metrics and health probes");
    }
    // Build all controllers before the first one starts a watch.
    let recommender = prepare_some(config.recommender, &mut context).await?;
    let updater = prepare_some(config.updater, &mut context).await?;
    let admission = prepare_some(config.admission, &mut context).await?;
    let watermark = prepare_some(config.watermark, &mut context).await?;
    let horizontal = prepare_some(config.horizontal, &mut context).await?;
    let (first, liveness) = (|| vec![addresses[0]], &context.liveness);
    let mut handle = AllInOneHandle {
        recommender: recommender.map(|handle| handle.start(first(), liveness)),
        updater: updater.map(|handle| handle.start(first(), liveness)),
        admission: admission.map(|handle| handle.start(first(), liveness)),
        watermark: watermark.map(|handle| handle.start(first(), liveness)),
        horizontal: horizontal.map(|handle| handle.start(first(), liveness)),
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
) -> Result<Option<ControllerHandle<C::Controller>>> {
    match config {
        Some(config) => Box::pin(ControllerHandle::prepare(config, context)).await.map(Some),
        None => Ok(None),
    }
}

async fn stop_some<C: Controller>(handle: Option<ControllerHandle<C>>) {
    if let Some(handle) = handle {
        handle.stop().await;
    }
}

impl AllInOneConfig {
    /// The kubeconfig, which must be the same for all controllers.
    fn kubeconfig(&self) -> Result<Option<&std::path::Path>> {
        let processes = [
            self.recommender.as_ref().map(ControllerConfig::process),
            self.updater.as_ref().map(ControllerConfig::process),
            self.admission.as_ref().map(ControllerConfig::process),
            self.watermark.as_ref().map(ControllerConfig::process),
            self.horizontal.as_ref().map(ControllerConfig::process),
        ];
        let mut files = processes.into_iter().flatten().map(|process| &process.kubeconfig);
        let first = files.next().context("no roles selected; set --roles")?;
        if files.any(|other| other != first) {
            bail!(
                "all roles in one process must use the same cluster: set --kubeconfig once for all of them"
            );
        }
        Ok(first.as_deref())
    }

    /// Rejects settings with which the controllers would interfere with each other.
    fn validate(&self) -> Result<()> {
        self.kubeconfig()?;
        let leases = [
            self.recommender.as_ref().map(|config| ("recommender", &config.election)),
            self.updater.as_ref().map(|config| ("updater", &config.election)),
            self.watermark.as_ref().map(|config| ("watermark", &config.settings.election)),
            self.horizontal.as_ref().map(|config| ("horizontal", &config.settings.election)),
        ];
        let mut roles = HashMap::new();
        for (role, lease) in leases.into_iter().flatten().filter(|(_, lease)| lease.enabled) {
            if let Some(other) = roles.insert((&lease.namespace, &lease.name), role) {
                bail!(
                    "{other} and {role} would use the same leader election Lease {}/{}; set another name with \
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
    /// Stops all of them at the same time, and then the listeners of metrics and probes.
    pub async fn stop(mut self) {
        tokio::join!(
            stop_some(self.recommender),
            stop_some(self.updater),
            stop_some(self.admission),
            stop_some(self.watermark),
            stop_some(self.horizontal),
        );
        self.listeners.shut_down().await;
    }
}
