//! The text output about one resource of one container: its numbers, and the steps that lead to them.

use std::time::Duration;

use plimsoll_core::{
    recommender::{
        RecommendationReason, ResourceExplanation,
        estimate::Resource as Kind,
        explanation::{self, ConfidenceFactor},
        throttling::Throttled,
    },
    types::{
        Time,
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

use super::{
    estimate_steps::{EstimateKind, EstimateSteps, step},
    plan_text,
    report::{Agreement, Resource},
};
use crate::report::{
    explain::report_parts::{ago, columns, row, since},
    style::{BOLD, DIM, GREEN, Page, RED, YELLOW, format_span},
};

pub(super) fn render_resource(page: &mut Page<'_>, kind: Kind, resource: &Resource, at: Time) {
    let Resource { agreement, status, recomputed, chain, requests } = resource;
    let name: &str = kind.into();
    let columns = columns(page, ["target", "lower", "upper", "uncapped"]);
    page.line(format_args!("  {}{columns}", page.paint(BOLD, &format!("{name:<12}"))));
    match status {
        Some(numbers) => row(page, "in status", numbers.to_array(), ""),
        None => page.line(format_args!("    {:<10}{:>12}", "in status", "none yet")),
    }
    let (code, word) = match agreement {
        Agreement::Same => (GREEN, "same"),
        Agreement::Drift => (YELLOW, "drift"),
        Agreement::Differs => (RED, "differs"),
        Agreement::Unwritten => (DIM, ""),
    };
    row(page, "recomputed", recomputed.to_array(), &page.paint(code, word));
    page.paragraph("requested", &requested(requests));
    render_steps(page, kind, chain, at);
}

/// Writes the steps that lead to the numbers of a resource: the samples, each estimate, and what restricts it.
pub(crate) fn render_steps(page: &mut Page<'_>, kind: Kind, chain: &ResourceExplanation, at: Time) {
    let mut line = |label: &str, text: &str| page.paragraph(label, text);
    line("evidence", &evidence(chain, at));
    for (label, text) in chain.plan.iter().flat_map(|plan| plan_text::lines(plan, at)) {
        line(label, &text);
    }
    for (label, estimate) in [
        ("target", EstimateKind::Target),
        ("lower", EstimateKind::Lower),
        ("upper", EstimateKind::Upper),
    ] {
        line(label, &number(kind, chain, estimate));
    }
    if let Some(bump) = &chain.bump {
        let (base, counted) = (amount(kind, bump.base), amount(kind, bump.counted));
        let killed = ago(bump.at, at);
        line(
            "OOM bump",
            &format!("OOM-killed {killed}: memory peak raised from {base} to {counted}"),
        );
    }
    if let Some(throttled) = &chain.throttled {
        line("throttled", &throttling(throttled));
    }
    line("floor", &floor(kind, chain));
    if let Some(text) = rounding(kind, chain) {
        line("rounding", &text);
    }
    line("limits", &limits(chain));
}

fn requested(requests: &super::report::Requests) -> String {
    let mut text = vec![match (requests.least, requests.most) {
        (Some(least), Some(most)) if least == most => most.to_string(),
        (Some(least), Some(most)) => format!("{least} to {most}"),
        _ if requests.without > 0 => return "nothing".to_owned(),
        _ => return "by no pod: no pod has this container now".to_owned(),
    }];
    if requests.without > 0 {
        text.push(format!(", and nothing by {} pods", requests.without));
    }
    if let Some(above) = requests.target_above_percent {
        text.push(match above.round() {
            0.0 => ", which is the target".to_owned(),
            above if above > 0.0 => format!("; the target is {above:.0} % above"),
            above => format!("; the target is {:.0} % below", -above),
        });
    }
    text.concat()
}

fn evidence(chain: &ResourceExplanation, at: Time) -> String {
    let evidence = &chain.evidence;
    let resource = match evidence.of {
        explanation::Resource::Cpu => "CPU",
        explanation::Resource::Memory => "memory",
    };
    if evidence.samples == 0 {
        return "no samples yet".to_owned();
    }
    let last = since(", the last ", evidence.last, at);
    format!(
        "{} {resource} samples over {}{last}; confidence {} (1 is {} with a sample a minute)",
        evidence.samples,
        format_span(evidence.covered()),
        short(evidence.confidence),
        format_span(Duration::from_secs_f64(evidence.interval.clamp(0.0, 1e9))),
    )
}

/// Describes one estimate: every step that changed it.
fn number(kind: Kind, chain: &ResourceExplanation, estimate: EstimateKind) -> String {
    let (step, steps) = (step(chain, estimate), EstimateSteps::compute(kind, chain, estimate));
    if chain.plan.is_some() {
        return planned_number(kind, &steps, step.decided_by);
    }
    let amount = |milli_or_bytes| amount(kind, milli_or_bytes);
    let of = if step.largest_replica.is_some() { " of the largest replica" } else { "" };
    let percentile = short(step.percentile * 100.0);
    let read = amount(steps.percentile);
    let mut text = vec![format!("{}: p{percentile}{of} reads {read}", step.decided_by)];
    if steps.with_margin != steps.percentile {
        let margin = short(chain.margin * 100.0);
        text.push(format!(", with {margin} % margin {}", amount(steps.with_margin)));
    }
    if let Some(throttled) = chain.throttled
        && steps.raised_for_throttling != steps.with_margin
    {
        let (factor, raised) = (short(throttled.factor), amount(steps.raised_for_throttling));
        text.push(format!(", times {factor} for throttling {raised}"));
    }
    if let (Some(factor), Some(ConfidenceFactor { weight, exponent })) =
        (steps.confidence_factor, step.stretch)
    {
        text.push(format!(
            ", times {} for confidence, (1 + {weight} / {})^{exponent}: {}",
            short(factor),
            short(chain.evidence.confidence),
            amount(steps.scaled_by_confidence)
        ));
    }
    if steps.clamped > steps.scaled_by_confidence {
        text.push(format!(", raised to the floor of {}", amount(steps.clamped)));
    } else if steps.clamped < steps.scaled_by_confidence {
        text.push(format!(", capped at {}", amount(steps.clamped)));
    }
    if steps.capped != steps.rounded {
        text.push(format!(", limited to {}", steps.capped));
    }
    if matches!(step.decided_by, RecommendationReason::NodeCap | RecommendationReason::PodCap) {
        text.push(", scaled down with the other containers to the pod capacity".to_owned());
    }
    text.concat()
}

/// Describes one number of a plan: the lines of the plan say how it was found.
fn planned_number(kind: Kind, steps: &EstimateSteps, decided_by: RecommendationReason) -> String {
    let mut text = vec![format!("{decided_by}: {}", amount(kind, steps.percentile))];
    if steps.clamped > steps.percentile {
        text.push(format!(", raised to the floor of {}", amount(kind, steps.clamped)));
    }
    if steps.capped != steps.rounded {
        text.push(format!(", limited to {}", steps.capped));
    }
    text.concat()
}

fn throttling(throttled: &Throttled) -> String {
    let share = short(throttled.share * 100.0);
    match throttled.target {
        _ if throttled.share <= 0.0 => "in none of its periods".to_owned(),
        None => {
            format!("in {share} % of its periods; --cpu-throttling-target would raise CPU for it")
        }
        Some(target) => {
            format!("in {share} % of its periods; up to {} % are tolerated", short(target * 100.0))
        }
    }
}

fn floor(kind: Kind, chain: &ResourceExplanation) -> String {
    let floor = amount(kind, chain.floor.amount);
    match chain.floor.split_among {
        None => format!("{floor}, from an annotation of the VPA"),
        Some(1) => format!("{floor}, the pod floor"),
        Some(containers) => format!("{floor}, the pod floor split among {containers} containers"),
    }
}

fn rounding(kind: Kind, chain: &ResourceExplanation) -> Option<String> {
    let rounding = &chain.rounding;
    let mut parts = Vec::new();
    if rounding.multiple != 1 {
        parts.push(format!("up to multiples of {}", amount(kind, rounding.multiple)));
    }
    if rounding.whole_cores {
        parts.push("up to whole cores".to_owned());
    }
    if rounding.humanized {
        parts.push("to two decimals of a binary unit".to_owned());
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn limits(chain: &ResourceExplanation) -> String {
    let mut parts = Vec::new();
    if let Some(min) = chain.cap.min {
        parts.push(format!("minAllowed {min}"));
    }
    if let Some(max) = chain.cap.max {
        let name =
            if chain.cap.max_is_global { "maximum for all containers" } else { "maxAllowed" };
        parts.push(format!("{name} {max}"));
    }
    if let Some(factor) = chain.upper_bound_factor {
        parts.push(format!("upper bound at most {} times the target", short(factor)));
    }
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// Formats an amount for reading. The table and the JSON have the exact amounts.
fn amount(kind: Kind, amount: i64) -> String {
    const MEBIBYTE: f64 = 1_048_576.0;
    match kind {
        Kind::Cpu if amount < 100_000 => format!("{amount}m"),
        Kind::Cpu => Quantity::cpu(MilliCpu(amount)).to_string(),
        Kind::Memory if amount < 1 << 20 => Quantity::memory(Bytes(amount)).to_string(),
        Kind::Memory if amount < 10_000 << 20 => format!("{:.1}Mi", amount as f64 / MEBIBYTE),
        Kind::Memory => format!("{:.1}Gi", amount as f64 / MEBIBYTE / 1024.0),
    }
}

/// Formats a number with as many digits as are significant.
fn short(number: f64) -> String {
    let digits = match number.abs() {
        size if size >= 100.0 => 0,
        size if size >= 1.0 => 2,
        _ => 4,
    };
    trimmed(number, digits)
}

/// Formats a number with at most this many decimals.
pub(super) fn trimmed(number: f64, digits: usize) -> String {
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_printed_with_few_digits() {
        for (number, expected) in
            [(0.0, "0"), (15.0, "15"), (0.006_94, "0.0069"), (145.6, "146"), (1.25, "1.25")]
        {
            assert_eq!(short(number), expected);
        }
        assert_eq!(amount(Kind::Memory, 300 << 20), "300.0Mi");
        assert_eq!(amount(Kind::Cpu, 100_000_000_000_000), "100G");
    }

    #[test]
    fn throttling_is_explained_with_the_flag_that_would_raise_cpu() {
        for (share, target, expected) in [
            (0.0, None, "in none of its periods"),
            (
                0.125,
                None,
                "in 12.5 % of its periods; --cpu-throttling-target would raise CPU for it",
            ),
            (0.35, Some(0.1), "in 35 % of its periods; up to 10 % are tolerated"),
        ] {
            assert_eq!(throttling(&Throttled { share, target, factor: 1.0 }), expected);
        }
    }
}
