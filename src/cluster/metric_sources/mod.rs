//! Sources of the values that replicas follow: the metrics APIs of the cluster, recommenders, and Prometheus. A value that
//! is not available is an error with a reason, and never zero.

mod circuit_breaker;
pub(crate) mod custom_metrics;
pub mod external_metrics;
pub mod external_recommender;
pub(crate) mod firing_alerts;
mod http_clients;
pub(crate) mod metrics_api_client;
pub(crate) mod metrics_client;
pub(crate) mod pod_samples;
pub mod promql;
pub(crate) mod query_client;
pub(crate) mod request_permits;
pub mod resource_metrics;
pub mod series_usage;

use kube::Client;
use serde::Deserialize as _;
use serde_json::Value;

use crate::cluster::list_stream::{Deadline, UsageError, encode_query, read_items};
use plimsoll_core::{
    scaling::{MetricError, Milli},
    types::quantity::Quantity,
};

/// A metrics API of the cluster: its name in upstream's messages, and its group.
#[derive(Clone, Copy, Debug)]
struct MetricsApi {
    name: &'static str,
    group: &'static str,
}

impl MetricsApi {
    fn path(self, namespace: &str, resource: &str, selector: &str) -> String {
        let group = self.group;
        let path = format!(
            "/apis/{group}/v1beta1/namespaces/{}/{}",
            encode_query(namespace),
            encode_query(resource)
        );
        if selector.is_empty() {
            return path;
        }
        format!("{path}?labelSelector={}", encode_query(selector))
    }

    fn no_values(self) -> MetricError {
        MetricError::Empty(self.name)
    }

    fn request_failed(self, why: impl std::fmt::Display) -> MetricError {
        MetricError::Failed(format!(
            "unable to fetch metrics from {} metrics API: {why}",
            self.name
        ))
    }

    /// No response. A missing API server and an unknown metric are indistinguishable here.
    fn unavailable(self, failure: &UsageError) -> MetricError {
        match failure {
            UsageError::NotServed { code, message, .. } => self.request_failed(format!(
                "HTTP {code}: {message}: is a metrics adapter for {} installed, and does it expose this metric?",
                self.group
            )),
            other => self.request_failed(other),
        }
    }

    /// Parses an amount in thousandths, rounded away from zero. Missing or non-numeric amounts are errors.
    fn parse_milli(
        self,
        value: Option<&Value>,
        subject: impl std::fmt::Display,
    ) -> Result<Milli, MetricError> {
        let Some(value) = value.filter(|value| !value.is_null()) else {
            return Err(self.request_failed(format!("the value of {subject} is missing")));
        };
        if value.as_str().is_some_and(is_not_a_number) {
            return Err(MetricError::NotANumber);
        }
        let amount = Quantity::deserialize(value);
        amount
            .map(Quantity::milli_value)
            .map_err(|why| self.request_failed(format!("the value of {subject}: {why}")))
    }
}

/// The parsed items of a list, or why the first malformed one is: that is an error of the whole response.
async fn read_values<T: Send>(
    client: &Client,
    path: &str,
    deadline: Deadline,
    mut parse: impl FnMut(&[u8]) -> Result<T, String> + Send,
) -> Result<Result<Vec<T>, String>, UsageError> {
    let (mut values, mut malformed) = (Vec::new(), None);
    let request = read_items(client, path, deadline, |item| {
        match parse(item) {
            Ok(value) => values.push(value),
            Err(why) => drop(malformed.get_or_insert(why)),
        }
        Ok(())
    });
    request.await?;
    Ok(malformed.map_or(Ok(values), Err))
}

/// Why a metrics API did not respond: the message of the API server, as upstream's clients report it.
fn api_cause(failure: &UsageError) -> String {
    match failure {
        UsageError::NotServed { message, .. } | UsageError::Rejected { message, .. } => {
            message.clone()
        }
        other => other.to_string(),
    }
}

/// Whether the text is a float that is not a number: `NaN`, `+Inf`, `-infinity`.
fn is_not_a_number(text: &str) -> bool {
    let word = text.trim().trim_start_matches(['+', '-']);
    ["nan", "inf", "infinity"].iter().any(|special| word.eq_ignore_ascii_case(special))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const API: MetricsApi = MetricsApi { name: "external", group: "external.metrics.k8s.io" };

    #[test]
    fn amounts_are_rounded_away_from_zero_and_invalid_ones_are_errors() {
        for (value, milli) in [
            (json!("1500m"), 1500),
            (json!("0.0001"), 1),
            (json!("-0.0001"), -1),
            (json!(2), 2000),
            (json!("0"), 0),
            (json!("9e30"), i64::MAX),
        ] {
            assert_eq!(API.parse_milli(Some(&value), "it"), Ok(milli), "{value}");
        }
        for text in ["NaN", "+Inf", "-Inf", "Infinity"] {
            assert_eq!(
                API.parse_milli(Some(&json!(text)), "it"),
                Err(MetricError::NotANumber),
                "{text}"
            );
        }
        for (value, why) in [
            (None, "the value of it is missing"),
            (Some(json!(null)), "the value of it is missing"),
            (Some(json!("many")), "the value of it: \"many\" is not a quantity: "),
            (Some(json!([])), "the value of it: invalid type: sequence"),
        ] {
            let message = API.parse_milli(value.as_ref(), "it").expect_err("is none").to_string();
            let start = format!("unable to fetch metrics from external metrics API: {why}");
            assert!(message.starts_with(&start) && !message.contains('\n'), "{message}");
        }
    }
}
