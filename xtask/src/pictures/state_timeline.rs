//! Draws a `state-timeline`: a bar for each series, colored by its value over time.

use serde_json::Value;

use super::axis::TimeAxis;
use super::color;
use super::field_config::Field;
use super::panel_data::{Line, QueryResult};
use super::prometheus_client::Window;
use super::svg::{Anchor, Rectangle, Style, Svg, cut, width};

const SIZE: f64 = 12.0;

/// Draws the panel.
pub(super) fn draw(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    window: Window,
) {
    let lines: Vec<Line> = answers.iter().flat_map(QueryResult::lines).collect();
    let room = area.height - 22.0;
    let height = (room / lines.len().max(1) as f64).clamp(13.0, 34.0);
    let fitting = ((room / height) as usize).max(1);
    let shown = if lines.len() > fitting { fitting - 1 } else { lines.len() };
    let names = lines.iter().map(|line| width(&line.name, SIZE)).fold(40.0, f64::max);
    let names = names.min(area.width * 0.5) + 10.0;
    let plot = Rectangle {
        x: area.x + names,
        y: area.y,
        width: area.width - names - 8.0,
        height: height * shown.max(1) as f64,
    };
    let time = TimeAxis::of(window, plot.width);
    time.draw(svg, plot);
    for (row, line) in lines.iter().take(shown).enumerate() {
        let y = area.y + height * row as f64;
        let field = Field::of(panel, &line.name);
        let style = Style::plain(SIZE).anchored(Anchor::End);
        svg.write(
            (plot.x - 8.0, y + height / 2.0 + 4.0),
            &cut(&line.name, SIZE, names - 10.0),
            style,
        );
        for (from, to, value) in spans(&line.points) {
            let (left, right) = (time.x(from, plot), time.x(to, plot));
            let bar = Rectangle {
                x: left,
                y: y + height * 0.1,
                width: (right - left).max(1.5),
                height: height * 0.8,
            };
            svg.rectangle(bar, &field.color_of(value), 0.85, 1.0);
        }
    }
    if shown < lines.len() {
        let y = area.y + height * shown as f64 + height / 2.0 + 4.0;
        let text = format!("and {} more", lines.len() - shown);
        svg.write((area.x, y + 14.0), &text, Style::faint(SIZE).colored(color::FAINT));
    }
}

/// Periods of a constant value: equal neighbors are merged, but not across a gap.
fn spans(points: &[(f64, f64)]) -> Vec<(f64, f64, f64)> {
    let step = points.windows(2).map(|pair| pair[1].0 - pair[0].0).reduce(f64::min).unwrap_or(60.0);
    let mut spans: Vec<(f64, f64, f64)> = Vec::new();
    for (at, value) in points {
        match spans.last_mut() {
            Some((_, to, known)) if known == value && *at <= *to + step * 0.5 => *to = at + step,
            _ => spans.push((*at, at + step, *value)),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_one_bar_that_ends_at_a_gap() {
        let points = [(0.0, 1.0), (60.0, 1.0), (120.0, 0.0), (300.0, 0.0), (360.0, 0.0)];
        assert_eq!(spans(&points), [(0.0, 120.0, 1.0), (120.0, 180.0, 0.0), (300.0, 420.0, 0.0)]);
        assert!(spans(&[]).is_empty());
    }
}
