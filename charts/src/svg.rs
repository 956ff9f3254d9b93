//! An SVG picture: shapes, escaped texts and the estimated width of a text.

use std::fmt::{self, Write as _};

use crate::color::{self, Paint};

/// Fonts that read well at these sizes, in order of preference.
const FONTS: &str = "Inter, 'Segoe UI', 'Helvetica Neue', Helvetica, Arial, 'Liberation Sans', 'DejaVu Sans', sans-serif";

/// A picture under construction.
#[derive(Debug)]
pub struct Svg {
    text: String,
    size: (f64, f64),
    /// Whether colors are custom properties of a page.
    is_themed: bool,
}

/// A rectangle, in pixels from the upper left corner of the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rectangle {
    /// The x coordinate of its left edge.
    pub x: f64,
    /// The y coordinate of its upper edge.
    pub y: f64,
    /// Its width.
    pub width: f64,
    /// Its height.
    pub height: f64,
}

/// Alignment of a text relative to its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The text begins at the point.
    Start,
    /// The middle of the text is at the point.
    Middle,
    /// The text ends at the point.
    End,
}

/// Style of a text.
#[derive(Clone, Copy, Debug)]
pub struct Style<'a> {
    /// The size of the font.
    pub size: f64,
    /// The color.
    pub color: &'a str,
    /// Whether it is bold.
    pub bold: bool,
    /// The alignment.
    pub anchor: Anchor,
}

/// Style of a line.
#[derive(Clone, Copy, Debug)]
pub struct Stroke<'a> {
    /// The color.
    pub color: &'a str,
    /// The width.
    pub width: f64,
    /// Whether it is dashed.
    pub dashed: bool,
}

// === impl Rectangle ===

impl Rectangle {
    /// The x coordinate of its right edge.
    pub fn right(self) -> f64 {
        self.x + self.width
    }

    /// The y coordinate of its lower edge.
    pub fn bottom(self) -> f64 {
        self.y + self.height
    }

    /// The rectangle without a margin of this width.
    #[must_use]
    pub fn inside(self, by: f64) -> Self {
        Self {
            x: self.x + by,
            y: self.y + by,
            width: (self.width - 2.0 * by).max(1.0),
            height: (self.height - 2.0 * by).max(1.0),
        }
    }

    /// Its center.
    pub fn middle(self) -> (f64, f64) {
        (self.x + self.width / 2.0, self.y + self.height / 2.0)
    }
}

// === impl Style ===

impl Style<'static> {
    /// A plain text.
    pub fn plain(size: f64) -> Self {
        Self { size, color: color::TEXT, bold: false, anchor: Anchor::Start }
    }

    /// A secondary text.
    pub fn faint(size: f64) -> Self {
        Self { color: color::FAINT, ..Self::plain(size) }
    }

    /// A bold text.
    pub fn bold(size: f64) -> Self {
        Self { bold: true, ..Self::plain(size) }
    }
}

impl<'a> Style<'a> {
    /// Sets the color.
    pub fn colored(self, color: &str) -> Style<'_> {
        Style { size: self.size, color, bold: self.bold, anchor: self.anchor }
    }

    /// Sets the alignment.
    #[must_use]
    pub fn anchored(self, anchor: Anchor) -> Style<'a> {
        Self { anchor, ..self }
    }
}

// === impl Svg ===

