//! Metrics of `external.metrics.k8s.io`: the sum of all series of a metric that match a selector.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use plimsoll_core::types::Time;
use serde::Deserialize;
use serde_json::Value;

use super::MetricsApi;
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
    let mut total = Total::default();
    let request = read_items(client, &path, Deadline::after(timeout), |item| {
        match serde_json::from_slice::<Item>(item) {
            Ok(item) => total.add(&item, metric),
            // An item that is not valid JSON ends the response.
            Err(why) if !why.is_data() => return Err(why),
            Err(why) => total.fail(API.request_failed(format!("a value of {metric}: {why}"))),
        }
        Ok(())
    });
    request.await.map_err(|failure| API.unavailable(&failure))?;
    total.into_value()
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    timestamp: Option<Timestamp>,
    #[serde(default)]
    value: Option<Value>,
}

/// The sum of the items so far.
#[derive(Default)]
struct Total {
    series: u64,
    sum: Milli,
    /// The timestamp of the first series, which is used for the sum.
    at: Option<Time>,
    error: Option<MetricError>,
}

impl Total {
    fn add(&mut self, item: &Item, metric: &str) {
        if self.series == 0 {
            self.at = item.timestamp.map(Time::from);
        }
        self.series += 1;
        match API.parse_milli(item.value.as_ref(), metric) {
            Ok(value) => self.sum = self.sum.saturating_add(value),
            Err(error) => self.fail(error),
        }
    }

    fn fail(&mut self, error: MetricError) {
        self.error.get_or_insert(error);
    }

    fn into_value(self) -> Result<MetricValue, MetricError> {
        match self {
            Self { error: Some(error), .. } => Err(error),
            Self { series: 0, .. } => Err(API.no_values()),
            Self { sum, at, .. } => Ok(MetricValue::Sum { sum, at }),
        }
    }
}
