//! The server with the history: at an address, or found in a cluster.

use std::{fmt, sync::Arc};

use plimsoll_core::{recommender::HistoryWeighting, types::Time};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits},
    history::PrometheusHistory,
    server_flavor::{BuildInfo, detect_flavor},
    transport::{HttpTransport, Transport, WallClock},
};

use super::{query_tally::QueryTally, run::RecommendError};
use crate::{
    cluster::{
        clock::Clock,
        prometheus_discovery::{DiscoveryOptions, Via, discover},
        service_proxy::address::ServiceAddress,
    },
    controllers::runtime::{command_client::ClusterConnection, prometheus::PrometheusConfig},
};

/// The path of the build information.
const BUILD_INFO: &str = "/api/v1/status/buildinfo";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerChoice {
    /// That at the address of the connection.
    Address,
    /// One in the cluster: this Service, or one that is found.
    InCluster {
        service: Option<ServiceAddress>,
        /// How it is reached.
        via: Via,
    },
}

/// A server that can be queried.
#[derive(Clone)]
pub struct ConnectedServer {
    transport: Arc<dyn Transport>,
    /// Its Service or address.
    pub name: String,
    /// What it is, such as `Prometheus 3.15.0`.
    pub product: Option<String>,
    /// Whether it is reached through the API server.
    pub is_proxied: bool,
}

impl fmt::Debug for ConnectedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedServer").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ConnectedServer {
    /// Uses this transport.
    pub fn new(transport: Arc<dyn Transport>, name: impl Into<String>) -> Self {
        Self { transport, name: name.into(), product: None, is_proxied: false }
    }

    /// Connects to the server at an address. One query finds out what it is.
    pub async fn at_address(
        config: &PrometheusConfig,
        clock: &Clock,
    ) -> Result<Self, RecommendError> {
        let failed = |error: &dyn fmt::Display| RecommendError::Server(error.to_string());
        let clock = clock.clone();
        let wall = WallClock::new(move || clock.now());
        let transport = HttpTransport::new(config.transport.clone(), wall);
        let transport = transport.map_err(|error| failed(&error))?;
        let name = transport.address().to_owned();
        let transport: Arc<dyn Transport> = Arc::new(transport);
        let limits = QueryLimits { max_attempts: 1, ..QueryLimits::default() };
        let client = PrometheusClient::new(Arc::clone(&transport), limits);
        // Some servers do not have it, or deny access to it.
        let build = client.get_data::<BuildInfo>(BUILD_INFO, &[]).await.ok();
        let product = build.map(|build| {
            let (flavor, version) = detect_flavor(&name, Some(&build), None);
            product(flavor.name(), version.as_deref())
        });
        Ok(Self { transport, name, product, is_proxied: false })
    }

    /// Finds the server of a cluster.
    pub async fn of_cluster(
        connection: &ClusterConnection,
        (service, via): (Option<&ServiceAddress>, Via),
        config: &PrometheusConfig,
        clock: &Clock,
    ) -> Result<Self, RecommendError> {
        let client = connection.query_client().map_err(RecommendError::NoCluster)?;
        let options = DiscoveryOptions {
            service: service.cloned(),
            via,
            is_in_cluster: connection.is_in_cluster,
            connection: config.transport.clone(),
            matchers: config.series_options.matchers.clone(),
            clock: clock.clone(),
        };
        let found = discover(&client, &options).await;
        let found = found.map_err(|error| RecommendError::Server(error.to_string()))?;
        for candidate in &found.candidates {
            tracing::debug!(%candidate, "probed");
        }
        Ok(Self {
            name: found.address.to_string(),
            product: Some(product(found.flavor.name(), found.version.as_deref())),
            is_proxied: found.is_proxied,
            transport: found.transport,
        })
    }

    /// A client for single queries.
    pub fn client(&self, limits: QueryLimits) -> PrometheusClient {
        PrometheusClient::new(Arc::clone(&self.transport), limits)
    }

    /// The history of the server at a time.
    pub fn history(
        &self,
        config: &PrometheusConfig,
        weighting: HistoryWeighting,
        at: Time,
        tally: Arc<QueryTally>,
    ) -> PrometheusHistory {
        let transport = Arc::clone(&self.transport);
        config.history_over(
            transport,
            self.name.clone(),
            weighting,
            WallClock::new(move || at),
            tally,
        )
    }
}

fn product(name: &str, version: Option<&str>) -> String {
    version.map_or_else(|| name.to_owned(), |version| format!("{name} {version}"))
}
