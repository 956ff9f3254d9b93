//! Levels, reasons and gaps in words, the same in every form.

use std::time::Duration;

use plimsoll_core::{
    rightsizing::{
        evidence::{EvidenceGap, NodeGroupTarget, RunCounts},
        report::{
            ContainerReport, Level, NoPatchReason, ResourceReport, RiskReason, TargetChange,
            WorkloadReport,
        },
        survey::{ContainerRole, Resource, RuntimeHint},
    },
    types::Time,
};

use super::amounts::{amount, counted, day, share};
use crate::report::{explain::report_parts::ago, style::format_span};

/// What has to be known about prices, in each form that prints money.
pub(super) const COST_NOTE: &str =
    "Costs are those of requests. Money is saved only when nodes are removed.";

/// The name of a resource in a sentence.
pub(super) const fn resource(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "CPU",
        Resource::Memory => "memory",
    }
}

/// The role of a container, if it is not an ordinary one.
pub(super) const fn role(role: ContainerRole) -> Option<&'static str> {
    match role {
        ContainerRole::Main => None,
        ContainerRole::Init => Some("init container"),
        ContainerRole::Sidecar => Some("sidecar"),
    }
}

/// The stable name of a risk reason, as in JSON.
pub(super) const fn risk_code(reason: &RiskReason) -> &'static str {
    match reason {
        RiskReason::OomKilled { .. } => "oomKilled",
        RiskReason::PeakNearLimit { .. } => "peakNearLimit",
        RiskReason::Throttled { .. } => "throttled",
        RiskReason::UsageAboveRequest { .. } => "usageAboveRequest",
        RiskReason::BelowNeed => "belowNeed",
        RiskReason::NoRequest => "noRequest",
    }
}

pub(super) fn risk_reason(reason: &RiskReason, at: Time) -> String {
    match reason {
        RiskReason::OomKilled { kills, last } => {
            let last = last.map(|last| format!(", the last {}", ago(last, at))).unwrap_or_default();
            format!("{}{last}", counted(*kills as usize, "OOM kill"))
        }
        RiskReason::PeakNearLimit { share: of_limit } => {
            format!("memory peaked at {} of the limit", share(*of_limit))
        }
        RiskReason::Throttled { share: of_periods } => {
            format!("throttled in {} of CFS periods", share(*of_periods))
        }
        RiskReason::UsageAboveRequest { share: of_time } => {
            format!("used more than its request {} of the time", share(*of_time))
        }
        RiskReason::BelowNeed => "request is too low for its usage".to_owned(),
        RiskReason::NoRequest => "no request".to_owned(),
    }
}

/// All risk reasons of a resource, and what happens to its limit.
pub(super) fn risk_and_limit(resource: &ResourceReport, at: Time) -> String {
    let mut parts: Vec<String> =
        resource.risk_reasons.iter().map(|reason| risk_reason(reason, at)).collect();
    parts.extend(limit_change(resource));
    parts.extend(held(resource));
    parts.join("; ")
}

/// How the limit changes, if it does.
pub(super) fn limit_change(report: &ResourceReport) -> Option<String> {
    let of = |limit: i64| amount(report.resource, limit);
    match (report.limit, report.new_limit()) {
        (Some(limit), _) if report.change.remove_limit => {
            Some(format!("remove the limit of {}", of(limit)))
        }
        (Some(limit), Some(new)) => Some(format!("limit {} -> {}", of(limit), of(new))),
        (None, Some(new)) => Some(format!("new limit {}", of(new))),
        (_, None) => None,
    }
}

/// Why a resource stays as it is although its target differs.
pub(super) fn held(report: &ResourceReport) -> Option<String> {
    let why = report.change.held.as_deref()?;
    Some(format!("{} stays: {why}", resource(report.resource)))
}

/// Why a container has no recommendation.
pub(super) const fn gap(gap: EvidenceGap) -> &'static str {
    match gap {
        EvidenceGap::WithoutSeries => "no series in the history",
        EvidenceGap::TooYoung => "less than a day of samples",
        EvidenceGap::TooFewSamples => "fewer than 100 samples",
        EvidenceGap::TooFewRuns => "too few runs with samples",
        EvidenceGap::AmbiguousOwner => "several workloads claim its pods",
        EvidenceGap::Unread => "the history could not be read",
    }
}

/// Facts about a container that stand beside its numbers.
pub(super) fn container_notes(container: &ContainerReport) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(role) = role(container.role) {
        notes.push(role.to_owned());
    }
    if container.no_patch == Some(NoPatchReason::Injected) {
        notes.push("injected, in no manifest".to_owned());
    }
    notes.extend(node_groups(&container.node_groups));
    if let Some(peak) = container.rare_memory_peak {
        notes.push(format!(
            "memory peaked at {} on {}, above the recommendation",
            amount(Resource::Memory, peak.bytes.0),
            day(peak.at)
        ));
    }
    if let Some(peak) = container.needed_memory_peak {
        notes.push(format!(
            "without page cache, memory peaked at {}",
            amount(Resource::Memory, peak.bytes.0)
        ));
    }
    notes.extend(container.remarks.iter().cloned());
    notes
}

