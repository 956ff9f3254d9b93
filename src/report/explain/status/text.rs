//! The status for people: a table of roles, and what to look at.

use super::{Level, RoleReport, StatusReport};
use crate::report::style::{BOLD, DIM, GREEN, RED, Style, YELLOW, push_line};

/// Where the text of a finding begins.
const INDENT: usize = 7;
/// Where the text below a role begins.
const DETAIL_INDENT: usize = 4;

/// One screen.
pub fn render(report: &StatusReport, look: &Style) -> String {
    let mut out = String::new();
    push_line(
        &mut out,
        format_args!(
            "{}  {}",
            look.paint(BOLD, &report.cluster),
            look.paint(DIM, &report.time.to_string())
        ),
    );
    if !report.roles.is_empty() {
        table(&mut out, report, look);
    }
    push_line(&mut out, format_args!(""));
    if report.findings.is_empty() {
        push_line(&mut out, format_args!("  {} nothing to look at", look.paint(GREEN, "ok  ")));
    }
    for finding in &report.findings {
        let (colour, mark) = match finding.level {
            Level::Problem => (RED, "bad "),
            Level::Warning => (YELLOW, "warn"),
        };
        let text = format!("{} [{}]", finding.message, finding.code);
        for (index, line) in look.wrap(&text, INDENT).iter().enumerate() {
            let mark = if index == 0 { mark } else { "    " };
            push_line(&mut out, format_args!("  {} {line}", look.paint(colour, mark)));
        }
    }
    out
}

const COLUMNS: usize = 6;
const HEADS: [&str; COLUMNS] = ["ROLE", "PODS", "VERSION", "LOOP", "OBJECTS", "DATA"];

fn table(out: &mut String, report: &StatusReport, look: &Style) {
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
    push_line(out, format_args!("\n  {}", look.paint(BOLD, &line(&HEADS.map(ToOwned::to_owned)))));
    for (row, role) in rows.iter().zip(&report.roles) {
        push_line(out, format_args!("  {}", line(row)));
        let led = leader_line(role);
        for text in look.wrap(&led, DETAIL_INDENT) {
            push_line(out, format_args!("    {}", look.paint(DIM, &text)));
        }
    }
}

fn row(role: &RoleReport) -> [String; COLUMNS] {
    let none = || "-".to_owned();
    let pods = if role.pods == 0 { none() } else { format!("{}/{}", role.ready, role.pods) };
    let data = match (&role.history, role.stale) {
        (Some(history), Some(0)) => history.clone(),
        (Some(history), Some(stale)) => format!("{history}, {stale} stale"),
        (None, Some(0)) if role.role == "watermark" => "fresh".to_owned(),
        (None, Some(stale)) if role.role == "watermark" => format!("{stale} unknown"),
        _ => match (role.breaker_until, role.held_workloads) {
            (Some(_), _) => "breaker open".to_owned(),
            (None, Some(held)) if held > 0 => format!("{held} held"),
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

/// Who leads, and by which Lease.
fn leader_line(role: &RoleReport) -> String {
    let Some(leader) = &role.leader else { return format!("{}: nobody leads", role.lease) };
    // Behind the pod's name there is only chance.
    let pod = leader.rsplit_once('_').map_or(&**leader, |(pod, _)| pod);
    format!("{}: {pod}", role.lease)
}

/// How long ago something was.
fn age(seconds: f64) -> String {
    match seconds {
        ..90.0 => format!("{seconds:.0}s"),
        ..5400.0 => format!("{:.0}m", seconds / 60.0),
        _ => format!("{:.0}h", seconds / 3600.0),
    }
}
