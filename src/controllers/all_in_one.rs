//! Several roles in one process: one client, one watch of each kind, one page of metrics.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, bail};

use super::{
    AdmissionConfig, UpdaterConfig, WatermarkConfig, admission, recommender, updater, watermark,
};
use crate::cluster::{clock::Clock, server::AdminServer};
use crate::controllers::runtime::{
    RecommenderConfig, client,
    config::Address,
    context::ControllerContext,
    liveness::{Clients, Liveness},
    shutdown::{Signals, TaskGroup, run_until_signal},
};

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

/// Roles that run together.
#[derive(Debug)]
pub struct AllInOneHandle {
    addresses: Vec<SocketAddr>,
    recommender: Option<recommender::RecommenderHandle>,
    updater: Option<updater::UpdaterHandle>,
    admission: Option<admission::AdmissionHandle>,
    watermark: Option<watermark::WatermarkHandle>,
    listeners: TaskGroup,
    /// Ends with the last of what runs on it.
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

/// Starts all roles, with time from this clock.
pub async fn start(
    config: AllInOneConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<AllInOneHandle> {
    config.validate()?;
    let mut desk = ControllerContext::for_all_in_one(clients.into(), clock)?;
    let mut places = Vec::new();
    for address in &config.addresses {
        places.push(desk.liveness.bind(address).await?);
    }
    let Some(first) = places.first().map(AdminServer::address) else {
        bail!("there is no address to serve metrics and health at");
    };
    // All are put together before the first of them watches anything.
    let recommender =
        config.recommender.map(|config| recommender::prepare(config, &mut desk)).transpose()?;
    let updater = config.updater.map(|config| updater::prepare(config, &mut desk));
    let admission = match config.admission {
        Some(config) => Some(admission::prepare(config, &mut desk).await?),
        None => None,
    };
    let watermark =
        config.watermark.map(|config| watermark::prepare(config, &mut desk)).transpose()?;
    let mut running = AllInOneHandle {
        addresses: places.iter().map(AdminServer::address).collect(),
        recommender: recommender.map(|prepared| prepared.begin(first)),
        updater: updater.map(|prepared| prepared.begin(first)),
        admission: admission.map(|prepared| prepared.begin(first)),
        watermark: watermark.map(|prepared| prepared.begin(first, first)),
        listeners: TaskGroup::new(),
        _liveness: desk.liveness.clone(),
    };
    let stop = running.listeners.shutdown_token();
    desk.serve(places, &stop, running.listeners.tasks());
    Ok(running)
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
    pub const fn recommender(&self) -> Option<&recommender::RecommenderHandle> {
        self.recommender.as_ref()
    }

    /// The updater, if it is one of them.
    pub const fn updater(&self) -> Option<&updater::UpdaterHandle> {
        self.updater.as_ref()
    }

    /// The admission controller, if it is one of them.
    pub const fn admission(&self) -> Option<&admission::AdmissionHandle> {
        self.admission.as_ref()
    }

    /// The watermark controller, if it is one of them.
    pub const fn watermark(&self) -> Option<&watermark::WatermarkHandle> {
        self.watermark.as_ref()
    }

    /// Ends all of them in order, at the same time, and then what they are scraped at.
    pub async fn stop(mut self) {
        let Self { recommender, updater, admission, watermark, .. } = &mut self;
        let (recommender, updater) = (recommender.take(), updater.take());
        let (admission, watermark) = (admission.take(), watermark.take());
        tokio::join!(
            async {
                if let Some(role) = recommender {
                    role.stop().await;
                }
            },
            async {
                if let Some(role) = updater {
                    role.stop().await;
                }
            },
            async {
                if let Some(role) = admission {
                    role.stop().await;
                }
            },
            async {
                if let Some(role) = watermark {
                    role.stop().await;
                }
            },
        );
        self.listeners.shut_down().await;
    }
}
