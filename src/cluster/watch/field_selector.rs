//! Client-side field selectors: a shared watch requests the objects of all controllers, and each filters its own.

use std::borrow::Cow;

use serde::Deserialize;

/// A field selector that can be evaluated on the client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct FieldFilter(Vec<FieldRequirement>);

/// A field of pods, whether it must equal the value or differ from it, and the value. A missing field is empty.
type FieldRequirement = (Field, bool, Box<str>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::EnumString)]
enum Field {
    #[strum(serialize = "status.phase")]
    Phase,
    #[strum(serialize = "spec.nodeName")]
    NodeName,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Fields<'a> {
    #[serde(borrow)]
    spec: Spec<'a>,
    #[serde(borrow)]
    status: Status<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec<'a> {
    #[serde(borrow)]
    node_name: Option<Cow<'a, str>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status<'a> {
    #[serde(borrow)]
    phase: Option<Cow<'a, str>>,
}

impl FieldFilter {
    /// The filter that replaces the selector of a dedicated watch; `None` if only the server can evaluate it.
    pub fn parse(selector: Option<&str>) -> Option<Self> {
        let terms = selector.into_iter().flat_map(|text| text.split(','));
        terms
            .filter(|term| !term.is_empty())
            .map(parse_requirement)
            .collect::<Option<_>>()
            .map(Self)
    }

    /// Whether an object matches. An invalid object does, so that its reader reports the error.
    pub fn matches(&self, text: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let Ok(fields) = serde_json::from_str::<Fields<'_>>(text) else { return true };
        self.0.iter().all(|(field, is_equal, wanted)| {
            let value = match field {
                Field::Phase => fields.status.phase.as_deref(),
                Field::NodeName => fields.spec.node_name.as_deref(),
            };
            (value.unwrap_or_default() == &**wanted) == *is_equal
        })
    }
}

fn parse_requirement(text: &str) -> Option<FieldRequirement> {
    let (is_equal, split) = match text.split_once("!=") {
        Some(split) => (false, Some(split)),
        None => (true, text.split_once("==").or_else(|| text.split_once('='))),
    };
    let (field, value) = split?;
    Some((field.parse().ok()?, is_equal, value.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_selector_matches_the_objects_that_the_server_would_send() {
        let lets = |selector: &str, text: &str| {
            FieldFilter::parse(Some(selector)).expect("a supported selector").matches(text)
        };
        let running = r#"{"spec":{"nodeName":"a"},"status":{"phase":"Running"}}"#;
        let pending = r#"{"spec":{},"status":{"phase":"Pending"}}"#;
        let done = r#"{"spec":{"nodeName":"a"},"status":{"phase":"Succeeded"}}"#;
        let both = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";
        for (selector, of) in [
            ("", [true, true, true]),
            ("status.phase!=Pending", [true, false, true]),
            ("status.phase=Pending", [false, true, false]),
            ("status.phase==Running", [true, false, false]),
            (both, [true, false, false]),
        ] {
            let found = [running, pending, done].map(|text| lets(selector, text));
            assert_eq!(found, of, "{selector}");
        }
        assert!(
            lets("status.phase!=Pending", r#"{"status":{"phase":5}}"#),
            "its reader reports the error"
        );
        assert!(lets("status.phase!=Pending", "{}"));
        assert_eq!(FieldFilter::parse(Some("metadata.name=web")), None);
        assert_eq!(FieldFilter::parse(None), Some(FieldFilter::default()));
    }
}
