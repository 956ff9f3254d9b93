//! Runs the queries of a board's panels, with the same steps as Grafana.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use plimsoll_charts::axis::TimeRange;
use plimsoll_charts::time_format;
use serde_json::Value;

use super::prometheus_client::{Prometheus, Series};
use super::variables::Variables;

/// The query of a panel's target, and its result.
#[derive(Clone, Debug)]
pub struct QueryResult {
    /// Title of the panel, with variables replaced.
    pub panel: String,
    /// Letter of the target.
    pub letter: String,
    /// The query as it was sent.
    pub query: String,
    /// The series in the response.
    pub series: Vec<Series>,
    legend: String,
}

/// One line of a panel.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Allowed steps, in seconds.
const STEPS: [f64; 18] = [
    1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1_200.0, 1_800.0, 3_600.0,
    7_200.0, 10_800.0, 21_600.0, 43_200.0,
];

/// Points per column of the grid. A panel may request fewer.
const POINTS: f64 = 30.0;

// === impl QueryResult ===

impl QueryResult {
    /// The series as lines, each named by the legend.
    pub(super) fn lines(&self) -> impl Iterator<Item = Line> {
        self.series.iter().map(|series| Line {
            name: named(&self.legend, &series.labels),
            points: series.points.clone(),
        })
    }

    /// The latest value of each series, with its name.
    pub fn latest(&self) -> impl Iterator<Item = (String, f64)> {
        self.series.iter().filter_map(|series| {
            Some((named(&self.legend, &series.labels), series.points.last()?.1))
        })
    }
}

#[cfg(test)]
impl QueryResult {
    /// The result of a panel's target.
    pub(super) fn with_series(target: &Value, series: Vec<Series>) -> Self {
        let text = |field: &str| target[field].as_str().unwrap_or_default().to_owned();
        Self {
            panel: String::new(),
            letter: text("refId"),
            query: String::new(),
            series,
            legend: text("legendFormat"),
        }
    }

    /// A result without a query.
    pub(super) fn for_tests(letter: &str, values: Vec<(BTreeMap<String, String>, f64)>) -> Self {
        let series =
            values.into_iter().map(|(labels, value)| Series { labels, points: vec![(0.0, value)] });
        Self {
            panel: String::new(),
            letter: letter.to_owned(),
            query: String::new(),
            series: series.collect(),
            legend: String::new(),
        }
    }
}

/// Whether a panel has queries: headings have none.
pub(super) fn queries_of(panel: &Value) -> bool {
    panel["targets"].as_array().is_some_and(|targets| !targets.is_empty())
}

/// The step of a panel's queries, in seconds, and the minimum step.
pub(super) fn steps(panel: &Value, target: &Value, window: TimeRange) -> (f64, f64) {
    let least = target["interval"].as_str().and_then(time_format::length).unwrap_or(15.0);
    let room = panel["gridPos"]["w"].as_f64().unwrap_or(12.0) * POINTS;
    let points = panel["maxDataPoints"].as_f64().unwrap_or(room).min(room);
    let wanted = (window.length() / points).max(least);
    (STEPS.into_iter().find(|step| *step >= wanted).unwrap_or(86_400.0), least)
}

/// Grafana's built-in variables.
pub(super) fn own(step: f64, least: f64, window: TimeRange) -> [(&'static str, String); 6] {
    let length = window.length();
    [
        ("__interval", format!("{step}s")),
        ("__interval_ms", format!("{}", step * 1000.0)),
        // Grafana's rule: four scrape intervals, so that one failed scrape leaves no gap.
        ("__rate_interval", format!("{}s", (step + least).max(4.0 * least))),
        ("__range", format!("{length}s")),
        ("__range_s", format!("{length}")),
        ("__range_ms", format!("{}", length * 1000.0)),
    ]
}

/// Runs the queries of all targets of a panel.
pub(super) fn run_queries(
    panel: &Value,
    prometheus: &Prometheus,
    variables: &Variables,
    window: TimeRange,
) -> Result<Vec<QueryResult>> {
    let title = variables.plain(panel["title"].as_str().unwrap_or_default());
    let targets = panel["targets"].as_array().into_iter().flatten();
    targets
        .map(|target| {
            let expression = target["expr"].as_str().context("a target has no query")?;
            let (step, least) = steps(panel, target, window);
            let query = variables.query(expression, &own(step, least, window));
            let series = if target["instant"] == true {
                prometheus.instant(&query, window.to)
            } else {
                // Aligned like in Grafana, so that a picture does not depend on the second.
                let aligned = |time: f64| (time / step).floor() * step;
                let window = TimeRange { from: aligned(window.from), to: aligned(window.to) };
                prometheus.range(&query, window, step)
            };
            Ok(QueryResult {
                series: series.with_context(|| format!("panel {title:?}"))?,
                panel: title.clone(),
                letter: target["refId"].as_str().unwrap_or("A").to_owned(),
                query,
                legend: target["legendFormat"].as_str().unwrap_or_default().to_owned(),
            })
        })
        .collect()
}

/// A legend with labels replaced.
fn named(legend: &str, labels: &BTreeMap<String, String>) -> String {
    let mut name = String::new();
    let mut rest = legend;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((label, behind)) = after.split_once("}}") else { break };
        name.push_str(before);
        name.push_str(labels.get(label.trim()).map_or("", String::as_str));
        rest = behind;
    }
    name.push_str(rest);
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    if name.is_empty() {
        let pairs: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key}={value:?}")).collect();
        return format!("{{{}}}", pairs.join(", "));
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn legends_are_filled_in() {
        let labels = BTreeMap::from([("job".to_owned(), "a/b".to_owned())]);
        assert_eq!(named("{{job}}: {{ x }} done", &labels), "a/b: done");
        assert_eq!(named("", &labels), "{job=\"a/b\"}");
    }

    #[test]
    fn steps_are_at_least_the_interval_of_the_panel() {
        let window = TimeRange { from: 0.0, to: 21_600.0 };
        assert_eq!(steps(&json!({}), &json!({"interval": "1m"}), window), (60.0, 60.0));
        let few = json!({"maxDataPoints": 100});
        assert_eq!(steps(&few, &json!({"interval": "1m"}), window), (300.0, 60.0));
        let narrow = json!({"gridPos": {"w": 6}});
        assert_eq!(steps(&narrow, &json!({"interval": "1m"}), window), (120.0, 60.0));
        assert_eq!(own(60.0, 60.0, window)[2], ("__rate_interval", "240s".to_owned()));
        assert_eq!(own(300.0, 60.0, window)[2], ("__rate_interval", "360s".to_owned()));
    }
}