/// Facts about a workload that stand beside its numbers.
pub(super) fn workload_notes(workload: &WorkloadReport) -> Vec<String> {
    let mut notes: Vec<String> = workload.target_changes.iter().map(target_change).collect();
    notes.extend(workload.runs.map(runs));
    notes
}

/// Node groups that need different amounts than one request for all pods.
pub(super) fn node_groups(groups: &[NodeGroupTarget]) -> Option<String> {
    let label = &groups.first()?.label;
    let groups: Vec<String> = groups.iter().map(node_group).collect();
    Some(format!("nodes by {label}: {}", groups.join("; ")))
}

fn node_group(group: &NodeGroupTarget) -> String {
    let name = group.value.as_deref().unwrap_or("without the label");
    let cpu = group.cpu.map(|cpu| format!("CPU {}", amount(Resource::Cpu, cpu.0)));
    let memory =
        group.memory.map(|memory| format!("memory {}", amount(Resource::Memory, memory.0)));
    let amounts: Vec<String> = cpu.into_iter().chain(memory).collect();
    let pooled = if group.from_pool { ", from all nodes" } else { "" };
    let pods = counted(group.pods as usize, "pod");
    if amounts.is_empty() {
        return format!("{name} ({pods}) unknown");
    }
    format!("{name} ({pods}{pooled}) {}", amounts.join(", "))
}

/// How the target of an autoscaler changes together with the requests.
pub(super) fn target_change(change: &TargetChange) -> String {
    let target = &change.target;
    let of = target.container.as_ref().map(|name| format!(" of container {name}"));
    let what = format!(
        "{} {}: {} target{} {} %",
        target.kind,
        target.name,
        resource(target.resource),
        of.unwrap_or_default(),
        target.percent
    );
    match (change.new_percent, &change.held) {
        (Some(new), _) => format!("{what} -> {new} %"),
        (None, Some(why)) => format!("{what} stays: {why}"),
        (None, None) => format!("{what} stays"),
    }
}

pub(super) fn runs(runs: RunCounts) -> String {
    let length = match runs.mean_seconds {
        Some(seconds) => format!("mean length {}", format_span(Duration::from_secs(seconds))),
        None => "of unknown length".to_owned(),
    };
    format!("{} of {} have samples, {length}", runs.seen, counted(runs.total as usize, "run"))
}

/// The runtime of a container, and the setting that it is known by.
pub(super) fn runtime(hint: &RuntimeHint) -> String {
    let memory = |amount_bytes: i64| amount(Resource::Memory, amount_bytes);
    match hint {
        RuntimeHint::Jvm { known_by, max_heap, max_heap_percent } => {
            let heap = match (max_heap, max_heap_percent) {
                (Some(heap), _) => format!(", maximum heap {}", memory(heap.0)),
                (None, Some(percent)) => format!(", maximum heap {percent} % of the limit"),
                (None, None) => String::new(),
            };
            format!("Java by {known_by}{heap}")
        }
        RuntimeHint::Go { known_by, memory_limit, follows_limit } => {
            let limit = match memory_limit {
                Some(limit) => format!(", memory limit {}", memory(limit.0)),
                None if *follows_limit => ", memory limit follows that of the container".to_owned(),
                None => String::new(),
            };
            format!("Go by {known_by}{limit}")
        }
    }
}

/// The level of a risk as a word; `Ok` is no risk.
pub(super) fn level(level: Level) -> &'static str {
    level.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_the_json() {
        for reason in [
            RiskReason::OomKilled { kills: 1, last: None },
            RiskReason::PeakNearLimit { share: 0.97 },
            RiskReason::Throttled { share: 0.31 },
            RiskReason::UsageAboveRequest { share: 0.2 },
            RiskReason::BelowNeed,
            RiskReason::NoRequest,
        ] {
            let json = serde_json::to_value(&reason).expect("JSON");
            assert_eq!(json["code"], risk_code(&reason));
        }
    }

    #[test]
    fn an_injected_container_is_marked_and_pods_that_a_vpa_sized_stay() {
        let report = crate::report::recommend::test_reports::sample();
        let search = report.workloads.iter().find(|workload| workload.name == "search");
        let mut container = search.expect("a workload").containers[0].clone();
        assert_eq!(container_notes(&container), [""; 0]);
        container.no_patch = Some(NoPatchReason::Injected);
        assert_eq!(container_notes(&container), ["injected, in no manifest"]);
        let cpu = &mut container.resources[0];
        assert!(cpu.new_request().is_some(), "the sample changes it");
        cpu.request = cpu.change.request;
        assert_eq!(cpu.new_request(), None);
        cpu.change.limit = Some(7);
        assert!(limit_change(cpu).is_some());
        cpu.limit = Some(7);
        assert_eq!(limit_change(cpu), None);
    }

    #[test]
    fn reasons_are_sentences_with_their_numbers() {
        let at = Time::from_secs(3 * 86_400);
        let last = Some(Time::from_secs(86_400));
        for (reason, expected) in [
            (RiskReason::OomKilled { kills: 9, last }, "9 OOM kills, the last 2 d ago"),
            (RiskReason::OomKilled { kills: 1, last: None }, "1 OOM kill"),
            (RiskReason::Throttled { share: 0.31 }, "throttled in 31 % of CFS periods"),
        ] {
            assert_eq!(risk_reason(&reason, at), expected);
        }
    }
}
