//! Points by two values, with names, and a line through some of them.

use crate::color;
use crate::svg::{Anchor, Rectangle, Stroke, Style, Svg, text_width};
use crate::units;

/// A chart of points.
#[derive(Clone, Copy, Debug)]
pub struct Scatter<'a> {
    /// The points.
    pub points: &'a [ScatterPoint],
    /// Indices of the points that a line joins, in its order.
    pub joined: &'a [usize],
    /// The name of the horizontal axis.
    pub x_title: &'a str,
    /// The name of the vertical axis.
    pub y_title: &'a str,
    /// Whether the vertical axis grows by factors, so that few differ as much as many. It still starts at zero.
    pub is_logarithmic: bool,
}

/// A point.
#[derive(Clone, Debug, PartialEq)]
pub struct ScatterPoint {
    /// Its name.
    pub name: String,
    /// The horizontal value.
    pub x: f64,
    /// The vertical value, at least 0.
    pub y: f64,
    /// Its color.
    pub color: String,
    /// What a tooltip says.
    pub title: String,
}

const SIZE: f64 = 11.0;
const RADIUS: f64 = 5.0;
const GRID: Stroke<'_> = Stroke { color: color::LINE, width: 1.0, dashed: false };
/// The largest number of marks of an axis.
const MAX_MARKS: usize = 12;

/// Draws the chart. Points that are not finite are left out.
pub fn draw(svg: &mut Svg, area: Rectangle, chart: &Scatter<'_>) {
    let is_known = |point: &&ScatterPoint| point.x.is_finite() && point.y.is_finite();
    let known = || chart.points.iter().filter(is_known);
    let most_x = known().map(|point| point.x).fold(0.0, f64::max);
    let most_y = known().map(|point| point.y).fold(0.0, f64::max);
    let x_marks = linear_marks(most_x);
    let y_marks = if chart.is_logarithmic { factor_marks(most_y) } else { linear_marks(most_y) };
    let label = |value: &f64| units::write(*value, "none", None, 0.0);
    let left = y_marks.iter().map(|mark| text_width(&label(mark), SIZE)).fold(16.0, f64::max) + 8.0;
    let plot = Rectangle {
        x: area.x + left,
        y: area.y + SIZE + 10.0,
        width: (area.width - left - 14.0).max(1.0),
        height: (area.height - 3.0 * SIZE - 28.0).max(1.0),
    };
    let scaled = |value: f64| if chart.is_logarithmic { value.max(0.0).ln_1p() } else { value };
    let x_end = x_marks.last().copied().unwrap_or(1.0).max(f64::MIN_POSITIVE);
    let y_end = scaled(y_marks.last().copied().unwrap_or(1.0)).max(f64::MIN_POSITIVE);
    let x_of = |value: f64| plot.x + (value / x_end).clamp(0.0, 1.0) * plot.width;
    let y_of = |value: f64| plot.bottom() - (scaled(value) / y_end).clamp(0.0, 1.0) * plot.height;

    for mark in &y_marks {
        let y = y_of(*mark);
        svg.line((plot.x, y), (plot.right(), y), GRID);
        let style = Style::faint(SIZE).anchored(Anchor::End);
        svg.write((plot.x - 6.0, y + SIZE / 3.0), &label(mark), style);
    }
    for mark in &x_marks {
        let x = x_of(*mark);
        svg.line((x, plot.y), (x, plot.bottom()), GRID);
        let style = Style::faint(SIZE).anchored(Anchor::Middle);
        svg.write((x, plot.bottom() + SIZE + 5.0), &label(mark), style);
    }
    svg.write((area.x, area.y + SIZE), chart.y_title, Style::faint(SIZE));
    let style = Style::faint(SIZE).anchored(Anchor::End);
    svg.write((plot.right(), area.bottom() - 4.0), chart.x_title, style);

    let joined = chart.joined.iter().filter_map(|index| chart.points.get(*index));
    let line: Vec<(f64, f64)> =
        joined.filter(is_known).map(|point| (x_of(point.x), y_of(point.y))).collect();
    if line.len() > 1 {
        svg.path(&line, Stroke { color: color::TARGET, width: 1.5, dashed: true });
    }
    let places: Vec<(f64, f64)> = known().map(|point| (x_of(point.x), y_of(point.y))).collect();
    let mut taken: Vec<Rectangle> = places.iter().map(|(x, y)| around(*x, *y)).collect();
    for (point, (x, y)) in known().zip(places) {
        svg.open(&point.title);
        svg.rectangle(around(x, y), &point.color, 1.0, RADIUS);
        let text = label_place(&point.name, (x, y), area, &taken);
        svg.write((text.x, text.bottom() - 3.0), &point.name, Style::plain(SIZE));
        svg.close();
        taken.push(text);
    }
}

