//! Reasons and remarks as text.

use plimsoll_core::{
    rightsizing::{
        evidence::{EvidenceGap, NodeGroupTarget},
        report::{Level, ResourceReport, RiskReason, TargetChange},
        survey::{Resource, RuntimeHint},
    },
    types::Time,
};

use super::{
    amounts::{percentage, quantity, resource_name, span, time},
    rows::Row,
};

/// A level as a word. Where there is nothing to report, it is `none`.
pub(crate) fn level_word(level: Level) -> &'static str {
    match level {
        Level::Unsaid => "unknown",
        Level::Ok => "none",
        Level::Low => "low",
        Level::Medium => "medium",
        Level::High => "high",
        Level::Critical => "critical",
    }
}

/// Why there is no number.
pub(crate) fn gap_text(gap: EvidenceGap) -> &'static str {
    match gap {
        EvidenceGap::WithoutSeries => "no series: plimsoll doctor shows why",
        EvidenceGap::TooYoung => "less than a day of samples",
        EvidenceGap::TooFewSamples => "fewer than 100 samples",
        EvidenceGap::TooFewRuns => "fewer than three runs, or too many runs without samples",
        EvidenceGap::AmbiguousOwner => "several workloads claim its pods",
        EvidenceGap::Unread => "its history could not be read",
    }
}

/// What the risk of a resource is.
pub(crate) fn risk_text(reason: &RiskReason, now: Time) -> String {
    match reason {
        RiskReason::OomKilled { kills, last } => {
            let kills = match kills {
                1 => "1 OOM kill".to_owned(),
                kills => format!("{kills} OOM kills"),
            };
            match last {
                Some(last) => format!("{kills}, the last {} ago", span(*last, now)),
                None => kills,
            }
        }
        RiskReason::PeakNearLimit { share } => {
            format!("peak at {} of the limit", percentage(*share))
        }
        RiskReason::Throttled { share } => {
            format!("throttled in {} of CFS periods", percentage(*share))
        }
        RiskReason::UsageAboveRequest { share } => {
            format!("uses more than its request in {} of the time", percentage(*share))
        }
        RiskReason::BelowNeed => "requests less than it needs".to_owned(),
        RiskReason::NoRequest => "no request".to_owned(),
    }
}

/// What happens to the limit.
fn limit_text(resource: &ResourceReport) -> Option<String> {
    let quantity = |amount| quantity(resource.resource, amount);
    match (resource.limit, resource.new_limit()) {
        (Some(from), Some(to)) => Some(format!("limit {} → {}", quantity(from), quantity(to))),
        (None, Some(to)) => Some(format!("set the limit to {}", quantity(to))),
        (Some(from), None) if resource.change.remove_limit => {
            Some(format!("remove the limit of {}", quantity(from)))
        }
        _ => None,
    }
}

/// Why a resource is at risk, what happens to its limit, and what prevents a change.
pub(crate) fn resource_notes(resource: &ResourceReport, now: Time) -> Vec<String> {
    let mut notes: Vec<String> =
        resource.risk_reasons.iter().map(|reason| risk_text(reason, now)).collect();
    notes.extend(limit_text(resource));
    notes.extend(resource.change.held.as_ref().map(|held| format!("not changed: {held}")));
    notes.extend(resource.unsaid.map(|gap| format!("no number: {}", gap_text(gap))));
    notes
}

/// All notes on a container, and with its first container those on a workload.
pub(crate) fn container_notes(row: &Row<'_>, now: Time) -> Vec<String> {
    let mut notes = Vec::new();
    let unsaid = row.container.resources.iter().filter_map(|one| one.unsaid);
    let unsaid: Vec<_> = unsaid.collect();
    let is_same = unsaid.len() > 1 && unsaid.windows(2).all(|pair| pair[0] == pair[1]);
    if let Some(gap) = unsaid.first().filter(|_| is_same) {
        notes.push(format!("no number: {}", gap_text(*gap)));
    }
    for resource in &row.container.resources {
        let name = resource_name(resource.resource);
        let of_resource = resource_notes(resource, now).into_iter();
        let of_resource = of_resource.filter(|note| !is_same || !note.starts_with("no number: "));
        notes.extend(of_resource.map(|note| format!("{name}: {note}")));
    }
    let memory = |amount: i64| quantity(Resource::Memory, amount);
    if let Some(peak) = row.container.rare_memory_peak {
        let (amount, at) = (memory(peak.bytes.0), time(peak.at));
        notes.push(format!("memory: rare peak of {amount} on {at}, above the target"));
    }
    if let Some(peak) = row.container.needed_memory_peak {
        notes.push(format!("memory: peak without page cache {}", memory(peak.bytes.0)));
    }
    notes.extend(row.container.node_groups.iter().map(node_group_text));
    notes.extend(row.container.runtime.as_ref().map(runtime_text));
    notes.extend(row.container.remarks.iter().cloned());
    if row.is_first {
        let workload = row.workload;
        notes.extend(workload.target_changes.iter().map(target_change_text));
        notes.extend(workload.shape.as_ref().map(|shape| format!("shape: {shape}")));
        notes.extend(
            workload.runs.map(|runs| format!("{} of {} runs have samples", runs.seen, runs.total)),
        );
        notes.extend(workload.vpa.as_ref().map(|vpa| format!("VerticalPodAutoscaler {vpa}")));
        let scaled_by = workload.scaled_by.iter();
        notes.extend(scaled_by.map(|of| format!("scaled by {} {}", of.kind, of.name)));
    }
    notes
}

