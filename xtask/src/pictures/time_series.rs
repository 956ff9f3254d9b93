//! Draws a `timeseries`: lines, bars, areas and bands over time, with axes and a legend.

use serde_json::Value;

use super::axis::{Axis, TimeAxis};
use super::color;
use super::field_config::Field;
use super::legend::{self, Entry};
use super::panel_data::{Line, QueryResult};
use super::prometheus_client::Window;
use super::svg::{Rectangle, Stroke, Svg};

/// A line and its style.
struct DrawnLine {
    line: Line,
    field: Field,
    color: String,
    /// The drawn values: stacked on those below them, if the panel is stacked.
    heights: Vec<(f64, f64, f64)>,
}

/// Draws the panel.
pub(super) fn draw(
    svg: &mut Svg,
    area: Rectangle,
    panel: &Value,
    answers: &[QueryResult],
    window: Window,
) {
    let lines = answers.iter().flat_map(QueryResult::lines).enumerate();
    let mut drawn: Vec<DrawnLine> = lines
        .map(|(place, line)| {
            let field = Field::of(panel, &line.name);
            let color = field.fixed_color().unwrap_or_else(|| color::of_series(place));
            let heights = line.points.iter().map(|(at, value)| (*at, 0.0, *value)).collect();
            DrawnLine { line, field, color, heights }
        })
        .collect();
    stack(&mut drawn);

    let entries: Vec<Entry<'_>> = drawn
        .iter()
        .map(|one| Entry {
            name: &one.line.name,
            color: &one.color,
            points: &one.line.points,
            field: &one.field,
        })
        .collect();
    let plot = legend::draw(svg, area, &panel["options"]["legend"], &entries, window.to);

    let of_panel = Field::of(panel, "");
    let values =
        drawn.iter().flat_map(|one| one.heights.iter().flat_map(|(_, low, high)| [*low, *high]));
    // Lines do not start at zero, so zero need not be in range.
    let is_grounded = drawn.iter().any(|one| one.is_stacked() || one.is_bars());
    let values =
        values.filter(|value| is_grounded || *value != 0.0 || of_panel.number("min") == Some(0.0));
    let axis = Axis::of(values.chain(lowest(&drawn)), &of_panel, plot.height);
    let labels = axis.widest_label(&of_panel);
    let plot = Rectangle { x: plot.x + labels, width: plot.width - labels - 8.0, ..plot };
    let plot = Rectangle { y: plot.y + 4.0, height: plot.height - 24.0, ..plot };
    let time = TimeAxis::of(window, plot.width);
    axis.draw(svg, plot, &of_panel);
    time.draw(svg, plot);

    for one in &drawn {
        one.draw_band(svg, plot, (&axis, &time), &drawn);
    }
    for one in &drawn {
        one.draw(svg, plot, (&axis, &time));
    }
}

/// The minimum value of all lines.
fn lowest(drawn: &[DrawnLine]) -> Option<f64> {
    let values = drawn.iter().flat_map(|one| one.heights.iter().map(|(_, _, high)| *high));
    values.reduce(f64::min)
}

/// Stacks lines on top of each other, negative values downwards.
fn stack(drawn: &mut [DrawnLine]) {
    use std::collections::BTreeMap;
    let (mut above, mut below) = (BTreeMap::<i64, f64>::new(), BTreeMap::<i64, f64>::new());
    for one in drawn.iter_mut().filter(|one| one.is_stacked()) {
        for (at, low, high) in &mut one.heights {
            let sums = if *high < 0.0 { &mut below } else { &mut above };
            let sum = sums.entry(*at as i64).or_default();
            (*low, *high) = (*sum, *sum + *high);
            *sum = *high;
        }
    }
}

// === impl DrawnLine ===

impl DrawnLine {
    fn is_stacked(&self) -> bool {
        self.field.text("custom.stacking.mode") == "normal"
    }

    fn is_bars(&self) -> bool {
        self.field.text("custom.drawStyle") == "bars"
    }

