//! The board of one workload with a VPA: usage, requests, target, restrictions and updates.

use serde_json::{Value, json};

use super::dashboard::{Dashboard, Row, Variable, link_to, row};
use super::panel::{Kind, Panel};
use super::query::{column, events, events_once, now, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "vertical",
        title: "Plimsoll / Vertical",
        description: "One workload with a VerticalPodAutoscaler: use, request, bounds and target over time, what holds them \
                      back, kills for lack of memory, evictions and resizes.",
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
        rows: vec![state(), container(), held_back(), done()],
    }
}

/// A text in place of a number.
fn word(title: &str, description: &str, label: &str) -> Panel {
    Panel::new(Kind::Stat, title, description, "none")
        .size(4, 4)
        .set("options.textMode", "name")
        .set("options.colorMode", "none")
        .ask(now(
            &format!("max by ({label}) (plimsoll_object_info{{@vpa}})"),
            &format!("{{{{{label}}}}}"),
        ))
}

fn state() -> Row {
    row(
        "$namespace/$name",
        vec![
            word("Update mode", "How pods get what is recommended: the update mode of the VPA.", "update_mode"),
            word(
                "History",
                "Whether what was seen of it earlier has been read: loaded, loading, failed, or \
                 absent where nothing is stored yet. Two words at once are two replicas that are \
                 not as far.",
                "history_state",
            ),
            Panel::new(
                Kind::Stat,
                "Latest sample",
                "How old the latest sample of its use is. Nothing new is decided while none comes.",
                "s",
            )
            .size(4, 4)
            .thresholds("green", &[(300.0, "orange"), (900.0, "red")])
            .ask(now("min(plimsoll_staleness_seconds{@vpa})", "age")),
            Panel::new(
                Kind::Stat,
                "Pods",
                "How many pods the VPA is about.",
                "none",
            )
            .size(4, 4)
            .ask(now("max(plimsoll_replicas{@vpa})", "pods")),
            Panel::new(
                Kind::Stat,
                "Confidence of $container",
                "Days of samples that the numbers rest on. Bounds are wide while it is below one.",
                "d",
            )
            .size(4, 4)
            .empty("needs --object-metrics=standard or all")
            .field("decimals", 1)
            .thresholds("orange", &[(1.0, "green")])
            .ask(now(
                r#"min(max by (container, resource) (plimsoll_confidence{@vpa, container=~"$container"}))"#,
                "days",
            )),
            Panel::new(
                Kind::Stat,
                "Restrictions now",
                "How many reasons keep targets or pods from what use alone would make them, over \
                 all containers.",
                "none",
            )
            .size(4, 4)
            .empty("none")
            .thresholds("green", &[(1.0, "orange")])
            .ask(now(
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
    let mut least = line("dark-red", 1);
    least.push(("custom.lineInterpolation", json!("stepAfter")));
    least.push(("custom.lineStyle", json!({"fill": "dash", "dash": [2, 4]})));
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
        .only("least request", &least)
        .only("target", &line("green", 3))
        .only("without limits", &uncapped)
        .only("upper bound", &upper)
        .only("lower bound", &bound)
        .only("use", &line("text", 1))
        .ask(over_time(&upper_bound, "upper bound"))
        .ask(over_time(&figure("plimsoll_low"), "lower bound"))
        .ask(over_time(&figure("plimsoll_target"), "target"))
        .ask(over_time(&figure("plimsoll_proposal"), "without limits"))
        .ask(over_time(&figure("plimsoll_request"), "request"))
        .ask(over_time(&figure("plimsoll_value"), "use"))
        .ask(over_time(&figure("plimsoll_request_min"), "least request"))
}

const ABOUT_LINES: &str = "Use is the largest of late over all pods; the request is the largest that a pod has, and the least \
     request lies below it while pods differ. While a request lies within the bounds, a pod is left alone until it is old or the difference is large; outside, it is changed as soon as nothing holds \
     that back. Where the target lies apart from what it would be without limits, something caps it: the reasons are below. \
     While little is known of a workload, its upper bound is very large: it is drawn from where it is less than five times the \
     target.";

fn container() -> Row {
    let table = |title: &str, resource: &str, unit: &str| {
        let ask = |family: &str| {
            column(&format!("max by (container) ({family}{{@vpa, resource=\"{resource}\"}})"))
        };
        Panel::new(
            Kind::Table,
            title,
            "All containers as they are now: the most and the least that pods ask for, what they \
             should ask for and between which bounds, and the largest use of late. The name of a \
             container has the panels above show it.",
            unit,
        )
        .size(12, 6)
        .empty("Needs --object-metrics=standard or all")
        .columns(&[
            ("container", "container"),
            ("Value #A", "request"),
            ("Value #F", "least"),
            ("Value #B", "target"),
            ("Value #C", "lower bound"),
            ("Value #D", "upper bound"),
            ("Value #E", "use"),
        ])
        .sorted_by("container", false)
        .only("container", &[("links", link_to_container())])
        .ask(ask("plimsoll_request"))
        .ask(ask("plimsoll_target"))
        .ask(ask("plimsoll_low"))
        .ask(ask("plimsoll_high"))
        .ask(ask("plimsoll_value"))
        .ask(ask("plimsoll_request_min"))
    };
    row(
        "Use, request, bounds and target of container $container",
        vec![
            lines("CPU, in cores", "cpu", "none", ABOUT_LINES),
            lines("Memory", "memory", "bytes", ABOUT_LINES),
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

fn held_back() -> Row {
    row(
        "What holds it back?",
        vec![
            Panel::new(
                Kind::Timeline,
                "Restrictions",
                "When which reason kept a target, or a change of pods, from what use alone would \
                 make it. The words are those of conditions, events and of plimsoll explain. \
                 Without a container it is about all pods.",
                "none",
            )
            .size(24, 8)
            .empty("Nothing held it back")
            .words(&[("1", "held", "orange")])
            .ask(over_time(
                "max by (container, resource, reason) (plimsoll_restricted_scaling{@vpa} == 1)",
                "{{reason}} {{container}} {{resource}}",
            )),
        ],
    )
}

fn done() -> Row {
    row(
        "What happened to its pods?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Out-of-memory kills",
                "Kills for lack of memory that were seen, by container. Each raises the target of \
                 memory.",
                "none",
            )
            .size(8, 7)
            .bars()
            .ask(over_time(
                &events_once("plimsoll_container_oom_kills_total{@vpa}", "container", "container"),
                "{{container}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Evictions",
                "Pods that were evicted, so that they come back with other requests.",
                "none",
            )
            .size(8, 7)
            .bars()
            .ask(over_time(&events("vpa_updater_evicted_pods_total{@of_vpa}", ""), "evicted")),
            Panel::new(
                Kind::TimeSeries,
                "Resizes",
                "Pods whose requests were changed in place.",
                "none",
            )
            .size(8, 7)
            .bars()
            .ask(over_time(
                &events("vpa_updater_in_place_updated_pods_total{@of_vpa}", ""),
                "resized",
            )),
        ],
    )
}
