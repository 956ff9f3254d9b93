//! The report's sparklines: usage, requests and OOM kills as rows of characters, in blocks or in plain ASCII.

use super::report::DemoReport;
use crate::report::style::{BOLD, DIM, GREEN, Glyphs, Page, RED};

/// Renders two sparklines side by side for each container: CPU and memory.
pub(super) fn render_sparklines(page: &mut Page<'_>, report: &DemoReport) {
    // Two charts side by side after the name; a cell is a whole number of points.
    const NAME: usize = 12;
    const GAP: usize = 2;
    let points =
        report.containers.first().map_or(0, |container| container.charts.with.oom_kills.len());
    let columns = (page.width.saturating_sub(NAME + GAP) / 2).max(1);
    let points_per_cell = points.div_ceil(columns).max(1);
    let width = points.div_ceil(points_per_cell);
    let hours = points_per_cell * report.chart_point_minutes as usize / 60;
    page.heading(
        "USAGE ABOVE, REQUEST BELOW",
        &format!("(with recommendations, a cell is {hours} h)"),
    );
    page.line(format_args!(
        "{:NAME$}{:<width$}{:GAP$}memory, peak",
        "", "cpu, mean of a replica", ""
    ));
    for container in &report.containers {
        let chart = &container.charts.with;
        let pair = |usage: &[Option<i64>], request: &[Option<i64>], shared| {
            let full = usage.iter().chain(request).flatten().max().copied().unwrap_or(0);
            let line = |values| sparkline(values, full, points_per_cell, shared, page.glyphs);
            (line(usage), line(request))
        };
        let cpu = pair(&chart.cpu_usage, &chart.cpu_request, CellAggregation::Mean);
        let memory = pair(&chart.memory_usage, &chart.memory_request, CellAggregation::Max);
        let mut line = |name: &str, code, cpu: &str, memory: &str| {
            let name = page.paint(BOLD, &format!("{name:<NAME$}"));
            let (cpu, memory) = (format!("{cpu:<width$}"), memory.trim_end());
            page.line(format_args!(
                "{name}{}{:GAP$}{}",
                page.paint(code, &cpu),
                "",
                page.paint(code, memory)
            ));
        };
        line(&container.container, GREEN, &cpu.0, &memory.0);
        line("", DIM, &cpu.1, &memory.1);
        for (scenario, chart) in [("without", &container.charts.without), ("with", chart)] {
            if container.lives.without.oom_kills + container.lives.with.oom_kills > 0 {
                let label = format!("OOM kills {scenario}");
                page.line(format_args!(
                    "{:NAME$}{label:<width$}{:GAP$}{}",
                    "",
                    "",
                    page.paint(
                        RED,
                        event_marks(&chart.oom_kills, points_per_cell, page.glyphs).trim_end()
                    )
                ));
            }
        }
    }
}

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const LETTERS: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellAggregation {
    Mean,
    Max,
}

impl CellAggregation {
    fn aggregate(self, cell: &[Option<i64>]) -> Option<i64> {
        let values = || cell.iter().flatten();
        match self {
            Self::Max => values().max().copied(),
            Self::Mean => {
                let sum: i128 = values().map(|value| i128::from(*value)).sum();
                let mean =
                    sum / i128::try_from(values().count()).ok().filter(|count| *count > 0)?;
                i64::try_from(mean).ok()
            }
        }
    }
}

/// A row of characters, one for every `per_cell` values. A value of `full` is a full block; missing values are blank.
pub fn sparkline(
    values: &[Option<i64>],
    full: i64,
    per_cell: usize,
    shared: CellAggregation,
    glyphs: Glyphs,
) -> String {
    let letters = match glyphs {
        Glyphs::Unicode => &BLOCKS,
        Glyphs::Ascii => &LETTERS,
    };
    values
        .chunks(per_cell.max(1))
        .map(|cell| match shared.aggregate(cell) {
            None => ' ',
            Some(value) => {
                // The lowest block starts at zero, the highest at seven eighths of `full`.
                let share = value.saturating_mul(8).div_euclid(full.max(1)).clamp(0, 7);
                letters[share as usize]
            }
        })
        .collect()
}

/// A row of marks for the cells with a non-zero count.
pub fn event_marks(counts: &[i64], per_cell: usize, glyphs: Glyphs) -> String {
    let mark = if glyphs == Glyphs::Unicode { '×' } else { 'x' };
    let cells = counts.chunks(per_cell.max(1));
    cells.map(|cell| if cell.iter().any(|count| *count > 0) { mark } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::{CellAggregation::*, *};

    #[test]
    fn heights_are_shares_of_the_maximum() {
        let values: Vec<_> = (0..=8).map(|eighth| Some(eighth * 100)).collect();
        assert_eq!(sparkline(&values, 800, 1, Max, Glyphs::Unicode), "▁▂▃▄▅▆▇██");
        assert_eq!(sparkline(&values, 800, 1, Max, Glyphs::Ascii), "_.:-=+*##");
    }

    #[test]
    fn a_gap_is_blank_and_a_cell_shows_its_maximum_or_mean() {
        let values = [Some(0), Some(800), None, None, None, Some(300), Some(1)];
        assert_eq!(sparkline(&values, 800, 2, Max, Glyphs::Ascii), "# -_");
        assert_eq!(sparkline(&values, 800, 2, Mean, Glyphs::Ascii), "= -_");
        assert_eq!(event_marks(&[0, 1, 0, 0, 0, 9], 2, Glyphs::Ascii), "x x");
    }

    #[test]
    fn zero_and_huge_scales_do_not_fail() {
        assert_eq!(sparkline(&[], 10, 4, Mean, Glyphs::Ascii), "");
        assert_eq!(sparkline(&[Some(5)], 0, 0, Mean, Glyphs::Ascii), "#");
        assert_eq!(sparkline(&[Some(i64::MAX), Some(-5)], 7, 1, Mean, Glyphs::Ascii), "#_");
    }
}
