//! What a Prometheus knows about kube-state-metrics and the nodes.

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    diagnosis::facts::{CgroupNodes, Reading, SeriesFacts},
    types::Time,
};
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits},
    promql::{Aggregation, Query},
    schema::CPU_METRIC,
    selector::{LabelMatchers, Pattern, Selector},
    transport::Transport,
};

const TIMEOUT: Duration = Duration::from_secs(10);
/// Metrics that reports and history need, and that no cluster is without.
const FAMILIES: [&str; 4] = [
    "kube_pod_owner",
    "kube_pod_labels",
    "kube_pod_container_resource_requests",
    "kube_pod_container_status_restarts_total",
];
const PRESSURE_METRIC: &str = "container_pressure_memory_waiting_seconds_total";
const CGROUP_METRIC: &str = "kubelet_cgroup_version";
/// Nodes differ in the label of the target that is scraped.
const INSTANCE: &str = "instance";

/// Sends four queries.
pub(crate) async fn series(
    transport: Arc<dyn Transport>,
    server: String,
    matchers: &LabelMatchers,
    now: Time,
) -> SeriesFacts {
    let limits = QueryLimits {
        timeout: TIMEOUT,
        max_attempts: 1,
        max_response_bytes: Some(4 << 20),
        max_response_points: Some(20_000),
        ..QueryLimits::default()
    };
    let client = PrometheusClient::new(transport, limits);
    let instances = |metric: &str| {
        let selector = Selector::metric(metric).with_all(matchers);
        Query::from(selector)
            .aggregate(Aggregation::Group, &[INSTANCE])
            .aggregate(Aggregation::Count, &[])
    };
    let (usage, pressure) = (instances(CPU_METRIC), instances(PRESSURE_METRIC));
    let (missing_families, nodes, psi_nodes, cgroup) = tokio::join!(
        missing_families(&client, matchers, now),
        client.count(&usage, now),
        client.count(&pressure, now),
        cgroup(&client, matchers, now),
    );
    SeriesFacts {
        server,
        missing_families,
        nodes: nodes.map_err(|why| why.to_string()),
        psi_nodes: psi_nodes.map_err(|why| why.to_string()),
        cgroup,
    }
}

async fn missing_families(
    client: &PrometheusClient,
    matchers: &LabelMatchers,
    now: Time,
) -> Reading<Option<Vec<String>>> {
    const NAME: &str = "__name__";
    let selector = Selector::any_metric().matches(NAME, Pattern::any_literal(FAMILIES));
    let query = Query::from(selector.with_all(matchers)).aggregate(Aggregation::Group, &[NAME]);
    let found = client.vector(&query, now).await.map_err(|why| why.to_string())?;
    if found.is_empty() {
        return Ok(None);
    }
    let is_missing = |name: &&str| found.iter().all(|series| series.get(NAME) != *name);
    Ok(Some(FAMILIES.into_iter().filter(is_missing).map(ToOwned::to_owned).collect()))
}

async fn cgroup(
    client: &PrometheusClient,
    matchers: &LabelMatchers,
    now: Time,
) -> Reading<CgroupNodes> {
    let selector = Selector::metric(CGROUP_METRIC).with_all(matchers);
    let query = Query::from(selector).aggregate(Aggregation::Max, &[INSTANCE]);
    let found = client.vector(&query, now).await.map_err(|why| why.to_string())?;
    let mut nodes = CgroupNodes::default();
    for version in found.iter().filter_map(|series| series.points.last()) {
        if version.1 >= 2.0 {
            nodes.v2 += 1;
        } else {
            nodes.v1 += 1;
        }
    }
    Ok(nodes)
}
