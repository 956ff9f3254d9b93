//! The text output of the report about a HorizontalPodAutoscaler: plain lines that fit 80 columns and do not depend on
//! colour.

use std::cmp::Ordering;

use plimsoll_core::hpa::takeover::ObjectMode;

use super::report::{HpaReport, LastScale, Metric, PodCounts, Steps, UncountedPod};
use crate::report::{
    explain::report_parts::{ago, proposal_status, render_findings_and_notes, since},
    style::{BOLD, DIM, GREEN, Page, RED, Style, YELLOW},
};

/// More pods than these are not listed by name.
const MAX_LISTED_PODS: usize = 5;

pub fn render(report: &HpaReport, style: &Style) -> String {
    let mut page = Page::new(style);
    page.line(format_args!("{}", page.paint(BOLD, &report.header.object())));
    let (min, max) = report.bounds;
    let by = match report.mode {
        ObjectMode::Assist => ", scaled by Plimsoll and the HPA controller",
        ObjectMode::Drive => ", scaled by Plimsoll",
        ObjectMode::Shadow => "",
    };
    page.line(format_args!("  {}, {min} to {max} replicas{by}", report.target));
    render_verdict(&mut page, report);
    for metric in &report.metrics {
        render_metric(&mut page, metric, &report.metrics);
    }
    if let Some(steps) = &report.steps {
        render_steps(&mut page, report, steps);
    }
    if !report.fixes.is_empty() {
        page.heading("WITH PLIMSOLL'S FIXES", "each alone");
        for effect in &report.fixes {
            page.marked("-", 1, &format!("{}: {}", effect.fix, replicas_text(effect.desired)));
        }
    }
    render_conditions(&mut page, report);
    render_findings_and_notes(&mut page, &report.findings, &report.notes);
    page.finish()
}

fn replicas_text(replicas: Option<i32>) -> String {
    replicas.map_or_else(|| "no change".to_owned(), |replicas| format!("{replicas} replicas"))
}

fn render_verdict(page: &mut Page<'_>, report: &HpaReport) {
    let (code, title) = match (report.replicas, report.desired) {
        (Some(current), Some(desired)) => match desired.cmp(&current) {
            Ordering::Greater => (GREEN, "WOULD SCALE UP"),
            Ordering::Less => (GREEN, "WOULD SCALE DOWN"),
            Ordering::Equal if report.restrictions.is_empty() => (BOLD, "UNCHANGED"),
            Ordering::Equal => (YELLOW, "UNCHANGED, RESTRICTED"),
        },
        _ => (RED, "UNCHANGED, BECAUSE OF AN ERROR"),
    };
    let words = page.paint(DIM, &format!("  {}", report.restrictions.join(", ")));
    page.line(format_args!("\n{}{words}", page.paint(code, title)));
    let current = report.replicas.map_or_else(|| "?".to_owned(), |current| current.to_string());
    let reason = if report.reason.is_empty() {
        String::new()
    } else {
        format!("; reason: {}", report.reason)
    };
    let change = match report.desired {
        Some(desired) => format!("{current} -> {desired} replicas{reason}"),
        None => format!("{current} replicas"),
    };
    page.block(4, "", &change);
    if let Some(error) = &report.error {
        let since = since(", since ", report.failing_since, report.header.at);
        page.block(4, RED, &format!("{error}{since}"));
    }
    if let Some(LastScale { from, to, at, pending }) = &report.last_scale {
        let outcome = if *pending { "; whether it was made is not known yet" } else { "" };
        let text = format!("last scaled {from} -> {to} {}{outcome}", ago(*at, report.header.at));
        page.block(4, DIM, &text);
    }
    let is_shadowed = report.mode == ObjectMode::Shadow;
    if is_shadowed && report.desired.is_some_and(|desired| desired != report.desired_by_controller)
    {
        let text = format!(
            "the HPA controller wanted {} when it last wrote the status",
            replicas_text(Some(report.desired_by_controller))
        );
        page.block(4, DIM, &text);
    }
}

/// The name without the selector, which Go prints as a struct.
fn short_name(name: &str) -> &str {
    name.split_once("(&LabelSelector").map_or(name, |(short, _)| short).trim_end_matches("(nil)")
}

