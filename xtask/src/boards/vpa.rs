//! The board of one workload with a VPA: usage, requests, target, restrictions and updates.

use serde_json::{Value, json};

use super::dashboard::{Dashboard, Row, Variable, link_to, row};
use super::panel::{Kind, Panel};
use super::query::{column, events, events_once, now, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "vertical",
        title: "Plimsoll / Vertical",
        description: "One workload with a VerticalPodAutoscaler: usage, request, bounds and target over \
                      time, restrictions, OOM kills, evictions and resizes.",
        variables: vec![
            Variable::one(
                "namespace",
                "Namespace",
                r#"label_values(plimsoll_object_info{cluster=~"$cluster", kind="vpa"}, namespace)"#,
            ),
            Variable::one(
                "name",
                "VPA",
                r#"label_values(plimsoll_object_info{cluster=~"$cluster", kind="vpa", namespace=~"$namespace"}, name)"#,
            ),
            Variable::one(
                "container",
                "Container",
                r#"label_values(plimsoll_target{cluster=~"$cluster", kind="vpa", namespace=~"$namespace", name=~"$name"}, container)"#,
            ),
        ],
        from: "now-24h",
        interval: "1m",
        rows: vec![state(), container(), restrictions(), pod_events()],
    }
}

/// A text in place of a number.
fn word(title: &str, description: &str, label: &str) -> Panel {
    Panel::new(Kind::Stat, title, description, "none")
        .size(4, 4)
        .set("options.textMode", "name")
        .set("options.colorMode", "none")
        .target(now(
            &format!("max by ({label}) (plimsoll_object_info{{@vpa}})"),
            &format!("{{{{{label}}}}}"),
        ))
}

fn state() -> Row {
    row(
        "$namespace/$name",
        vec![
            word("Update mode", "The update mode of the VPA: how recommendations are applied to pods.", "update_mode"),
            word(
                "History",
                "State of the stored history: loaded, loading, failed, or absent if nothing is \
                 stored yet. Two states at once are those of two replicas.",
                "history_state",
            ),
            Panel::new(
                Kind::Stat,
                "Sample age",
                "Age of the latest usage sample. The recommendation does not change without new \
                 samples.",
                "s",
            )
            .size(4, 4)
            .thresholds("green", &[(300.0, "orange"), (900.0, "red")])
            .target(now("min(plimsoll_staleness_seconds{@vpa})", "age")),
            Panel::new(
                Kind::Stat,
                "Pods",
                "Pods that the VPA controls.",
                "none",
            )
            .size(4, 4)
            .target(now("max(plimsoll_replicas{@vpa})", "pods")),
            Panel::new(
                Kind::Stat,
                "Confidence of $container",
                "Days of samples that the recommendation is based on. Below one day the bounds are \
                 wide.",
                "d",
            )
            .size(4, 4)
            .empty("needs --object-metrics=standard or all")
            .field("decimals", 1)
            .thresholds("orange", &[(1.0, "green")])
            .target(now(
                r#"min(max by (container, resource) (plimsoll_confidence{@vpa, container=~"$container"}))"#,
                "days",
            )),
            Panel::new(
                Kind::Stat,
                "Active restrictions",
                "Active restrictions of targets and pod updates, over all containers.",
                "none",
            )
            .size(4, 4)
            .empty("none")
            .thresholds("green", &[(1.0, "orange")])
            .target(now(
                "sum(max by (container, resource, reason) (plimsoll_restricted_scaling{@vpa}))",
                "restrictions",
            )),
        ],
    )
}

/// Colors that mean the same on all boards.
fn line(color: &str, width: u64) -> Vec<(&'static str, Value)> {
    vec![
        ("color", json!({"mode": "fixed", "fixedColor": color})),
        ("custom.lineWidth", json!(width)),
    ]
}

