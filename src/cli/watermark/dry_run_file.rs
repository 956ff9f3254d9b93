//! Which objects are in dry run, as a file: a row `namespace,name,enabled|disabled` for each.

/// One object and its switch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DryRunRow {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Whether it is in dry run.
    pub dry_run: bool,
}

/// What a line of a file came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParsedLine {
    /// A row.
    Row(DryRunRow),
    /// A row whose last word nobody knows. It is taken to be in dry run, which changes nothing of its workload.
    Ambiguous(DryRunRow, String),
    /// Nothing that can be used.
    Invalid(String),
}

/// The row of an object, with its end of line.
pub fn write(row: &DryRunRow) -> String {
    let state = if row.dry_run { "enabled" } else { "disabled" };
    format!("{},{},{state}\n", row.namespace, row.name)
}

/// Reads a file, without its empty lines. `file` is what it is called.
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
            "{place}: a row has 3 fields, namespace,name,enabled or disabled; this one has {number}"
        ));
    };
    for (what, word) in [("namespace", namespace), ("name", name)] {
        if !is_object_name(word) {
            return ParsedLine::Invalid(format!("{place}: {word:?} is no {what} of an object"));
        }
    }
    let row =
        |dry_run| DryRunRow { namespace: namespace.to_owned(), name: name.to_owned(), dry_run };
    match state {
        "enabled" => ParsedLine::Row(row(true)),
        "disabled" => ParsedLine::Row(row(false)),
        other => ParsedLine::Ambiguous(
            row(true),
            format!(
                "{place}: {other:?} is neither enabled nor disabled: {namespace}/{name} is taken to be enabled"
            ),
        ),
    }
}

/// A field without spaces and quotes around it.
fn unquoted(field: &str) -> &str {
    let field = field.trim();
    field.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(field)
}

/// Whether an object can be called so: it becomes part of a path.
fn is_object_name(word: &str) -> bool {
    let allowed = |letter: char| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || "-.".contains(letter)
    };
    word.starts_with(|letter: char| letter.is_ascii_alphanumeric()) && word.chars().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn web(dry_run: bool) -> DryRunRow {
        DryRunRow { namespace: "shop".into(), name: "web".into(), dry_run }
    }

    #[test]
    fn what_is_written_is_read_again() {
        for dry_run in [true, false] {
            assert_eq!(read("f", &write(&web(dry_run))), [ParsedLine::Row(web(dry_run))]);
        }
        assert_eq!(write(&web(true)), "shop,web,enabled\n");
    }

    #[test]
    fn what_spreadsheets_make_of_a_row_is_still_one() {
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
    fn a_word_that_nobody_knows_is_taken_for_enabled_with_a_warning() {
        let lines = read("f", "shop,web,yes");
        let [ParsedLine::Ambiguous(row, warning)] = &lines[..] else { panic!("{lines:?}") };
        assert_eq!(row, &web(true));
        assert_eq!(
            warning,
            "f:1: \"yes\" is neither enabled nor disabled: shop/web is taken to be enabled"
        );
    }

    #[test]
    fn a_bad_row_is_one_line_that_says_where_and_the_others_are_read() {
        let lines = read(
            "f",
            "shop,web\nshop,web,enabled,x\n,web,enabled\nshop,../x,enabled\nshop,web,enabled",
        );
        let said: Vec<&str> = lines
            .iter()
            .map(|line| match line {
                ParsedLine::Invalid(why) => why.as_str(),
                _ => "fine",
            })
            .collect();
        assert_eq!(
            said,
            [
                "f:1: a row has 3 fields, namespace,name,enabled or disabled; this one has 2",
                "f:2: a row has 3 fields, namespace,name,enabled or disabled; this one has 4",
                "f:3: \"\" is no namespace of an object",
                "f:4: \"../x\" is no name of an object",
                "fine",
            ]
        );
    }
}