    /// Points of the line, split at gaps. A stepped line has an additional corner at each point.
    fn pieces(
        &self,
        plot: Rectangle,
        (axis, time): (&Axis, &TimeAxis),
    ) -> Vec<Vec<[(f64, f64); 2]>> {
        let in_steps = self.field.text("custom.lineInterpolation") == "stepAfter";
        let step = self.heights.windows(2).map(|pair| pair[1].0 - pair[0].0).reduce(f64::min);
        let mut pieces: Vec<Vec<[(f64, f64); 2]>> = Vec::new();
        let mut before = f64::NEG_INFINITY;
        for (at, low, high) in &self.heights {
            let x = time.x(*at, plot);
            let here = [(x, axis.y(*low, plot)), (x, axis.y(*high, plot))];
            let is_gap = *at - before > step.unwrap_or(0.0) * 1.5;
            before = *at;
            match pieces.last_mut().filter(|_| !is_gap) {
                Some(piece) => {
                    if let Some([low, high]) = piece.last().copied().filter(|_| in_steps) {
                        piece.push([(x, low.1), (x, high.1)]);
                    }
                    piece.push(here);
                }
                None => pieces.push(vec![here]),
            }
        }
        pieces
    }

    /// Fills the area down to the line that the panel names.
    fn draw_band(&self, svg: &mut Svg, plot: Rectangle, axes: (&Axis, &TimeAxis), all: &[Self]) {
        let below = self.field.text("custom.fillBelowTo");
        let Some(other) = all.iter().find(|one| !below.is_empty() && one.line.name == below) else {
            return;
        };
        let opacity = self.field.number("custom.fillOpacity").unwrap_or(0.0) / 100.0;
        let lower = other.pieces(plot, axes);
        for upper in self.pieces(plot, axes) {
            let there: Vec<(f64, f64)> = upper.iter().map(|[_, high]| *high).collect();
            // Only where both lines have values.
            let (Some(first), Some(last)) = (there.first(), there.last()) else { continue };
            let span = first.0..=last.0;
            let points = lower.iter().flatten().map(|[_, high]| *high);
            let mut back: Vec<_> = points.filter(|(x, _)| span.contains(x)).collect();
            back.reverse();
            svg.shape(&[there, back].concat(), &self.color, opacity);
        }
    }

    fn draw(&self, svg: &mut Svg, plot: Rectangle, axes: (&Axis, &TimeAxis)) {
        let opacity = self.field.number("custom.fillOpacity").unwrap_or(0.0) / 100.0;
        let pieces = self.pieces(plot, axes);
        if self.is_bars() {
            let width = self.bar_width(plot, axes.1);
            for [(x, low), (_, high)] in pieces.iter().flatten() {
                let (top, height) = (low.min(*high), (low - high).abs());
                if height > 0.05 {
                    let bar = Rectangle { x: x - width / 2.0, y: top, width, height };
                    svg.rectangle(bar, &self.color, opacity.max(0.5), 0.0);
                }
            }
            return;
        }
        let stroke = Stroke {
            color: &self.color,
            width: self.field.number("custom.lineWidth").unwrap_or(1.0).max(1.0) * 1.15,
            dashed: self.field.text("custom.lineStyle.fill") == "dash",
        };
        let has_band = !self.field.text("custom.fillBelowTo").is_empty();
        for piece in &pieces {
            let line: Vec<(f64, f64)> = piece.iter().map(|[_, high]| *high).collect();
            if opacity > 0.0 && !has_band {
                let floor = piece.iter().rev().map(|[low, _]| *low);
                let outline: Vec<_> = line.iter().copied().chain(floor).collect();
                svg.shape(&outline, &self.color, opacity);
            }
            if let [only] = line[..] {
                svg.rectangle(
                    Rectangle { x: only.0 - 1.5, y: only.1 - 1.5, width: 3.0, height: 3.0 },
                    &self.color,
                    1.0,
                    1.5,
                );
            } else {
                svg.path(&line, stroke);
            }
        }
    }

    fn bar_width(&self, plot: Rectangle, time: &TimeAxis) -> f64 {
        let step = self.heights.windows(2).map(|pair| pair[1].0 - pair[0].0).reduce(f64::min);
        step.map_or(6.0, |step| (time.width_of(step, plot) * 0.9).clamp(1.5, 12.0))
    }
}
