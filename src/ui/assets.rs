//! The style, the script and the icon of the pages. Their names contain a hash of what they contain, so that browsers keep
//! them for a year.

use std::{fmt::Write as _, sync::LazyLock};

use ring::digest::{SHA256, digest};

const STYLES: &str = include_str!("assets/page.css");
const SCRIPT: &str = include_str!("assets/page.js");
const ICON: &str = include_str!("assets/icon.svg");

/// A file of the pages.
#[derive(Debug, PartialEq, Eq)]
pub struct Asset {
    name: String,
    pub media_type: &'static str,
    /// What it contains.
    pub text: String,
}

/// All files.
#[derive(Debug)]
pub(super) struct Assets {
    pub style: Asset,
    pub script: Asset,
    pub icon: Asset,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| Assets {
    style: Asset::new("page", "css", "text/css; charset=utf-8", stylesheet()),
    script: Asset::new("page", "js", "text/javascript; charset=utf-8", SCRIPT.to_owned()),
    icon: Asset::new("icon", "svg", "image/svg+xml", ICON.to_owned()),
});

impl Asset {
    fn new(name: &str, extension: &str, media_type: &'static str, text: String) -> Self {
        let mut hash = String::new();
        for byte in &digest(&SHA256, text.as_bytes()).as_ref()[..8] {
            // Writing to a String cannot fail.
            let _ = write!(hash, "{byte:02x}");
        }
        Self { name: format!("{name}-{hash}.{extension}"), media_type, text }
    }

    /// Its name in the folder `assets`.
    pub fn name(&self) -> &str {
        &self.name
    }
}

pub(super) fn assets() -> &'static Assets {
    &ASSETS
}

/// The file of this name.
pub fn find(name: &str) -> Option<&'static Asset> {
    let Assets { style, script, icon } = assets();
    [style, script, icon].into_iter().find(|asset| asset.name == name)
}

/// The colors of charts and the style of the pages. The colors depend on `color-scheme`, which the switch of the theme
/// sets, and not on the preference of the system alone.
fn stylesheet() -> String {
    let (light, dark) = plimsoll_charts::STYLESHEET.split_once("@media").unwrap_or_default();
    let mut sheet = String::from(":root {\n");
    for (name, color) in properties(light) {
        let of_dark = properties(dark).find(|(other, _)| *other == name);
        let of_dark = of_dark.map_or(color, |(_, color)| color);
        let _ = writeln!(sheet, "  {name}: light-dark({color}, {of_dark});");
    }
    sheet.push_str("}\n");
    sheet + STYLES
}

/// The custom properties of a part of a style sheet.
fn properties(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let lines = text.lines().map(str::trim).filter(|line| line.starts_with("--"));
    lines.filter_map(|line| line.trim_end_matches(';').split_once(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_small_and_found_by_their_names_only() {
        assert!(SCRIPT.len() <= 8 * 1024, "{} bytes of script", SCRIPT.len());
        assert_eq!(find(assets().script.name()), Some(&assets().script));
        assert_eq!(find("page.js"), None);
        for text in [SCRIPT, STYLES, ICON] {
            assert!(!text.contains("http:") || text == ICON, "nothing is loaded from elsewhere");
            assert!(
                !text.contains("https:") && !text.contains("innerHTML") && !text.contains("eval(")
            );
        }
    }

    #[test]
    fn charts_have_colors_of_both_themes() {
        let sheet = stylesheet();
        assert!(sheet.contains("--chart-text: light-dark(#24292f, #e6e9ed);"), "{sheet}");
        let colors = properties(plimsoll_charts::STYLESHEET).count() / 2;
        assert_eq!(sheet.matches("--chart-").count() - STYLES.matches("--chart-").count(), colors);
    }
}
