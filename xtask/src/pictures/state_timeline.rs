//! The rows of a `state-timeline`: a series each, colored by its value over time.

use plimsoll_charts::axis::TimeRange;
use plimsoll_charts::state_timeline::{self, StateRow, StateSpan};
use plimsoll_charts::svg::{Rectangle, Svg};
use serde_json::Value;

use super::field_config::Field;
use super::panel_data::QueryResult;

/// Draws the panel.
pub(super) fn draw(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    range: TimeRange,
) {
    let lines = answers.iter().flat_map(QueryResult::lines);
    let rows: Vec<StateRow> = lines
        .map(|line| {
            let field = Field::of(panel, &line.name);
            let state = |(from, to, value)| StateSpan {
                from,
                to,
                color: field.color_of(value),
                title: String::new(),
            };
            let states = state_timeline::spans(&line.points).into_iter().map(state).collect();
            StateRow { name: line.name, states }
        })
        .collect();
    state_timeline::draw(svg, area, &rows, range);
}
