//! Single values: large numbers, gauges and horizontal bars.

use crate::color;
use crate::svg::{Anchor, Rectangle, Stroke, Style, Svg, text_width, truncate};

/// A value, its name and its text.
#[derive(Clone, Debug, PartialEq)]
pub struct SingleValue {
    /// The name.
    pub name: String,
    /// The value, for the length of bars.
    pub value: f64,
    /// The value as it is written.
    pub text: String,
    /// The color of the text and of the bar.
    pub color: String,
    /// The value of an empty bar.
    pub min: Option<f64>,
    /// The value of a full bar.
    pub max: Option<f64>,
}

/// Draws one large value, or several lines with names.
pub fn draw_stat(svg: &mut Svg, area: Rectangle, figures: &[SingleValue], with_names: bool) {
    if !with_names && figures.len() == 1 {
        let SingleValue { text, color, .. } = &figures[0];
        let fitting = area.width / text_width(text, 1.0);
        let size = (area.height * 0.5).min(fitting * 0.85).clamp(12.0, 32.0);
        let (x, y) = area.middle();
        let style = Style::bold(size).colored(color).anchored(Anchor::Middle);
        svg.write((x, y + size * 0.35), text, style);
        return;
    }
    let height = (area.height / figures.len() as f64).min(46.0);
    let top = area.y + (area.height - height * figures.len() as f64) / 2.0;
    let size = (height * 0.55).clamp(11.0, 24.0);
    for (row, figure) in figures.iter().enumerate() {
        let y = top + height * (row as f64 + 0.5) + size * 0.35;
        let text = truncate(&figure.text, size, area.width);
        svg.write(
            (area.right(), y),
            &text,
            Style::bold(size).colored(&figure.color).anchored(Anchor::End),
        );
        if with_names {
            let room = area.width - text_width(&text, size) - 10.0;
            let small = (size * 0.7).clamp(11.0, 14.0);
            svg.write(
                (area.x, y - (size - small) * 0.2),
                &truncate(&figure.name, small, room),
                Style::plain(small),
            );
        }
    }
}

/// Draws a half ring from minimum to maximum. `thresholds` are the lowest values of ranges and their colors.
pub fn draw_gauge(
    svg: &mut Svg,
    area: Rectangle,
    figure: &SingleValue,
    thresholds: &[(f64, String)],
) {
    let (low, high) = (figure.min.unwrap_or(0.0), figure.max.unwrap_or(1.0));
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
    let color = &figure.color;
    if share(figure.value) > 0.0 {
        let part = (0.0, share(figure.value));
        svg.arc(middle, radius - thick / 2.0, part, Stroke { color, width: thick, dashed: false });
    }
    for (place, (from, color)) in thresholds.iter().enumerate() {
        let to = thresholds.get(place + 1).map_or(high, |(next, _)| *next);
        let part = (share(from.max(low)), share(to));
        if part.1 > part.0 {
            svg.arc(middle, radius + 4.0, part, Stroke { color, width: 4.0, dashed: false });
        }
    }
    let size = (radius * 0.42).clamp(12.0, 28.0);
    let style = Style::bold(size).colored(color).anchored(Anchor::Middle);
    svg.write((middle.0, middle.1 - 2.0), &figure.text, style);
}

/// Draws a bar for each value, with names on the left and values on the right.
pub fn draw_bars(svg: &mut Svg, area: Rectangle, figures: &[SingleValue]) {
    let height = (area.height / figures.len().max(1) as f64).clamp(14.0, 40.0);
    let fitting = ((area.height / height) as usize).max(1);
    let names = figures.iter().map(|figure| text_width(&figure.name, 12.0)).fold(0.0, f64::max);
    let names = names.min(area.width * 0.5) + 8.0;
    let values =
        figures.iter().map(|figure| text_width(&figure.text, 13.0)).fold(0.0, f64::max) + 10.0;
    let largest = figures.iter().map(|figure| figure.value).fold(0.0, f64::max);
    for (row, figure) in figures.iter().take(fitting).enumerate() {
        let y = area.y + height * row as f64;
        let bar = Rectangle {
            x: area.x + names,
            y: y + height * 0.15,
            width: (area.width - names - values).max(4.0),
            height: height * 0.7,
        };
        let low = figure.min.unwrap_or(0.0);
        let high = figure.max.unwrap_or(largest).max(low + f64::EPSILON);
        let share = ((figure.value - low) / (high - low)).clamp(0.0, 1.0);
        let line = y + height / 2.0 + 4.5;
        svg.write((area.x, line), &truncate(&figure.name, 12.0, names - 8.0), Style::plain(12.0));
        svg.rectangle(bar, color::LINE, 1.0, 2.0);
        svg.rectangle(Rectangle { width: bar.width * share, ..bar }, &figure.color, 0.9, 2.0);
        let style = Style::bold(13.0).colored(&figure.color).anchored(Anchor::End);
        svg.write((area.right(), line), &figure.text, style);
    }
}
