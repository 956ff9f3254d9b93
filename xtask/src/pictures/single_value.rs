//! The values of a `stat`, a `gauge` and a `bargauge`.

use plimsoll_charts::color;
use plimsoll_charts::single_value::{self, SingleValue};
use plimsoll_charts::svg::{Rectangle, Svg};
use serde_json::Value;

use super::field_config::Field;
use super::panel_data::QueryResult;

fn figures(panel: &Value, answers: &[QueryResult], now: f64) -> Vec<SingleValue> {
    let latest = answers.iter().flat_map(QueryResult::latest);
    latest
        .map(|(name, value)| {
            let field = Field::of(panel, &name);
            SingleValue {
                text: field.write(value, now),
                color: field.color_of(value),
                min: field.number("min"),
                max: field.number("max"),
                name,
                value,
            }
        })
        .collect()
}

/// Draws a `stat`: one large value, or several lines with names.
pub(super) fn stat(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    now: f64,
) {
    let mut figures = figures(panel, answers, now);
    let options = &panel["options"];
    let mode = options["textMode"].as_str().unwrap_or("auto");
    let with_names = mode == "value_and_name" || (mode == "auto" && figures.len() > 1);
    for figure in &mut figures {
        if options["colorMode"] == "none" {
            color::TEXT.clone_into(&mut figure.color);
        }
        if mode == "name" {
            figure.text.clone_from(&figure.name);
        }
    }
    single_value::draw_stat(svg, area, &figures, with_names);
}

/// Draws a `gauge`: a half ring from minimum to maximum.
pub(super) fn gauge(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    now: f64,
) {
    let figures = figures(panel, answers, now);
    let Some(figure) = figures.first() else { return };
    let thresholds = Field::of(panel, &figure.name).thresholds();
    single_value::draw_gauge(svg, area, figure, &thresholds);
}

/// Draws a `bargauge`: a bar for each value.
pub(super) fn bars(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    now: f64,
) {
    single_value::draw_bars(svg, area, &figures(panel, answers, now));
}
