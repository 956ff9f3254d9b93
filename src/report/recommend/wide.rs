//! Tables of one row for each container and resource: `wide`, and `table` with columns of the user's choice.

use plimsoll_core::rightsizing::report::Report;

use super::{
    amounts::{self, and_more},
    columns::{Column, Row, Value, rows},
    escape::in_glyphs,
    forms::FormOptions,
    table::level_colour,
};
use crate::report::style::{BOLD, DIM, PLAIN, Page, Style};

/// Renders a table that is as wide as its content, like those of kubectl.
pub(super) fn render(report: &Report, style: &Style, options: &FormOptions) -> String {
    let columns =
        if options.columns.is_empty() { Column::wide(report) } else { options.columns.clone() };
    let (rows, left_out) = rows(report, options.sort, options.top);
    let mut page = Page::new(style);
    write_table(&mut page, &columns, &rows);
    end(&mut page, left_out);
    page.finish()
}

/// Renders a table if it fits the terminal; otherwise each row is a block of lines.
pub(super) fn render_to_fit(report: &Report, style: &Style, options: &FormOptions) -> String {
    let columns = &options.columns;
    let (rows, left_out) = rows(report, options.sort, options.top);
    let mut page = Page::new(style);
    let widths = widths(style, columns, &rows);
    if line_width(&widths) <= style.width {
        write_table(&mut page, columns, &rows);
    } else {
        let width = columns.iter().map(|column| head(*column).len()).max().unwrap_or_default();
        for row in &rows {
            for column in columns {
                let label = page.paint(DIM, &format!("{:<width$}", head(*column)));
                let cell = cell(style, row, *column);
                let cell = page.paint(colour(row, *column), &cell);
                page.line(format_args!("{label}  {cell}"));
            }
            page.line("");
        }
    }
    end(&mut page, left_out);
    page.finish()
}

fn end(page: &mut Page<'_>, left_out: usize) {
    if left_out > 0 {
        page.line(page.paint(DIM, &and_more(left_out, "container")));
    }
}

fn write_table(page: &mut Page<'_>, columns: &[Column], rows: &[Row<'_>]) {
    let widths = widths(page, columns, rows);
    let heads: Vec<String> = columns
        .iter()
        .zip(&widths)
        .map(|(column, width)| pad(*column, &head(*column), *width))
        .collect();
    page.line(page.paint(BOLD, heads.join("  ").trim_end()));
    for row in rows {
        let last = columns.len().saturating_sub(1);
        let cells = columns.iter().zip(&widths).enumerate().map(|(index, (column, width))| {
            let cell = cell(page, row, *column);
            let is_last_text = index == last && !column.is_number();
            let padded = if is_last_text { cell } else { pad(*column, &cell, *width) };
            page.paint(colour(row, *column), &padded)
        });
        let line = cells.collect::<Vec<_>>().join("  ");
        page.line(line.trim_end());
    }
}

fn pad(column: Column, text: &str, width: usize) -> String {
    if column.is_number() { format!("{text:>width$}") } else { format!("{text:<width$}") }
}

fn widths(style: &Style, columns: &[Column], rows: &[Row<'_>]) -> Vec<usize> {
    let of_column = |column: &Column| {
        let cells = rows.iter().map(|row| cell(style, row, *column).chars().count());
        cells.chain([head(*column).len()]).max().unwrap_or_default()
    };
    columns.iter().map(of_column).collect()
}

fn line_width(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

fn head(column: Column) -> String {
    match column {
        Column::ChangePercent => "CHANGE".to_owned(),
        Column::OomKills => "OOM KILLS".to_owned(),
        Column::Vpa => "VPA".to_owned(),
        other => other.name().replace('_', " ").to_uppercase(),
    }
}

fn colour(row: &Row<'_>, column: Column) -> &'static str {
    row.level(column).map_or(PLAIN, level_colour)
}

fn cell(style: &Style, row: &Row<'_>, column: Column) -> String {
    if column == Column::RiskReasons {
        return in_glyphs(&row.reasons(), style.glyphs);
    }
    match row.value(column) {
        Value::Unknown if column == Column::NewLimit && row.removes_limit() => "none".to_owned(),
        Value::Unknown => "-".to_owned(),
        Value::Unchanged => "keep".to_owned(),
        Value::Text(text) => in_glyphs(&text, style.glyphs),
        Value::Flag(flag) => if flag { "yes" } else { "no" }.to_owned(),
        Value::Count(count) => count.to_string(),
        Value::Amount(resource, amount) => amounts::amount(resource, amount),
        Value::Percent(percent) => amounts::percent_change(percent),
        Value::Share(share) => amounts::share(share),
        Value::Money(sum) => amounts::money(sum),
        Value::At(time) => amounts::minute(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        recommend::{
            selection::entries,
            test_reports::{ascii, sample},
        },
        style::tests::plain_output,
    };

    #[test]
    fn each_resource_has_a_row_of_all_columns() {
        let report = sample();
        let text = plain_output(|style| render(&report, style, &FormOptions::default()));
        let resources: usize = entries(&report).map(|entry| entry.container.resources.len()).sum();
        assert_eq!(text.lines().count(), 1 + resources, "{text}");
        let row = text
            .lines()
            .find(|line| line.contains("shop/Deployment/checkout") && line.contains("memory"))
            .expect("the row");
        for cell in ["512Mi", "844Mi", "+65 %", "critical", "9 OOM kills, the last 2 d ago"] {
            assert!(row.contains(cell), "{cell} is not in {row}");
        }
    }

    #[test]
    fn chosen_columns_become_a_table_or_blocks() {
        let columns = vec![Column::Namespace, Column::Name, Column::Resource, Column::NewRequest];
        let options = FormOptions { columns, top: Some(1), ..Default::default() };
        assert_eq!(
            render_to_fit(&sample(), &ascii(80), &options),
            "NAMESPACE  NAME   RESOURCE  NEW REQUEST\n\
             data       kafka  cpu             1650m\n\
             data       kafka  memory           keep\n\
             and 8 more containers\n"
        );
        assert!(render_to_fit(&sample(), &ascii(30), &options).starts_with(
            "NAMESPACE    data\nNAME         kafka\nRESOURCE     cpu\nNEW REQUEST  1650m\n\n"
        ));
    }
}
