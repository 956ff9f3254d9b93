//! `plimsoll doctor --cluster`: reads a cluster and its Prometheus, and checks them.
//!
//! ```text
//!   survey: workloads ──▶ lists, API server, roles, Prometheus: together ──▶ targets, live pod ──▶ diagnose ──▶ report
//! ```

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    diagnosis::{
        ClusterFacts, diagnose,
        facts::{LeaseFacts, Reading, SeriesFacts},
    },
    types::Time,
};
use plimsoll_storage::prometheus::{
    selector::LabelMatchers,
    transport::{HttpTransport, Transport, TransportConfig, WallClock},
};
use tokio::time::timeout;

use super::status;
use crate::{
    cluster::{
        clock::Clock,
        diagnosis::{
            ListReader, api_server, live_pod, metrics, objects, roles, series, targets, webhooks,
        },
        prometheus_discovery::{DiscoveryOptions, Via, discover},
        survey::{SurveyScope, survey_cluster},
    },
    controllers::runtime::command_client::{
        Cluster, ClusterConnection, ClusterOptions, NoCluster, load_connection,
    },
    report::{doctor::cluster_report::ClusterReport, status::build_report},
};

/// The time limit of finding a Prometheus and querying it.
const SERIES_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct ClusterCheckConfig {
    pub cluster_options: ClusterOptions,
    /// `None` for all namespaces.
    pub namespace: Option<String>,
    pub connection: TransportConfig,
    /// Whether the address in `connection` was given. Otherwise the server is looked for.
    pub has_address: bool,
    pub matchers: LabelMatchers,
    /// Whether to send a copy of a pod through the webhook.
    pub is_live: bool,
    pub deadline: Duration,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ClusterCheckError {
    #[error(transparent)]
    NoCluster(#[from] NoCluster),
    #[error("{address}: {why}")]
    Unreachable { address: String, why: String },
    #[error(
        "{address}: the checks did not end within {deadline:?}: see --deadline and --namespace"
    )]
    Deadline { address: String, deadline: Duration },
}

pub async fn examine_cluster(
    config: &ClusterCheckConfig,
    clock: &Clock,
) -> Result<ClusterReport, ClusterCheckError> {
    let connection = load_connection(&config.cluster_options, "plimsoll-doctor").await?;
    let cluster = connection.cluster()?;
    let read = Box::pin(read_facts(config, &connection, &cluster, clock));
    let address = cluster.address.clone();
    let facts = timeout(config.deadline, read)
        .await
        .map_err(|_| ClusterCheckError::Deadline { address, deadline: config.deadline })??;
    let findings = diagnose(&facts);
    Ok(ClusterReport::new(&facts, cluster.address, findings))
}

