//! What the roles of a process have in common: how they reach the cluster, and what they tell Prometheus.

use std::sync::Arc;

use kube::Client;

use super::{
    client_calls::with_call_metrics,
    liveness::{Clients, Liveness},
    shutdown::{ShutdownToken, Tasks},
};
use crate::{
    cluster::{
        clock::Clock,
        server::{AdminServer, Probes, Stalled},
        watch::WatchFactory,
        write::WriteStats,
    },
    telemetry::{ApiRequestMetrics, ApiTrafficMetrics, Registry},
};

/// What every role is put together with.
pub(crate) struct ControllerContext {
    pub client: Client,
    pub liveness: Liveness,
    pub clock: Clock,
    /// With watches of the role alone, or with those of the process.
    pub watch_factory: WatchFactory,
    pub registry: Registry,
    pub traffic: ApiTrafficMetrics,
    pub write_stats: Arc<WriteStats>,
    controllers: Vec<Arc<dyn Controller>>,
}

/// A role, as far as whoever scrapes or probes it needs to know.
pub(crate) trait Controller: Probes {
    /// Brings gauges up to what is now, for a scrape.
    fn refresh_metrics(&self);
}

impl ControllerContext {
    /// For a role that is alone in its process.
    pub fn for_single_controller(clients: Clients, clock: Clock) -> anyhow::Result<Self> {
        Self::new(clients, clock, WatchFactory::dedicated)
    }

    /// For several.
    pub fn for_all_in_one(clients: Clients, clock: Clock) -> anyhow::Result<Self> {
        Self::new(clients, clock, WatchFactory::shared)
    }

    fn new(
        clients: Clients,
        clock: Clock,
        reader: fn(Client) -> WatchFactory,
    ) -> anyhow::Result<Self> {
        let (shown, calls) = Self::new_registry();
        let (client, liveness) = Liveness::start(clients, calls.clone())?;
        Ok(Self::from_parts(shown, with_call_metrics(client, calls), liveness, clock, reader))
    }

    /// For a role that only reads, for a command: it has no Lease and is not probed.
    pub fn for_command(client: Client, clock: Clock) -> Self {
        let (shown, calls) = Self::new_registry();
        let client = with_call_metrics(client, calls);
        let liveness = Liveness::on_current_runtime(client.clone());
        Self::from_parts(shown, client, liveness, clock, WatchFactory::dedicated)
    }

    fn new_registry() -> ((Registry, ApiTrafficMetrics), ApiRequestMetrics) {
        let mut registry = Registry::new();
        let traffic = ApiTrafficMetrics::new(&mut registry);
        let calls = ApiRequestMetrics::new(&mut registry);
        ((registry, traffic), calls)
    }

    fn from_parts(
        (registry, traffic): (Registry, ApiTrafficMetrics),
        client: Client,
        liveness: Liveness,
        clock: Clock,
        reader: fn(Client) -> WatchFactory,
    ) -> Self {
        let reader = reader(client.clone());
        let stats: Arc<WriteStats> = Arc::default();
        Self {
            client,
            liveness,
            clock,
            watch_factory: reader,
            registry,
            traffic,
            write_stats: stats,
            controllers: Vec::new(),
        }
    }

    /// One more who is scraped and probed.
    pub fn register(&mut self, member: Arc<dyn Controller>) {
        self.controllers.push(member);
    }

    /// Answers scrapes and probes at these places, until told to stop.
    pub fn serve(self, places: Vec<AdminServer>, stop: &ShutdownToken, tasks: &mut Tasks) {
        let (registry, members) = (Arc::new(self.registry), Arc::new(self.controllers));
        let scraped = Arc::clone(&members);
        let exposition = Arc::new(move || {
            for member in scraped.iter() {
                member.refresh_metrics();
            }
            registry.scrape()
        });
        let probes = Arc::new(AllProbes(members));
        let runtime = self.liveness.runtime();
        for place in places {
            let serve = place.serve(exposition.clone(), probes.clone(), stop.cancelled());
            tasks.spawn_on(serve, runtime);
        }
    }
}

/// All roles of a process: it lives and is ready when each of them does and is.
struct AllProbes(Arc<Vec<Arc<dyn Controller>>>);

impl Probes for AllProbes {
    fn check_liveness(&self) -> Result<(), Stalled> {
        self.0.iter().try_for_each(|member| member.check_liveness())
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let missing: Vec<String> =
            self.0.iter().filter_map(|member| member.check_readiness().err()).flatten().collect();
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
