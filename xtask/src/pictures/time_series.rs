//! The lines, axes and legend of a `timeseries`.

use plimsoll_charts::axis::TimeRange;
use plimsoll_charts::color;
use plimsoll_charts::legend::Legend;
use plimsoll_charts::svg::{Rectangle, Svg};
use plimsoll_charts::time_series::{self, Line, LineShape, LineStyle, TimeSeries};
use serde_json::Value;

use super::field_config::Field;
use super::panel_data::QueryResult;

/// Draws the panel.
pub(super) fn draw(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    range: TimeRange,
) {
    let calculations = calculations(&panel["options"]["legend"]);
    let lines = answers.iter().flat_map(QueryResult::lines).enumerate();
    let lines: Vec<Line> = lines
        .map(|(place, line)| {
            let field = Field::of(panel, &line.name);
            Line {
                color: field.fixed_color().unwrap_or_else(|| color::of_series(place)),
                style: style(&field),
                values: calculations
                    .iter()
                    .map(|name| reduce(name, &line.points))
                    .map(|value| value.map_or(String::new(), |value| field.write(value, range.to)))
                    .collect(),
                name: line.name,
                points: line.points,
            }
        })
        .collect();
    let of_panel = Field::of(panel, "");
    let chart = TimeSeries {
        lines: &lines,
        marks: &[],
        shaded: &[],
        axis: of_panel.axis(),
        range,
        legend: &legend(&panel["options"]["legend"], &calculations),
    };
    time_series::draw(svg, area, &chart);
}

fn style(field: &Field) -> LineStyle {
    let below = field.text("custom.fillBelowTo");
    LineStyle {
        shape: if field.text("custom.drawStyle") == "bars" {
            LineShape::Bars
        } else if field.text("custom.lineInterpolation") == "stepAfter" {
            LineShape::Stepped
        } else {
            LineShape::Straight
        },
        stacked: field.text("custom.stacking.mode") == "normal",
        dashed: field.text("custom.lineStyle.fill") == "dash",
        width: field.number("custom.lineWidth").unwrap_or(1.0),
        fill_opacity: field.number("custom.fillOpacity").unwrap_or(0.0) / 100.0,
        fill_down_to: (!below.is_empty()).then(|| below.to_owned()),
    }
}

/// The statistics that a table in the legend shows.
fn calculations(options: &Value) -> Vec<&str> {
    if options["displayMode"] != "table" {
        return Vec::new();
    }
    options["calcs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

fn legend(options: &Value, calculations: &[&str]) -> Legend {
    if options["showLegend"] == false {
        return Legend::Hidden;
    }
    if options["displayMode"] != "table" {
        return Legend::List;
    }
    let heading = |name: &&str| match *name {
        "lastNotNull" => "last".to_owned(),
        other => other.to_owned(),
    };
    Legend::Table {
        is_right: options["placement"] == "right",
        headings: calculations.iter().map(heading).collect(),
    }
}

/// A statistic of a line.
fn reduce(name: &str, points: &[(f64, f64)]) -> Option<f64> {
    let mut values = points.iter().map(|(_, value)| *value);
    match name {
        "lastNotNull" => values.next_back(),
        "max" => values.reduce(f64::max),
        "min" => values.reduce(f64::min),
        "mean" => Some(values.sum::<f64>() / points.len() as f64).filter(|mean| mean.is_finite()),
        "sum" => Some(values.sum()),
        _ => None,
    }
}

/// Writes what the panel shows if there is no data.
pub(super) fn draw_no_data(svg: &mut Svg, area: Rectangle, panel: &Value) {
    let field = Field::of(panel, "");
    let text = field.text("noValue");
    let text = if text.is_empty() { "No data" } else { text };
    plimsoll_charts::legend::draw_placeholder(svg, area, text);
}
