//! Time series: lines, bars, areas, bands, marks and shaded periods over time, with axes and a legend.

use std::collections::BTreeMap;

use crate::axis::{Axis, AxisOptions, TimeAxis, TimeRange};
use crate::legend::{self, Entry, Legend};
use crate::svg::{Rectangle, Stroke, Svg};

/// What a chart of time series shows.
#[derive(Clone, Copy, Debug)]
pub struct TimeSeries<'a> {
    /// The lines, from back to front.
    pub lines: &'a [Line],
    /// Events.
    pub marks: &'a [Mark],
    /// Periods with a background of their own.
    pub shaded: &'a [ShadedPeriod],
    /// The value axis.
    pub axis: AxisOptions<'a>,
    /// The time axis.
    pub range: TimeRange,
    /// The legend of the lines.
    pub legend: &'a Legend,
}

/// A line.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// Its name in the legend.
    pub name: String,
    /// Times in seconds since the Unix epoch, and values. Without a value there is no point: where the distance of two
    /// points is more than 1.5 times the usual one, the line has a gap.
    pub points: Vec<(f64, f64)>,
    /// Its color.
    pub color: String,
    /// How it is drawn.
    pub style: LineStyle,
    /// Its values in the legend, one for each heading of the table.
    pub values: Vec<String>,
}

/// How a line is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LineStyle {
    /// The shape.
    pub shape: LineShape,
    /// On top of the stacked lines before it, negative values downwards.
    pub stacked: bool,
    /// Dashed.
    pub dashed: bool,
    /// The width of the line, at least 1.
    pub width: f64,
    /// The opacity of the area below it, from 0 to 1.
    pub fill_opacity: f64,
    /// The name of the line that the filled area ends at.
    pub fill_down_to: Option<String>,
}

/// The shape of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LineShape {
    /// Straight from each point to the next.
    #[default]
    Straight,
    /// Horizontal from each point to the time of the next.
    Stepped,
    /// A bar at each point.
    Bars,
}

/// An event.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// When, in seconds since the Unix epoch.
    pub at: f64,
    /// At which value; `None` for the bottom of the plot.
    pub value: Option<f64>,
    /// Its shape.
    pub shape: MarkShape,
    /// Its color.
    pub color: String,
    /// What happened, as a tooltip.
    pub title: String,
}

/// The shape of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkShape {
    /// A cross.
    Cross,
    /// A triangle that points down.
    Triangle,
    /// A short vertical line.
    Tick,
}

/// A period with a background of its own.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadedPeriod {
    /// Start, in seconds since the Unix epoch.
    pub from: f64,
    /// End.
    pub to: f64,
    /// Its color.
    pub color: String,
    /// What it means, as a tooltip.
    pub title: String,
}

/// A line and its heights.
struct DrawnLine<'a> {
    line: &'a Line,
    /// Times, and from where to where values are drawn: stacked lines begin at those below them.
    heights: Vec<(f64, f64, f64)>,
}

/// Draws the chart.
pub fn draw(svg: &mut Svg, area: Rectangle, chart: &TimeSeries<'_>) {
    let lines = chart.lines.iter();
    let mut drawn: Vec<DrawnLine<'_>> = lines
        .map(|line| {
            let points = line.points.iter().filter(|(_, value)| value.is_finite());
            DrawnLine { line, heights: points.map(|(at, value)| (*at, 0.0, *value)).collect() }
        })
        .collect();
    stack(&mut drawn);

    let entries: Vec<Entry<'_>> = chart
        .lines
        .iter()
        .map(|line| Entry { name: &line.name, color: &line.color, values: &line.values })
        .collect();
    let plot = legend::draw(svg, area, chart.legend, &entries);

    let values =
        drawn.iter().flat_map(|one| one.heights.iter().flat_map(|(_, low, high)| [*low, *high]));
    // Lines do not start at zero, so zero need not be in range.
    let is_grounded =
        chart.lines.iter().any(|line| line.style.stacked || line.style.shape == LineShape::Bars);
    let values = values.filter(|value| is_grounded || *value != 0.0 || chart.axis.min == Some(0.0));
    let marked = chart.marks.iter().filter_map(|mark| mark.value);
    let axis = Axis::of(values.chain(lowest(&drawn)).chain(marked), &chart.axis, plot.height);
    let labels = axis.widest_label(&chart.axis);
    let plot = Rectangle { x: plot.x + labels, width: plot.width - labels - 8.0, ..plot };
    let plot = Rectangle { y: plot.y + 4.0, height: plot.height - 24.0, ..plot };
    let time = TimeAxis::of(chart.range, plot.width);
    for period in chart.shaded {
        period.draw(svg, plot, &time);
    }
    axis.draw(svg, plot, &chart.axis);
    time.draw(svg, plot);

    for one in &drawn {
        one.draw_band(svg, plot, (&axis, &time), &drawn);
    }
    for one in &drawn {
        one.draw(svg, plot, (&axis, &time));
    }
    for mark in chart.marks {
        mark.draw(svg, plot, (&axis, &time));
    }
}

