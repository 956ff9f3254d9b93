//! The timeline of a workload: usage, request, target and bounds, with OOM kills, evictions and resizes on the same axis.

use plimsoll_charts::{
    axis::{AxisOptions, TimeRange},
    color,
    legend::Legend,
    svg::Svg,
    time_series::{self, Line, LineShape, LineStyle, Mark, MarkShape, TimeSeries},
};
use plimsoll_core::{rightsizing::survey::Resource, types::Time};
use serde::Serialize;

use super::{
    layout,
    number_table::{NumberTable, number_table},
};
use crate::report::recommend::html::{
    amounts::{quantity, resource_name, time},
    markup::Markup,
};

/// The size of a chart.
const SIZE: (f64, f64) = (1000.0, 240.0);
/// Events in the list.
const MAX_ROWS: usize = 60;

/// The series of a workload in a time range.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Timeline {
    /// The start.
    pub from: Time,
    /// The end.
    pub until: Time,
    /// The distance of points in seconds.
    pub step_seconds: u64,
    pub server: String,
    /// A chart for each container and resource, sorted by container.
    pub charts: Vec<TimelineChart>,
    /// What happened, in order of time.
    pub events: Vec<TimelineEvent>,
    /// Queries that failed.
    pub problems: Vec<String>,
}

/// The series of one resource of a container: cores or bytes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineChart {
    pub container: String,
    pub resource: Resource,
    /// The largest usage of a pod.
    pub usage: Vec<Point>,
    pub request: Vec<Point>,
    pub limit: Vec<Point>,
    pub target: Vec<Point>,
    /// The lower bound.
    pub lower: Vec<Point>,
    /// The upper bound.
    pub upper: Vec<Point>,
}

/// A time in seconds since the Unix epoch, and a value.
pub type Point = (i64, f64);

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEvent {
    /// The start of the step in which it happened.
    pub at: Time,
    pub what: EventKind,
    /// The container, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// How often.
    pub count: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum EventKind {
    /// A container was killed for memory.
    OomKill,
    /// A pod was evicted by the updater.
    Eviction,
    /// A pod was resized by the updater.
    Resize,
}

impl EventKind {
    fn word(self) -> &'static str {
        match self {
            Self::OomKill => "OOM kill",
            Self::Eviction => "eviction",
            Self::Resize => "resize",
        }
    }
}

impl TimelineChart {
    /// An empty chart.
    pub fn new(container: &str, resource: Resource) -> Self {
        Self {
            container: container.to_owned(),
            resource,
            usage: Vec::new(),
            request: Vec::new(),
            limit: Vec::new(),
            target: Vec::new(),
            lower: Vec::new(),
            upper: Vec::new(),
        }
    }