impl Svg {
    /// An empty document with fixed colors.
    pub fn new(width: f64, height: f64, title: &str) -> Self {
        let mut svg = Self { text: String::new(), size: (width, height), is_themed: false };
        svg.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"{FONTS}\">\n<title>{}</title>\n",
            Escaped(title)
        ));
        svg.rectangle(Rectangle { x: 0.0, y: 0.0, width, height }, color::GROUND, 1.0, 0.0);
        svg
    }

    /// An empty picture in a page: without a background, in the colors of [`crate::STYLESHEET`]. Screen readers read the
    /// title and the description, if there is one, instead of the picture.
    pub fn embedded(width: f64, height: f64, title: &str, description: &str) -> Self {
        let mut svg = Self { text: String::new(), size: (width, height), is_themed: true };
        svg.put(format_args!(
            "<svg class=\"chart\" role=\"img\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\">\
             <title>{2}</title>",
            ShortNumber(width),
            ShortNumber(height),
            Escaped(title)
        ));
        if !description.is_empty() {
            svg.put(format_args!("<desc>{}</desc>", Escaped(description)));
        }
        svg
    }

    /// The whole area.
    pub fn area(&self) -> Rectangle {
        Rectangle { x: 0.0, y: 0.0, width: self.size.0, height: self.size.1 }
    }

    /// The complete picture.
    pub fn finish(mut self) -> String {
        self.text.push_str("</svg>");
        if !self.is_themed {
            self.text.push('\n');
        }
        self.text
    }

    fn paint<'a>(&self, color: &'a str) -> Paint<'a> {
        Paint { color, is_themed: self.is_themed }
    }

    fn put(&mut self, markup: fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        let _ = self.text.write_fmt(markup);
    }

    /// Starts a group with this tooltip, until `close`.
    pub fn open(&mut self, about: &str) {
        self.put(format_args!("<g><title>{}</title>\n", Escaped(about)));
    }

    /// Ends the group.
    pub fn close(&mut self) {
        self.text.push_str("</g>\n");
    }

    /// A filled rectangle.
    pub fn rectangle(&mut self, area: Rectangle, fill: &str, opacity: f64, round: f64) {
        let Rectangle { x, y, width, height } = area;
        let (x, y, width, height) =
            (ShortNumber(x), ShortNumber(y), ShortNumber(width), ShortNumber(height));
        let fill = self.paint(fill);
        self.put(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\""
        ));
        if opacity < 1.0 {
            self.put(format_args!(" fill-opacity=\"{}\"", ShortNumber(opacity)));
        }
        if round > 0.0 {
            self.put(format_args!(" rx=\"{}\"", ShortNumber(round)));
        }
        self.text.push_str("/>\n");
    }

    /// The background of a panel, with a border.
    pub fn card(&mut self, area: Rectangle) {
        let Rectangle { x, y, width, height } = area;
        self.put(format_args!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"3\" fill=\"{}\" stroke=\"{}\"/>\n",
            ShortNumber(x + 0.5),
            ShortNumber(y + 0.5),
            ShortNumber(width - 1.0),
            ShortNumber(height - 1.0),
            self.paint(color::CARD),
            self.paint(color::LINE)
        ));
    }

    /// A straight line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), stroke: Stroke<'_>) {
        self.path(&[from, to], stroke);
    }

    /// A polyline.
    pub fn path(&mut self, points: &[(f64, f64)], stroke: Stroke<'_>) {
        let Stroke { color, width, dashed } = stroke;
        self.text.push_str("<path d=\"");
        self.points(points);
        let color = self.paint(color);
        let dash = if dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        self.put(format_args!(
            "\" fill=\"none\" stroke=\"{color}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dash}/>\n",
            ShortNumber(width)
        ));
    }

    /// A filled polygon.
    pub fn shape(&mut self, points: &[(f64, f64)], fill: &str, opacity: f64) {
        self.text.push_str("<path d=\"");
        self.points(points);
        let fill = self.paint(fill);
        self.put(format_args!("Z\" fill=\"{fill}\" fill-opacity=\"{}\"/>\n", ShortNumber(opacity)));
    }

    /// Writes the points, except those between two of the same height, which make no difference.
    fn points(&mut self, points: &[(f64, f64)]) {
        let is_flat = |place: usize| {
            let height = |place: usize| points.get(place).map(|(_, y)| (y * 10.0).round());
            place > 0 && height(place - 1) == height(place) && height(place) == height(place + 1)
        };
        for (place, (x, y)) in points.iter().enumerate().filter(|(place, _)| !is_flat(*place)) {
            let letter = if place == 0 { 'M' } else { 'L' };
            self.put(format_args!("{letter}{} {}", ShortNumber(*x), ShortNumber(*y)));
        }
    }

    /// An arc; angles are fractions of a half turn, clockwise from the left.
    pub fn arc(&mut self, middle: (f64, f64), radius: f64, part: (f64, f64), stroke: Stroke<'_>) {
        let at = |share: f64| {
            let angle = std::f64::consts::PI * (1.0 - share);
            (middle.0 + radius * angle.cos(), middle.1 - radius * angle.sin())
        };
        let (from, to) = (at(part.0), at(part.1));
        let radius = ShortNumber(radius);
        self.put(format_args!(
            "<path d=\"M{} {}A{radius} {radius} 0 0 1 {} {}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\"/>\n",
            ShortNumber(from.0), ShortNumber(from.1), ShortNumber(to.0), ShortNumber(to.1), self.paint(stroke.color), ShortNumber(stroke.width)
        ));
    }

    /// A text at this point of the baseline.
    pub fn write(&mut self, at: (f64, f64), text: &str, style: Style<'_>) {
        let (x, y, size) = (ShortNumber(at.0), ShortNumber(at.1), ShortNumber(style.size));
        self.put(format_args!(
            "<text x=\"{x}\" y=\"{y}\" font-size=\"{size}\" fill=\"{}\"",
            self.paint(style.color)
        ));
        if style.bold {
            self.text.push_str(" font-weight=\"600\"");
        }
        self.text.push_str(match style.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        });
        self.put(format_args!(">{}</text>\n", Escaped(text)));
    }

    /// A text that is truncated at this width.
    pub fn write_within(&mut self, at: (f64, f64), width: f64, text: &str, style: Style<'_>) {
        self.write(at, &truncate(text, style.size, width), style);
    }
}