/// The minimum value of all lines.
fn lowest(drawn: &[DrawnLine<'_>]) -> Option<f64> {
    let values = drawn.iter().flat_map(|one| one.heights.iter().map(|(_, _, high)| *high));
    values.reduce(f64::min)
}

/// Stacks lines on top of each other, negative values downwards.
fn stack(drawn: &mut [DrawnLine<'_>]) {
    let (mut above, mut below) = (BTreeMap::<i64, f64>::new(), BTreeMap::<i64, f64>::new());
    for one in drawn.iter_mut().filter(|one| one.line.style.stacked) {
        for (at, low, high) in &mut one.heights {
            let sums = if *high < 0.0 { &mut below } else { &mut above };
            let sum = sums.entry(*at as i64).or_default();
            (*low, *high) = (*sum, *sum + *high);
            *sum = *high;
        }
    }
}

// === impl ShadedPeriod ===

impl ShadedPeriod {
    fn draw(&self, svg: &mut Svg, plot: Rectangle, time: &TimeAxis) {
        let (left, right) = (time.x(self.from, plot), time.x(self.to, plot));
        svg.open(&self.title);
        let area = Rectangle { x: left, width: (right - left).max(1.0), ..plot };
        svg.rectangle(area, &self.color, 0.15, 0.0);
        svg.close();
    }
}

// === impl Mark ===

impl Mark {
    fn draw(&self, svg: &mut Svg, plot: Rectangle, (axis, time): (&Axis, &TimeAxis)) {
        let x = time.x(self.at, plot);
        let y = self.value.map_or(plot.bottom(), |value| axis.y(value, plot));
        let stroke = Stroke { color: &self.color, width: 1.8, dashed: false };
        svg.open(&self.title);
        match self.shape {
            MarkShape::Cross => {
                svg.line((x - 4.0, y - 4.0), (x + 4.0, y + 4.0), stroke);
                svg.line((x - 4.0, y + 4.0), (x + 4.0, y - 4.0), stroke);
            }
            MarkShape::Triangle => {
                svg.shape(&[(x - 4.5, y - 8.0), (x + 4.5, y - 8.0), (x, y)], &self.color, 1.0);
            }
            MarkShape::Tick => svg.line((x, y - 8.0), (x, y), stroke),
        }
        svg.close();
    }
}

// === impl DrawnLine ===

impl DrawnLine<'_> {
    /// Points of the line, split at gaps. A stepped line has an additional corner at each point.
    fn pieces(
        &self,
        plot: Rectangle,
        (axis, time): (&Axis, &TimeAxis),
    ) -> Vec<Vec<[(f64, f64); 2]>> {
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
                    if let Some([low, high]) = piece
                        .last()
                        .copied()
                        .filter(|_| self.line.style.shape == LineShape::Stepped)
                    {
                        piece.push([(x, low.1), (x, high.1)]);
                    }
                    piece.push(here);
                }
                None => pieces.push(vec![here]),
            }
        }
        pieces
    }

    /// Fills the area down to another line.
    fn draw_band(&self, svg: &mut Svg, plot: Rectangle, axes: (&Axis, &TimeAxis), all: &[Self]) {
        let Some(below) = &self.line.style.fill_down_to else { return };
        let Some(other) = all.iter().find(|one| one.line.name == *below) else { return };
        let lower = other.pieces(plot, axes);
        for upper in self.pieces(plot, axes) {
            let there: Vec<(f64, f64)> = upper.iter().map(|[_, high]| *high).collect();
            // Only where both lines have values.
            let (Some(first), Some(last)) = (there.first(), there.last()) else { continue };
            let span = first.0..=last.0;
            let points = lower.iter().flatten().map(|[_, high]| *high);
            let mut back: Vec<_> = points.filter(|(x, _)| span.contains(x)).collect();
            back.reverse();
            let outline = [there, back].concat();
            svg.shape(&outline, &self.line.color, self.line.style.fill_opacity);
        }
    }

    fn draw(&self, svg: &mut Svg, plot: Rectangle, axes: (&Axis, &TimeAxis)) {
        let Line { color, style, .. } = self.line;
        let opacity = style.fill_opacity;
        let pieces = self.pieces(plot, axes);
        if style.shape == LineShape::Bars {
            let width = self.bar_width(plot, axes.1);
            for [(x, low), (_, high)] in pieces.iter().flatten() {
                let (top, height) = (low.min(*high), (low - high).abs());
                if height > 0.05 {
                    let bar = Rectangle { x: x - width / 2.0, y: top, width, height };
                    svg.rectangle(bar, color, opacity.max(0.5), 0.0);
                }
            }
            return;
        }
        let stroke = Stroke { color, width: style.width.max(1.0) * 1.15, dashed: style.dashed };
        for piece in &pieces {
            let line: Vec<(f64, f64)> = piece.iter().map(|[_, high]| *high).collect();
            if opacity > 0.0 && style.fill_down_to.is_none() {
                let floor = piece.iter().rev().map(|[low, _]| *low);
                let outline: Vec<_> = line.iter().copied().chain(floor).collect();
                svg.shape(&outline, color, opacity);
            }
            if let [only] = line[..] {
                svg.rectangle(
                    Rectangle { x: only.0 - 1.5, y: only.1 - 1.5, width: 3.0, height: 3.0 },
                    color,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::color;

    fn chart(lines: &[Line], marks: &[Mark], shaded: &[ShadedPeriod]) -> String {
        let mut svg = Svg::embedded(400.0, 200.0, "Usage", "");
        let chart = TimeSeries {
            lines,
            marks,
            shaded,
            axis: AxisOptions { unit: "bytes", min: Some(0.0), ..AxisOptions::default() },
            range: TimeRange { from: 0.0, to: 3_600.0 },
            legend: &Legend::List,
        };
        let area = svg.area();
        draw(&mut svg, area, &chart);
        svg.finish()
    }

    #[test]
    fn marks_and_periods_have_tooltips() {
        let line = Line {
            name: "web".to_owned(),
            points: (0..60).map(|minute| (f64::from(minute) * 60.0, 1_048_576.0)).collect(),
            color: color::of_series(0),
            ..Line::default()
        };
        let kill = Mark {
            at: 600.0,
            value: Some(2_097_152.0),
            shape: MarkShape::Cross,
            color: color::hex("red"),
            title: "OOM kill".to_owned(),
        };
        let eviction = Mark { value: None, shape: MarkShape::Triangle, ..kill.clone() };
        let unknown = ShadedPeriod {
            from: 0.0,
            to: 300.0,
            color: color::FAINT.to_owned(),
            title: "no samples".to_owned(),
        };
        let svg = chart(&[line], &[kill, eviction], &[unknown]);
        assert_eq!(svg.matches("<g><title>OOM kill</title>").count(), 2);
        assert!(
            svg.contains("<g><title>no samples</title>") && svg.contains(">web</text>"),
            "{svg}"
        );
        assert!(svg.contains(">2 MiB</text>"), "the axis includes marks: {svg}");
    }

    #[test]
    fn a_chart_without_values_has_axes() {
        let nothing = Line { points: vec![(0.0, f64::NAN)], ..Line::default() };
        for lines in [&[][..], &[nothing][..]] {
            let svg = chart(lines, &[], &[]);
            assert!(svg.contains(">00:00</text>") && !svg.contains("NaN"), "{svg}");
        }
    }
}
