//! The timeline of an HPA or WPA: each metric against its target or marks, the replicas that are proposed and decided, and
//! the times in which something restricted them.

use plimsoll_charts::{
    axis::{AxisOptions, TimeRange},
    color,
    legend::Legend,
    state_timeline::{self, StateRow, StateSpan},
    svg::Svg,
    time_series::{self, Line, LineShape, LineStyle, TimeSeries},
    units,
};
use plimsoll_core::types::Time;
use serde::Serialize;

use super::{
    layout,
    number_table::{NumberTable, number_table},
    timeline::Point,
};
use crate::report::recommend::html::{amounts::time, markup::Markup};

/// The size of a chart of values or replicas.
const SIZE: (f64, f64) = (1000.0, 220.0);
/// The height of the row of a restriction, and of the time axis.
const ROW_HEIGHTS: (f64, f64) = (24.0, 24.0);
/// Rows of the table of restrictions, and rows of their chart.
const MAX_ROWS: usize = 60;
/// Metrics with a chart of their own; the JSON form has all.
const MAX_CHARTS: usize = 12;

/// The series of an autoscaler of replicas in a time range.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaTimeline {
    /// The start.
    pub from: Time,
    /// The end.
    pub until: Time,
    /// The distance of points in seconds.
    pub step_seconds: u64,
    pub server: String,
    /// The metrics, sorted by name.
    pub metrics: Vec<MetricChart>,
    /// The replicas that were decided, after all limits and windows.
    pub effective: Vec<Point>,
    /// The minimum number of replicas.
    pub min: Vec<Point>,
    /// The maximum number of replicas.
    pub max: Vec<Point>,
    /// When something restricted the replicas, sorted by reason and time.
    pub restrictions: Vec<Restriction>,
    /// Queries that failed.
    pub problems: Vec<String>,
}

/// The series of a metric, in its own unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricChart {
    pub metric: String,
    pub value: Vec<Point>,
    /// The value below which replicas are removed.
    pub low: Vec<Point>,
    /// The value above which replicas are added.
    pub high: Vec<Point>,
    /// The target of an HPA.
    pub target: Vec<Point>,
    /// The replicas that it proposes.
    pub proposal: Vec<Point>,
}

/// A time in which something restricted the replicas.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restriction {
    /// Why: a reason of `plimsoll_restricted_scaling`.
    pub reason: String,
    /// Since when.
    pub from: Time,
    /// The last time at which it is known.
    pub until: Time,
}

/// A line of a chart: its name, its points, its color and its style.
type NamedLine<'a> = (String, &'a [Point], String, LineStyle);

fn stepped() -> LineStyle {
    LineStyle { shape: LineShape::Stepped, ..LineStyle::default() }
}

impl MetricChart {
    fn lines(&self) -> Vec<NamedLine<'_>> {
        let below = Some("low mark".to_owned());
        let band = LineStyle { fill_down_to: below, fill_opacity: 0.15, ..stepped() };
        let dashed = LineStyle { dashed: true, ..stepped() };
        let lines = [
            ("high mark", &self.high, "light-green", band),
            ("low mark", &self.low, "light-green", stepped()),
            ("target", &self.target, "dark-green", dashed),
            ("value", &self.value, "orange", LineStyle::default()),
        ];
        let known = lines.into_iter().filter(|(_, points, ..)| !points.is_empty());
        known
            .map(|(name, points, paint, style)| {
                (name.to_owned(), points.as_slice(), color::hex(paint), style)
            })
            .collect()
    }
}

