//! Colors: those of texts and lines, those of series by name or by position, and their custom properties in pages.

use std::fmt;

/// Color of texts.
pub const TEXT: &str = "#24292f";
/// Color of secondary texts.
pub const FAINT: &str = "#6a737d";
/// Color of borders and grid lines.
pub const LINE: &str = "#e4e7eb";
/// Background behind the panels.
pub const GROUND: &str = "#f4f5f7";
/// Background of panels.
pub const CARD: &str = "#ffffff";
/// Color of links.
pub const LINK: &str = "#1f62e0";
/// Color of what is requested.
pub const REQUEST: &str = "#9fc2f2";
/// Color of a target.
pub const TARGET: &str = "#1f6e1b";
/// Color of a target above the request.
pub const SHORTFALL: &str = "#a3152f";
/// Color of measured usage.
pub const USAGE: &str = "#e06c1f";

/// Colors of series without one of their own, in order.
const PALETTE: [&str; 12] = [
    "#56a64b", "#e0a800", "#3274d9", "#e06c1f", "#d1304f", "#8f3bb8", "#1f8f9c", "#a35d00",
    "#6f7f1e", "#c0569b", "#4b5fb5", "#7a7a7a",
];

/// The custom properties of a page and the colors that they stand for. [`crate::STYLESHEET`] sets them for light and
/// for dark pages.
pub(crate) const CUSTOM_PROPERTIES: [(&str, &str); 26] = [
    (TEXT, "--chart-text"),
    (FAINT, "--chart-faint"),
    (LINE, "--chart-line"),
    (GROUND, "--chart-ground"),
    (CARD, "--chart-card"),
    (LINK, "--chart-link"),
    (REQUEST, "--chart-light-blue"),
    (TARGET, "--chart-dark-green"),
    (SHORTFALL, "--chart-dark-red"),
    ("#3d9a35", "--chart-green"),
    ("#9ad392", "--chart-light-green"),
    ("#f0919f", "--chart-light-red"),
    ("#2f6fd6", "--chart-blue"),
    ("#d9a400", "--chart-yellow"),
    ("#56a64b", "--chart-1"),
    ("#e0a800", "--chart-2"),
    ("#3274d9", "--chart-3"),
    ("#e06c1f", "--chart-4"),
    ("#d1304f", "--chart-5"),
    ("#8f3bb8", "--chart-6"),
    ("#1f8f9c", "--chart-7"),
    ("#a35d00", "--chart-8"),
    ("#6f7f1e", "--chart-9"),
    ("#c0569b", "--chart-10"),
    ("#4b5fb5", "--chart-11"),
    ("#7a7a7a", "--chart-12"),
];

/// The color of the series at this index.
pub fn of_series(place: usize) -> String {
    PALETTE[place % PALETTE.len()].to_owned()
}

/// A color by name; a `#` color is returned unchanged.
pub fn hex(name: &str) -> String {
    let hex = match name {
        "green" => "#3d9a35",
        "dark-green" => TARGET,
        "light-green" => "#9ad392",
        "red" => "#d1304f",
        "dark-red" => SHORTFALL,
        "light-red" => "#f0919f",
        "orange" => USAGE,
        "yellow" => "#d9a400",
        "blue" => "#2f6fd6",
        "light-blue" => REQUEST,
        "purple" => "#8f3bb8",
        "text" => TEXT,
        other if other.starts_with('#') => other,
        _ => FAINT,
    };
    hex.to_owned()
}

/// A color as the value of an attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paint<'a> {
    pub color: &'a str,
    /// Whether the page determines the color.
    pub is_themed: bool,
}

impl fmt::Display for Paint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known =
            CUSTOM_PROPERTIES.iter().find(|(color, _)| self.is_themed && *color == self.color);
        if let Some((_, property)) = known {
            return write!(f, "var({property})");
        }
        // Everything that a color needs, and nothing that ends an attribute.
        let is_plain =
            |letter: &char| letter.is_ascii_alphanumeric() || "#(),.%- ".contains(*letter);
        self.color.chars().filter(is_plain).try_for_each(|letter| fmt::Write::write_char(f, letter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_determines_the_known_colors() {
        let paint = |color: &str, is_themed| Paint { color, is_themed }.to_string();
        assert_eq!(paint(TEXT, false), "#24292f");
        assert_eq!(paint(TEXT, true), "var(--chart-text)");
        assert_eq!(paint(&of_series(15), true), "var(--chart-4)");
        assert_eq!(paint(&hex("green"), true), "var(--chart-green)");
        assert_eq!(paint("#123456", true), "#123456");
        assert_eq!(paint("red\"/><script>", true), "redscript");
    }

    #[test]
    fn the_stylesheet_sets_each_custom_property_for_light_and_dark_pages() {
        let (light, rest) = crate::STYLESHEET.split_once("@media").expect("a part for dark pages");
        for (color, property) in CUSTOM_PROPERTIES {
            assert!(light.contains(&format!("{property}: {color};")), "{property} of light pages");
            assert!(rest.contains(&format!("{property}: ")), "{property} of dark pages");
        }
    }
}
