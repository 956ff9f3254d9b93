//! Metrics of `external.metrics.k8s.io`: the sum of all series of a metric that match a selector.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use plimsoll_core::types::{Time, quantity::Quantity};
use serde::Deserialize;
use serde_json::Value;

use super::{MetricsApi, api_cause, read_values};
use crate::cluster::list_stream::{Deadline, read_items};
use plimsoll_core::scaling::{MetricError, MetricValue, Milli};

const API: MetricsApi = MetricsApi { name: "external", group: "external.metrics.k8s.io" };

/// Fetches the sum of the series of a metric. The selector is text as [`Selector`] writes it, empty for all series.
/// A single malformed series makes the whole sum unknown: the rest would be too little.
///
/// [`Selector`]: crate::cluster::cache::selector::Selector
pub async fn fetch_external_metric(
    client: &Client,
    namespace: &str,
    metric: &str,
    selector: &str,
    timeout: Duration,
) -> Result<MetricValue, MetricError> {
    let path = API.path(namespace, metric, selector);
    let (mut series, mut sum, mut error) = (0_u64, Milli::default(), None);
    // The timestamp of the first series, which is used for the sum.
    let mut at: Option<Time> = None;
    let request = read_items(client, &path, Deadline::after(timeout), |item| {
        let value = match serde_json::from_slice::<Item>(item) {
            Ok(item) => {
                if series == 0 {
                    at = item.timestamp.map(Time::from);
                }
                series += 1;
                API.parse_milli(item.value.as_ref(), metric)
            }
            // An item that is not valid JSON ends the response.
            Err(why) if !why.is_data() => return Err(why),
            Err(why) => Err(API.request_failed(format!("a value of {metric}: {why}"))),
        };
        match value {
            Ok(value) => sum = sum.saturating_add(value),
            Err(why) => drop(error.get_or_insert(why)),
        }
        Ok(())
    });
    request.await.map_err(|failure| API.unavailable(&failure))?;
    match error {
        Some(error) => Err(error),
        None if series == 0 => Err(API.no_values()),
        None => Ok(MetricValue::Sum { sum, at }),
    }
}

/// Fetches the value of each series of a metric. A malformed item is an error of the whole response. The error is a one-line
/// message.
pub(super) async fn fetch_external_values(
    client: &Client,
    namespace: &str,
    metric: &str,
    selector: &str,
    timeout: Duration,
) -> Result<Vec<Quantity>, String> {
    #[derive(Deserialize)]
    struct Item {
        /// As a `Quantity`, null would be zero.
        value: Option<Quantity>,
    }
    let path = API.path(namespace, metric, selector);
    let values = read_values(client, &path, Deadline::after(timeout), |item| {
        let item: Item = serde_json::from_slice(item).map_err(|why| why.to_string())?;
        item.value.ok_or_else(|| "the value is missing".to_owned())
    });
    let values = values.await.map_err(|failure| api_cause(&failure))?;
    values.map_err(|why| format!("a value of {metric}: {why}"))
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    timestamp: Option<Timestamp>,
    #[serde(default)]
    value: Option<Value>,
}