    fn lines(&self) -> [(&'static str, &[Point]); 6] {
        [
            ("upper bound", &self.upper),
            ("lower bound", &self.lower),
            ("limit", &self.limit),
            ("request", &self.request),
            ("target", &self.target),
            ("usage, largest pod", &self.usage),
        ]
    }

    fn draw(&self, timeline: &Timeline) -> Svg {
        let style = |name: &str| {
            let stepped = LineStyle { shape: LineShape::Stepped, ..LineStyle::default() };
            match name {
                "upper bound" => {
                    let below = Some("lower bound".to_owned());
                    let style = LineStyle { fill_down_to: below, fill_opacity: 0.15, ..stepped };
                    (color::hex("light-green"), style)
                }
                "lower bound" => (color::hex("light-green"), stepped),
                "limit" => (color::hex("red"), LineStyle { dashed: true, ..stepped }),
                "request" => (color::hex("blue"), LineStyle { width: 1.6, ..stepped }),
                "target" => (color::hex("dark-green"), LineStyle { dashed: true, ..stepped }),
                _ => (color::hex("orange"), LineStyle::default()),
            }
        };
        let lines = self.lines().into_iter().filter(|(_, points)| !points.is_empty());
        let lines: Vec<Line> = lines
            .map(|(name, points)| {
                let (color, style) = style(name);
                let points = points.iter().map(|(at, value)| (*at as f64, *value)).collect();
                Line { name: name.to_owned(), points, color, style, values: Vec::new() }
            })
            .collect();
        let marks: Vec<Mark> = timeline
            .events
            .iter()
            .filter(|event| self.concerns(event))
            .map(|event| {
                let (shape, color) = match event.what {
                    EventKind::OomKill => (MarkShape::Cross, "dark-red"),
                    EventKind::Eviction => (MarkShape::Triangle, "purple"),
                    EventKind::Resize => (MarkShape::Tick, "blue"),
                };
                Mark {
                    at: event.at.as_secs() as f64,
                    value: None,
                    shape,
                    color: color::hex(color),
                    title: event_text(event),
                }
            })
            .collect();
        let (from, to) = (timeline.from.as_secs() as f64, timeline.until.as_secs() as f64);
        let mut svg = Svg::embedded(SIZE.0, SIZE.1, &self.title(), &self.description(marks.len()));
        let unit = if self.resource == Resource::Cpu { "none" } else { "bytes" };
        let chart = TimeSeries {
            lines: &lines,
            marks: &marks,
            shaded: &[],
            axis: AxisOptions { unit, min: Some(0.0), ..AxisOptions::default() },
            range: TimeRange { from, to },
            legend: &Legend::List,
        };
        let area = svg.area();
        time_series::draw(&mut svg, area, &chart);
        svg
    }

    fn concerns(&self, event: &TimelineEvent) -> bool {
        match event.what {
            EventKind::OomKill => {
                self.resource == Resource::Memory
                    && event.container.as_deref().is_none_or(|name| name == self.container)
            }
            EventKind::Eviction | EventKind::Resize => true,
        }
    }

    fn title(&self) -> String {
        let resource = match self.resource {
            Resource::Cpu => "CPU in cores",
            Resource::Memory => "Memory",
        };
        format!("{resource} of container {}", self.container)
    }

    /// The last values in words.
    fn description(&self, events: usize) -> String {
        let lines = self.lines().into_iter();
        let last = lines.filter_map(|(name, points)| {
            let (_, value) = points.last()?;
            Some(format!("{name} {}", self.amount(*value)))
        });
        let last: Vec<String> = last.collect();
        format!("Last values: {}. {events} events.", last.join(", "))
    }

    /// A value as a quantity.
    fn amount(&self, value: f64) -> String {
        match self.resource {
            Resource::Cpu => quantity(Resource::Cpu, (value * 1000.0).round() as i64),
            Resource::Memory => quantity(Resource::Memory, value.round() as i64),
        }
    }
}

fn event_text(event: &TimelineEvent) -> String {
    let times = if event.count == 1 { String::new() } else { format!("{} × ", event.count) };
    format!("{times}{} at {}", event.what.word(), time(event.at))
}

/// Renders the charts, with their numbers as tables.
pub(super) fn render(html: &mut Markup, timeline: &Timeline) {
    layout::notes(html, &timeline.problems);
    if timeline.charts.is_empty() {
        layout::paragraph(
            html,
            format_args!("{} has no series of this workload.", timeline.server),
        );
    }
    for chart in &timeline.charts {
        html.raw("<h3>");
        html.text(chart.title());
        html.raw("</h3>\n<div class=\"scroll timeline\"");
        html.attribute("data-name", chart.title());
        html.raw(">");
        html.chart(chart.draw(timeline));
        html.raw("</div>\n");
        let lines = chart.lines();
        let summary =
            format!("Numbers: {} of container {}", resource_name(chart.resource), chart.container);
        let amount = |value| chart.amount(value);
        let title = chart.title();
        let numbers =
            NumberTable { title: &title, summary: &summary, lines: &lines, amount: &amount };
        number_table(html, &numbers);
    }
    html.raw("<h3>Events</h3>\n");
    if timeline.events.is_empty() {
        layout::paragraph(html, "No OOM kill, eviction or resize in this time.");
    } else {
        html.raw("<ul>\n");
        for event in timeline.events.iter().rev().take(MAX_ROWS) {
            let container = event.container.as_ref();
            let of = container.map_or_else(String::new, |name| format!(" of container {name}"));
            html.element("li", format_args!("{}{of}", event_text(event)));
            html.raw("\n");
        }
        html.raw("</ul>\n");
    }
}
