//! Draws a whole board: its title, its variables, and its panels at their grid positions.

#[cfg(test)]
mod tests;

use plimsoll_charts::axis::TimeRange;
use plimsoll_charts::svg::{Anchor, Rectangle, Style, Svg, text_width};
use plimsoll_charts::{color, time_format};
use serde_json::Value;

use super::panel_data::{self, QueryResult};
use super::variables::Variables;
use super::{single_value, state_timeline, table, time_series};

const WIDTH: f64 = 1400.0;
const MARGIN: f64 = 12.0;
/// Grafana's grid: rows of 30 pixels with a gap of 8.
const ROW: f64 = 38.0;
const GAP: f64 = 8.0;
const COLUMNS: f64 = 24.0;
const HEADING: f64 = 64.0;

/// Draws the board. `answers` are the results of each panel, in order.
pub(super) fn draw(
    board: &Value,
    answers: &[Vec<QueryResult>],
    variables: &Variables,
    window: TimeRange,
) -> String {
    let panels: Vec<&Value> = board["panels"].as_array().into_iter().flatten().collect();
    let place = |panel: &Value, side: &str| panel["gridPos"][side].as_f64().unwrap_or(0.0);
    let rows = panels.iter().map(|panel| place(panel, "y") + place(panel, "h")).fold(1.0, f64::max);
    let title = board["title"].as_str().unwrap_or_default();
    let mut svg = Svg::new(WIDTH, HEADING + rows * ROW + MARGIN, title);
    heading(&mut svg, title, variables, window);
    let column = (WIDTH - 2.0 * MARGIN + GAP) / COLUMNS;
    for (panel, answers) in panels.into_iter().zip(answers) {
        let area = Rectangle {
            x: MARGIN + place(panel, "x") * column,
            y: HEADING + place(panel, "y") * ROW,
            width: place(panel, "w") * column - GAP,
            height: place(panel, "h") * ROW - GAP,
        };
        let title = variables.plain(panel["title"].as_str().unwrap_or_default());
        if panel["type"] == "row" {
            svg.write((area.x + 2.0, area.y + 22.0), &title, Style::bold(15.0));
            continue;
        }
        svg.open(panel["description"].as_str().unwrap_or_default());
        svg.card(area);
        svg.write_within(
            (area.x + 10.0, area.y + 19.0),
            area.width - 20.0,
            &title,
            Style::bold(13.0),
        );
        let inner = Rectangle { y: area.y + 20.0, height: area.height - 20.0, ..area }.inside(10.0);
        content(&mut svg, inner, panel, answers, window);
        svg.close();
    }
    svg.finish()
}

fn heading(svg: &mut Svg, title: &str, variables: &Variables, window: TimeRange) {
    svg.write((MARGIN + 2.0, 26.0), title, Style::bold(20.0));
    let time = format!(
        "{} to {} UTC",
        time_format::date_and_time(window.from),
        time_format::date_and_time(window.to)
    );
    svg.write((WIDTH - MARGIN, 25.0), &time, Style::faint(13.0).anchored(Anchor::End));
    let mut x = MARGIN + 2.0;
    for (label, value) in variables.shown() {
        svg.write((x, 51.0), label, Style::faint(12.0));
        x += text_width(label, 12.5) + 8.0;
        svg.write((x, 51.0), value, Style::bold(12.0));
        x += text_width(value, 13.5) + 22.0;
    }
}

fn content(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    window: TimeRange,
) {
    if panel_data::queries_of(panel) && answers.iter().all(|answer| answer.series.is_empty()) {
        time_series::draw_no_data(svg, area, panel);
        return;
    }
    match panel["type"].as_str().unwrap_or_default() {
        "timeseries" => time_series::draw(svg, area, panel, answers, window),
        "stat" => single_value::stat(svg, area, panel, answers, window.to),
        "gauge" => single_value::gauge(svg, area, panel, answers, window.to),
        "bargauge" => single_value::bars(svg, area, panel, answers, window.to),
        "table" => table::draw(svg, area, panel, answers, window.to),
        "state-timeline" => state_timeline::draw(svg, area, panel, answers, window),
        other => {
            let text = format!("unsupported panel type {other}");
            let style = Style::plain(13.0).colored(color::FAINT).anchored(Anchor::Middle);
            svg.write(area.middle(), &text, style);
        }
    }
}
