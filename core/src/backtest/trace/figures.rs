//! Replays series under rules, and the figures of all of them with intervals.

use serde::{Deserialize, Serialize};

use super::{TraceFigures, TraceRule, TraceSeries};
use crate::backtest::{bootstrap::Bootstrap, report::Interval};

const DAY: f64 = 86_400.0;
/// How often a rule may act, in seconds.
const CLOCK: f64 = 600.0;
const MINUTE: f64 = 60.0;
/// Requests begin with the 90th percentile of the first day, and at least with this.
const FIRST_LEAST: f64 = 0.01;
/// Draws of the bootstrap.
const DRAWS: u32 = 2_000;

/// The figures of rules on series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceReport {
    pub series: Vec<String>,
    /// Series that are too short: at least a judged hour after the first day is needed.
    pub too_short: Vec<String>,
    /// One for each rule.
    pub rows: Vec<TraceRow>,
    /// Differences of the others to the first rule.
    pub differences: Vec<TraceDifference>,
}

/// The means of a rule over all series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceRow {
    pub rule: String,
    /// Its name in tables.
    pub title: String,
    /// The share of what was requested that was not used.
    pub slack: Interval,
    /// The share of what was used that was above the request.
    pub shortfall: Interval,
    /// The share of time above the request.
    pub time_above: Interval,
    /// Changes of the request a day.
    pub changes_per_day: Interval,
    /// What was requested, as a multiple of what was used.
    pub requested_by_used: f64,
    pub by_series: Vec<TraceFigures>,
}

/// Mean differences to the first rule, series by series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceDifference {
    pub rule: String,
    pub slack: Interval,
    pub shortfall: Interval,
    /// Of the time above the request.
    pub time_above: Interval,
    pub changes_per_day: Interval,
}

/// Replays all series under all rules.
pub fn compare(series: &[TraceSeries], rules: &[TraceRule]) -> TraceReport {
    let (judged, short): (Vec<&TraceSeries>, Vec<&TraceSeries>) =
        series.iter().partition(|series| is_long_enough(series));
    let names = |series: &[&TraceSeries]| series.iter().map(|found| found.name.clone()).collect();
    let rows: Vec<TraceRow> = rules
        .iter()
        .map(|rule| row(*rule, judged.iter().map(|series| replay(series, *rule)).collect()))
        .collect();
    let differences = match rows.split_first() {
        Some((first, others)) => others.iter().map(|row| difference(row, first)).collect(),
        None => Vec::new(),
    };
    TraceReport { series: names(&judged), too_short: names(&short), rows, differences }
}

fn is_long_enough(series: &TraceSeries) -> bool {
    let ends = series.points.first().zip(series.points.last());
    ends.is_some_and(|(first, last)| last.at - first.at > DAY + 3600.0)
}

/// Replays a series under a rule.
fn replay(series: &TraceSeries, rule: TraceRule) -> TraceFigures {
    let Some(start) = series.points.first().map(|point| point.at) else {
        return TraceFigures::default();
    };
    let first_day = series.points.iter().take_while(|point| point.at < start + DAY);
    let mut first_day: Vec<f64> = first_day.map(|point| point.cores).collect();
    first_day.sort_unstable_by(f64::total_cmp);
    let begin = first_day.get(first_day.len() * 9 / 10).copied().unwrap_or_default();
    let mut request = begin.max(FIRST_LEAST);
    let mut state = rule.start(start);
    let mut next = start + CLOCK;
    let (mut requested, mut used, mut slack, mut short) = (0.0, 0.0, 0.0, 0.0);
    let (mut judged, mut above, mut changes) = (0_u64, 0_u64, 0_u64);
    let mut last = start;
    for point in &series.points {
        state.take(point.at, point.cores, request);
        // The last value before the clock strikes is the one that is decided with.
        let strikes = point.at + MINUTE;
        let is_judged = point.at >= start + DAY;
        if strikes >= next {
            next = start + ((strikes - start) / CLOCK).floor() * CLOCK + CLOCK;
            if is_judged {
                let new = state.decide(point.at, request);
                changes += u64::from(new != request);
                request = new;
            }
        }
        if is_judged {
            judged += 1;
            requested += request;
            used += point.cores;
            slack += (request - point.cores).max(0.0);
            short += (point.cores - request).max(0.0);
            above += u64::from(point.cores > request);
        }
        last = point.at;
    }
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    TraceFigures {
        slack: share(slack, requested),
        shortfall: share(short, used),
        time_above: share(above as f64, judged as f64),
        changes_per_day: changes as f64 / ((last - start - DAY) / DAY),
        requested_by_used: share(requested, used),
    }
}

fn row(rule: TraceRule, by_series: Vec<TraceFigures>) -> TraceRow {
    let of = |figure: fn(&TraceFigures) -> f64| {
        mean_of(&by_series.iter().map(figure).collect::<Vec<_>>())
    };
    TraceRow {
        rule: rule.as_str().to_owned(),
        title: rule.title().to_owned(),
        slack: of(|figures| figures.slack),
        shortfall: of(|figures| figures.shortfall),
        time_above: of(|figures| figures.time_above),
        changes_per_day: of(|figures| figures.changes_per_day),
        requested_by_used: of(|figures| figures.requested_by_used).estimate,
        by_series,
    }
}

fn difference(row: &TraceRow, first: &TraceRow) -> TraceDifference {
    let of = |figure: fn(&TraceFigures) -> f64| {
        let pairs = row.by_series.iter().zip(&first.by_series);
        mean_of(&pairs.map(|(own, other)| figure(own) - figure(other)).collect::<Vec<_>>())
    };
    TraceDifference {
        rule: row.rule.clone(),
        slack: of(|figures| figures.slack),
        shortfall: of(|figures| figures.shortfall),
        time_above: of(|figures| figures.time_above),
        changes_per_day: of(|figures| figures.changes_per_day),
    }
}

fn mean_of(values: &[f64]) -> Interval {
    let count = values.len().max(1) as f64;
    let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / count;
    let estimate = mean(&mut values.iter().copied());
    let bootstrap = Bootstrap::new(values.len(), DRAWS);
    bootstrap.interval(estimate, |drawn| mean(&mut drawn.iter().map(|index| values[*index])))
}
