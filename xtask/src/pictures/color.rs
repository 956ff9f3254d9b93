//! Colors by the names that the boards use, on a light background.

/// Color of texts.
pub(super) const TEXT: &str = "#24292f";
/// Color of secondary texts.
pub(super) const FAINT: &str = "#6a737d";
/// Color of borders and grid lines.
pub(super) const LINE: &str = "#e4e7eb";
/// Background behind the panels.
pub(super) const GROUND: &str = "#f4f5f7";
/// Color of links.
pub(super) const LINK: &str = "#1f62e0";

/// Colors of series without one of their own, in order.
const PALETTE: [&str; 12] = [
    "#56a64b", "#e0a800", "#3274d9", "#e06c1f", "#d1304f", "#8f3bb8", "#1f8f9c", "#a35d00",
    "#6f7f1e", "#c0569b", "#4b5fb5", "#7a7a7a",
];

/// The color of the series at this index.
pub(super) fn of_series(place: usize) -> String {
    PALETTE[place % PALETTE.len()].to_owned()
}

/// A color by name; a `#` color is returned unchanged.
pub(super) fn hex(name: &str) -> String {
    let hex = match name {
        "green" => "#3d9a35",
        "dark-green" => "#1f6e1b",
        "light-green" => "#9ad392",
        "red" => "#d1304f",
        "dark-red" => "#a3152f",
        "light-red" => "#f0919f",
        "orange" => "#e06c1f",
        "yellow" => "#d9a400",
        "blue" => "#2f6fd6",
        "light-blue" => "#9fc2f2",
        "purple" => "#8f3bb8",
        "text" => TEXT,
        other if other.starts_with('#') => other,
        _ => FAINT,
    };
    hex.to_owned()
}