fn render_metric(page: &mut Page<'_>, metric: &Metric, metrics: &[Metric]) {
    let all = metrics.iter().map(|metric| (metric.chosen, metric.proposal));
    let status = proposal_status((metric.chosen, metric.proposal), all);
    page.heading(short_name(&metric.name), status);
    if let Some(error) = &metric.error {
        page.paragraph(&page.paint(RED, "unknown"), error);
        return;
    }
    let value = metric.value.as_deref().unwrap_or("none");
    page.paragraph("value", &format!("{value}; the target is {}", metric.target));
    if let Some(ratio) = metric.ratio {
        let (low, high) = metric.tolerated;
        let padded = metric.padded_ratio.map_or_else(String::new, |padded| {
            format!(", {padded:.3} with pods filled in that are not ready or have no value")
        });
        let text =
            format!("{ratio:.3}{padded}; from {low:.3} to {high:.3} replicas are not changed");
        page.paragraph("ratio", &text);
    }
    if let Some(pods) = &metric.pods {
        page.paragraph("pods", &pods_text(pods));
    }
    let kept = match metric.kept.as_deref() {
        Some("within_tolerance") => ", because the ratio is within the tolerance",
        Some("padded_within_tolerance") => {
            ", because the ratio with pods filled in is within the tolerance"
        }
        Some("padding_turns_direction" | "padding_turns_number") => {
            ", because the pods that were filled in would reverse the change"
        }
        Some("no_pod_ready") => ", because no pod is ready",
        _ => "",
    };
    page.paragraph("proposal", &format!("{}{kept}", replicas_text(metric.proposal)));
}

fn pods_text(pods: &PodCounts) -> String {
    let mut parts = vec![format!("{} counted", pods.counted)];
    for (group, name) in [
        (&pods.unready, "not ready"),
        (&pods.missing, "without a value"),
        (&pods.ignored, "ignored"),
    ] {
        if group.is_empty() {
            continue;
        }
        let listed = group.iter().take(MAX_LISTED_PODS);
        let pod = |UncountedPod { name, why }: &UncountedPod| format!("{name}: {why}");
        let mut listed: Vec<String> = listed.map(pod).collect();
        if group.len() > MAX_LISTED_PODS {
            listed.push(format!("and {} more", group.len() - MAX_LISTED_PODS));
        }
        parts.push(format!("{} {name} ({})", group.len(), listed.join("; ")));
    }
    parts.join(", ")
}

fn render_steps(page: &mut Page<'_>, report: &HpaReport, steps: &Steps) {
    page.heading("FROM PROPOSAL TO REPLICAS", "");
    page.paragraph("proposed", &replicas_text(Some(steps.recommended)));
    let window = match &steps.held {
        None => "no past recommendation delays the change".to_owned(),
        Some(hold) => {
            let until = hold.until.map_or_else(String::new, |until| {
                format!(", until {} at the latest", ago(until, report.header.at))
            });
            format!(
                "a past recommendation of {} delays scaling {}{until}",
                hold.replicas, hold.direction
            )
        }
    };
    page.paragraph("window", &window);
    let (min, max) = report.bounds;
    let limits = match &*steps.limited_by {
        "min" => format!("{} replicas, the minimum", steps.limited),
        "max" => format!("{} replicas, the maximum", steps.limited),
        "scale_up_rate" | "scale_down_rate" => {
            format!("{} replicas, which is what the policies allow now", steps.limited)
        }
        _ => format!("{} replicas, within {min} to {max} and the policies", steps.limited),
    };
    page.paragraph("limits", &limits);
}

fn render_conditions(page: &mut Page<'_>, report: &HpaReport) {
    if report.conditions.is_empty() {
        return;
    }
    page.heading("CONDITIONS", "in the status");
    for condition in &report.conditions {
        let changed = condition.last_transition_time.as_ref().map(|time| time.0.into());
        let since = since(", since ", changed, report.header.at);
        let reason = condition.reason.as_deref().unwrap_or_default();
        let message = condition.message.as_deref().unwrap_or_default();
        page.line(format_args!("  {}", condition.type_));
        page.block(4, DIM, &format!("{} ({reason}){since}: {message}", condition.status));
    }
}
