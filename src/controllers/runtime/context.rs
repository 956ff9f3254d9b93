//! Shared by the controllers of a process: API clients, watches and metrics.

use std::sync::Arc;

use kube::Client;

use super::{
    client_calls::with_call_metrics,
    controller::{Controller, ControllerTasks},
    liveness_thread::{Clients, Liveness},
    shutdown::TaskGroup,
};
use crate::{
    cluster::{
        clock::Clock,
        server::{AdminServer, Exposition, Probes, Stalled},
        watch::WatchFactory,
        write::WriteStats,
    },
    telemetry::{ApiRequestMetrics, ApiTrafficMetrics, Registry},
};

/// The clients, watches, metrics and tasks that controllers are built with.
pub struct ControllerContext {
    pub(crate) client: Client,
    pub(crate) liveness: Liveness,
    pub(crate) clock: Clock,
    /// Creates dedicated watches, or watches shared by the process.
    pub(crate) watch_factory: WatchFactory,
    pub(crate) registry: Registry,
    pub(crate) traffic: ApiTrafficMetrics,
    pub(crate) write_stats: Arc<WriteStats>,
    /// Tasks of components, started with the controller.
    pub(crate) tasks: ControllerTasks,
    pub(crate) controllers: Vec<Arc<dyn ScrapedController>>,
}

pub(crate) trait ScrapedController: Probes {
    /// Updates gauges before a scrape.
    fn refresh_metrics(&self);
}

impl<C: Controller> ScrapedController for C {
    fn refresh_metrics(&self) {
        Controller::refresh_metrics(self);
    }
}

impl ControllerContext {
    pub(crate) fn new(
        clients: Clients,
        clock: Clock,
        new_factory: fn(Client) -> WatchFactory,
    ) -> anyhow::Result<Self> {
        let mut registry = Registry::new();
        let traffic = ApiTrafficMetrics::new(&mut registry);
        let calls = ApiRequestMetrics::new(&mut registry);
        let (client, liveness) = Liveness::start(clients, calls.clone())?;
        let client = with_call_metrics(client, calls);
        Ok(Self {
            watch_factory: new_factory(client.clone()),
            client,
            liveness,
            clock,
            registry,
            traffic,
            write_stats: Arc::default(),
            tasks: ControllerTasks::default(),
            controllers: Vec::new(),
        })
    }

    /// Serves metrics and probes at these listeners until shutdown.
    pub(crate) fn serve(self, listeners: Vec<AdminServer>, tasks: &mut TaskGroup) {
        let (registry, controllers) = (Arc::new(self.registry), Arc::new(self.controllers));
        let scraped = Arc::clone(&controllers);
        let exposition: Exposition = Arc::new(move || {
            for controller in scraped.iter() {
                controller.refresh_metrics();
            }
            Box::new(registry.scrape())
        });
        let runtime = self.liveness.runtime();
        for listener in listeners {
            let (exposition, probes) = (exposition.clone(), Arc::clone(&controllers));
            tasks.spawn_on(runtime, |stop| {
                listener.serve(exposition, probes, stop.cancelled_owned())
            });
        }
    }
}

/// The probes of all controllers: the process is live and ready if each controller is.
impl Probes for Vec<Arc<dyn ScrapedController>> {
    fn check_liveness(&self) -> Result<(), Stalled> {
        self.iter().try_for_each(|controller| controller.check_liveness())
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let missing: Vec<String> = self
            .iter()
            .filter_map(|controller| controller.check_readiness().err())
            .flatten()
            .collect();
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
