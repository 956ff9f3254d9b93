//! Queries without a range: instant queries, lists of series, and information about the server.

use std::{collections::BTreeMap, time::Duration};

use serde::de::DeserializeOwned;

use super::{PrometheusClient, request};
use crate::prometheus::{
    decode::{Interest, Labels, ResponseDecoder, ResponseSummary, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
    selector::Selector,
};
use plimsoll_core::types::Time;

pub(super) const SERIES_PATH: &str = "/api/v1/series";

/// Maximum number of collected series: more than a cluster has pods.
const MAX_SERIES: usize = 200_000;

/// The common envelope of Prometheus API responses.
#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct ApiResponse<T> {
    data: Option<T>,
    #[serde(default)]
    is_partial: bool,
}

impl PrometheusClient {
    /// Streams the result of an instant query. Retries while the server is busy or unavailable, up to the maximum number of
    /// attempts.
    pub async fn instant(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, QueryError> {
        let form = [("query", query.to_string()), ("time", request::time(at))];
        self.query_with_retries("/api/v1/query", &form, ResponseDecoder::new, visitor).await
    }

    /// The first series of the result of an instant query.
    pub async fn vector(
        &self,
        query: &Query,
        at: Time,
    ) -> Result<Vec<CollectedSeries>, QueryError> {
        let mut collector = SeriesCollector::default();
        self.instant(query, at, &mut collector).await?;
        Ok(collector.series)
    }

    /// The result of an instant query that counts something; 0 if it has no series.
    pub async fn count(&self, query: &Query, at: Time) -> Result<u64, QueryError> {
        let series = self.vector(query, at).await?;
        Ok(series.first().and_then(CollectedSeries::value).unwrap_or(0.0) as u64)
    }

    /// Streams the labels of the series that existed within a time range. The server reads them from its index and reads no
    /// samples. Jobs that run every minute create many series, so none is held in memory.
    pub async fn series(
        &self,
        selector: &Selector,
        (from, to): (Time, Time),
        visitor: &mut impl SeriesVisitor,
    ) -> Result<ResponseSummary, QueryError> {
        let form = [
            ("match[]", selector.to_string()),
            ("start", request::time(from)),
            ("end", request::time(to.later(Duration::from_secs(1)))),
        ];
        self.query_with_retries(SERIES_PATH, &form, ResponseDecoder::for_series_list, visitor).await
    }

    /// Fetches the `data` of a response other than a query result, from a path like `/api/v1/status/buildinfo`. It is held
    /// in memory, so use it for small responses.
    pub async fn get_data<T: DeserializeOwned>(
        &self,
        path: &str,
        form: &[(&str, String)],
    ) -> Result<T, QueryError> {
        let mut failures = 0;
        loop {
            let decode_error = |why: String| {
                QueryError::NotPrometheus(format!("failed to decode the response of {path}: {why}"))
            };
            let result = match self.fetch(path, form).await {
                Ok(body) => {
                    let response: ApiResponse<T> = serde_json::from_slice(&body)
                        .map_err(|why| decode_error(why.to_string()))?;
                    self.check_partial(response.is_partial).map(|()| response.data)
                }
                Err(failure) => Err(failure),
            };
            match result {
                Ok(data) => return data.ok_or_else(|| decode_error("it has no data".to_owned())),
                Err(failure) => self.wait_for_retry(&mut failures, failure).await?,
            }
        }
    }
}

#[derive(Debug, Default)]
struct SeriesCollector {
    series: Vec<CollectedSeries>,
}

/// A series with its labels and points.
#[derive(Clone, Debug, Default)]
pub struct CollectedSeries {
    /// Its labels, with the name as `__name__`.
    pub labels: BTreeMap<String, String>,
    /// Its points.
    pub points: Vec<(Time, f64)>,
}

impl CollectedSeries {
    /// The value of a label, empty if it is missing, as in PromQL.
    pub fn get(&self, label: &str) -> &str {
        self.labels.get(label).map_or("", String::as_str)
    }

    /// The last value.
    pub fn value(&self) -> Option<f64> {
        self.points.last().map(|(_, value)| *value)
    }

    /// A selector of this series.
    pub fn selector(&self) -> Selector {
        let name = self.get("__name__");
        let selector =
            if name.is_empty() { Selector::any_metric() } else { Selector::metric(name) };
        let labels = self.labels.iter().filter(|(label, _)| *label != "__name__");
        labels.fold(selector, |selector, (label, value)| selector.equals(label, value))
    }
}

impl SeriesVisitor for SeriesCollector {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        if self.series.len() >= MAX_SERIES {
            return Interest::LabelsOnly;
        }
        let labels = labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
        self.series.push(CollectedSeries { labels: labels.collect(), points: Vec::new() });
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        if let Some(series) = self.series.last_mut() {
            series.points.push((at, value));
        }
    }

    fn discard(&mut self) {
        self.series.clear();
    }
}
