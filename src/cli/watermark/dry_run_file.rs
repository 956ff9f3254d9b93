//! The CSV file of dry-run settings: a row `namespace,name,enabled|disabled` for each object.

use crate::controllers::watermark::dry_run::DryRunSetting;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedLine {
    Row(DryRunSetting),
    /// A row with an unknown setting, and a warning. It is read as enabled, because dry run does not change the workload.
    Ambiguous(DryRunSetting, String),
    Invalid(String),
}

/// Formats the row of an object, with a line break.
pub fn write(row: &DryRunSetting) -> String {
    let state = if row.dry_run { "enabled" } else { "disabled" };
    format!("{},{},{state}\n", row.namespace, row.name)
}

/// Parses a file, ignoring empty lines. `file` is its name, for messages.
pub fn read(file: &str, text: &str) -> Vec<ParsedLine> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| row(&format!("{file}:{}", at + 1), line)).collect()
}

fn row(place: &str, line: &str) -> ParsedLine {
    let fields: Vec<&str> = line.split(',').map(unquoted).collect();
    let [namespace, name, state] = fields[..] else {
        let number = fields.len();
        return ParsedLine::Invalid(format!(
            "{place}: expected 3 fields (namespace,name,enabled or disabled), found {number}"
        ));
    };
    for (field, text) in [("namespace", namespace), ("name", name)] {
        if !is_object_name(text) {
            return ParsedLine::Invalid(format!("{place}: {text:?} is not a valid {field}"));
        }
    }
    let row =
        |dry_run| DryRunSetting { namespace: namespace.to_owned(), name: name.to_owned(), dry_run };
    match state {
        "enabled" => ParsedLine::Row(row(true)),
        "disabled" => ParsedLine::Row(row(false)),
        other => ParsedLine::Ambiguous(
            row(true),
            format!(
                "{place}: {other:?} is neither enabled nor disabled: assuming that dry run of {namespace}/{name} is enabled"
            ),
        ),
    }
}

/// Removes surrounding spaces and quotes from a field.
fn unquoted(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field)
}

/// Whether this is a valid object name. It becomes part of a URL path.
fn is_object_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(dry_run: bool) -> DryRunSetting {
        DryRunSetting { namespace: "shop".into(), name: "web".into(), dry_run }
    }

    #[test]
    fn a_written_row_reads_back() {
        for dry_run in [true, false] {
            assert_eq!(read("f", &write(&web(dry_run))), [ParsedLine::Row(web(dry_run))]);
        }
        assert_eq!(write(&web(true)), "shop,web,enabled\n");
    }

    #[test]
    fn rows_changed_by_spreadsheets_are_accepted() {
        for text in [
            "shop,web,disabled",
            "shop,web,disabled\r\n",
            "\u{feff}shop,web,disabled\n",
            "\"shop\",\"web\",\"disabled\"\n",
            " shop , web , disabled \n\n",
        ] {
            assert_eq!(read("f", text), [ParsedLine::Row(web(false))], "{text:?}");
        }
        assert_eq!(read("f", "\n \n"), []);
    }

    #[test]
    fn an_unknown_word_means_enabled_with_a_warning() {
        let lines = read("f", "shop,web,yes");
        let [ParsedLine::Ambiguous(row, warning)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(row, &web(true));
        assert_eq!(
            warning,
            "f:1: \"yes\" is neither enabled nor disabled: assuming that dry run of shop/web is enabled"
        );
    }

    #[test]
    fn an_invalid_row_is_reported_with_its_line_and_the_others_are_read() {
        let lines = read(
            "f",
            "shop,web\nshop,web,enabled,x\n,web,enabled\nshop,../x,enabled\nshop,web,enabled",
        );
        let messages: Vec<&str> = lines
            .iter()
            .map(|line| match line {
                ParsedLine::Invalid(why) => why.as_str(),
                _ => "fine",
            })
            .collect();
        assert_eq!(
            messages,
            [
                "f:1: expected 3 fields (namespace,name,enabled or disabled), found 2",
                "f:2: expected 3 fields (namespace,name,enabled or disabled), found 4",
                "f:3: \"\" is not a valid namespace",
                "f:4: \"../x\" is not a valid name",
                "fine",
            ]
        );
    }
}
