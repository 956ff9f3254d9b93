//! A client of the Prometheus API: instant queries, range queries and label values.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use plimsoll_charts::axis::TimeRange;
use serde_json::Value;

use super::http_client::{Server, escape};

/// A server with the Prometheus API.
#[derive(Clone, Debug)]
pub struct Prometheus {
    server: Server,
}

/// One series of a response.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Times in seconds since the Unix epoch, and values. NaN values are left out.
    pub points: Vec<(f64, f64)>,
}

// === impl Prometheus ===

impl Prometheus {
    /// A client for this `http://` address.
    pub fn at(url: &str) -> Result<Self> {
        Ok(Self { server: Server::at(url)? })
    }

    /// The server's current time.
    pub fn time(&self) -> Result<f64> {
        let data = self.read(self.server.post("/api/v1/query", &[("query", "time()")])?)?;
        number(&data["result"][1]).context("the time is not a number")
    }

    /// Runs an instant query.
    pub fn instant(&self, query: &str, at: f64) -> Result<Vec<Series>> {
        let at = at.to_string();
        let parameters = [("query", query), ("time", at.as_str())];
        let mut series = self.series(query, self.server.post("/api/v1/query", &parameters)?)?;
        // Servers return series in any order, but pictures of the same data must be equal.
        series.sort_by(|one, other| one.labels.cmp(&other.labels));
        Ok(series)
    }

    /// Runs a range query.
    pub fn range(&self, query: &str, window: TimeRange, step: f64) -> Result<Vec<Series>> {
        let [start, end, step] = [window.from, window.to, step].map(|value| value.to_string());
        let parameters = [("query", query), ("start", &start), ("end", &end), ("step", &step)];
        self.series(query, self.server.post("/api/v1/query_range", &parameters)?)
    }

    /// The values of a label of the matching series, in alphabetical order.
    pub fn label_values(
        &self,
        label: &str,
        series: &str,
        window: TimeRange,
    ) -> Result<Vec<String>> {
        let path = format!("/api/v1/label/{}/values", escape(label));
        let [start, end] = [window.from, window.to].map(|value| value.to_string());
        let parameters = [("match[]", series), ("start", &start), ("end", &end)];
        let data = self
            .read(self.server.get(&path, &parameters)?)
            .with_context(|| format!("cannot read the values of {label} of {series}"))?;
        let values = data.as_array().context("the response is not a list of values")?;
        let mut values: Vec<String> =
            values.iter().filter_map(|value| value.as_str().map(str::to_owned)).collect();
        values.sort();
        Ok(values)
    }

    fn series(&self, query: &str, answer: (u16, String)) -> Result<Vec<Series>> {
        let data = self.read(answer).with_context(|| query.to_owned())?;
        let result = &data["result"];
        if data["resultType"] == "scalar" {
            let points = point(result).into_iter().collect();
            return Ok(vec![Series { labels: BTreeMap::new(), points }]);
        }
        let series = result
            .as_array()
            .with_context(|| format!("{query}: the response is not a list of series"))?;
        Ok(series.iter().map(read_series).filter(|series| !series.points.is_empty()).collect())
    }

    /// The `data` of a response.
    #[allow(clippy::unused_self, reason = "kept next to the methods that use it")]
    fn read(&self, (status, text): (u16, String)) -> Result<Value> {
        let Ok(mut answer) = serde_json::from_str::<Value>(&text) else {
            let first = text.lines().next().unwrap_or_default();
            bail!("status {status}, and the body is not JSON: {first}");
        };
        if answer["status"] != "success" {
            let why = answer["error"].as_str().unwrap_or("no reason is given");
            bail!("status {status}: {why}");
        }
        Ok(answer["data"].take())
    }
}

fn read_series(value: &Value) -> Series {
    let labels = value["metric"].as_object().into_iter().flatten();
    let labels =
        labels.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
    let one = value.get("value").into_iter();
    let many = value.get("values").and_then(Value::as_array).into_iter().flatten();
    Series { labels: labels.collect(), points: one.chain(many).filter_map(point).collect() }
}

fn point(value: &Value) -> Option<(f64, f64)> {
    Some((value[0].as_f64()?, number(&value[1])?)).filter(|(_, value)| value.is_finite())
}

fn number(value: &Value) -> Option<f64> {
    value.as_str()?.parse().ok()
}
