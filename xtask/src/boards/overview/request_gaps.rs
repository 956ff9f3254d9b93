//! The row of the overview board about differences between requests and targets.

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
fn targets(resource: &str) -> String {
    let target = figure("plimsoll_target", resource);
    format!("{target} * on (cluster, namespace, name) group_left () {PODS}")
}

/// The missing requests of all pods of a container; negative if they request more than they need.
fn gap(resource: &str) -> String {
    format!("({} - {})", targets(resource), requested(resource))
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
        "Workloads with the largest difference between requests and target: the smallest and the \
         largest request of a pod, the target of each pod, and the difference summed over all pods. \
         Negative values are over-requested, positive ones under-requested. Names link to the board \
         of the workload.",
        unit,
    )
    .empty("Needs --object-metrics=standard or all")
    .sorted_by("total gap", false)
    .columns(&[
        ("namespace", "namespace"),
        ("name", "name"),
        ("container", "container"),
        ("Value #A", "min request"),
        ("Value #B", "max request"),
        ("Value #C", "target"),
        ("Value #D", "total gap"),
        ("cluster", "cluster"),
    ])
    .only(
        "name",
        &[(
            "links",
            link_to("vertical", "Show this workload", &["namespace", "name", "container"]),
        )],
    )
    .only("total gap", &range)
    .target(column(&format!("{smallest} and {largest}")))
    .target(column(&format!("{largest_request} and {largest}")))
    .target(column(&format!("{target} and {largest}")))
    .target(column(&format!("{gap} and {largest}")))
}

fn gap_sum(title: &str, description: &str, expression: &str, unit: &str, color: &str) -> Panel {
    Panel::new(Kind::Stat, title, description, unit)
        .size(6, 4)
        .empty("needs --object-metrics=standard or all")
        .field("decimals", 1)
        .thresholds(color, &[])
        .target(now(expression, title))
}

fn total(title: &str, resource: &str, unit: &str) -> Panel {
    Panel::new(
        Kind::TimeSeries,
        title,
        "Sum of the requests of all pods with a VPA, and sum of their targets. The difference is \
         what can be saved or is missing.",
        unit,
    )
    .size(12, 7)
    .empty("Needs --object-metrics=standard or all")
    .field("min", 0)
    .field("custom.lineWidth", 2)
    .only("requests", &[("color", json!({"mode": "fixed", "fixedColor": "blue"}))])
    .only("targets", &[("color", json!({"mode": "fixed", "fixedColor": "green"}))])
    .target(over_time(&format!("sum({})", requested(resource)), "requests"))
    .target(over_time(&format!("sum({})", targets(resource)), "targets"))
}

pub(super) fn gaps() -> Row {
    let (cpu, memory) = (gap("cpu"), gap("memory"));
    let excess =
        "Requests above the targets, summed over all pods: what applying all targets would free.";
    let shortage = "Requests below the targets, summed over all pods: what applying all targets would request \
         in addition.";
    row(
        "Requests compared with targets",
        vec![
            gap_sum(
                "Over-requested CPU, in cores",
                excess,
                &format!("-sum(clamp_max({cpu}, 0))"),
                "none",
                "green",
            ),
            gap_sum(
                "Under-requested CPU, in cores",
                shortage,
                &format!("sum(clamp_min({cpu}, 0))"),
                "none",
                "orange",
            ),
            gap_sum(
                "Over-requested memory",
                excess,
                &format!("-sum(clamp_max({memory}, 0))"),
                "bytes",
                "green",
            ),
            gap_sum(
                "Under-requested memory",
                shortage,
                &format!("sum(clamp_min({memory}, 0))"),
                "bytes",
                "orange",
            ),
            largest_gaps("Largest CPU gaps, in cores", "cpu", "none")
                .size(12, 9)
                .field("decimals", 2),
            largest_gaps("Largest memory gaps", "memory", "bytes").size(12, 9),
            total("CPU requests and targets, in cores", "cpu", "none"),
            total("Memory requests and targets", "memory", "bytes"),
        ],
    )
}
