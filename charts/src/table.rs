//! Tables: headings, rows of cells, and the number of rows that do not fit.

use crate::color;
use crate::svg::{Anchor, Rectangle, Stroke, Style, Svg, text_width, truncate};

const SIZE: f64 = 12.0;
const LINE: f64 = 22.0;

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub heading: String,
    /// Whether its cells are aligned to the right.
    pub is_number: bool,
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Its text.
    pub text: String,
    /// The color of the text.
    pub color: String,
}

/// Draws the rows that fit, and the number of those that do not. Each row has a cell for each column.
pub fn draw(svg: &mut Svg, area: Rectangle, columns: &[Column], rows: &[Vec<Cell>]) {
    let fitting = ((area.height / LINE) as usize).saturating_sub(1);
    let left_out = rows.len().saturating_sub(fitting);
    let shown = if left_out > 0 { fitting.saturating_sub(1) } else { rows.len() };
    let shown = &rows[..shown.min(rows.len())];

    let widths = widths(columns, shown, area.width);
    let mut x = area.x;
    for (place, (column, wide)) in columns.iter().zip(&widths).enumerate() {
        let (at, anchor) = if column.is_number {
            (x + wide - 10.0, Anchor::End)
        } else {
            (x + 2.0, Anchor::Start)
        };
        let heading = truncate(&column.heading, SIZE, wide - 8.0);
        svg.write((at, area.y + 14.0), &heading, Style::faint(SIZE).anchored(anchor));
        for (line, row) in shown.iter().enumerate() {
            let Some(cell) = row.get(place) else { continue };
            let y = area.y + LINE * (line as f64 + 1.0) + 15.0;
            let style = Style::plain(SIZE).colored(&cell.color).anchored(anchor);
            svg.write((at, y), &truncate(&cell.text, SIZE, wide - 8.0), style);
        }
        x += wide;
    }
    for line in 0..=shown.len() {
        let y = area.y + LINE * (line as f64 + 1.0);
        let stroke = Stroke { color: color::LINE, width: 1.0, dashed: false };
        svg.line((area.x, y), (area.right(), y), stroke);
    }
    if left_out > 0 {
        let y = area.y + LINE * (shown.len() as f64 + 1.0) + 15.0;
        let text = format!("and {} more rows", rows.len() - shown.len());
        svg.write((area.x + 2.0, y), &text, Style::faint(SIZE));
    }
}

/// Column widths by content, scaled to the available width.
fn widths(columns: &[Column], rows: &[Vec<Cell>], room: f64) -> Vec<f64> {
    let wanted: Vec<f64> = columns
        .iter()
        .enumerate()
        .map(|(place, column)| {
            let cells = rows.iter().filter_map(|row| row.get(place));
            let cells = cells.map(|cell| text_width(&cell.text, SIZE));
            cells.fold(text_width(&column.heading, SIZE), f64::max) + 22.0
        })
        .collect();
    let sum: f64 = wanted.iter().sum();
    wanted.iter().map(|wide| wide * room / sum.max(1.0)).collect()
}
