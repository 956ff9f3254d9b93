//! Owns colours: the names that the boards use, on a light ground.

/// What texts are written in.
pub(super) const TEXT: &str = "#24292f";
/// What is less important.
pub(super) const FAINT: &str = "#6a737d";
/// Lines between things.
pub(super) const LINE: &str = "#e4e7eb";
/// Behind panels.
pub(super) const GROUND: &str = "#f4f5f7";
/// Of what leads somewhere.
pub(super) const LINK: &str = "#1f62e0";

/// What series have that nobody gave a colour to, in turn.
const PALETTE: [&str; 12] = [
    "#56a64b", "#e0a800", "#3274d9", "#e06c1f", "#d1304f", "#8f3bb8", "#1f8f9c", "#a35d00",
    "#6f7f1e", "#c0569b", "#4b5fb5", "#7a7a7a",
];

/// The colour of the series in this place.
pub(super) fn of_series(place: usize) -> String {
    PALETTE[place % PALETTE.len()].to_owned()
}

/// A colour by its name; one that begins with `#` is what it is.
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
