//! The report's two tables: the comparison of the scenarios, and the recommendations.

use super::report::{BothScenarios, ContainerReport, DemoReport, Recommended};
use crate::report::style::{BOLD, DIM, GREEN, Page, YELLOW, wrap};
use plimsoll_core::{
    sim::ResourceRecommendation,
    types::{
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

pub(super) fn render_scenarios(page: &mut Page<'_>, report: &DemoReport) {
    let BothScenarios { without, with } = &report.lives;
    let hours = f64::from(report.days) * 24.0;
    page.heading(
        &format!("{:<24}{:>13}{:>13}   difference", "BEFORE / AFTER", "without", "with"),
        "",
    );
    let mut row = |label: &str, without: String, with: String, better: bool, difference: String| {
        let code = if better { GREEN } else { YELLOW };
        // The space before each column remains if a number is wider than its column.
        page.line(format_args!(
            "  {label:<22} {without:>12} {with:>12}   {}",
            page.paint(code, &difference)
        ));
    };
    let difference = |without: f64, with: f64, saved: f64, unit: &str| {
        format!("{}, {:+.0} {unit}-hours", percent(without, with), -saved)
    };
    row(
        "requested CPU, mean",
        format!("{:.2} cores", without.core_hours() / hours),
        format!("{:.2} cores", with.core_hours() / hours),
        report.savings.core_hours >= 0.0,
        difference(without.core_hours(), with.core_hours(), report.savings.core_hours, "core"),
    );
    row(
        "requested memory, mean",
        format!("{:.2} GiB", without.gib_hours() / hours),
        format!("{:.2} GiB", with.gib_hours() / hours),
        report.savings.gib_hours >= 0.0,
        difference(without.gib_hours(), with.gib_hours(), report.savings.gib_hours, "GiB"),
    );
    for (label, without, with) in [
        ("OOM kills", without.oom_kills, with.oom_kills),
        ("pods replaced", without.replaced_pods, with.replaced_pods),
        ("throttled minutes", without.throttled_minutes, with.throttled_minutes),
    ] {
        let difference = match with - without {
            0 => "none".to_owned(),
            change => format!("{change:+}"),
        };
        row(label, without.to_string(), with.to_string(), with <= without, difference);
    }
}

pub(super) struct Row {
    pub(super) resource: &'static str,
    pub(super) request: String,
    pub(super) target: String,
    lower: String,
    upper: String,
    pub(super) change: f64,
    why: String,
}

/// The rows of one container, one for each resource that is recommended.
pub(super) fn rows(container: &ContainerReport, recommended: &Recommended) -> Vec<Row> {
    let Recommended { advice: ResourceRecommendation { target, lower, upper }, why, .. } =
        recommended;
    let request = container.template.request;
    let row = |resource, [request, target, lower, upper]: [String; 4], change, why: &String| Row {
        resource,
        request,
        target,
        lower,
        upper,
        change,
        why: why.clone(),
    };
    let amounts = target.cpu.zip(lower.cpu).zip(upper.cpu);
    let cpu = amounts.map(|((target, lower), upper)| {
        let change = change(request.cpu.0, target.0);
        row("cpu", [request.cpu, target, lower, upper].map(cpu), change, &why.cpu)
    });
    let amounts = target.memory.zip(lower.memory).zip(upper.memory);
    let memory = amounts.map(|((target, lower), upper)| {
        let change = change(request.memory.0, target.0);
        row("memory", [request.memory, target, lower, upper].map(memory), change, &why.memory)
    });
    cpu.into_iter().chain(memory).collect()
}

pub(super) fn recommendations(page: &mut Page<'_>, report: &DemoReport) {
    let day = report.days;
    page.heading("RECOMMENDATIONS", &format!("(at the end of day {day})"));
    let columns =
        format!("{:>16}{:>8}{:>7}{:>8}{:>8}  why", "template", "target", "", "lower", "upper");
    page.line(format_args!("{}", page.paint(DIM, &columns)));
    for container in &report.containers {
        page.line(format_args!(
            "{}{}",
            page.paint(BOLD, &container.container),
            page.paint(DIM, &about(container))
        ));
        let Some(recommended) = &container.recommendation else {
            page.line("  never ran, so there is no recommendation");
            continue;
        };
        for row in rows(container, recommended) {
            let Row { resource, request, target, lower, upper, change, why } = row;
            let code = if change > 0.0 { YELLOW } else { GREEN };
            let change = page.paint(code, &format!(" {:>6}", format!("{change:+.0} %")));
            let mut why = wrap(&why, page.width.saturating_sub(49).max(20)).into_iter();
            page.line(format_args!(
                "  {resource:<6} {request:>7} {target:>7}{change} {lower:>7} {upper:>7}  {}",
                why.next().unwrap_or_default()
            ));
            for rest in why {
                page.line(format_args!("{:49}{rest}", ""));
            }
        }
    }
}

fn about(container: &ContainerReport) -> String {
    let ContainerReport { story, sidecar, replicas, .. } = container;
    if *sidecar {
        return format!("  native sidecar of {}", container.workload);
    }
    match replicas {
        Some(replicas) => format!("  {replicas} replicas, {story}"),
        None => format!("  {story}"),
    }
}

/// CPU in millicores, so that values are easy to compare; from 100 cores on, rounded to cores.
fn cpu(amount: MilliCpu) -> String {
    if amount.0 < 100_000 {
        format!("{}m", amount.0)
    } else {
        Quantity::from(MilliCpu(amount.0.saturating_add(500) / 1000 * 1000)).to_string()
    }
}

/// Memory rounded to MiB; from 10,000 MiB on, rounded to GiB.
fn memory(amount: Bytes) -> String {
    let mebibytes = amount.0.saturating_add(1 << 19) >> 20;
    if mebibytes < 10_000 {
        format!("{mebibytes}Mi")
    } else {
        format!("{}Gi", (mebibytes + 512) >> 10)
    }
}

fn change(from: i64, to: i64) -> f64 {
    if from == to { 0.0 } else { (to - from) as f64 * 100.0 / from.max(1) as f64 }
}

fn percent(from: f64, to: f64) -> String {
    if from > 0.0 { format!("{:+.0} %", (to - from) * 100.0 / from) } else { "none".to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_prints_to_the_nearest_mebibyte_and_large_amounts_to_the_nearest_gibibyte() {
        for (bytes, printed) in [
            (0, "0Mi"),
            (524_287, "0Mi"),
            (524_288, "1Mi"),
            (512 << 20, "512Mi"),
            (9_999 << 20, "9999Mi"),
            (10_240 << 20, "10Gi"),
            (100_000_000_000_000, "93132Gi"),
        ] {
            assert_eq!(memory(Bytes(bytes)), printed);
        }
    }

    #[test]
    fn cpu_prints_in_millicores_unless_unbounded() {
        for (millicores, printed) in
            [(0, "0m"), (2000, "2000m"), (99_999, "99999m"), (100_000_000_000_000, "100G")]
        {
            assert_eq!(cpu(MilliCpu(millicores)), printed);
        }
    }

    #[test]
    fn every_amount_fits_its_column() {
        for amount in [i64::from(i32::MAX), 100_000_000_000_000] {
            assert!(cpu(MilliCpu(amount)).len() < 8, "{}", cpu(MilliCpu(amount)));
            assert!(memory(Bytes(amount)).len() < 8, "{}", memory(Bytes(amount)));
        }
    }
}