impl ReplicaTimeline {
    /// Whether there are no series at all.
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty() && self.replicas().is_empty() && self.restrictions.is_empty()
    }

    /// The lines of replicas: limits, what each metric proposes, and what was decided.
    fn replicas(&self) -> Vec<NamedLine<'_>> {
        let dashed = || LineStyle { dashed: true, ..stepped() };
        let mut lines = vec![
            ("maximum".to_owned(), &*self.max, color::hex("light-red"), dashed()),
            ("minimum".to_owned(), &*self.min, color::hex("light-blue"), dashed()),
        ];
        for (place, chart) in self.metrics.iter().take(MAX_CHARTS).enumerate() {
            let name = format!("proposal of {}", chart.metric);
            lines.push((name, &*chart.proposal, color::of_series(place + 3), stepped()));
        }
        let decided = LineStyle { width: 2.2, ..stepped() };
        lines.push(("decided".to_owned(), &*self.effective, color::hex("blue"), decided));
        lines.retain(|(_, points, ..)| !points.is_empty());
        lines
    }

    fn range(&self) -> TimeRange {
        TimeRange { from: self.from.as_secs() as f64, to: self.until.as_secs() as f64 }
    }

    fn chart(&self, title: &str, named: &[NamedLine<'_>], axis: AxisOptions<'_>) -> Svg {
        let lines = named.iter().map(|(name, points, paint, style)| Line {
            name: name.clone(),
            points: points.iter().map(|(at, value)| (*at as f64, *value)).collect(),
            color: paint.clone(),
            style: style.clone(),
            values: Vec::new(),
        });
        let lines: Vec<Line> = lines.collect();
        let last = named.iter().filter_map(|(name, points, ..)| {
            let (_, value) = points.last()?;
            Some(format!("{name} {}", amount(*value)))
        });
        let description = format!("Last values: {}.", last.collect::<Vec<_>>().join(", "));
        let mut svg = Svg::embedded(SIZE.0, SIZE.1, title, &description);
        let chart = TimeSeries {
            lines: &lines,
            marks: &[],
            shaded: &[],
            axis,
            range: self.range(),
            legend: &Legend::List,
        };
        let area = svg.area();
        time_series::draw(&mut svg, area, &chart);
        svg
    }

    fn restriction_chart(&self) -> Svg {
        let mut rows: Vec<StateRow> = Vec::new();
        for one in &self.restrictions {
            if rows.last().is_none_or(|row| row.name != one.reason) {
                rows.push(StateRow { name: one.reason.clone(), states: Vec::new() });
            }
            if let Some(row) = rows.last_mut() {
                row.states.push(StateSpan {
                    from: one.from.max(self.from).as_secs() as f64,
                    to: one.until.as_secs() as f64,
                    color: color::hex("yellow"),
                    title: format!("{}: {} to {}", one.reason, time(one.from), time(one.until)),
                });
            }
        }
        let names: Vec<&str> = rows.iter().map(|row| &*row.name).collect();
        let description = format!("Reasons: {}.", names.join(", "));
        let height = ROW_HEIGHTS.0 * rows.len().clamp(1, MAX_ROWS) as f64 + ROW_HEIGHTS.1;
        let mut svg = Svg::embedded(SIZE.0, height, "Restrictions", &description);
        let area = svg.area();
        state_timeline::draw(&mut svg, area, &rows, self.range());
        svg
    }
}

/// A value of any unit.
fn amount(value: f64) -> String {
    units::write(value, "none", None, 0.0)
}

/// Renders the charts, with their numbers as tables.
pub(super) fn render(html: &mut Markup, timeline: &ReplicaTimeline) {
    layout::notes(html, &timeline.problems);
    if timeline.is_empty() {
        layout::paragraph(
            html,
            format_args!(
                "{} has no series of this object: the controller has to run, and its metrics have to be scraped.",
                timeline.server
            ),
        );
        return;
    }
    for chart in timeline.metrics.iter().take(MAX_CHARTS) {
        let lines = chart.lines();
        if lines.is_empty() {
            continue;
        }
        let axis = AxisOptions { unit: "none", min: Some(0.0), ..AxisOptions::default() };
        section(html, timeline, &format!("Metric {}", chart.metric), &lines, axis);
    }
    if timeline.metrics.len() > MAX_CHARTS {
        let left = timeline.metrics.len() - MAX_CHARTS;
        layout::paragraph(html, format_args!("{left} more metrics are in the JSON form."));
    }
    let replicas = timeline.replicas();
    if !replicas.is_empty() {
        let axis =
            AxisOptions { unit: "none", min: Some(0.0), whole: true, ..AxisOptions::default() };
        section(html, timeline, "Replicas", &replicas, axis);
    }
    restrictions(html, timeline);
}

fn section(
    html: &mut Markup,
    timeline: &ReplicaTimeline,
    title: &str,
    lines: &[NamedLine<'_>],
    axis: AxisOptions<'_>,
) {
    html.element("h4", title);
    html.raw("\n<div class=\"scroll timeline\"");
    html.attribute("data-name", title);
    html.raw(">");
    html.chart(timeline.chart(title, lines, axis));
    html.raw("</div>\n");
    let lines: Vec<(&str, &[Point])> =
        lines.iter().map(|(name, points, ..)| (&**name, *points)).collect();
    let summary = format!("Numbers: {title}");
    number_table(html, &NumberTable { title, summary: &summary, lines: &lines, amount: &amount });
}

fn restrictions(html: &mut Markup, timeline: &ReplicaTimeline) {
    html.raw("<h4>Restrictions</h4>\n");
    if timeline.restrictions.is_empty() {
        layout::paragraph(html, "Nothing restricted the replicas in this time.");
        return;
    }
    html.raw("<div class=\"scroll timeline\" data-name=\"Restrictions\">");
    html.chart(timeline.restriction_chart());
    html.raw("</div>\n<details><summary>Times: restrictions</summary>\n");
    let columns = [("Reason", ""), ("From", "n"), ("Until", "n")];
    layout::open_table(html, "Restrictions, the latest first", &columns);
    let mut latest: Vec<&Restriction> = timeline.restrictions.iter().collect();
    latest.sort_by_key(|one| std::cmp::Reverse((one.until, one.from)));
    for one in latest.into_iter().take(MAX_ROWS) {
        html.raw("<tr><th scope=\"row\">");
        html.text(&one.reason);
        html.raw("</th>");
        layout::cell(html, "From", time(one.from));
        layout::cell(html, "Until", time(one.until));
        html.raw("</tr>\n");
    }
    layout::close_table(html);
    if timeline.restrictions.len() > MAX_ROWS {
        let left = timeline.restrictions.len() - MAX_ROWS;
        layout::paragraph(html, format_args!("{left} earlier ones are in the JSON form."));
    }
    html.raw("</details>\n");
}
