//! What the roles of a process have in common: how they reach the cluster, and what they tell Prometheus.

use std::sync::Arc;

use kube::Client;

use super::{
    calls::counted,
    liveness::{Clients, Liveness},
    tasks::{Stop, Tasks},
};
use crate::{
    act::WriteStats,
    clock::Clock,
    metrics::{ApiCalls, Registry, Traffic},
    observe::watch::Reader,
    serve::{Admin, Probes, Stalled},
};

/// What every role is put together with.
pub(super) struct Desk {
    pub client: Client,
    pub liveness: Liveness,
    pub clock: Clock,
    /// With watches of the role alone, or with those of the process.
    pub reader: Reader,
    pub registry: Registry,
    pub traffic: Traffic,
    pub stats: Arc<WriteStats>,
    members: Vec<Arc<dyn Member>>,
}

/// A role, as far as whoever scrapes or probes it needs to know.
pub(super) trait Member: Probes {
    /// Brings gauges up to what is now, for a scrape.
    fn refresh(&self);
}

impl Desk {
    /// For a role that is alone in its process.
    pub fn alone(clients: Clients, clock: Clock) -> anyhow::Result<Self> {
        Self::new(clients, clock, Reader::alone)
    }

    /// For several.
    pub fn together(clients: Clients, clock: Clock) -> anyhow::Result<Self> {
        Self::new(clients, clock, Reader::together)
    }

    fn new(clients: Clients, clock: Clock, reader: fn(Client) -> Reader) -> anyhow::Result<Self> {
        let (shown, calls) = Self::metrics();
        let (client, liveness) = Liveness::start(clients, calls.clone())?;
        Ok(Self::with(shown, counted(client, calls), liveness, clock, reader))
    }

    /// For a role that only reads, for a command: it has no Lease and is not probed.
    pub fn of_command(client: Client, clock: Clock) -> Self {
        let (shown, calls) = Self::metrics();
        let client = counted(client, calls);
        let liveness = Liveness::here(client.clone());
        Self::with(shown, client, liveness, clock, Reader::alone)
    }

    fn metrics() -> ((Registry, Traffic), ApiCalls) {
        let mut registry = Registry::new();
        let traffic = Traffic::new(&mut registry);
        let calls = ApiCalls::new(&mut registry);
        ((registry, traffic), calls)
    }

    fn with(
        (registry, traffic): (Registry, Traffic),
        client: Client,
        liveness: Liveness,
        clock: Clock,
        reader: fn(Client) -> Reader,
    ) -> Self {
        let reader = reader(client.clone());
        let stats: Arc<WriteStats> = Arc::default();
        Self { client, liveness, clock, reader, registry, traffic, stats, members: Vec::new() }
    }

    /// One more who is scraped and probed.
    pub fn add(&mut self, member: Arc<dyn Member>) {
        self.members.push(member);
    }

    /// Answers scrapes and probes at these places, until told to stop.
    pub fn serve(self, places: Vec<Admin>, stop: &Stop, tasks: &mut Tasks) {
        let (registry, members) = (Arc::new(self.registry), Arc::new(self.members));
        let scraped = Arc::clone(&members);
        let exposition = Arc::new(move || {
            for member in scraped.iter() {
                member.refresh();
            }
            registry.scrape()
        });
        let probes = Arc::new(Everybody(members));
        let runtime = self.liveness.runtime();
        for place in places {
            let serve = place.serve(exposition.clone(), probes.clone(), stop.stopped());
            tasks.spawn_on(serve, runtime);
        }
    }
}

/// All roles of a process: it lives and is ready when each of them does and is.
struct Everybody(Arc<Vec<Arc<dyn Member>>>);

impl Probes for Everybody {
    fn alive(&self) -> Result<(), Stalled> {
        self.0.iter().try_for_each(|member| member.alive())
    }

    fn ready(&self) -> Result<(), Vec<String>> {
        let missing: Vec<String> =
            self.0.iter().filter_map(|member| member.ready().err()).flatten().collect();
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
