//! The first board: what is wrong, what is restricted, why and since when, and where requests are far from the need.

mod request_gaps;

use serde_json::json;

use super::dashboard::{Dashboard, Row, Variable, link_to, row};
use super::panel::{Kind, Panel};
use super::query::{column, events, events_once, now, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "Plimsoll / Overview",
        description: "Whether anything is wrong, what is held back, why and since when, where requests are furthest from \
                      the need, and what was done about it.",
        variables: vec![
            Variable::any(
                "namespace",
                "Namespace",
                r#"label_values(plimsoll_object_info{cluster=~"$cluster"}, namespace)"#,
                ".*",
            ),
            Variable::any(
                "name",
                "Name",
                r#"label_values(plimsoll_object_info{cluster=~"$cluster", namespace=~"$namespace"}, name)"#,
                ".*",
            ),
            Variable::any(
                "reason",
                "Reason",
                r#"label_values(plimsoll_restricted_scaling{cluster=~"$cluster", reason!~"within_bounds|floor"}, reason)"#,
                ".+",
            ),
        ],
        from: "now-6h",
        interval: "1m",
        rows: vec![wrong(), held_back(), request_gaps::gaps(), done()],
    }
}

/// The status row at the top.
fn wrong() -> Row {
    row(
        "Is anything wrong?",
        vec![
            Panel::new(
                Kind::Stat,
                "Leaders",
                "How many replicas of each role may write: one. None, and nothing is decided or \
                 changed; several, and they do not share a Lease.",
                "none",
            )
            .size(5, 4)
            .thresholds("red", &[(1.0, "green"), (2.0, "orange")])
            .named()
            .ask(now("sum by (cluster, role) (plimsoll_leader{@})", "{{cluster}} {{role}}")),
            Panel::new(
                Kind::Stat,
                "Last good pass",
                "How long ago the latest pass over all objects ended without an error. More than a \
                 few intervals, and recommendations grow old.",
                "s",
            )
            .size(3, 4)
            .thresholds("green", &[(180.0, "orange"), (600.0, "red")])
            .ask(now(
                "max(time() - max by (cluster, role) \
                 (plimsoll_loop_last_success_timestamp_seconds{@}))",
                "since the last good pass",
            )),
            Panel::new(
                Kind::Stat,
                "Oldest data",
                "Age of the latest sample of the object whose data is oldest, by kind. It grows \
                 while usage or metrics do not come in, and nothing is decided for that object \
                 then.",
                "s",
            )
            .size(4, 4)
            .thresholds("green", &[(300.0, "orange"), (900.0, "red")])
            .named()
            .ask(now(
                "max by (kind) (min by (cluster, kind, namespace, name) \
                 (plimsoll_staleness_seconds{@, namespace=~\"$namespace\", name=~\"$name\"}))",
                "{{kind}}",
            )),
            Panel::new(
                Kind::Stat,
                "Held back",
                "Objects of which something is held back now, by kind. Being between the marks is \
                 no restriction; the least request that the recommender gives (floor) is left out, \
                 because it is nothing that anybody waits for.",
                "none",
            )
            .size(4, 4)
            .empty("nothing")
            .thresholds("green", &[(1.0, "blue")])
            .named()
            .ask(now(
                "sum by (kind) (max by (cluster, kind, namespace, name) \
                 (plimsoll_restricted_scaling{@, namespace=~\"$namespace\", name=~\"$name\", \
                 reason=~\"$reason\", reason!~\"within_bounds|floor\"}))",
                "{{kind}}",
            )),
            Panel::new(
                Kind::Stat,
                "Breakers",
                "Workloads that are left alone because their pods got worse after a change, and \
                 whether all changes in the cluster have stopped for it.",
                "none",
            )
            .size(4, 4)
            .thresholds("green", &[(1.0, "red")])
            .named()
            .ask(now("sum(max by (cluster) (plimsoll_updater_breakers_open{@}))", "workloads"))
            .ask(now(
                "sum(max by (cluster) (plimsoll_updater_cluster_breaker_open{@}))",
                "clusters",
            )),
            Panel::new(
                Kind::Bars,
                "Budget of changes in use",
                "Of the changes that are allowed within an hour, the share that was made: \
                 disruptions are evictions and resizes that restart, resizes are those that do \
                 not. At 100 % all others wait.",
                "percentunit",
            )
            .size(4, 4)
            .empty("no limit")
            .field("min", 0)
            .field("max", 1)
            .thresholds("green", &[(0.75, "orange"), (1.0, "red")])
            .ask(now(
                "max by (charge) (plimsoll_updater_changes_within_hour{@} / on (cluster, job, \
                 instance, charge) plimsoll_updater_changes_allowed{@})",
                "{{charge}}",
            )),
        ],
    )
}

/// Restrictions that hold, merged over replicas: 1 for each restriction of each object, no series if there is none.
const VPA_HELD: &str = r#"max by (cluster, namespace, name, container, resource, reason)
    (plimsoll_restricted_scaling{@vpa, reason=~"$reason", reason!="floor"} == 1)"#;
const VPA_HELD_BEFORE: &str = r#"max by (cluster, namespace, name, container, resource, reason)
    (plimsoll_restricted_scaling{@vpa, reason=~"$reason", reason!="floor"} offset $__interval == 1)"#;
const WPA_HELD: &str = r#"max by (cluster, namespace, name, reason)
    (plimsoll_restricted_scaling{@wpa, reason=~"$reason", reason!="within_bounds"} == 1)"#;
