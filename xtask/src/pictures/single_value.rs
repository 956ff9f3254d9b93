//! Draws panels of single values: `stat`, `gauge` and `bargauge`.

use serde_json::Value;

use super::color;
use super::field_config::Field;
use super::panel_data::QueryResult;
use super::svg::{Anchor, Rectangle, Stroke, Style, Svg, cut, width};

/// A value with its name.
struct SingleValue {
    name: String,
    value: f64,
    field: Field,
}

fn figures(panel: &Value, answers: &[QueryResult]) -> Vec<SingleValue> {
    let latest = answers.iter().flat_map(QueryResult::latest);
    latest
        .map(|(name, value)| SingleValue { field: Field::of(panel, &name), name, value })
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
    let figures = figures(panel, answers);
    let options = &panel["options"];
    let mode = options["textMode"].as_str().unwrap_or("auto");
    let with_names = mode == "value_and_name" || (mode == "auto" && figures.len() > 1);
    let color = |figure: &SingleValue| match options["colorMode"].as_str() {
        Some("none") => color::TEXT.to_owned(),
        _ => figure.field.color_of(figure.value),
    };
    let text = |figure: &SingleValue| match mode {
        "name" => figure.name.clone(),
        _ => figure.field.write(figure.value, now),
    };
    if !with_names && figures.len() == 1 {
        let (text, color) = (text(&figures[0]), color(&figures[0]));
        let fitting = area.width / width(&text, 1.0);
        let size = (area.height * 0.5).min(fitting * 0.85).clamp(12.0, 32.0);
        let (x, y) = area.middle();
        let style = Style::bold(size).colored(&color).anchored(Anchor::Middle);
        svg.write((x, y + size * 0.35), &text, style);
        return;
    }
    let height = (area.height / figures.len() as f64).min(46.0);
    let top = area.y + (area.height - height * figures.len() as f64) / 2.0;
    let size = (height * 0.55).clamp(11.0, 24.0);
    for (row, figure) in figures.iter().enumerate() {
        let y = top + height * (row as f64 + 0.5) + size * 0.35;
        let (text, color) = (text(figure), color(figure));
        let text = cut(&text, size, area.width);
        svg.write(
            (area.right(), y),
            &text,
            Style::bold(size).colored(&color).anchored(Anchor::End),
        );
        if with_names {
            let room = area.width - width(&text, size) - 10.0;
            let small = (size * 0.7).clamp(11.0, 14.0);
            svg.write(
                (area.x, y - (size - small) * 0.2),
                &cut(&figure.name, small, room),
                Style::plain(small),
            );
        }
    }
}

/// Draws a `gauge`: a half ring from minimum to maximum.
pub(super) fn gauge(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    now: f64,
) {
    let figures = figures(panel, answers);
    let Some(SingleValue { value, field, .. }) = figures.first() else { return };
    let (low, high) = (field.number("min").unwrap_or(0.0), field.number("max").unwrap_or(1.0));
    let share = |value: f64| ((value - low) / (high - low)).clamp(0.0, 1.0);
    let radius = (area.width / 2.0 - 14.0).min(area.height - 26.0).max(10.0);
    let middle = (area.middle().0, area.y + radius + 12.0);
    let thick = radius * 0.26;
    svg.arc(
        middle,
        radius - thick / 2.0,
        (0.0, 1.0),
        Stroke { color: color::LINE, width: thick, dashed: false },
    );
    let color = field.color_of(*value);
    if share(*value) > 0.0 {
        let part = (0.0, share(*value));
        svg.arc(
            middle,
            radius - thick / 2.0,
            part,
            Stroke { color: &color, width: thick, dashed: false },
        );
    }
    let steps = field.thresholds();
    for (place, (from, color)) in steps.iter().enumerate() {
        let to = steps.get(place + 1).map_or(high, |(next, _)| *next);
        let part = (share(from.max(low)), share(to));
        if part.1 > part.0 {
            svg.arc(middle, radius + 4.0, part, Stroke { color, width: 4.0, dashed: false });
        }
    }
    let text = field.write(*value, now);
    let size = (radius * 0.42).clamp(12.0, 28.0);
    let style = Style::bold(size).colored(&color).anchored(Anchor::Middle);
    svg.write((middle.0, middle.1 - 2.0), &text, style);
}

/// Draws a `bargauge`: a bar for each value, with names on the left and values on the right.
pub(super) fn bars(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    now: f64,
) {
    let figures = figures(panel, answers);
    let height = (area.height / figures.len().max(1) as f64).clamp(14.0, 40.0);
    let fitting = ((area.height / height) as usize).max(1);
    let texts: Vec<String> =
        figures.iter().map(|figure| figure.field.write(figure.value, now)).collect();
    let names = figures.iter().map(|figure| width(&figure.name, 12.0)).fold(0.0, f64::max);
    let names = names.min(area.width * 0.5) + 8.0;
    let values = texts.iter().map(|text| width(text, 13.0)).fold(0.0, f64::max) + 10.0;
    let largest = figures.iter().map(|figure| figure.value).fold(0.0, f64::max);
    for (row, (figure, text)) in figures.iter().zip(&texts).take(fitting).enumerate() {
        let y = area.y + height * row as f64;
        let bar = Rectangle {
            x: area.x + names,
            y: y + height * 0.15,
            width: (area.width - names - values).max(4.0),
            height: height * 0.7,
        };
        let low = figure.field.number("min").unwrap_or(0.0);
        let high = figure.field.number("max").unwrap_or(largest).max(low + f64::EPSILON);
        let share = ((figure.value - low) / (high - low)).clamp(0.0, 1.0);
        let color = figure.field.color_of(figure.value);
        let line = y + height / 2.0 + 4.5;
        svg.write((area.x, line), &cut(&figure.name, 12.0, names - 8.0), Style::plain(12.0));
        svg.rectangle(bar, color::LINE, 1.0, 2.0);
        svg.rectangle(Rectangle { width: bar.width * share, ..bar }, &color, 0.9, 2.0);
        let style = Style::bold(13.0).colored(&color).anchored(Anchor::End);
        svg.write((area.right(), line), text, style);
    }
}