fn around(x: f64, y: f64) -> Rectangle {
    Rectangle { x: x - RADIUS, y: y - RADIUS, width: 2.0 * RADIUS, height: 2.0 * RADIUS }
}

/// The first place beside a point that covers nothing else: right, left, above, below; further away if there is none.
fn label_place(name: &str, (x, y): (f64, f64), area: Rectangle, taken: &[Rectangle]) -> Rectangle {
    let (width, height) = (text_width(name, SIZE), SIZE + 3.0);
    let at = |x: f64, y: f64| Rectangle { x, y, width, height };
    let gap = RADIUS + 3.0;
    let rows = [0.0, 1.0, -1.0, 2.0, -2.0, 3.0, -3.0];
    let places = rows.into_iter().flat_map(|row| {
        let y = y - height / 2.0 + row * height;
        [at(x + gap, y), at(x - gap - width, y), at(x - width / 2.0, y)]
    });
    let fits = |place: &Rectangle| {
        let is_inside = place.x >= area.x
            && place.right() <= area.right()
            && place.y >= area.y
            && place.bottom() <= area.bottom();
        is_inside && !taken.iter().any(|other| overlap(*place, *other))
    };
    let mut places = places;
    places.find(fits).unwrap_or(at((x - width / 2.0).max(area.x), y - height - gap))
}

fn overlap(one: Rectangle, other: Rectangle) -> bool {
    one.x < other.right()
        && other.x < one.right()
        && one.y < other.bottom()
        && other.y < one.bottom()
}

/// Marks at equal distances, from zero to at least this value.
fn linear_marks(most: f64) -> Vec<f64> {
    if !(most > 0.0 && most.is_finite()) {
        return vec![0.0, 1.0];
    }
    let step = units::step(most, 5.0, "none").max(f64::MIN_POSITIVE);
    let count = ((most / step - 1e-9).ceil() as usize).clamp(1, MAX_MARKS);
    (0..=count).map(|mark| mark as f64 * step).collect()
}

/// 0, 1, 3, 10, 30 and so on, up to at least this value.
fn factor_marks(most: f64) -> Vec<f64> {
    let mut marks = vec![0.0, 1.0];
    let mut factor = 1.0;
    while marks.last().is_some_and(|last| *last < most) && marks.len() < 2 * MAX_MARKS {
        marks.push(3.0 * factor);
        if marks.last().is_some_and(|last| *last < most) {
            factor *= 10.0;
            marks.push(factor);
        }
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(name: &str, x: f64, y: f64) -> ScatterPoint {
        let title = format!("{name} < {x}");
        ScatterPoint { name: name.to_owned(), x, y, color: color::of_series(0), title }
    }

    #[test]
    fn marks_reach_the_largest_value_and_start_at_zero() {
        for most in [0.0, 0.3, 1.0, 7.0, 999.0, 1e6, f64::NAN] {
            for marks in [linear_marks(most), factor_marks(most)] {
                assert_eq!(marks[0], 0.0);
                assert!(marks.windows(2).all(|pair| pair[0] < pair[1]), "{marks:?}");
                assert!(
                    most.is_nan() || marks.last().expect("marks") >= &most,
                    "{most}: {marks:?}"
                );
                assert!(marks.len() <= 2 * MAX_MARKS + 1);
            }
        }
        assert_eq!(factor_marks(12.0), [0.0, 1.0, 3.0, 10.0, 30.0]);
    }

    #[test]
    fn each_point_has_its_name_and_no_name_covers_another() {
        let points = [
            point("a", 10.0, 1.0),
            point("b", 10.0, 1.0),
            point("a long name", 10.0, 1.0),
            point("c", 20.0, 300.0),
            point("unknown", f64::NAN, 1.0),
        ];
        let mut svg = Svg::embedded(480.0, 320.0, "a chart", "");
        let area = svg.area();
        let chart = Scatter {
            points: &points,
            joined: &[3, 0],
            x_title: "cost",
            y_title: "days",
            is_logarithmic: true,
        };
        draw(&mut svg, area, &chart);
        let text = svg.finish();
        for name in [">a<", ">b<", ">a long name<", ">c<", ">cost<", ">days<"] {
            assert!(text.contains(name), "{name}");
        }
        assert!(!text.contains(">unknown<") && !text.contains("NaN"));
        assert!(text.contains("a &lt; 10"));
        assert_eq!(text.matches("stroke-dasharray").count(), 1);
        let mut taken = vec![around(100.0, 100.0)];
        for name in ["first", "second", "third", "fourth"] {
            let place = label_place(name, (100.0, 100.0), area, &taken);
            assert!(!taken.iter().any(|other| overlap(place, *other)), "{name}");
            taken.push(place);
        }
    }
}
