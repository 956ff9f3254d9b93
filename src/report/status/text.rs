//! The text output of the status: a table of roles, and the findings.

use super::{Level, RoleReport, StatusReport};
use crate::report::style::{BOLD, DIM, GREEN, Page, RED, Style, YELLOW};

/// The column at which the details of a role start.
const DETAIL_INDENT: usize = 4;

pub fn render(report: &StatusReport, style: &Style) -> String {
    let mut page = Page::new(style);
    page.line(format_args!(
        "{}  {}",
        page.paint(BOLD, &report.cluster),
        page.paint(DIM, &report.time.to_string())
    ));
    if !report.roles.is_empty() {
        table(&mut page, report);
    }
    page.line(format_args!(""));
    if report.findings.is_empty() {
        page.line(format_args!("  {} no findings", page.paint(GREEN, "ok  ")));
    }
    for finding in &report.findings {
        let (colour, mark) = match finding.level {
            Level::Problem => (RED, "bad "),
            Level::Warning => (YELLOW, "warn"),
        };
        let text = format!("{} [{}]", finding.message, finding.code);
        page.marked(&page.paint(colour, mark), mark.len(), &text);
    }
    page.finish()
}

const COLUMNS: usize = 6;
const HEADS: [&str; COLUMNS] = ["ROLE", "PODS", "VERSION", "LOOP", "OBJECTS", "DATA"];

fn table(page: &mut Page<'_>, report: &StatusReport) {
    let rows: Vec<[String; COLUMNS]> = report.roles.iter().map(row).collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([HEADS[column].len()]).max().unwrap_or_default()
    };
    let widths: [usize; COLUMNS] = std::array::from_fn(width);
    let line = |cells: &[String; COLUMNS]| {
        let padded: Vec<String> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        padded.join("  ").trim_end().to_owned()
    };
    page.line(format_args!("\n  {}", page.paint(BOLD, &line(&HEADS.map(ToOwned::to_owned)))));
    for (row, role) in rows.iter().zip(&report.roles) {
        page.line(format_args!("  {}", line(row)));
        let leader = leader_line(role);
        page.block(DETAIL_INDENT, DIM, &leader);
    }
}

fn row(role: &RoleReport) -> [String; COLUMNS] {
    let none = || "-".to_owned();
    let pods = if role.pods == 0 { none() } else { format!("{}/{}", role.ready, role.pods) };
    let reads_metrics = matches!(&*role.role, "watermark" | "horizontal");
    let data = match (&role.history, role.stale) {
        (Some(history), Some(0)) => history.clone(),
        (Some(history), Some(stale)) => format!("{history}, {stale} stale"),
        (None, Some(0)) if reads_metrics => "fresh".to_owned(),
        (None, Some(stale)) if reads_metrics => format!("{stale} unknown"),
        _ => match (role.breaker_until, role.held_workloads) {
            (Some(_), _) => "breaker open".to_owned(),
            (None, Some(paused)) if paused > 0 => format!("{paused} paused"),
            _ => none(),
        },
    };
    [
        role.role.clone(),
        pods,
        role.version.clone().unwrap_or_else(none),
        role.loop_age_seconds.or(role.renewed_seconds).map_or_else(none, age),
        role.objects.map_or_else(none, |objects| objects.to_string()),
        data,
    ]
}

fn leader_line(role: &RoleReport) -> String {
    let Some(leader) = &role.leader else { return format!("{}: no leader", role.lease) };
    // The identity is the pod name and a random suffix.
    let pod = leader.rsplit_once('_').map_or(&**leader, |(pod, _)| pod);
    let mode = role.mode.as_ref().map(|mode| format!(", mode {mode}")).unwrap_or_default();
    format!("{}: {pod}{mode}", role.lease)
}

fn age(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{seconds:.0}s"),
        ..5400.0 => format!("{:.0}m", seconds / 60.0),
        _ => format!("{:.0}h", seconds / 3600.0),
    }
}
