//! State timelines: a row for each object, with a bar for each of its states over time.

use crate::axis::{TimeAxis, TimeRange};
use crate::color;
use crate::svg::{Anchor, Rectangle, Style, Svg, text_width, truncate};

const SIZE: f64 = 12.0;

/// An object and its states.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRow {
    /// Its name.
    pub name: String,
    /// Its states. Where there is none, the state is unknown.
    pub states: Vec<StateSpan>,
}

/// A state and when it lasted.
#[derive(Clone, Debug, PartialEq)]
pub struct StateSpan {
    /// Start, in seconds since the Unix epoch.
    pub from: f64,
    /// End.
    pub to: f64,
    /// The color of the state.
    pub color: String,
    /// The name of the state, as a tooltip; none if it is empty.
    pub title: String,
}

/// Draws the rows that fit, and the number of those that do not.
pub fn draw(svg: &mut Svg, area: Rectangle, rows: &[StateRow], range: TimeRange) {
    let room = area.height - 22.0;
    let height = (room / rows.len().max(1) as f64).clamp(13.0, 34.0);
    let fitting = ((room / height) as usize).max(1);
    let shown = if rows.len() > fitting { fitting - 1 } else { rows.len() };
    let names = rows.iter().map(|row| text_width(&row.name, SIZE)).fold(40.0, f64::max);
    let names = names.min(area.width * 0.5) + 10.0;
    let plot = Rectangle {
        x: area.x + names,
        y: area.y,
        width: area.width - names - 8.0,
        height: height * shown.max(1) as f64,
    };
    let time = TimeAxis::of(range, plot.width);
    time.draw(svg, plot);
    for (place, row) in rows.iter().take(shown).enumerate() {
        let y = area.y + height * place as f64;
        let style = Style::plain(SIZE).anchored(Anchor::End);
        svg.write(
            (plot.x - 8.0, y + height / 2.0 + 4.0),
            &truncate(&row.name, SIZE, names - 10.0),
            style,
        );
        for state in &row.states {
            let (left, right) = (time.x(state.from, plot), time.x(state.to, plot));
            let bar = Rectangle {
                x: left,
                y: y + height * 0.1,
                width: (right - left).max(1.5),
                height: height * 0.8,
            };
            if !state.title.is_empty() {
                svg.open(&state.title);
            }
            svg.rectangle(bar, &state.color, 0.85, 1.0);
            if !state.title.is_empty() {
                svg.close();
            }
        }
    }
    if shown < rows.len() {
        let y = area.y + height * shown as f64 + height / 2.0 + 4.0;
        let text = format!("and {} more", rows.len() - shown);
        svg.write((area.x, y + 14.0), &text, Style::faint(SIZE).colored(color::FAINT));
    }
}

/// Periods of a constant value: start, end and value. Equal neighbors are merged, but not across a gap.
pub fn spans(points: &[(f64, f64)]) -> Vec<(f64, f64, f64)> {
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
