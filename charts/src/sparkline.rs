//! A small line of usage over time, with the request.

use crate::axis::TimeRange;
use crate::color;
use crate::svg::{Stroke, Svg};

/// Usage over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sparkline<'a> {
    /// Times in seconds since the Unix epoch, and values. Without a value there is no point.
    pub points: &'a [(f64, f64)],
    /// The request, as a dashed line; `None` if there is none or it is unknown.
    pub request: Option<f64>,
    /// The time that the whole width stands for.
    pub range: TimeRange,
    /// What it shows, for example `CPU of checkout: at most 900m, request 1`.
    pub title: &'a str,
    /// More about it; none if it is empty.
    pub description: &'a str,
}

const WIDTH: f64 = 120.0;
const HEIGHT: f64 = 28.0;
/// The distance between the lines and the edges.
const MARGIN: f64 = 2.0;
/// A gap is a distance of two points of more than this many usual ones.
const GAP: f64 = 1.5;

// === impl Sparkline ===

impl Sparkline<'_> {
    /// The line as an embedded picture. It starts at zero; where points are missing, it has a gap.
    pub fn draw(&self) -> String {
        let mut svg = Svg::embedded(WIDTH, HEIGHT, self.title, self.description);
        let request = self.request.filter(|request| request.is_finite());
        let known: Vec<(f64, f64)> =
            self.points.iter().copied().filter(|(_, value)| value.is_finite()).collect();
        let largest =
            known.iter().map(|(_, value)| *value).chain(request).fold(f64::MIN_POSITIVE, f64::max);
        let length = self.range.length().max(f64::MIN_POSITIVE);
        let x = |at: f64| {
            MARGIN + ((at - self.range.from) / length).clamp(0.0, 1.0) * (WIDTH - 2.0 * MARGIN)
        };
        let y = |value: f64| {
            HEIGHT - MARGIN - (value / largest).clamp(0.0, 1.0) * (HEIGHT - 2.0 * MARGIN)
        };
        let base = Stroke { color: color::LINE, width: 1.0, dashed: false };
        svg.line((0.0, HEIGHT - 1.0), (WIDTH, HEIGHT - 1.0), base);
        for piece in pieces(&known) {
            let points: Vec<_> = piece.iter().map(|(at, value)| (x(*at), y(*value))).collect();
            let line = Stroke { color: color::USAGE, width: 1.5, dashed: false };
            match points[..] {
                [(x, y)] => svg.line((x - 0.75, y), (x + 0.75, y), line),
                _ => svg.path(&points, line),
            }
        }
        if let Some(request) = request {
            let line = Stroke { color: color::REQUEST, width: 1.5, dashed: true };
            svg.line((0.0, y(request)), (WIDTH, y(request)), line);
        }
        svg.finish()
    }
}

/// Points without a gap between them.
fn pieces(points: &[(f64, f64)]) -> impl Iterator<Item = &[(f64, f64)]> {
    let steps = points.windows(2).map(|pair| pair[1].0 - pair[0].0);
    let step = steps.filter(|step| *step > 0.0).fold(f64::INFINITY, f64::min);
    points.chunk_by(move |one, next| next.0 - one.0 <= step * GAP)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(points: &[(f64, f64)], request: Option<f64>) -> Vec<String> {
        let range = TimeRange { from: 0.0, to: 116.0 };
        let svg = Sparkline { points, request, range, title: "a<b", description: "" }.draw();
        assert!(svg.contains("<title>a&lt;b</title>"), "{svg}");
        let paths = svg.split(" d=\"").skip(2);
        paths.map(|path| path.split('"').next().expect("a path").to_owned()).collect()
    }

    #[test]
    fn the_line_starts_at_zero_and_has_gaps() {
        assert_eq!(
            paths(&[(0.0, 0.0), (10.0, 12.0), (40.0, 24.0), (50.0, f64::NAN)], None),
            ["M2 26L12 14", "M41.3 2L42.8 2"]
        );
        assert_eq!(
            paths(&[(0.0, 12.0), (116.0, 12.0)], Some(24.0)),
            ["M2 14L118 14", "M0 2L120 2"]
        );
        assert_eq!(paths(&[], None), [""; 0]);
        assert_eq!(paths(&[(5.0, 0.0)], Some(f64::NAN)), ["M6.3 26L7.8 26"]);
    }
}
