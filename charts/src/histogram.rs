//! Counts of classes as bars.

use crate::color;
use crate::svg::{Anchor, Rectangle, Stroke, Style, Svg};

/// Counts of classes of equal width.
#[derive(Clone, Copy, Debug)]
pub struct Histogram<'a> {
    /// The counts.
    pub counts: &'a [u32],
    /// The first and the last value of the horizontal axis, as text.
    pub ends: (&'a str, &'a str),
    /// The name of a class by its index, for tooltips.
    pub class: fn(usize) -> String,
}

const SIZE: f64 = 10.0;

/// Draws the bars, with the largest count above them.
pub fn draw(svg: &mut Svg, area: Rectangle, chart: &Histogram<'_>) {
    let most = chart.counts.iter().copied().max().unwrap_or(0);
    let plot = Rectangle {
        y: area.y + SIZE + 4.0,
        height: (area.height - 2.0 * SIZE - 10.0).max(1.0),
        ..area
    };
    let width = plot.width / chart.counts.len().max(1) as f64;
    for (index, count) in chart.counts.iter().enumerate() {
        let height = f64::from(*count) / f64::from(most.max(1)) * plot.height;
        let bar = Rectangle {
            x: plot.x + width * index as f64 + 1.0,
            y: plot.bottom() - height,
            width: (width - 2.0).max(1.0),
            height,
        };
        svg.open(&format!("{}: {count}", (chart.class)(index)));
        svg.rectangle(bar, color::REQUEST, 1.0, 0.0);
        svg.close();
    }
    let base = Stroke { color: color::FAINT, width: 1.0, dashed: false };
    svg.line((plot.x, plot.bottom()), (plot.right(), plot.bottom()), base);
    svg.write((plot.x, area.y + SIZE), &format!("at most {most}"), Style::faint(SIZE));
    svg.write((plot.x, area.bottom() - 1.0), chart.ends.0, Style::faint(SIZE));
    let end = Style::faint(SIZE).anchored(Anchor::End);
    svg.write((plot.right(), area.bottom() - 1.0), chart.ends.1, end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_count_has_the_full_height() {
        let mut svg = Svg::embedded(100.0, 62.0, "counts", "");
        let area = svg.area();
        let class = |index: usize| format!("class {index}");
        draw(&mut svg, area, &Histogram { counts: &[0, 5, 10], ends: ("0", "3"), class });
        let text = svg.finish();
        assert!(text.contains("height=\"32\"") && text.contains("height=\"16\""), "{text}");
        assert!(text.contains("class 2: 10") && text.contains("at most 10"));
        let mut svg = Svg::embedded(100.0, 60.0, "counts", "");
        draw(&mut svg, area, &Histogram { counts: &[], ends: ("0", "1"), class });
        assert!(svg.finish().contains("at most 0"));
    }
}
