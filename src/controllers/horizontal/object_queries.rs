//! The values of queries in annotations, each the sum of the result of a PromQL query.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use plimsoll_core::{
    hpa::{Answer, Fetched},
    scaling::{Alert, MetricError, MetricValue},
    types::{
        Time,
        quantity::{Format, Quantity},
    },
};
use plimsoll_storage::prometheus::client::QueryObserver;

use super::config::HorizontalConfig;
use crate::cluster::{
    clock::Clock,
    metric_sources::{firing_alerts::alert_state, query_client::QueryClient},
};

/// Queries the Prometheus of `--prometheus-address`.
#[derive(Debug)]
pub struct ObjectQueries {
    client: QueryClient,
    max_age: Option<Duration>,
}

impl ObjectQueries {
    /// A client that shares results for a period. Without an address each answer is an error.
    pub fn new(
        config: &HorizontalConfig,
        clock: &Clock,
        observer: Arc<dyn QueryObserver>,
    ) -> Result<Self> {
        let max_age = config.max_metric_age;
        let promql = config.queries.open(config.settings.period, max_age, clock, observer)?;
        Ok(Self { client: QueryClient::new(promql, config.settings.workers), max_age })
    }

    /// The state of the alert that a query of an object in this namespace asks for.
    pub async fn alert(
        &self,
        namespace: &str,
        query: &str,
        now: Time,
        used_until: Option<Time>,
    ) -> Alert {
        alert_state(self.client.fetch(namespace, query, now, used_until).await)
    }

    /// The value of a query of an object in this namespace, which has used all results up to `used_until`.
    pub async fn answer(
        &self,
        namespace: &str,
        query: &str,
        now: Time,
        used_until: Option<Time>,
    ) -> Fetched {
        let value = self.client.fetch(namespace, query, now, used_until).await;
        answer(value, self.max_age.map(|age| now.earlier(age)))
    }
}

/// The value as that of an external metric. It is an error if it was sampled before `oldest_sample`.
fn answer(value: Result<MetricValue, MetricError>, oldest_sample: Option<Time>) -> Fetched {
    let values = match value {
        Ok(MetricValue::Sum { sum, at }) => {
            if let Some(at) = at.filter(|at| oldest_sample.is_some_and(|oldest| *at < oldest)) {
                return Err(MetricError::Stale { at }.to_string());
            }
            vec![Quantity::from_milli(sum, Format::DecimalSi)]
        }
        // The decision has its own words for a result without series.
        Err(MetricError::Empty(_)) => Vec::new(),
        Ok(MetricValue::Usage { .. } | MetricValue::Recommendation(_)) => {
            return Err("unexpected response type from Prometheus".to_owned());
        }
        Err(why) => return Err(why.to_string()),
    };
    Ok(Answer::External(values))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time::from_secs(1_800_000_000);

    #[test]
    fn a_value_is_that_of_an_external_metric_and_never_zero_without_one() {
        let sum = |sum, age| {
            let at = NOW.earlier(Duration::from_secs(age));
            Ok(MetricValue::Sum { sum, at: Some(at) })
        };
        let oldest = Some(NOW.earlier(Duration::from_mins(1)));
        let external = |milli: &[i64]| {
            let values = milli.iter().map(|milli| Quantity::from_milli(*milli, Format::DecimalSi));
            Ok(Answer::External(values.collect()))
        };
        for (value, oldest, expected) in [
            (sum(1500, 0), None, external(&[1500])),
            (sum(1500, 3600), None, external(&[1500])),
            (sum(1500, 60), oldest, external(&[1500])),
            (sum(0, 0), oldest, external(&[0])),
            // The decision refuses it.
            (sum(-1, 0), oldest, external(&[-1])),
            (sum(i64::MAX, 0), oldest, external(&[i64::MAX])),
            (Ok(MetricValue::Sum { sum: 7, at: None }), oldest, external(&[7])),
            (Err(MetricError::Empty("Prometheus")), oldest, external(&[])),
            (
                sum(1500, 61),
                oldest,
                Err("metric is stale: sampled at 2027-01-15T07:58:59Z".to_owned()),
            ),
            (Err(MetricError::NotANumber), None, Err("the value is not a number".to_owned())),
            (Err(MetricError::Failed("away".to_owned())), None, Err("away".to_owned())),
        ] {
            assert_eq!(answer(value, oldest), expected);
        }
    }
}
