//! Legends: names in rows below a plot, or a table of names and values below it or to its right.

use crate::color;
use crate::svg::{Anchor, Rectangle, Stroke, Style, Svg, text_width, truncate};

const SIZE: f64 = 11.5;
const LINE: f64 = 17.0;
const MARK: f64 = 14.0;

/// The form of a legend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Legend {
    /// None.
    Hidden,
    /// Names in rows below the plot.
    #[default]
    List,
    /// Names and values.
    Table {
        /// Whether it is to the right of the plot instead of below it.
        is_right: bool,
        /// The headings of the values, one for each of [`Entry::values`].
        headings: Vec<String>,
    },
}

/// An entry of a legend.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// The name.
    pub name: &'a str,
    /// The color of the mark.
    pub color: &'a str,
    /// The values in a table.
    pub values: &'a [String],
}

/// Draws the legend and returns the area that remains for the plot.
pub fn draw(svg: &mut Svg, area: Rectangle, form: &Legend, entries: &[Entry<'_>]) -> Rectangle {
    if entries.is_empty() {
        return area;
    }
    match form {
        Legend::Hidden => area,
        Legend::List => list(svg, area, entries),
        Legend::Table { is_right, headings } => table(svg, area, *is_right, headings, entries),
    }
}

/// Names one after the other, in as many rows as fit.
fn list(svg: &mut Svg, area: Rectangle, entries: &[Entry<'_>]) -> Rectangle {
    let most = if area.height > 205.0 { 6 } else { 3 };
    let (mut places, mut x, mut row) = (Vec::new(), 0.0, 0);
    for entry in entries {
        let wanted = (MARK + text_width(entry.name, SIZE) + 12.0).min(area.width);
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
    headings: &[String],
    entries: &[Entry<'_>],
) -> Rectangle {
    let columns: Vec<f64> = (0..headings.len())
        .map(|column| {
            let values = entries.iter().filter_map(|entry| entry.values.get(column));
            let widest = values.map(|value| text_width(value, SIZE)).fold(36.0, f64::max);
            widest + 14.0
        })
        .collect();
    let names =
        entries.iter().map(|entry| text_width(entry.name, SIZE)).fold(60.0, f64::max) + MARK + 8.0;
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
    for (heading, end) in headings.iter().zip(&ends) {
        let style = Style::faint(SIZE).anchored(Anchor::End);
        svg.write((*end, place.y + 12.0), heading, style);
    }
    let fitting = ((place.height / LINE) as usize).saturating_sub(1);
    for (row, entry) in entries.iter().take(fitting).enumerate() {
        let y = place.y + (row as f64 + 1.0) * LINE + 12.0;
        mark(svg, (place.x, y), entry.color);
        let room = place.width - columns.iter().sum::<f64>() - MARK;
        svg.write((place.x + MARK, y), &truncate(entry.name, SIZE, room), Style::plain(SIZE));
        for (value, end) in entry.values.iter().zip(&ends) {
            svg.write((*end, y), value, Style::plain(SIZE).anchored(Anchor::End));
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

/// Draws a text in the middle of an area that has nothing else.
pub fn draw_placeholder(svg: &mut Svg, area: Rectangle, text: &str) {
    let (x, y) = area.middle();
    let style = Style::plain(13.0).colored(color::FAINT).anchored(Anchor::Middle);
    svg.write_within((x, y + 4.0), area.width, text, style);
}
