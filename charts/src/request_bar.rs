//! A horizontal bar of what a container requests, with its target and its peak.

use crate::color;
use crate::svg::{Rectangle, Stroke, Svg};

/// Amounts of one resource, all in the same unit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RequestBar<'a> {
    /// What is requested: the wide bar. `None` if there is no request or it is unknown.
    pub request: Option<f64>,
    /// What should be requested: the narrow bar. `None` if it is unknown.
    pub target: Option<f64>,
    /// The peak of usage: a vertical line. `None` if it is unknown.
    pub peak: Option<f64>,
    /// The amounts as a text, for example `request 512Mi, target 844Mi, peak 790Mi`.
    pub title: &'a str,
}

const WIDTH: f64 = 96.0;
const HEIGHT: f64 = 12.0;

// === impl RequestBar ===

impl RequestBar<'_> {
    /// The bar as an embedded picture. The largest of the amounts takes the whole width.
    pub fn draw(&self) -> String {
        let amount =
            |amount: Option<f64>| amount.filter(|amount| amount.is_finite() && *amount >= 0.0);
        let (request, target, peak) =
            (amount(self.request), amount(self.target), amount(self.peak));
        let largest = [request, target, peak].into_iter().flatten().fold(0.0, f64::max);
        let width = |amount: f64| if largest > 0.0 { amount / largest * WIDTH } else { 0.0 };

        let mut svg = Svg::embedded(WIDTH, HEIGHT, self.title, "");
        let bar = |amount: f64, height: f64| Rectangle {
            x: 0.0,
            y: (HEIGHT - height) / 2.0,
            width: width(amount).max(1.0),
            height,
        };
        svg.rectangle(Rectangle { width: WIDTH, ..bar(0.0, 2.0) }, color::LINE, 1.0, 0.0);
        if let Some(request) = request {
            svg.rectangle(bar(request, 10.0), color::REQUEST, 1.0, 1.0);
        }
        if let Some(target) = target {
            let is_short = request.is_none_or(|request| target > request);
            let color = if is_short { color::SHORTFALL } else { color::TARGET };
            svg.rectangle(bar(target, 4.0), color, 1.0, 0.0);
        }
        if let Some(peak) = peak {
            let x = width(peak).clamp(1.0, WIDTH - 1.0);
            let stroke = Stroke { color: color::USAGE, width: 2.0, dashed: false };
            svg.line((x, 0.0), (x, HEIGHT), stroke);
        }
        svg.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The x coordinates, widths and colors of the bars.
    fn bars(bar: &RequestBar<'_>) -> Vec<(String, String)> {
        let svg = bar.draw();
        let rectangles = svg.split("<rect ").skip(2);
        let attribute = |rectangle: &str, name: &str| {
            let rest = rectangle.split_once(&format!("{name}=\"")).expect("an attribute").1;
            rest.split('"').next().expect("a value").to_owned()
        };
        rectangles.map(|one| (attribute(one, "width"), attribute(one, "fill"))).collect()
    }

    #[test]
    fn the_largest_amount_takes_the_whole_width() {
        let bar = RequestBar { request: Some(400.0), target: Some(100.0), ..RequestBar::default() };
        let colors =
            ["var(--chart-light-blue)", "var(--chart-dark-green)", "var(--chart-dark-red)"];
        let text = |width: &str, color: &str| (width.to_owned(), color.to_owned());
        assert_eq!(bars(&bar), [text("96", colors[0]), text("24", colors[1])]);
        let short = RequestBar { target: Some(800.0), ..bar };
        assert_eq!(bars(&short), [text("48", colors[0]), text("96", colors[2])]);
        let without = RequestBar { request: None, ..bar };
        assert_eq!(bars(&without), [text("96", colors[2])]);
    }

    #[test]
    fn unknown_amounts_are_not_drawn() {
        assert_eq!(bars(&RequestBar::default()), []);
        let odd =
            RequestBar { request: Some(f64::NAN), target: Some(-1.0), ..RequestBar::default() };
        assert_eq!(bars(&odd), []);
        let peak = RequestBar { peak: Some(3.0), title: "<peak>", ..RequestBar::default() };
        let svg = peak.draw();
        assert!(svg.contains("&lt;peak&gt;") && svg.contains("M95 0L95 12"), "{svg}");
    }
}