/// The estimated width of a text. Fonts differ; the estimate is on the wide side.
pub fn text_width(text: &str, size: f64) -> f64 {
    let of = |letter: char| match letter {
        'i' | 'j' | 'l' | '\'' | '|' | '.' | ',' | ':' | ';' | '!' => 0.3,
        'f' | 't' | 'r' | 'I' | '(' | ')' | '[' | ']' | '/' | ' ' | '-' | '"' => 0.38,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 0.9,
        'A'..='Z' => 0.68,
        _ => 0.61,
    };
    text.chars().map(of).sum::<f64>() * size
}

/// Truncates a text at this width.
pub fn truncate(text: &str, size: f64, most: f64) -> String {
    if text_width(text, size) <= most {
        return text.to_owned();
    }
    let mut prefix = text.to_owned();
    while !prefix.is_empty() && text_width(&prefix, size) + size > most {
        prefix.pop();
    }
    format!("{}…", prefix.trim_end())
}

/// A number without insignificant digits.
struct ShortNumber(f64);

impl fmt::Display for ShortNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.0.is_finite() {
            return f.write_str("0");
        }
        let rounded = (self.0 * 10.0).round() / 10.0;
        // Opacities and angles are small, so they need more digits.
        let shown = if self.0.abs() < 1.0 { (self.0 * 100.0).round() / 100.0 } else { rounded };
        write!(f, "{}", if shown == 0.0 { 0.0 } else { shown })
    }
}

/// A text escaped for XML.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                letter if letter.is_control() || is_invisible(letter) => f.write_char(' ')?,
                letter => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Whether a character is not printed but changes how others are: directions, joiners, line separators, tags. The last
/// two must not be in XML.
pub fn is_invisible(letter: char) -> bool {
    matches!(
        letter,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{fffe}'
            | '\u{ffff}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_truncated() {
        let mut svg = Svg::new(100.0, 50.0, "a < b");
        svg.write_within(
            (1.0, 2.0),
            60.0,
            "\"x\" & something that is too long",
            Style::plain(12.0),
        );
        let text = svg.finish();
        assert!(text.contains("<title>a &lt; b</title>"), "{text}");
        assert!(text.contains("&quot;x&quot; &amp;") && text.contains('…'), "{text}");
        assert!(text.ends_with("</svg>\n"));
    }

    #[test]
    fn an_embedded_picture_has_a_title_a_description_and_colors_of_the_page() {
        let mut svg = Svg::embedded(100.0, 50.0, "\u{202e}<script>", "a & b");
        let area = svg.area();
        svg.rectangle(area, color::LINE, 1.0, 0.0);
        svg.line((0.0, 0.0), (f64::NAN, 1.0), Stroke { color: "x\" y", width: 1.0, dashed: true });
        assert_eq!(
            svg.finish(),
            "<svg class=\"chart\" role=\"img\" width=\"100\" height=\"50\" viewBox=\"0 0 100 50\">\
             <title> &lt;script&gt;</title><desc>a &amp; b</desc>\
             <rect x=\"0\" y=\"0\" width=\"100\" height=\"50\" fill=\"var(--chart-line)\"/>\n\
             <path d=\"M0 0L0 1\" fill=\"none\" stroke=\"x y\" stroke-width=\"1\" stroke-linejoin=\"round\" \
             stroke-dasharray=\"6 4\"/>\n</svg>"
        );
        for letter in ['\u{200e}', '\u{200b}', '\u{2028}', '\u{2060}', '\u{feff}', '\u{e0041}'] {
            let title = Svg::embedded(1.0, 1.0, &format!("a{letter}b"), "").finish();
            assert!(title.contains("<title>a b</title>"), "{letter:?}");
        }
        assert!(!Svg::embedded(1.0, 1.0, "a", "").finish().contains("<desc>"));
    }
}
