//! Metrics of `external.metrics.k8s.io`: all series of one that a selector lets through, added up.

use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use plimsoll_core::types::Time;
use serde::Deserialize;
use serde_json::Value;

use super::{
    super::list_stream::{Deadline, read_items},
    MetricsApi,
};
use plimsoll_core::scaling::{MetricError, MetricValue, Milli};

const API: MetricsApi = MetricsApi { name: "external", group: "external.metrics.k8s.io" };

/// Asks for the sum of the series of a metric. The selector is text as [`Selector`] writes it, empty for all of them.
/// One series that cannot be read leaves the whole sum unknown: what is left of it would be too little.
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
    let read = read_items(client, &path, Deadline::after(timeout), |item| {
        match serde_json::from_slice::<Item>(item) {
            Ok(item) => total.add(&item, metric),
            // An item that is not even JSON is the end of the answer.
            Err(why) if !why.is_data() => return Err(why),
            Err(why) => total.fail(API.request_failed(format!("a value of {metric}: {why}"))),
        }
        Ok(())
    });
    read.await.map_err(|failure| API.unavailable(&failure))?;
    total.into_value()
}

#[derive(Deserialize)]
struct Item {
    #[serde(default)]
    timestamp: Option<Timestamp>,
    #[serde(default)]
    value: Option<Value>,
}

/// What came so far.
#[derive(Default)]
struct Total {
    series: u64,
    sum: Milli,
    /// The first series tells it for all.
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
            Err(flaw) => self.fail(flaw),
        }
    }

    fn fail(&mut self, flaw: MetricError) {
        self.error.get_or_insert(flaw);
    }

    fn into_value(self) -> Result<MetricValue, MetricError> {
        match self {
            Self { error: Some(flaw), .. } => Err(flaw),
            Self { series: 0, .. } => Err(API.no_values()),
            Self { sum, at, .. } => Ok(MetricValue::Sum { sum, at }),
        }
    }
}
