//! Writes YAML that every parser reads the same, whatever the names in it are.

use std::fmt::Write as _;

/// A value to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Yaml {
    /// A text of users or of the cluster, in quotes where another reading is possible.
    Text(String),
    /// A quantity or a number, without quotes.
    Plain(String),
    Null,
    List(Vec<Yaml>),
    Map(Vec<(String, Yaml)>),
}

impl Yaml {
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A mapping with these entries.
pub(super) fn map<const N: usize>(entries: [(&str, Yaml); N]) -> Yaml {
    Yaml::Map(entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// A document that ends with a line break.
pub(super) fn document(value: &Yaml) -> String {
    let mut text = String::new();
    match value {
        Yaml::Map(entries) if !entries.is_empty() => write_map(&mut text, entries, 0, false),
        other => {
            write_scalar(&mut text, other);
            text.push('\n');
        }
    }
    text
}

fn write_value(text: &mut String, value: &Yaml, indent: usize) {
    match value {
        Yaml::Map(entries) if !entries.is_empty() => {
            text.push('\n');
            write_map(text, entries, indent + 2, false);
        }
        // Items are not indented further than their key, as in the documentation of Kubernetes.
        Yaml::List(items) if !items.is_empty() => {
            text.push('\n');
            for item in items {
                text.push_str(&" ".repeat(indent));
                text.push_str("- ");
                match item {
                    Yaml::Map(entries) if !entries.is_empty() => {
                        write_map(text, entries, indent + 2, true);
                    }
                    other => {
                        write_scalar(text, other);
                        text.push('\n');
                    }
                }
            }
        }
        other => {
            text.push(' ');
            write_scalar(text, other);
            text.push('\n');
        }
    }
}

fn write_map(
    text: &mut String,
    entries: &[(String, Yaml)],
    indent: usize,
    first_is_indented: bool,
) {
    for (index, (key, value)) in entries.iter().enumerate() {
        if index > 0 || !first_is_indented {
            text.push_str(&" ".repeat(indent));
        }
        text.push_str(&quoted_if_needed(key));
        text.push(':');
        write_value(text, value, indent);
    }
}

/// Everything that fits on a line; lists of lists do not occur.
fn write_scalar(text: &mut String, value: &Yaml) {
    match value {
        Yaml::Text(value) => text.push_str(&quoted_if_needed(value)),
        Yaml::Plain(value) => text.push_str(value),
        Yaml::Null => text.push_str("null"),
        Yaml::List(_) => text.push_str("[]"),
        Yaml::Map(_) => text.push_str("{}"),
    }
}

/// A text on one line, in double quotes unless it is a plain word to YAML 1.1 and 1.2 alike.
pub(super) fn quoted_if_needed(text: &str) -> String {
    // YAML 1.1 has more of them, and kubectl reads some.
    const RESERVED: [&str; 10] =
        ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan"];
    let is_word = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte))
        && !RESERVED.contains(&&*text.to_ascii_lowercase());
    if is_word { text.to_owned() } else { quoted(text) }
}

/// A text in double quotes, in ASCII.
fn quoted(text: &str) -> String {
    let mut result = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => result.extend(['\\', c]),
            '\n' => result.push_str("\\n"),
            ' '..='~' => result.push(c),
            c => {
                let code = u32::from(c);
                // Writing to a String cannot fail.
                let _ = match code {
                    0..=0xff => write!(result, "\\x{code:02x}"),
                    0x100..=0xffff => write!(result, "\\u{code:04x}"),
                    _ => write!(result, "\\U{code:08x}"),
                };
            }
        }
    }
    result.push('"');
    result
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    proptest! {
        #[test]
        fn texts_are_read_as_they_are(key in ".*", value in ".*", item in any::<String>()) {
            let written = document(&map([
                ("map", Yaml::Map(vec![(key.clone(), Yaml::text(&value))])),
                ("list", Yaml::List(vec![
                    map([("a", Yaml::text(&item)), ("b", Yaml::Null)]),
                    Yaml::text(&item),
                ])),
            ]));
            let read: Value = serde_saphyr::from_str(&written).expect("YAML");
            prop_assert_eq!(&read["map"][&key], &Value::from(value));
            prop_assert_eq!(&read["list"][0]["a"], &Value::from(item.clone()));
            prop_assert_eq!(&read["list"][1], &Value::from(item));
            prop_assert!(written.is_ascii());
        }
    }

    #[test]
    fn words_that_may_be_read_as_something_else_are_quoted() {
        for text in [
            "",
            "on",
            "No",
            "y",
            "0x1",
            "1e3",
            "2001-01-01",
            "~",
            "a: b",
            "-",
            "a\nb",
            "é",
            ".inf",
            "nan",
        ] {
            assert!(quoted_if_needed(text).starts_with('"'), "{text}");
        }
        for text in ["web", "apps/v1", "web-1.eu", "E3"] {
            assert_eq!(quoted_if_needed(text), text);
        }
    }

    #[test]
    fn documents_look_like_those_of_the_documentation() {
        let value = map([
            ("kind", Yaml::text("Pod")),
            (
                "spec",
                map([(
                    "containers",
                    Yaml::List(vec![map([
                        ("name", Yaml::text("1")),
                        ("x", map([("cpu", Yaml::Plain("2".into()))])),
                    ])]),
                )]),
            ),
        ]);
        assert_eq!(
            document(&value),
            "kind: Pod\nspec:\n  containers:\n  - name: \"1\"\n    x:\n      cpu: 2\n"
        );
    }
}
