//! Draws legends: names in rows below, or a table of names and values below or to the right.

use serde_json::Value;

use super::color;
use super::field_config::Field;
use super::svg::{Anchor, Rectangle, Stroke, Style, Svg, cut, width};

const SIZE: f64 = 11.5;
const LINE: f64 = 17.0;
const MARK: f64 = 14.0;

/// An entry of the legend.
pub(super) struct Entry<'a> {
    pub name: &'a str,
    pub color: &'a str,
    pub points: &'a [(f64, f64)],
    pub field: &'a Field,
}

/// Draws the legend and returns the area that remains for the plot.
pub(super) fn draw(
    svg: &mut Svg,
    area: Rectangle,
    options: &Value,
    entries: &[Entry<'_>],
    now: f64,
) -> Rectangle {
    if options["showLegend"] == false || entries.is_empty() {
        return area;
    }
    let calculations: Vec<&str> =
        options["calcs"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if options["displayMode"] == "table" {
        return table(svg, area, options["placement"] == "right", &calculations, entries, now);
    }
    list(svg, area, entries)
}

/// Names one after the other, in as many rows as fit.
fn list(svg: &mut Svg, area: Rectangle, entries: &[Entry<'_>]) -> Rectangle {
    let most = if area.height > 205.0 { 6 } else { 3 };
    let (mut places, mut x, mut row) = (Vec::new(), 0.0, 0);
    for entry in entries {
        let wanted = (MARK + width(entry.name, SIZE) + 12.0).min(area.width);
        if x > 0.0 && x + wanted > area.width {
            (x, row) = (0.0, row + 1);
        }
        places.push((x, row, wanted));
        x += wanted;
    }
    let rows = (row + 1).min(most);
    let top = area.bottom() - f64::from(rows) * LINE;
    for (entry, (x, row, wanted)) in entries.iter().zip(&places) {
        if *row >= most {
            break;
        }
        // The last entry that fits gives the number of those that do not.
        let hidden = places.iter().filter(|(_, row, _)| *row >= most).count();
        let is_last = hidden > 0
            && *row == most - 1
            && places.iter().rfind(|(_, row, _)| *row == most - 1) == Some(&(*x, *row, *wanted));
        let y = top + f64::from(*row) * LINE + 12.0;
        if is_last {
            svg.write((area.x + x, y), &format!("and {} more", hidden + 1), Style::faint(SIZE));
            continue;
        }
        mark(svg, (area.x + x, y), entry.color);
        svg.write_within((area.x + x + MARK, y), wanted - MARK, entry.name, Style::plain(SIZE));
    }
    Rectangle { height: area.height - f64::from(rows) * LINE - 2.0, ..area }
}

fn table(
    svg: &mut Svg,
    area: Rectangle,
    is_right: bool,
    calculations: &[&str],
    entries: &[Entry<'_>],
    now: f64,
) -> Rectangle {
    let figures: Vec<Vec<String>> = entries
        .iter()
        .map(|entry| {
            let write = |value: f64| entry.field.write(value, now);
            calculations
                .iter()
                .map(|name| reduce(name, entry.points).map_or(String::new(), write))
                .collect()
        })
        .collect();
    let columns: Vec<f64> = (0..calculations.len())
        .map(|column| {
            let widest = figures.iter().map(|row| width(&row[column], SIZE)).fold(36.0, f64::max);
            widest + 14.0
        })
        .collect();
    let names =
        entries.iter().map(|entry| width(entry.name, SIZE)).fold(60.0, f64::max) + MARK + 8.0;
    let wanted = names + columns.iter().sum::<f64>();
    let height = (entries.len() as f64 + 1.0) * LINE;
    let place = if is_right {
        let wide = wanted.min(area.width * 0.42);
        Rectangle { x: area.right() - wide, width: wide, ..area }
    } else {
        let high = height.min(area.height * 0.45);
        Rectangle { y: area.bottom() - high, height: high, width: wanted.min(area.width), ..area }
    };
    let mut x = place.right();
    let ends: Vec<f64> = columns
        .iter()
        .rev()
        .map(|column| {
            let end = x;
            x -= column;
            end
        })
        .collect();
    let ends: Vec<f64> = ends.into_iter().rev().collect();
    for (name, end) in calculations.iter().zip(&ends) {
        let heading = match *name {
            "lastNotNull" => "last",
            other => other,
        };
        let style = Style::faint(SIZE).anchored(Anchor::End);
        svg.write((*end, place.y + 12.0), heading, style);
    }
    let fitting = ((place.height / LINE) as usize).saturating_sub(1);
    for (row, (entry, figures)) in entries.iter().zip(&figures).take(fitting).enumerate() {
        let y = place.y + (row as f64 + 1.0) * LINE + 12.0;
        mark(svg, (place.x, y), entry.color);
        let room = place.width - columns.iter().sum::<f64>() - MARK;
        svg.write((place.x + MARK, y), &cut(entry.name, SIZE, room), Style::plain(SIZE));
        for (figure, end) in figures.iter().zip(&ends) {
            svg.write((*end, y), figure, Style::plain(SIZE).anchored(Anchor::End));
        }
    }
    if is_right {
        Rectangle { width: area.width - place.width - 14.0, ..area }
    } else {
        Rectangle { height: area.height - place.height - 2.0, ..area }
    }
}

fn mark(svg: &mut Svg, at: (f64, f64), color: &str) {
    let stroke = Stroke { color, width: 3.0, dashed: false };
    svg.line((at.0, at.1 - 4.0), (at.0 + 10.0, at.1 - 4.0), stroke);
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

/// The text that is shown if there is no data.
pub(super) fn nothing(svg: &mut Svg, area: Rectangle, field: &Field) {
    let text = field.text("noValue");
    let text = if text.is_empty() { "No data" } else { text };
    let (x, y) = area.middle();
    let style = Style::plain(13.0).colored(color::FAINT).anchored(Anchor::Middle);
    svg.write_within((x, y + 4.0), area.width, text, style);
}
