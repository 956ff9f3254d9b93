//! CSV and TSV: one row for each container and resource, amounts in base units.
//!
//! Cells are quoted as in RFC 4180. A text that a spreadsheet would take for a formula begins with an apostrophe.

use std::borrow::Cow;

use plimsoll_core::rightsizing::report::Report;

use super::{
    amounts::base_units,
    columns::{Column, Value, rows},
    escape::one_line,
    forms::FormOptions,
};

/// How cells and rows are separated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Commas, and the line ends of RFC 4180.
    Csv,
    /// Tabs, and line ends that `cut` and `awk` expect.
    Tsv,
}

/// Renders the rows.
pub(super) fn render(report: &Report, dialect: Dialect, options: &FormOptions) -> String {
    let columns = if options.columns.is_empty() { Column::csv() } else { options.columns.clone() };
    let (separator, end) = match dialect {
        Dialect::Csv => (',', "\r\n"),
        Dialect::Tsv => ('\t', "\n"),
    };
    let mut text = String::new();
    let mut line = |cells: &mut dyn Iterator<Item = Cow<'_, str>>| {
        for (index, cell) in cells.enumerate() {
            if index > 0 {
                text.push(separator);
            }
            push_cell(&mut text, &cell, separator);
        }
        text.push_str(end);
    };
    line(&mut columns.iter().map(|column| Cow::Borrowed(column.name())));
    let (rows, _) = rows(report, options.sort, options.top);
    for row in rows {
        line(&mut columns.iter().map(|column| cell(row.value(*column))));
    }
    text
}

fn cell(value: Value<'_>) -> Cow<'_, str> {
    Cow::Owned(match value {
        Value::Unknown | Value::Unchanged => return Cow::Borrowed(""),
        Value::Text(text) => return protected(&one_line(&text)),
        Value::Flag(flag) => flag.to_string(),
        Value::Count(count) => count.to_string(),
        Value::Amount(resource, amount) => base_units(resource, amount),
        Value::Percent(number) | Value::Share(number) | Value::Money(number) => decimal(number),
        Value::At(time) => time.to_string(),
    })
}

/// A number with a point and without an exponent; empty if it is none.
fn decimal(number: f64) -> String {
    if number.is_finite() { format!("{number}") } else { String::new() }
}

/// Spreadsheets run cells that begin like a formula.
pub(in crate::report) fn protected(text: &str) -> Cow<'static, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@', '＝', '＋', '－', '＠']);
    Cow::Owned(if is_formula { format!("'{text}") } else { text.to_owned() })
}

pub(in crate::report) fn push_cell(text: &mut String, cell: &str, separator: char) {
    let has_edge_space = cell.starts_with(' ') || cell.ends_with(' ');
    if has_edge_space || cell.contains([separator, '"', '\r', '\n']) {
        text.push('"');
        text.push_str(&cell.replace('"', "\"\""));
        text.push('"');
    } else {
        text.push_str(cell);
    }
}

#[cfg(test)]
mod tests {
    use ::csv::ReaderBuilder;

    use super::*;
    use crate::report::recommend::{
        selection::{SortKey, entries},
        test_reports::{named, sample},
    };

    fn read(text: &str, delimiter: u8) -> Vec<Vec<String>> {
        ReaderBuilder::new()
            .has_headers(false)
            .delimiter(delimiter)
            .from_reader(text.as_bytes())
            .records()
            .map(|record| record.expect("CSV").iter().map(ToOwned::to_owned).collect())
            .collect()
    }

    #[test]
    fn a_reader_gets_back_each_resource_of_each_container() {
        let report = sample();
        for (dialect, delimiter) in [(Dialect::Csv, b','), (Dialect::Tsv, b'\t')] {
            let table = read(&render(&report, dialect, &FormOptions::default()), delimiter);
            let column =
                |name: &str| table[0].iter().position(|head| head == name).expect("a column");
            let resources = entries(&report).map(|entry| entry.container.resources.len());
            assert_eq!(table.len() - 1, resources.sum::<usize>());
            let row = table
                .iter()
                .find(|row| {
                    row[column("name")] == "checkout" && row[column("resource")] == "memory"
                })
                .expect("the row");
            for (name, expected) in [
                ("namespace", "shop"),
                ("kind", "Deployment"),
                ("replicas", "6"),
                ("container", "main"),
                ("unit", "bytes"),
                ("request", "536870912"),
                ("new_request", "884998144"),
                ("risk", "critical"),
                ("risk_reasons", "oomKilled"),
                ("remove_limit", "false"),
                ("unsaid", ""),
                ("oom_kills", "9"),
            ] {
                assert_eq!(row[column(name)], expected, "{name}");
            }
        }
    }

    #[test]
    fn names_stay_in_their_cell_and_are_no_formulas() {
        for (name, expected) in [
            ("plain", "plain"),
            ("a,b", "a,b"),
            ("say \"hi\"", "say \"hi\""),
            ("two\nlines", "two\\nlines"),
            ("tab\there", "tab\\there"),
            ("=1+1", "'=1+1"),
            ("+1", "'+1"),
            ("-1", "'-1"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("", ""),
        ] {
            let report = named(name);
            for (dialect, delimiter) in [(Dialect::Csv, b','), (Dialect::Tsv, b'\t')] {
                let options =
                    FormOptions { columns: vec![Column::Name, Column::Kind], ..Default::default() };
                let table = read(&render(&report, dialect, &options), delimiter);
                assert_eq!(table[0], ["name", "kind"]);
                assert_eq!(table[1], [expected, "Deployment"], "{name:?}");
            }
        }
    }

    #[test]
    fn rows_are_sorted_and_limited_by_container() {
        let options = FormOptions {
            columns: vec![Column::Name, Column::Resource],
            sort: Some(SortKey::Risk),
            top: Some(1),
            ..Default::default()
        };
        let text = render(&sample(), Dialect::Tsv, &options);
        assert_eq!(text, "name\tresource\ncheckout\tcpu\ncheckout\tmemory\n");
    }

    #[test]
    fn numbers_have_no_exponent_and_negative_ones_stay_numbers() {
        assert_eq!((decimal(1e15), decimal(-78.5)), ("1000000000000000".into(), "-78.5".into()));
        assert_eq!(decimal(f64::NAN), "");
    }
}
