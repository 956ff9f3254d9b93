//! Options of a field: those of the panel, overridden by those of the field's name.

use plimsoll_charts::axis::AxisOptions;
use plimsoll_charts::{color, units};
use serde_json::Value;

/// The options of one field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    json: Value,
}

// === impl Field ===

impl Field {
    /// The options of the field with this name.
    pub fn of(panel: &Value, name: &str) -> Self {
        let config = &panel["fieldConfig"];
        let mut json = config["defaults"].clone();
        let overrides = config["overrides"].as_array().into_iter().flatten();
        for entry in overrides.filter(|entry| matches(&entry["matcher"], name)) {
            for property in entry["properties"].as_array().into_iter().flatten() {
                let path = property["id"].as_str().unwrap_or_default();
                let place = path.split('.').fold(&mut json, |place, part| &mut place[part]);
                *place = property["value"].clone();
            }
        }
        Self { json }
    }

    /// The value at this path.
    pub fn at(&self, path: &str) -> &Value {
        path.split('.').fold(&self.json, |place, part| &place[part])
    }

    /// The text at this path, or an empty one.
    pub fn text(&self, path: &str) -> &str {
        self.at(path).as_str().unwrap_or_default()
    }

    /// The number at this path, if there is one.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.at(path).as_f64()
    }

    /// The value axis of the panel.
    pub fn axis(&self) -> AxisOptions<'_> {
        AxisOptions {
            unit: self.text("unit"),
            min: self.number("min"),
            max: self.number("max"),
            whole: self.number("decimals") == Some(0.0),
        }
    }

    /// Whether cells have links.
    pub fn has_links(&self) -> bool {
        self.at("links").as_array().is_some_and(|links| !links.is_empty())
    }

    /// Formats a value.
    pub fn write(&self, value: f64, now: f64) -> String {
        if let Some((text, _)) = self.mapping(value) {
            return text;
        }
        let decimals = self.number("decimals").map(|decimals| decimals as usize);
        units::write(value, self.text("unit"), decimals, now)
    }

    /// The text and color that a value is mapped to.
    pub fn mapping(&self, value: f64) -> Option<(String, String)> {
        let mappings = self.at("mappings").as_array()?;
        let found =
            mappings.iter().find_map(|mapping| mapping["options"].get(value.to_string()))?;
        let text = found["text"].as_str()?.to_owned();
        Some((text, color::hex(found["color"].as_str().unwrap_or("text"))))
    }

    /// The color of a value: from its mapping, else from its threshold.
    pub fn color_of(&self, value: f64) -> String {
        if let Some((_, color)) = self.mapping(value) {
            return color;
        }
        self.fixed_color().unwrap_or_else(|| self.threshold(value))
    }

    /// A color that does not depend on the value.
    pub fn fixed_color(&self) -> Option<String> {
        let is_fixed = self.text("color.mode") == "fixed";
        is_fixed.then(|| color::hex(self.text("color.fixedColor")))
    }

    /// The color of the highest threshold that a value reaches.
    pub fn threshold(&self, value: f64) -> String {
        let steps = self.thresholds();
        let reached = steps.iter().rev().find(|(from, _)| *from <= value);
        reached.map_or_else(|| color::hex("text"), |(_, color)| color.clone())
    }

    /// Thresholds and their colors.
    pub fn thresholds(&self) -> Vec<(f64, String)> {
        let steps = self.at("thresholds.steps").as_array().into_iter().flatten();
        let read = |step: &Value| {
            let from = step["value"].as_f64().unwrap_or(f64::NEG_INFINITY);
            (from, color::hex(step["color"].as_str().unwrap_or("text")))
        };
        steps.map(read).collect()
    }
}

/// Whether a matcher selects this name. Supports the regular expressions of the boards: a substring (`/text/`), and a
/// text of the same length in which a dot matches any character (`5..`).
fn matches(matcher: &Value, name: &str) -> bool {
    let wanted = matcher["options"].as_str().unwrap_or_default();
    match matcher["id"].as_str() {
        Some("byName") => name == wanted,
        Some("byRegexp") => {
            let inside = wanted.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
            inside.map_or_else(|| is_like(wanted, name), |inside| name.contains(inside))
        }
        _ => false,
    }
}

fn is_like(pattern: &str, name: &str) -> bool {
    pattern.chars().count() == name.chars().count()
        && pattern.chars().zip(name.chars()).all(|(wanted, found)| wanted == '.' || wanted == found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn field_overrides_take_precedence_over_defaults() {
        let panel = json!({"fieldConfig": {
            "defaults": {
                "unit": "s", "custom": {"lineWidth": 1},
                "thresholds": {"steps": [{"color": "green", "value": null}, {"color": "red", "value": 5}]},
            },
            "overrides": [
                {"matcher": {"id": "byName", "options": "a"}, "properties": [{"id": "custom.lineWidth", "value": 3}]},
                {"matcher": {"id": "byRegexp", "options": "5.."}, "properties": [{"id": "unit", "value": "none"}]},
                {"matcher": {"id": "byRegexp", "options": "/low/"}, "properties": [
                    {"id": "mappings", "value": [{"options": {"1": {"text": "held", "color": "red"}}}]},
                ]},
            ],
        }});
        assert_eq!(Field::of(&panel, "a").number("custom.lineWidth"), Some(3.0));
        assert_eq!(Field::of(&panel, "b").number("custom.lineWidth"), Some(1.0));
        assert_eq!(Field::of(&panel, "503").text("unit"), "none");
        assert_eq!(Field::of(&panel, "5030").text("unit"), "s");
        assert_eq!(Field::of(&panel, "allowed").write(1.0, 0.0), "held");
        assert_eq!(Field::of(&panel, "a").color_of(4.0), color::hex("green"));
        assert_eq!(Field::of(&panel, "a").color_of(5.0), color::hex("red"));
    }
}
