//! A survey from series alone: of kube-state-metrics, or if there are none, of the usage of containers.
//!
//! The workloads are those of the API server, but for what only objects tell:
//!
//! - labels, annotations, the API version and the creation time of objects; settings of runtimes in arguments and variables;
//! - VerticalPodAutoscalers, the place of a metric in an autoscaler, and metrics of single containers;
//! - workloads without pods, but for CronJobs with runs within a day; the template of a Rollout with a `workloadRef`;
//! - owners above Deployments, StatefulSets, DaemonSets and custom resources;
//! - the desired replicas of custom resources, which are the pods that exist;
//! - whether a container or an amount is from the pod template or was changed when the pod was admitted or resized, and the
//!   order of containers;
//! - WatermarkPodAutoscalers, and the owners of custom resources, by which pods may be grouped;
//! - the labels of nodes that kube-state-metrics is not configured to expose, and the exact names of others: known ones are
//!   restored, of others `label_` is removed;
//! - with a label selector: the labels of workloads. Those of pods count, as far as kube-state-metrics exposes them.
//!
//! Without kube-state-metrics the names of pods decide, and requests, replicas and nodes are unknown.

mod cluster_reader;
mod node_rows;
mod queries;
mod rows;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use plimsoll_core::{
    rightsizing::{
        owner_groups::KnownJobs,
        survey::{Survey, Unread},
    },
    types::Time,
};
use plimsoll_storage::prometheus::{
    client::PrometheusClient,
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::{CPU_METRIC, Schema},
    selector::{LabelMatcher, LabelMatchers, MatchOperator},
};

use self::cluster_reader::SeriesReader;
use super::scope::{InvalidSelector, SurveyScope};

/// Maximum number of values or namespaces that a message names.
const MAX_NAMED: usize = 10;

/// Why a survey from series is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SeriesSurveyError {
    /// The server has series of several clusters, and none was chosen.
    #[error(
        "the server has series of several clusters, {label} is {}: pass --cluster-label {label} for all of them, or \
         --prometheus-matcher '{label}=\"{}\"' for one",
        named(.values), .values.first().map_or("", String::as_str)
    )]
    SeveralClusters { label: String, values: Vec<String> },
    /// The given cluster label does not exist.
    #[error("no series has the label {label}: check --cluster-label")]
    NoClusterLabel { label: String },
    /// The label selector of the scope is invalid.
    #[error(transparent)]
    InvalidSelector(#[from] InvalidSelector),
    /// The first query of the survey failed.
    #[error("failed to read workloads from Prometheus: {0}")]
    Query(#[from] QueryError),
}

/// Reads the workloads of one cluster, or of all clusters that a label distinguishes, from the series at a time. See the
/// module for how the result differs from that of the API server. What cannot be read later is in the survey.
pub async fn survey_series(
    client: &PrometheusClient,
    schema: &Schema,
    scope: &SurveyScope,
    cluster_label: Option<&str>,
    at: Time,
) -> Result<Survey, SeriesSurveyError> {
    scope.selector()?;
    let Some(label) = cluster_label else {
        if let Some(several) = schema.cluster_labels.iter().find(|label| label.values.len() > 1) {
            let (label, values) = (several.label.clone(), several.values.iter().cloned().collect());
            return Err(SeriesSurveyError::SeveralClusters { label, values });
        }
        let matchers = schema.matchers.clone();
        return SeriesReader { client, schema, scope, matchers, at }.survey().await;
    };
    let mut survey = Survey::default();
    for cluster in clusters(client, schema, label, at).await? {
        let matcher = LabelMatcher::new(label, MatchOperator::Equals, &*cluster);
        let matchers = schema.matchers.with(matcher);
        let of_cluster = SeriesReader { client, schema, scope, matchers, at }.survey().await;
        match of_cluster {
            Ok(of_cluster) => survey.merge(of_cluster.in_cluster(&cluster)),
            Err(error) => {
                let what = format!("workloads of cluster {cluster}");
                survey.unread.push(Unread { what, why: error.to_string() });
            }
        }
    }
    Ok(survey)
}

/// Reads the Jobs that series show with one of the labels that Jobs are grouped by, those that are gone included. Without
/// any, the error says so in one line.
pub async fn read_known_jobs(
    client: &PrometheusClient,
    schema: &Schema,
    scope: &SurveyScope,
    at: Time,
) -> Result<KnownJobs, String> {
    let labels = &scope.groups.job_labels;
    let none = || no_labelled_jobs(labels, REST);
    let states = schema.kube_state_metrics.as_ref().ok_or_else(none)?;
    let matchers = schema.matchers.clone();
    let known = SeriesReader { client, schema, scope, matchers, at }.known_jobs(states).await;
    let known = known.map_err(|error| {
        format!("--group-jobs-by: could not read kube_job_labels, so {REST}: {error}")
    })?;
    if known.jobs.is_empty() { Err(none()) } else { Ok(known) }
}

/// What follows if the labels of Jobs that are gone are unknown.
const REST: &str = "only Jobs that still exist are grouped";

/// That series do not show the labels that Jobs are grouped by.
fn no_labelled_jobs(labels: &[String], so: &str) -> String {
    let labels = labels.join(",");
    format!(
        "--group-jobs-by={labels}: kube_job_labels has no such label, so {so}: run kube-state-metrics with \
         --metric-labels-allowlist=jobs=[{labels}]"
    )
}

/// The values of a cluster label.
async fn clusters(
    client: &PrometheusClient,
    schema: &Schema,
    label: &str,
    at: Time,
) -> Result<BTreeSet<String>, SeriesSurveyError> {
    let known = schema.cluster_labels.iter().find(|known| known.label == label);
    let mut values = if let Some(known) = known {
        known.values.clone()
    } else {
        let has_owners = schema.kube_state_metrics.is_some();
        let family = if has_owners { "kube_pod_owner" } else { CPU_METRIC };
        let query = user_query(family, &schema.matchers)?.aggregate(Aggregation::Group, &[label]);
        let series = client.vector(&query, at).await?;
        series.iter().map(|series| series.get(label).to_owned()).collect()
    };
    // Series without the label belong to no cluster.
    values.remove("");
    if values.is_empty() {
        return Err(SeriesSurveyError::NoClusterLabel { label: label.to_owned() });
    }
    Ok(values)
}

/// The first of these names, and the number of others.
fn named(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(MAX_NAMED).map(String::as_str).collect();
    match names.len().saturating_sub(MAX_NAMED) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The name that kube-state-metrics gives to a label of an object.
fn series_label(key: &str) -> String {
    let sanitized = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    format!("label_{}", key.chars().map(sanitized).collect::<String>())
}

/// A query of ours with these matchers in each selector.
fn user_query(text: &str, matchers: &LabelMatchers) -> Result<Query, QueryError> {
    Query::from_user(text, matchers).map_err(|invalid| QueryError::BadQuery(invalid.to_string()))
}