fn node_group_text(group: &NodeGroupTarget) -> String {
    let value = group.value.as_deref().map_or_else(
        || format!("without {}", group.label),
        |value| format!("{}={value}", group.label),
    );
    let cpu = group.cpu.map(|cpu| format!("CPU {}", quantity(Resource::Cpu, cpu.0)));
    let memory =
        group.memory.map(|memory| format!("memory {}", quantity(Resource::Memory, memory.0)));
    let targets: Vec<String> = cpu.into_iter().chain(memory).collect();
    let targets = if targets.is_empty() { "no number".to_owned() } else { targets.join(", ") };
    let source =
        if group.from_pool { " (from all nodes: too little history of its own)" } else { "" };
    let pods = if group.pods == 1 { "pod" } else { "pods" };
    format!("{} {pods} on nodes {value}: {targets}{source}", group.pods)
}

fn runtime_text(hint: &RuntimeHint) -> String {
    match hint {
        RuntimeHint::Jvm { known_by, max_heap: Some(heap), .. } => {
            format!(
                "Java with a heap of at most {} ({known_by})",
                quantity(Resource::Memory, heap.0)
            )
        }
        RuntimeHint::Jvm { known_by, max_heap_percent: Some(percent), .. } => {
            format!("Java with a heap of at most {percent} % of the limit ({known_by})")
        }
        RuntimeHint::Jvm { known_by, .. } => format!("Java ({known_by})"),
        RuntimeHint::Go { known_by, follows_limit: true, .. } => {
            format!("Go, its memory limit follows the limit ({known_by})")
        }
        RuntimeHint::Go { known_by, memory_limit: Some(limit), .. } => {
            format!(
                "Go with a memory limit of {} ({known_by})",
                quantity(Resource::Memory, limit.0)
            )
        }
        RuntimeHint::Go { known_by, .. } => format!("Go ({known_by})"),
    }
}

fn target_change_text(change: &TargetChange) -> String {
    let target = &change.target;
    let of =
        format!("{} {}: target of {}", target.kind, target.name, resource_name(target.resource));
    match (change.new_percent, &change.held) {
        (Some(percent), _) => format!("{of} {} % → {percent} %", target.percent),
        (None, Some(held)) => format!("{of} {} %, not changed: {held}", target.percent),
        (None, None) => format!("{of} {} %, not changed", target.percent),
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::units::{Bytes, MilliCpu};

    use super::*;

    #[test]
    fn reasons_say_what_was_measured() {
        let now = Time::from_secs(10 * 86_400);
        let last = Some(Time::from_secs(8 * 86_400));
        assert_eq!(
            risk_text(&RiskReason::OomKilled { kills: 9, last }, now),
            "9 OOM kills, the last 2 d ago"
        );
        assert_eq!(risk_text(&RiskReason::OomKilled { kills: 1, last: None }, now), "1 OOM kill");
        assert_eq!(
            risk_text(&RiskReason::Throttled { share: 0.31 }, now),
            "throttled in 31 % of CFS periods"
        );
    }

    #[test]
    fn node_groups_and_runtimes_name_what_they_are_known_by() {
        let group = NodeGroupTarget {
            label: "pool".into(),
            value: None,
            pods: 4,
            cpu: Some(MilliCpu(60)),
            memory: None,
            from_pool: true,
        };
        assert_eq!(
            node_group_text(&group),
            "4 pods on nodes without pool: CPU 60m (from all nodes: too little history of its own)"
        );
        let jvm = |max_heap, max_heap_percent| {
            runtime_text(&RuntimeHint::Jvm {
                known_by: "-Xmx2g".to_owned(),
                max_heap,
                max_heap_percent,
            })
        };
        assert_eq!(jvm(Some(Bytes(2 << 30)), None), "Java with a heap of at most 2Gi (-Xmx2g)");
        assert_eq!(jvm(None, None), "Java (-Xmx2g)");
    }
}