/// Usage, request, target and bounds of the selected container.
fn lines(title: &str, resource: &str, unit: &str, description: &str) -> Panel {
    let figure = |family: &str| {
        format!(r#"max({family}{{@vpa, container=~"$container", resource="{resource}"}})"#)
    };
    // In the first hours the upper bound is orders of magnitude above everything else, which would flatten the other
    // lines.
    let upper_bound = format!("{} < 5 * {}", figure("plimsoll_high"), figure("plimsoll_target"));
    let mut bound = line("light-blue", 1);
    bound.push(("custom.lineInterpolation", json!("stepAfter")));
    let mut upper = bound.clone();
    upper.push(("custom.fillBelowTo", json!("lower bound")));
    upper.push(("custom.fillOpacity", json!(12)));
    let mut request = line("dark-red", 2);
    request.push(("custom.lineInterpolation", json!("stepAfter")));
    let mut min_request = line("dark-red", 1);
    min_request.push(("custom.lineInterpolation", json!("stepAfter")));
    min_request.push(("custom.lineStyle", json!({"fill": "dash", "dash": [2, 4]})));
    let mut uncapped = line("purple", 1);
    uncapped.push(("custom.lineStyle", json!({"fill": "dash", "dash": [8, 6]})));
    Panel::new(Kind::TimeSeries, title, description, unit)
        .size(24, 10)
        .empty("Needs --object-metrics=standard or all")
        .field("min", 0)
        .set("options.legend.displayMode", "table")
        .set("options.legend.placement", "right")
        .set("options.legend.calcs", json!(["lastNotNull", "max"]))
        .only("request", &request)
        .only("min request", &min_request)
        .only("target", &line("green", 3))
        .only("uncapped target", &uncapped)
        .only("upper bound", &upper)
        .only("lower bound", &bound)
        .only("usage", &line("text", 1))
        .target(over_time(&upper_bound, "upper bound"))
        .target(over_time(&figure("plimsoll_low"), "lower bound"))
        .target(over_time(&figure("plimsoll_target"), "target"))
        .target(over_time(&figure("plimsoll_proposal"), "uncapped target"))
        .target(over_time(&figure("plimsoll_request"), "request"))
        .target(over_time(&figure("plimsoll_value"), "usage"))
        .target(over_time(&figure("plimsoll_request_min"), "min request"))
}

const LINES_DESCRIPTION: &str = "Usage is the recent maximum over all pods. The request is the largest of all pods; the min \
     request differs while pods are being updated. A pod whose request is within the bounds is \
     updated only if it is old or the difference is large; outside of the bounds it is updated as \
     soon as no restriction applies. If the target differs from the uncapped target, a limit \
     applies: the reasons are below. With little history the upper bound is very large, so it is \
     shown only below five times the target.";

fn container() -> Row {
    let table = |title: &str, resource: &str, unit: &str| {
        let figure = |family: &str| {
            column(&format!("max by (container) ({family}{{@vpa, resource=\"{resource}\"}})"))
        };
        Panel::new(
            Kind::Table,
            title,
            "Current values of all containers: largest and smallest request, target, bounds, and \
             recent maximum usage. Names of containers select the container of the panels above.",
            unit,
        )
        .size(12, 6)
        .empty("Needs --object-metrics=standard or all")
        .columns(&[
            ("container", "container"),
            ("Value #A", "request"),
            ("Value #F", "min request"),
            ("Value #B", "target"),
            ("Value #C", "lower bound"),
            ("Value #D", "upper bound"),
            ("Value #E", "usage"),
        ])
        .sorted_by("container", false)
        .only("container", &[("links", link_to_container())])
        .target(figure("plimsoll_request"))
        .target(figure("plimsoll_target"))
        .target(figure("plimsoll_low"))
        .target(figure("plimsoll_high"))
        .target(figure("plimsoll_value"))
        .target(figure("plimsoll_request_min"))
    };
    row(
        "Usage, request, bounds and target of container $container",
        vec![
            lines("CPU, in cores", "cpu", "none", LINES_DESCRIPTION),
            lines("Memory", "memory", "bytes", LINES_DESCRIPTION),
            table("All containers: CPU, in cores", "cpu", "none").field("decimals", 3),
            table("All containers: memory", "memory", "bytes"),
        ],
    )
}

/// Link to the same board for the container of the row.
fn link_to_container() -> Value {
    let mut link = link_to("vertical", "Show this container", &["container"]);
    if let Some(url) = link[0]["url"].as_str() {
        let with_object =
            url.replacen("&var-", "&${namespace:queryparam}&${name:queryparam}&var-", 1);
        link[0]["url"] = json!(with_object);
    }
    link
}

fn restrictions() -> Row {
    row(
        "Restrictions",
        vec![
            Panel::new(
                Kind::Timeline,
                "Restrictions",
                "Active restrictions of targets and pod updates over time. The reasons are those of \
                 conditions, events and plimsoll explain. Without a container a restriction applies \
                 to all pods.",
                "none",
            )
            .size(24, 8)
            .empty("No restrictions")
            .words(&[("1", "active", "orange")])
            .target(over_time(
                "max by (container, resource, reason) (plimsoll_restricted_scaling{@vpa} == 1)",
                "{{reason}} {{container}} {{resource}}",
            )),
        ],
    )
}

fn pod_events() -> Row {
    row(
        "Pod events",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "OOM kills",
                "OOM kills by container. Each one raises the memory target.",
                "none",
            )
            .size(8, 7)
            .bars()
            .target(over_time(
                &events_once("plimsoll_container_oom_kills_total{@vpa}", "container", "container"),
                "{{container}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Evictions",
                "Pods that were evicted to be recreated with new requests.",
                "none",
            )
            .size(8, 7)
            .bars()
            .target(over_time(&events("vpa_updater_evicted_pods_total{@of_vpa}", ""), "evicted")),
            Panel::new(
                Kind::TimeSeries,
                "In-place resizes",
                "Pods whose requests were changed in place.",
                "none",
            )
            .size(8, 7)
            .bars()
            .target(over_time(
                &events("vpa_updater_in_place_updated_pods_total{@of_vpa}", ""),
                "resized",
            )),
        ],
    )
}
