//! Axes: their range, grid lines and labels.

use crate::color;
use crate::svg::{Anchor, Rectangle, Stroke, Style, Svg, text_width};
use crate::time_format;
use crate::units;

const SIZE: f64 = 11.0;
const GRID: Stroke<'_> = Stroke { color: color::LINE, width: 1.0, dashed: false };

/// A time range, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimeRange {
    /// Start.
    pub from: f64,
    /// End, inclusive.
    pub to: f64,
}

/// What a value axis shows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AxisOptions<'a> {
    /// The unit of its labels, as [`units::write`] takes it.
    pub unit: &'a str,
    /// The lower end; `None` to fit the values.
    pub min: Option<f64>,
    /// The upper end; `None` to fit the values.
    pub max: Option<f64>,
    /// Whether values are whole numbers, so that labels have no decimals.
    pub whole: bool,
}

/// A value axis, from bottom to top.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    low: f64,
    high: f64,
    step: f64,
}

/// A time axis, from left to right.
#[derive(Clone, Copy, Debug)]
pub struct TimeAxis {
    range: TimeRange,
    step: f64,
}

// === impl TimeRange ===

impl TimeRange {
    /// Its length in seconds.
    pub fn length(self) -> f64 {
        self.to - self.from
    }
}

// === impl Axis ===

impl Axis {
    /// An axis of this height that covers all values.
    pub fn of(values: impl Iterator<Item = f64>, options: &AxisOptions<'_>, height: f64) -> Self {
        let (mut low, mut high) = values
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        low = options.min.unwrap_or(low);
        high = options.max.unwrap_or(high);
        if high - low < f64::EPSILON * high.abs().max(1.0) * 4.0 {
            let by = if high == 0.0 { 1.0 } else { high.abs() * 0.2 };
            (low, high) = (options.min.unwrap_or(low - by), high + by);
        }
        let unit = options.unit;
        let mut step = units::step(high - low, (height / 42.0).clamp(2.0, 6.0), unit);
        if options.whole && unit == "none" {
            step = step.max(1.0).round();
        }
        let low = options.min.unwrap_or((low / step).floor() * step);
        let high = options.max.unwrap_or((high / step - 1e-9).ceil() * step);
        Self { low, high: if high > low { high } else { low + step }, step }
    }

    /// The y coordinate of a value.
    pub fn y(&self, value: f64, plot: Rectangle) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        plot.bottom() - share.clamp(-0.02, 1.02) * plot.height
    }

    fn marks(&self) -> impl Iterator<Item = f64> {
        let first = (self.low / self.step).ceil() as i64;
        let last = (self.high / self.step + 1e-9).floor() as i64;
        let step = self.step;
        (first..=last).map(move |mark| mark as f64 * step)
    }

    fn label(&self, value: f64, options: &AxisOptions<'_>) -> String {
        let unit = options.unit;
        let decimals = match unit {
            "none" if self.step < 1.0 => Some((-self.step.log10().floor()).max(1.0) as usize),
            _ => None,
        };
        let decimals = decimals.map(|digits| {
            // 0.25 has one digit more than its magnitude suggests.
            let shifted = self.step * 10_f64.powi(digits as i32);
            if (shifted - shifted.round()).abs() > 1e-6 { digits + 1 } else { digits }
        });
        units::write(value, unit, decimals, 0.0)
    }

    /// The width of the widest label.
    pub fn widest_label(&self, options: &AxisOptions<'_>) -> f64 {
        let widths = self.marks().map(|mark| text_width(&self.label(mark, options), SIZE));
        widths.fold(20.0, f64::max) + 8.0
    }

    /// Draws grid lines across the plot, and labels to its left.
    pub fn draw(&self, svg: &mut Svg, plot: Rectangle, options: &AxisOptions<'_>) {
        for mark in self.marks() {
            let y = self.y(mark, plot);
            svg.line((plot.x, y), (plot.right(), y), GRID);
            let style = Style::faint(SIZE).anchored(Anchor::End);
            svg.write((plot.x - 6.0, y + 4.0), &self.label(mark, options), style);
        }
    }
}

// === impl TimeAxis ===

impl TimeAxis {
    /// An axis whose labels do not overlap.
    pub fn of(range: TimeRange, width: f64) -> Self {
        let steps = [
            300.0, 600.0, 900.0, 1_800.0, 3_600.0, 7_200.0, 10_800.0, 14_400.0, 21_600.0, 43_200.0,
            86_400.0, 172_800.0, 604_800.0,
        ];
        let least = range.length() / (width / 70.0).max(1.0);
        let step = steps.into_iter().find(|step| *step >= least).unwrap_or(2_592_000.0);
        Self { range, step }
    }

    /// The x coordinate of a time.
    pub fn x(&self, at: f64, plot: Rectangle) -> f64 {
        let share = (at - self.range.from) / self.range.length();
        plot.x + share.clamp(0.0, 1.0) * plot.width
    }

    /// The width of this many seconds.
    pub fn width_of(&self, seconds: f64, plot: Rectangle) -> f64 {
        seconds / self.range.length() * plot.width
    }

    /// Draws grid lines down the plot, and labels below it.
    pub fn draw(&self, svg: &mut Svg, plot: Rectangle) {
        let first = (self.range.from / self.step).ceil() as i64;
        let last = (self.range.to / self.step).floor() as i64;
        for mark in first..=last {
            let at = mark as f64 * self.step;
            let x = self.x(at, plot);
            svg.line((x, plot.y), (x, plot.bottom()), GRID);
            let is_midnight = at.rem_euclid(86_400.0) == 0.0;
            let is_long = self.range.length() > 100_000.0;
            let label = if is_midnight && (is_long || self.step >= 86_400.0) {
                time_format::day(at)
            } else {
                time_format::time(at)
            };
            if x - 16.0 > plot.x - 30.0 && x + 16.0 < plot.right() + 12.0 {
                let style = Style::faint(SIZE).anchored(Anchor::Middle);
                svg.write((x, plot.bottom() + 16.0), &label, style);
            }
        }
    }
}
