//! Draws a `table`: merges results into rows, then filters, orders and sorts as the panel's transformations specify.

use std::collections::BTreeMap;

use plimsoll_charts::svg::{Rectangle, Svg};
use plimsoll_charts::{color, table};
use serde_json::Value;

use super::field_config::Field;
use super::panel_data::QueryResult;

/// A cell.
#[derive(Clone, Debug, PartialEq)]
enum Cell {
    Text(String),
    Number(f64),
}

type Row = BTreeMap<String, Cell>;

/// A column: the name of its field and the displayed name.
struct Column {
    field: String,
    shown: String,
    options: Field,
}

/// Draws the panel.
pub(super) fn draw(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    now: f64,
) {
    let mut rows = merged(answers);
    let columns = columns(panel, &rows);
    sort(&mut rows, &columns, &panel["options"]["sortBy"][0]);
    let cells = |row: &Row| -> Vec<table::Cell> {
        let cell =
            |column| table::Cell { text: text(row, column, now), color: color_of(row, column) };
        columns.iter().map(cell).collect()
    };
    let cells: Vec<_> = rows.iter().map(cells).collect();
    let columns: Vec<_> = columns
        .into_iter()
        .map(|Column { field, shown, .. }| table::Column {
            is_number: rows.iter().any(|row| matches!(row.get(&field), Some(Cell::Number(_)))),
            heading: shown,
        })
        .collect();
    table::draw(svg, area, &columns, &cells);
}

/// Merges the rows of all results: rows that agree in all common fields become one.
fn merged(answers: &[QueryResult]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for answer in answers {
        let name = if answers.len() > 1 {
            format!("Value #{}", answer.letter)
        } else {
            "Value".to_owned()
        };
        for series in &answer.series {
            let Some((_, value)) = series.points.last() else { continue };
            let labels: Row = series
                .labels
                .iter()
                .map(|(name, value)| (name.clone(), Cell::Text(value.clone())))
                .collect();
            let agrees = |row: &&mut Row| {
                !row.contains_key(&name)
                    && labels
                        .iter()
                        .all(|(name, value)| row.get(name).is_none_or(|known| known == value))
            };
            let value = Cell::Number(*value);
            if let Some(row) = rows.iter_mut().find(agrees) {
                row.extend(labels);
                row.insert(name.clone(), value);
            } else {
                let mut row = labels;
                row.insert(name.clone(), value);
                rows.push(row);
            }
        }
    }
    rows
}

fn columns(panel: &Value, rows: &[Row]) -> Vec<Column> {
    let options = |id: &str| {
        let transformations = panel["transformations"].as_array().into_iter().flatten();
        let found = transformations.into_iter().find(|one| one["id"] == id);
        found.map_or(Value::Null, |one| one["options"].clone())
    };
    let (include, organize) = (options("filterFieldsByName"), options("organize"));
    let mut fields: Vec<String> = rows.iter().flat_map(|row| row.keys().cloned()).collect();
    fields.sort();
    fields.dedup();
    if let Some(names) = include["include"]["names"].as_array() {
        fields.retain(|field| names.iter().any(|name| name == field.as_str()));
    }
    fields.sort_by_key(|field| organize["indexByName"][field].as_u64().unwrap_or(u64::MAX));
    let shown = |field: &str| {
        organize["renameByName"][field].as_str().map_or_else(|| field.to_owned(), str::to_owned)
    };
    fields
        .into_iter()
        .map(|field| {
            let shown = shown(&field);
            Column { options: Field::of(panel, &shown), shown, field }
        })
        .collect()
}

fn sort(rows: &mut [Row], columns: &[Column], by: &Value) {
    let wanted = by["displayName"].as_str().unwrap_or_default();
    let Some(column) = columns.iter().find(|column| column.shown == wanted) else { return };
    rows.sort_by(|one, other| {
        let order = match (one.get(&column.field), other.get(&column.field)) {
            (Some(Cell::Number(one)), Some(Cell::Number(other))) => one.total_cmp(other),
            (Some(Cell::Text(one)), Some(Cell::Text(other))) => one.cmp(other),
            (one, other) => one.is_some().cmp(&other.is_some()),
        };
        if by["desc"] == true { order.reverse() } else { order }
    });
}

fn text(row: &Row, column: &Column, now: f64) -> String {
    match row.get(&column.field) {
        Some(Cell::Text(text)) => text.clone(),
        Some(Cell::Number(value)) => column.options.write(*value, now),
        None => String::new(),
    }
}

fn color_of(row: &Row, column: &Column) -> String {
    if column.options.has_links() {
        return color::LINK.to_owned();
    }
    match row.get(&column.field) {
        Some(Cell::Number(value))
            if column.options.text("custom.cellOptions.type") == "color-text" =>
        {
            column.options.threshold(*value)
        }
        _ => color::TEXT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_with_the_same_labels_are_merged() {
        let row = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let answer = |letter: &str, series: &[(&[(&str, &str)], f64)]| {
            QueryResult::for_tests(
                letter,
                series.iter().map(|(labels, value)| (row(labels), *value)).collect(),
            )
        };
        let rows = merged(&[
            answer(
                "A",
                &[
                    (&[("name", "a"), ("version", "1")], 1.0),
                    (&[("name", "b"), ("version", "1")], 1.0),
                ],
            ),
            answer("B", &[(&[("name", "b")], 7.0), (&[("name", "c")], 8.0)]),
        ]);
        let found: Vec<_> = rows.iter().map(|row| (row.get("name"), row.get("Value #B"))).collect();
        let name = |name: &str| Cell::Text(name.to_owned());
        assert_eq!(
            found,
            [
                (Some(&name("a")), None),
                (Some(&name("b")), Some(&Cell::Number(7.0))),
                (Some(&name("c")), Some(&Cell::Number(8.0))),
            ]
        );
    }
}
