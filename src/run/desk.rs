//! What the roles of a process have in common: how they reach the cluster, and what they tell Prometheus.

use std::sync::Arc;

use kube::Client;

use super::{
    calls::counted,
    config::Address,
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
    pub fn alone(client: Client, clock: Clock) -> Self {
        Self::new(client, clock, Reader::alone)
    }

    /// For several.
    pub fn together(client: Client, clock: Clock) -> Self {
        Self::new(client, clock, Reader::together)
    }

    fn new(client: Client, clock: Clock, reader: fn(Client) -> Reader) -> Self {
        let mut registry = Registry::new();
        let traffic = Traffic::new(&mut registry);
        let client = counted(client, ApiCalls::new(&mut registry));
        let reader = reader(client.clone());
        let stats: Arc<WriteStats> = Arc::default();
        Self { client, clock, reader, registry, traffic, stats, members: Vec::new() }
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
        for place in places {
            tasks.spawn(place.serve(exposition.clone(), probes.clone(), stop.stopped()));
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

/// Binds what a role is to be scraped and probed at.
pub(super) async fn bind(address: &Address) -> anyhow::Result<Admin> {
    Ok(Admin::bind(&address.to_string()).await?)
}
