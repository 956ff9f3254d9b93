//! `--why`: how each number of a workload was computed, step by step.

use plimsoll_core::{
    recommender::estimate::Resource as Kind,
    rightsizing::{
        evidence::MemoryPeak,
        report::{ContainerReport, Level, Report, ResourceReport, WorkloadReport},
        survey::Resource,
    },
    types::{
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

use super::{
    amounts::{amount, and_more, count, counted, day, money, share},
    escape::{in_glyphs, one_line},
    names, words,
};
use crate::report::{
    explain::{
        report_parts::{columns, row},
        suggestions::suggestions,
        vpa::resource_text::render_steps,
    },
    style::{BOLD, DIM, Page, Style, YELLOW},
};

/// The longest name that is compared for suggestions.
const MAX_NAME: usize = 512;
/// Workloads that a name may match: one for each kind and cluster.
const MAX_MATCHES: usize = 50;

/// The report has no such workload.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no workload {name:?} in the report: {hint}")]
pub struct WorkloadNotFound {
    /// The name as it was typed.
    pub name: String,
    /// Similar names, or how to write one.
    pub hint: String,
}

/// Renders how the numbers of a workload were computed. The name is `NAMESPACE/NAME` or `NAMESPACE/KIND/NAME`; the
/// cluster may stand before it. Several workloads may match.
pub fn why(report: &Report, name: &str, style: &Style) -> Result<String, WorkloadNotFound> {
    let found: Vec<&WorkloadReport> =
        report.workloads.iter().filter(|workload| matches(workload, name)).collect();
    if found.is_empty() {
        let (name, hint) = (one_line(name), hint(report, name));
        return Err(WorkloadNotFound { name, hint });
    }
    let mut page = Page::new(style);
    for (index, workload) in found.iter().take(MAX_MATCHES).enumerate() {
        if index > 0 {
            page.line("");
        }
        render_workload(&mut page, report, workload);
    }
    if found.len() > MAX_MATCHES {
        let more = and_more(found.len() - MAX_MATCHES, "workload");
        page.line(format_args!("\n{more}: specify NAMESPACE/KIND/NAME"));
    }
    Ok(page.finish())
}

fn matches(workload: &WorkloadReport, typed: &str) -> bool {
    let rest = workload
        .cluster
        .as_deref()
        .and_then(|cluster| typed.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('/')));
    [Some(typed), rest].into_iter().flatten().any(|typed| {
        let Some(rest) = typed.strip_prefix(&workload.namespace) else { return false };
        let Some(rest) = rest.strip_prefix('/') else { return false };
        rest == workload.name
            || rest.split_once('/').is_some_and(|(kind, name)| {
                kind.eq_ignore_ascii_case(&workload.kind) && name == workload.name
            })
    })
}

fn hint(report: &Report, typed: &str) -> String {
    let is_short = |name: &String| name.len() <= MAX_NAME;
    let full = report.workloads.iter().map(|workload| match typed.matches('/').count() {
        0 | 1 => format!("{}/{}", workload.namespace, workload.name),
        _ => names::workload(workload),
    });
    let mut all: Vec<String> = full.filter(is_short).collect();
    all.sort_unstable();
    all.dedup();
    // The same name in the same namespace, of another kind.
    let of_another_kind = |workload: &&WorkloadReport| {
        typed.ends_with(&format!("/{}", workload.name))
            && typed.split('/').rev().nth(2) == Some(&*workload.namespace)
    };
    let other_kinds = report.workloads.iter().filter(of_another_kind).take(3);
    let other_kinds: Vec<String> =
        other_kinds.map(|workload| one_line(&names::workload(workload))).collect();
    // A name without a namespace is compared with names alone.
    let near: Vec<String> = if !other_kinds.is_empty() {
        other_kinds
    } else if typed.contains('/') || typed.len() > MAX_NAME {
        let typed = typed.chars().take(MAX_NAME).collect::<String>();
        suggestions(&typed, all.iter().map(|name| &**name)).into_iter().map(one_line).collect()
    } else {
        let name = |full: &str| full.rsplit('/').next().unwrap_or_default().to_owned();
        let names: Vec<String> = all.iter().map(|full| name(full)).collect();
        let near = suggestions(typed, names.iter().map(|name| &**name));
        let is_near = |full: &&String| near.contains(&&*name(full));
        all.iter().filter(is_near).take(3).map(|full| one_line(full)).collect()
    };
    if near.is_empty() {
        return "specify NAMESPACE/NAME or NAMESPACE/KIND/NAME of a workload in it".to_owned();
    }
    format!("did you mean {}?", near.join(", "))
}

fn render_workload(page: &mut Page<'_>, report: &Report, workload: &WorkloadReport) {
    let name = in_glyphs(&names::workload(workload), page.glyphs);
    let mut facts = Vec::new();
    facts.extend(workload.replicas.map(|replicas| counted(replicas as usize, "replica")));
    facts.extend(workload.vpa.as_ref().map(|vpa| format!("VerticalPodAutoscaler {vpa}")));
    let scaled_by = workload.scaled_by.iter();
    facts.extend(scaled_by.map(|of| format!("scaled by {} {}", of.kind, of.name)));
    facts.extend(workload.shape.as_ref().map(|shape| format!("shape: {shape}")));
    facts.extend(workload.runs.map(words::runs));
    let facts = in_glyphs(&facts.join(", "), page.glyphs);
    page.line(format_args!("{}  {facts}", page.paint(BOLD, &name)));
    page.block(0, DIM, "Computed by the recommender's own code from the history of the report.");
    let sources: Vec<_> = report
        .sources
        .iter()
        .filter(|source| source.cluster == workload.cluster || report.sources.len() == 1)
        .collect();
    for source in sources {
        let text = in_glyphs(&names::source(report, source), page.glyphs);
        page.block(0, DIM, &text);
    }
    if let Some(settings) = names::settings(report) {
        let text = in_glyphs(&settings, page.glyphs);
        page.block(0, DIM, &text);
    }
    for change in &workload.target_changes {
        let text = in_glyphs(&words::target_change(change), page.glyphs);
        page.block(0, YELLOW, &text);
    }
    for container in &workload.containers {
        render_container(page, report, container);
    }
}

fn render_container(page: &mut Page<'_>, report: &Report, container: &ContainerReport) {
    let name = in_glyphs(&container.name, page.glyphs);
    page.heading(&format!("CONTAINER {name}"), words::role(container.role).unwrap_or_default());
    let mut facts: Vec<(&str, String)> = Vec::new();
    if container.oom_kills > 0 {
        let last = container.last_oom_kill.map(|last| format!(", the last on {}", day(last)));
        facts.push(("OOM kills", count(container.oom_kills as usize) + &last.unwrap_or_default()));
    }
    if let Some(throttled) = container.throttled_share {
        facts.push(("throttled", format!("in {} of CFS periods", share(throttled))));
    }
    let peak = |peak: MemoryPeak| {
        format!("{} of memory on {}", amount(Resource::Memory, peak.bytes.0), day(peak.at))
    };
    facts.extend(container.memory_peak.map(|found| ("peak", peak(found))));
    facts.extend(
        container
            .rare_memory_peak
            .map(|found| ("rare peak", format!("{}, above the recommendation", peak(found)))),
    );
    facts.extend(
        container
            .needed_memory_peak
            .map(|found| ("page cache", format!("without it the peak is {}", peak(found)))),
    );
    facts.extend(container.runtime.as_ref().map(|hint| ("runtime", words::runtime(hint))));
    facts.extend(words::node_groups(&container.node_groups).map(|text| ("groups", text)));
    facts.extend(container.remarks.iter().map(|remark| ("note", remark.clone())));
    for (label, text) in facts {
        let text = in_glyphs(&text, page.glyphs);
        page.paragraph(label, &text);
    }
    for resource in &container.resources {
        render_resource(page, report, resource);
    }
}

fn render_resource(page: &mut Page<'_>, report: &Report, resource: &ResourceReport) {
    let quantity = |value: Option<i64>| {
        value.map(|value| match resource.resource {
            Resource::Cpu => Quantity::cpu(MilliCpu(value)),
            Resource::Memory => Quantity::memory(Bytes(value)),
        })
    };
    let name: &str = resource.resource.into();
    let heads = columns(page, ["request", "target", "lower", "upper"]);
    page.line(format_args!("  {}{heads}", page.paint(BOLD, &format!("{name:<12}"))));
    let amounts = [resource.request, resource.target, resource.lower, resource.upper];
    row(page, "", amounts.map(quantity), "");
    // An explanation of what stays has names of the cluster.
    let text = in_glyphs(&change(resource), page.glyphs);
    page.paragraph("change", &text);
    if resource.risk > Level::Ok {
        let reasons =
            resource.risk_reasons.iter().map(|reason| words::risk_reason(reason, report.at));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let text = format!("{}: {reasons}", words::level(resource.risk));
        page.paragraph("risk", &text);
    }
    if resource.waste > Level::Ok {
        page.paragraph("waste", words::level(resource.waste));
    }
    if let (Some(currency), Some(cost), Some(new)) =
        (&report.currency, resource.cost, resource.new_cost)
    {
        let text = format!("{currency} {} -> {} a month", money(cost), money(new));
        page.paragraph("cost", &in_glyphs(&text, page.glyphs));
    }
    if let Some(gap) = resource.unsaid {
        let code: &str = gap.into();
        page.paragraph("no number", &format!("{} [{code}]", words::gap(gap)));
    }
    if let Some(chain) = &resource.explanation {
        let kind = match resource.resource {
            Resource::Cpu => Kind::Cpu,
            Resource::Memory => Kind::Memory,
        };
        render_steps(page, kind, chain, report.at);
    }
}

fn change(resource: &ResourceReport) -> String {
    let of = |value: i64| amount(resource.resource, value);
    let request = match (resource.request, resource.new_request()) {
        (Some(from), Some(to)) => format!("request {} -> {}", of(from), of(to)),
        (None, Some(to)) => format!("new request {}", of(to)),
        (_, None) if resource.target.is_none() => "none, without a recommendation".to_owned(),
        (_, None) => "the request stays as it is".to_owned(),
    };
    // Pods may have the amount already that the template lacks.
    let template = resource.template.and_then(|template| {
        let new = resource.change.request.filter(|_| resource.new_request().is_none())?;
        let asked = template.request.map_or_else(|| "none".to_owned(), of);
        Some(format!("request of the template {asked} -> {}", of(new)))
    });
    let parts = [Some(request), template, words::limit_change(resource), words::held(resource)];
    parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{
        recommend::test_reports::{ascii, assert_golden, named, sample},
        style::tests::plain_output,
    };

    #[test]
    fn the_steps_of_each_number_are_printed() {
        let text = plain_output(|style| why(&sample(), "shop/checkout", style).expect("found"));
        assert_golden("why-checkout.txt", &text);
    }

    #[test]
    fn a_workload_is_found_by_its_names() {
        let mut report = sample();
        let expected = why(&report, "shop/checkout", &ascii(80));
        assert!(expected.is_ok());
        for name in ["shop/Deployment/checkout", "shop/deployment/checkout"] {
            assert_eq!(why(&report, name, &ascii(80)), expected, "{name}");
        }
        for workload in &mut report.workloads {
            workload.cluster = Some("arn:aws:eks:eu:1:cluster/prod".to_owned());
        }
        for name in ["shop/checkout", "arn:aws:eks:eu:1:cluster/prod/shop/Deployment/checkout"] {
            assert!(why(&report, name, &ascii(80)).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_mistyped_name_gets_suggestions() {
        let error = |name: &str| why(&sample(), name, &ascii(80)).expect_err("no such").to_string();
        for (name, expected) in [
            ("shop/chekout", "did you mean shop/checkout?"),
            ("checkout", "did you mean shop/checkout?"),
            ("shop/StatefulSet/checkout", "did you mean shop/Deployment/checkout?"),
        ] {
            assert_eq!(error(name), format!("no workload {name:?} in the report: {expected}"));
        }
        let mut empty = sample();
        empty.workloads.clear();
        assert_eq!(
            why(&empty, "a/b", &ascii(80)).expect_err("no such").hint,
            "specify NAMESPACE/NAME or NAMESPACE/KIND/NAME of a workload in it"
        );
    }

    #[test]
    fn a_name_with_slashes_is_still_found() {
        assert!(why(&named("a/b"), "shop/a/b", &ascii(80)).is_ok());
    }
}
