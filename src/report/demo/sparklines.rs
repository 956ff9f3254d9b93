//! The report's sparklines: usage, requests and OOM kills.

use super::{
    report::DemoReport,
    sparkline::{CellAggregation, event_marks, sparkline},
};
use crate::report::style::{BOLD, DIM, GREEN, RED, Style, push_line};

/// Renders two sparklines side by side for each container: CPU and memory.
pub(super) fn render_sparklines(out: &mut String, report: &DemoReport, style: &Style) {
    // Two charts side by side after the name; a cell is a whole number of points.
    const NAME: usize = 12;
    const GAP: usize = 2;
    let points =
        report.containers.first().map_or(0, |container| container.charts.with.oom_kills.len());
    let columns = (style.width.saturating_sub(NAME + GAP) / 2).max(1);
    let points_per_cell = points.div_ceil(columns).max(1);
    let width = points.div_ceil(points_per_cell);
    let hours = points_per_cell * report.chart_point_minutes as usize / 60;
    style.heading(
        out,
        "USAGE ABOVE, REQUEST BELOW",
        &format!("(with recommendations, a cell is {hours} h)"),
    );
    push_line(
        out,
        format_args!("{:NAME$}{:<width$}{:GAP$}memory, peak", "", "cpu, mean of a replica", ""),
    );
    for container in &report.containers {
        let chart = &container.charts.with;
        let pair = |usage: &[Option<i64>], request: &[Option<i64>], shared| {
            let full = usage.iter().chain(request).flatten().max().copied().unwrap_or(0);
            let line = |values| sparkline(values, full, points_per_cell, shared, style.glyphs);
            (line(usage), line(request))
        };
        let cpu = pair(&chart.cpu_usage, &chart.cpu_request, CellAggregation::Mean);
        let memory = pair(&chart.memory_usage, &chart.memory_request, CellAggregation::Max);
        let mut line = |name: &str, code, cpu: &str, memory: &str| {
            let name = style.paint(BOLD, &format!("{name:<NAME$}"));
            let (cpu, memory) = (format!("{cpu:<width$}"), memory.trim_end());
            push_line(
                out,
                format_args!(
                    "{name}{}{:GAP$}{}",
                    style.paint(code, &cpu),
                    "",
                    style.paint(code, memory)
                ),
            );
        };
        line(&container.container, GREEN, &cpu.0, &memory.0);
        line("", DIM, &cpu.1, &memory.1);
        for (scenario, chart) in [("without", &container.charts.without), ("with", chart)] {
            if container.lives.without.oom_kills + container.lives.with.oom_kills > 0 {
                let label = format!("OOM kills {scenario}");
                push_line(
                    out,
                    format_args!(
                        "{:NAME$}{label:<width$}{:GAP$}{}",
                        "",
                        "",
                        style.paint(
                            RED,
                            event_marks(&chart.oom_kills, points_per_cell, style.glyphs).trim_end()
                        )
                    ),
                );
            }
        }
    }
}
