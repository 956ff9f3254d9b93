//! Asks one server what it is and how many containers it knows, now and seven days ago.

use std::{sync::Arc, time::Duration};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::{PrometheusClient, QueryLimits},
    promql::{Aggregation, Query},
    query_error::QueryError,
    schema::CPU_METRIC,
    selector::{LabelMatchers, Selector},
    server_flavor::{BuildInfo, detect_flavor},
    transport::Transport,
};

use super::ranking::ServerAnswer;

const TIMEOUT: Duration = Duration::from_secs(3);
/// How far back series are counted.
const WEEK: Duration = Duration::from_hours(7 * 24);

/// The limits of requests to a server that may be anything.
const LIMITS: QueryLimits = QueryLimits {
    max_in_flight: 2,
    timeout: TIMEOUT,
    max_steps: 1,
    max_response_bytes: Some(1 << 20),
    max_response_points: Some(1_000),
    max_attempts: 1,
    initial_backoff: Duration::ZERO,
    max_backoff: Duration::ZERO,
};

/// Asks a server. The error says why it cannot be used.
pub(super) async fn probe(
    transport: Arc<dyn Transport>,
    matchers: &LabelMatchers,
    now: Time,
) -> Result<ServerAnswer, String> {
    let client = PrometheusClient::new(transport, LIMITS);
    let build: Result<BuildInfo, QueryError> =
        client.get_data("/api/v1/status/buildinfo", &[]).await;
    if let Err(error) = &build {
        // Some servers do not have this path, but can be queried.
        let may_have_no_path =
            matches!(error, QueryError::NotPrometheus(_) | QueryError::BadQuery(_));
        if !may_have_no_path {
            return Err(reason(error));
        }
    }
    let usage = Selector::metric(CPU_METRIC).not_equals("container", "").with_all(matchers);
    let containers = Query::from(usage).aggregate(Aggregation::Count, &[]);
    let (containers_now, containers_week_ago) =
        tokio::join!(client.count(&containers, now), client.count(&containers, now.earlier(WEEK)));
    let containers_now = match (&containers_now, &build) {
        (Ok(count), _) => Ok(*count),
        // A large server may be slow.
        (Err(error), Ok(_)) if is_overload(error) => Err(reason(error)),
        // If both fail, the first error is the one without the query.
        (Err(_), Err(error)) | (Err(error), Ok(_)) => return Err(reason(error)),
    };
    let (flavor, version) = detect_flavor("", build.as_ref().ok(), None);
    let containers_week_ago = containers_week_ago.map_err(|error| reason(&error));
    Ok(ServerAnswer { flavor, version, containers_now, containers_week_ago })
}

fn is_overload(error: &QueryError) -> bool {
    matches!(error, QueryError::Timeout(_) | QueryError::TooLarge(_) | QueryError::Busy { .. })
}

/// The text of an error without the remark that the query is retried, because it is not.
fn reason(error: &QueryError) -> String {
    match error {
        QueryError::Unavailable(why) => why.clone(),
        QueryError::Busy { why, .. } => format!("the server is too busy: {why}"),
        other => other.to_string(),
    }
}
