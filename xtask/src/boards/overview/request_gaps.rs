//! The row of the Overview about requests that miss the need: what could be saved, what is missing, and where most of
//! it is.

use serde_json::json;

use super::super::dashboard::{Row, link_to, row};
use super::super::panel::{Kind, Panel};
use super::super::query::{column, now, over_time};

/// One value per container of a resource: the maximum over the replicas that report it.
fn figure(family: &str, resource: &str) -> String {
    format!(
        "max by (cluster, namespace, name, container) ({family}{{@vpa, resource=\"{resource}\"}})"
    )
}

/// Number of pods that a VPA selects.
const PODS: &str = "max by (cluster, namespace, name) (plimsoll_replicas{@vpa})";

/// The sum of the requests of all pods of a container. One pod's request times the number of pods would be wrong,
/// because pods differ while they are being updated.
fn requested(resource: &str) -> String {
    figure("plimsoll_request_all_pods", resource)
}

/// The sum of the targets of all pods of a container.
fn needed(resource: &str) -> String {
    let target = figure("plimsoll_target", resource);
    format!("{target} * on (cluster, namespace, name) group_left () {PODS}")
}

/// The missing requests of all pods of a container; negative if they request more than they need.
fn gap(resource: &str) -> String {
    format!("({} - {})", needed(resource), requested(resource))
}

fn largest_gaps(title: &str, resource: &str, unit: &str) -> Panel {
    let gap = gap(resource);
    let largest = format!("topk(12, abs({gap}))");
    let (smallest, largest_request, target) = (
        figure("plimsoll_request_min", resource),
        figure("plimsoll_request", resource),
        figure("plimsoll_target", resource),
    );
    let range = [
        ("custom.cellOptions", json!({"type": "color-text"})),
        (
            "thresholds",
            json!({"mode": "absolute", "steps": [
                {"color": "green", "value": null}, {"color": "orange", "value": 0},
            ]}),
        ),
    ];
    Panel::new(
        Kind::Table,
        title,
        "Where requests and need are furthest apart: the least and the most that a pod asks for, \
         what each should ask for, and the difference of all pods together. Below 0 it is asked for \
         and not needed; above 0 it is needed and not asked for. A name leads to its board.",
        unit,
    )
    .empty("Needs --object-metrics=standard or all")
    .sorted_by("gap of all pods", false)
    .columns(&[
        ("namespace", "namespace"),
        ("name", "name"),
        ("container", "container"),
        ("Value #A", "least request"),
        ("Value #B", "most"),
        ("Value #C", "target"),
        ("Value #D", "gap of all pods"),
        ("cluster", "cluster"),
    ])
    .only(
        "name",
        &[(
            "links",
            link_to("vertical", "Show this workload", &["namespace", "name", "container"]),
        )],
    )
    .only("gap of all pods", &range)
    .ask(column(&format!("{smallest} and {largest}")))
    .ask(column(&format!("{largest_request} and {largest}")))
    .ask(column(&format!("{target} and {largest}")))
    .ask(column(&format!("{gap} and {largest}")))
}

fn saving(title: &str, description: &str, expression: &str, unit: &str, color: &str) -> Panel {
    Panel::new(Kind::Stat, title, description, unit)
        .size(6, 4)
        .empty("needs --object-metrics=standard or all")
        .field("decimals", 1)
        .thresholds(color, &[])
        .ask(now(expression, title))
}

fn total(title: &str, resource: &str, unit: &str) -> Panel {
    Panel::new(
        Kind::TimeSeries,
        title,
        "What all pods that a VPA is about ask for together, and what they should ask for. Between \
         the lines lies what can be saved, or what is lacking.",
        unit,
    )
    .size(12, 7)
    .empty("Needs --object-metrics=standard or all")
    .field("min", 0)
    .field("custom.lineWidth", 2)
    .only("requested", &[("color", json!({"mode": "fixed", "fixedColor": "blue"}))])
    .only("needed", &[("color", json!({"mode": "fixed", "fixedColor": "green"}))])
    .ask(over_time(&format!("sum({})", requested(resource)), "requested"))
    .ask(over_time(&format!("sum({})", needed(resource)), "needed"))
}

pub(super) fn gaps() -> Row {
    let (cpu, memory) = (gap("cpu"), gap("memory"));
    let can_go = "Requests above the targets, in sum over all pods: what would be free for others if every target were \
                  applied now.";
    let lacks = "Requests below the targets, in sum over all pods: what would be asked for in addition if every target were \
                 applied now.";
    row(
        "Where do requests miss the need?",
        vec![
            saving(
                "Cores that can be saved",
                can_go,
                &format!("-sum(clamp_max({cpu}, 0))"),
                "none",
                "green",
            ),
            saving(
                "Cores that are lacking",
                lacks,
                &format!("sum(clamp_min({cpu}, 0))"),
                "none",
                "orange",
            ),
            saving(
                "Memory that can be saved",
                can_go,
                &format!("-sum(clamp_max({memory}, 0))"),
                "bytes",
                "green",
            ),
            saving(
                "Memory that is lacking",
                lacks,
                &format!("sum(clamp_min({memory}, 0))"),
                "bytes",
                "orange",
            ),
            largest_gaps("Largest gaps: CPU, in cores", "cpu", "none")
                .size(12, 9)
                .field("decimals", 2),
            largest_gaps("Largest gaps: memory", "memory", "bytes").size(12, 9),
            total("CPU of all pods, in cores", "cpu", "none"),
            total("Memory of all pods", "memory", "bytes"),
        ],
    )
}