async fn read_facts(
    config: &ClusterCheckConfig,
    connection: &ClusterConnection,
    cluster: &Cluster,
    clock: &Clock,
) -> Result<ClusterFacts, ClusterCheckError> {
    let (client, now) = (&cluster.client, clock.now());
    let namespace = config.namespace.as_deref();
    let reader = ListReader::new(client, namespace);
    let api_version = api_server::api_version(&reader).await;
    if let Err(why) = &api_version
        && !why.contains("HTTP ")
    {
        let (address, why) = (cluster.address.clone(), why.clone());
        return Err(ClusterCheckError::Unreachable { address, why });
    }
    let scope = SurveyScope {
        namespaces: config.namespace.clone().into_iter().collect(),
        ..Default::default()
    };
    // Before the other lists, so that no more requests are sent at once than either of them sends.
    let survey = Box::pin(survey_cluster(client, &scope, None)).await;
    let autoscalers = async {
        tokio::join!(objects::vpas(&reader), objects::hpas(&reader), objects::wpas(&reader))
    };
    let limits = async {
        tokio::join!(
            objects::limit_ranges(&reader),
            objects::quotas(&reader),
            objects::budgets(&reader),
            objects::nodes(&reader),
        )
    };
    let server = async {
        tokio::join!(
            api_server::api_time(&reader, clock, now),
            api_server::served_crds(&reader),
            api_server::resize_served(&reader),
            webhooks::webhooks(&reader),
            metrics::metrics_api(&reader, now),
        )
    };
    let of_roles = async {
        let (updaters, accounts) = roles::role_pods(&reader).await;
        (updaters, roles::rights(client, accounts).await)
    };
    let (autoscalers, limits, server, of_roles, leases, series) = tokio::join!(
        Box::pin(autoscalers),
        Box::pin(limits),
        Box::pin(server),
        Box::pin(of_roles),
        Box::pin(leases(cluster, namespace, now)),
        Box::pin(read_series(config, connection, clock)),
    );
    let (mut vpas, hpas, wpas) = autoscalers;
    let (limit_ranges, quotas, budgets, nodes) = limits;
    let (api_time, crds, resize_served, webhooks, metrics_api) = server;
    let (updaters, rights) = of_roles;
    if let Ok(vpas) = &mut vpas {
        Box::pin(targets::find_targets(&reader, vpas, &survey)).await;
    }
    let live_pod = if config.is_live {
        Some(Box::pin(live_pod::live_pod(&reader, &vpas, &survey)).await)
    } else {
        None
    };
    Ok(ClusterFacts {
        now,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        api_version,
        api_time,
        crds,
        resize_served,
        nodes,
        series,
        metrics_api,
        vpas,
        hpas,
        wpas,
        survey,
        limit_ranges,
        quotas,
        budgets,
        webhooks,
        live_pod,
        leases,
        updaters,
        rights,
    })
}

/// The Leases of the roles, as `plimsoll status` finds them.
async fn leases(cluster: &Cluster, namespace: Option<&str>, now: Time) -> Reading<Vec<LeaseFacts>> {
    let facts = status::collect(cluster, namespace).await;
    if let (true, Some(why)) = (facts.leases.is_empty(), facts.unread.first()) {
        return Err(why.clone());
    }
    let roles = build_report(&facts, env!("CARGO_PKG_VERSION"), now).roles;
    let leases = roles.into_iter().map(|role| {
        let own = facts.leases.iter().find(|one| {
            role.lease.split_once('/') == Some((one.namespace.as_str(), one.name.as_str()))
        });
        LeaseFacts {
            holder: role.leader.unwrap_or_default(),
            renewed: own.and_then(|one| one.renewed),
            seconds: own.map_or(15, |one| one.seconds),
            lease: role.lease,
            role: role.role,
            version: role.version,
        }
    });
    Ok(leases.collect())
}

async fn read_series(
    config: &ClusterCheckConfig,
    connection: &ClusterConnection,
    clock: &Clock,
) -> Reading<SeriesFacts> {
    let read = async {
        let (transport, name) = if config.has_address {
            let time = clock.clone();
            let wall = WallClock::new(move || time.now());
            let transport = HttpTransport::new(config.connection.clone(), wall);
            let transport = transport.map_err(|why| why.to_string())?;
            let name = transport.address().to_owned();
            (Arc::new(transport) as Arc<dyn Transport>, name)
        } else {
            let client = connection.query_client().map_err(|why| why.to_string())?;
            let options = DiscoveryOptions {
                service: None,
                via: Via::Auto,
                is_in_cluster: connection.is_in_cluster,
                connection: config.connection.clone(),
                matchers: config.matchers.clone(),
                clock: clock.clone(),
            };
            let found = discover(&client, &options).await.map_err(|why| why.to_string())?;
            (found.transport, found.address.to_string())
        };
        Ok::<_, String>(
            Box::pin(series::series(transport, name, &config.matchers, clock.now())).await,
        )
    };
    let limit = || Err(format!("no response of a Prometheus within {SERIES_TIMEOUT:?}"));
    timeout(SERIES_TIMEOUT, Box::pin(read)).await.unwrap_or_else(|_| limit())
}