const WPA_HELD_BEFORE: &str = r#"max by (cluster, namespace, name, reason)
    (plimsoll_restricted_scaling{@wpa, reason=~"$reason", reason!="within_bounds"} offset $__interval == 1)"#;

/// Start of the current uninterrupted period of a restriction: the latest time at which it held and had not held
/// before, or the start of the range if that is later. It does not rely on zero values, so it also works with
/// `--object-metrics=restricted`. In milliseconds, as Grafana expects times.
fn since(held: &str, held_before: &str) -> String {
    format!(
        "1000 * (max_over_time(timestamp({held} unless {held_before})[$__range:$__interval]) or \
         min_over_time(timestamp({held})[$__range:$__interval])) and {held}"
    )
}

/// How long the restriction held within the range, without gaps.
fn held_for(held: &str) -> String {
    format!("count_over_time({held}[$__range:$__interval]) * $__interval_ms / 1000 and {held}")
}

fn restrictions(title: &str, description: &str, held: &str, held_before: &str) -> Panel {
    Panel::new(Kind::Table, title, description, "none")
        .empty("Nothing is held back")
        .set("maxDataPoints", 120)
        .only("since", &[("unit", json!("dateTimeAsIsoNoDateIfToday"))])
        .only("in all", &[("unit", json!("s")), ("decimals", json!(0))])
        .sorted_by("since", true)
        .ask(column(&since(held, held_before)))
        .ask(column(&held_for(held)))
}

fn held_back() -> Row {
    row(
        "What is held back, why, and since when?",
        vec![
            restrictions(
                "Vertical: requests that would be others",
                "What keeps a target, or a change of pods, from what use alone would make it: each \
                 reason that holds now, since when without a break, and for how long in all within \
                 the range. Without a container it is about all pods of the VPA. A name leads to \
                 its board.",
                VPA_HELD,
                VPA_HELD_BEFORE,
            )
            .size(14, 9)
            .columns(&[
                ("namespace", "namespace"),
                ("name", "name"),
                ("container", "container"),
                ("resource", "resource"),
                ("reason", "reason"),
                ("Value #A", "since"),
                ("Value #B", "in all"),
                ("cluster", "cluster"),
            ])
            .only(
                "name",
                &[("links", link_to("vertical", "Show this workload", &["namespace", "name"]))],
            ),
            restrictions(
                "Watermark: replicas that would be others",
                "What keeps replicas from what their metrics ask for: each reason that holds now, \
                 since when without a break, and for how long in all within the range. A name \
                 leads to its board.",
                WPA_HELD,
                WPA_HELD_BEFORE,
            )
            .size(10, 9)
            .columns(&[
                ("namespace", "namespace"),
                ("name", "name"),
                ("reason", "reason"),
                ("Value #A", "since"),
                ("Value #B", "in all"),
                ("cluster", "cluster"),
            ])
            .only(
                "name",
                &[("links", link_to("watermark", "Show this autoscaler", &["namespace", "name"]))],
            ),
            Panel::new(
                Kind::TimeSeries,
                "Vertical: held back, by reason",
                "How many restrictions of VPAs held at each time, by reason. A step up shows when \
                 something began to hold back many at once.",
                "none",
            )
            .size(14, 7)
            .stacked()
            .steps()
            .field("min", 0)
            .field("decimals", 0)
            .empty("Nothing was held back")
            .ask(over_time(&format!("count by (reason) ({VPA_HELD})"), "{{reason}}")),
            Panel::new(
                Kind::TimeSeries,
                "Watermark: held back, by reason",
                "How many WatermarkPodAutoscalers had this restriction at each time.",
                "none",
            )
            .size(10, 7)
            .stacked()
            .steps()
            .field("min", 0)
            .field("decimals", 0)
            .empty("Nothing was held back")
            .ask(over_time(&format!("count by (reason) ({WPA_HELD})"), "{{reason}}")),
        ],
    )
}

const ADDED: &str = "wpa_controller_upscale_replicas_total{@of_wpa}";
const REMOVED: &str = "wpa_controller_downscale_replicas_total{@of_wpa}";
const KILLS: &str = "plimsoll_container_oom_kills_total{@vpa}";

fn done() -> Row {
    row(
        "What was done?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Changes of pods",
                "What the updater did to pods, by action and what came of it. A column of \
                 evictions that does not end is a storm.",
                "none",
            )
            .size(8, 7)
            .bars()
            .ask(over_time(
                &events("plimsoll_updater_actions_total{@}", "action, outcome"),
                "{{action}}: {{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Out-of-memory kills",
                "Kills for lack of memory that were seen of containers with a VPA, each of which \
                 raises the target.",
                "none",
            )
            .empty("No kills")
            .size(8, 7)
            .bars()
            .ask(over_time(
                &format!(
                    "{} > 0",
                    events_once(KILLS, "namespace, name, container", "namespace, name")
                ),
                "{{namespace}}/{{name}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Replicas added and removed",
                "Replicas that the watermark controller added (above) and removed (below). Both by \
                 turns is flapping.",
                "none",
            )
            .size(8, 7)
            .bars()
            .field("min", json!(null))
            .ask(over_time(&events(ADDED, ""), "added"))
            .ask(over_time(&format!("-{}", events(REMOVED, "")), "removed")),
        ],
    )
}
