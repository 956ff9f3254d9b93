//! The overview board: health, active restrictions, and the largest differences between requests and targets.

mod request_gaps;

use serde_json::json;

use super::dashboard::{Dashboard, Row, Variable, link_to, row};
use super::panel::{Kind, Panel};
use super::query::{column, events, events_once, now, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "overview",
        title: "Plimsoll / Overview",
        description: "Health of the roles, active restrictions with reason and start, workloads whose \
                      requests are furthest from the recommendation, and recent changes.",
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
        rows: vec![health(), active_restrictions(), request_gaps::gaps(), recent_changes()],
    }
}

/// The health row at the top.
fn health() -> Row {
    row(
        "Health",
        vec![
            Panel::new(
                Kind::Stat,
                "Leaders",
                "Leaders per role; one is expected. Without a leader nothing is written; several \
                 leaders do not share a Lease.",
                "none",
            )
            .size(5, 4)
            .thresholds("red", &[(1.0, "green"), (2.0, "orange")])
            .named()
            .target(now("sum by (cluster, role) (plimsoll_leader{@})", "{{cluster}} {{role}}")),
            Panel::new(
                Kind::Stat,
                "Last successful pass",
                "Time since the last pass over all objects that ended without an error. If it \
                 exceeds a few intervals, recommendations become stale.",
                "s",
            )
            .size(3, 4)
            .thresholds("green", &[(180.0, "orange"), (600.0, "red")])
            .target(now(
                "max(time() - max by (cluster, role) \
                 (plimsoll_loop_last_success_timestamp_seconds{@}))",
                "since the last successful pass",
            )),
            Panel::new(
                Kind::Stat,
                "Oldest sample",
                "Maximum age of the latest sample over all objects, by kind. It grows while usage \
                 or metrics are not available; that object is then not changed.",
                "s",
            )
            .size(4, 4)
            .thresholds("green", &[(300.0, "orange"), (900.0, "red")])
            .named()
            .target(now(
                "max by (kind) (min by (cluster, kind, namespace, name) \
                 (plimsoll_staleness_seconds{@, namespace=~\"$namespace\", name=~\"$name\"}))",
                "{{kind}}",
            )),
            Panel::new(
                Kind::Stat,
                "Restricted objects",
                "Objects with an active restriction, by kind. Values within the watermarks or the \
                 tolerance (within_bounds, within_tolerance) are not a restriction; the \
                 recommender's minimum request (floor) is excluded, because it needs no action.",
                "none",
            )
            .size(4, 4)
            .empty("none")
            .thresholds("green", &[(1.0, "blue")])
            .named()
            .target(now(
                "sum by (kind) (max by (cluster, kind, namespace, name) \
                 (plimsoll_restricted_scaling{@, namespace=~\"$namespace\", name=~\"$name\", \
                 reason=~\"$reason\", reason!~\"within_bounds|within_tolerance|floor\"}))",
                "{{kind}}",
            )),
            Panel::new(
                Kind::Stat,
                "Circuit breakers",
                "Workloads whose updates are paused because their pods regressed after an update, \
                 and clusters in which all updates are paused.",
                "none",
            )
            .size(4, 4)
            .thresholds("green", &[(1.0, "red")])
            .named()
            .target(now("sum(max by (cluster) (plimsoll_updater_breakers_open{@}))", "workloads"))
            .target(now(
                "sum(max by (cluster) (plimsoll_updater_cluster_breaker_open{@}))",
                "clusters",
            )),
            Panel::new(
                Kind::Bars,
                "Disruption budget used",
                "Changes within the last hour as a fraction of those allowed. Disruptions are \
                 evictions and resizes that restart containers; resizes are those that do not. At \
                 100 % further changes wait.",
                "percentunit",
            )
            .size(4, 4)
            .empty("no limit")
            .field("min", 0)
            .field("max", 1)
            .thresholds("green", &[(0.75, "orange"), (1.0, "red")])
            .target(now(
                "max by (charge) (plimsoll_updater_changes_within_hour{@} / on (cluster, job, \
                 instance, charge) plimsoll_updater_changes_allowed{@})",
                "{{charge}}",
            )),
        ],
    )
}

/// Active restrictions, merged over replicas: 1 for each restriction of each object, no series if there is none.
const VPA_RESTRICTED: &str = r#"max by (cluster, namespace, name, container, resource, reason)
    (plimsoll_restricted_scaling{@vpa, reason=~"$reason", reason!="floor"} == 1)"#;
const VPA_RESTRICTED_BEFORE: &str = r#"max by (cluster, namespace, name, container, resource, reason)
    (plimsoll_restricted_scaling{@vpa, reason=~"$reason", reason!="floor"} offset $__interval == 1)"#;
const WPA_RESTRICTED: &str = r#"max by (cluster, namespace, name, reason)
    (plimsoll_restricted_scaling{@wpa, reason=~"$reason", reason!="within_bounds"} == 1)"#;
const WPA_RESTRICTED_BEFORE: &str = r#"max by (cluster, namespace, name, reason)
    (plimsoll_restricted_scaling{@wpa, reason=~"$reason", reason!="within_bounds"} offset $__interval == 1)"#;

/// Start of the current uninterrupted period of a restriction: the latest time at which it was active and had not
/// been before, or the start of the range if that is later. It does not rely on zero values, so it also works with
/// `--object-metrics=restricted`. In milliseconds, as Grafana expects times.
fn since(active: &str, active_before: &str) -> String {
    format!(
        "1000 * (max_over_time(timestamp({active} unless {active_before})[$__range:$__interval]) or \
         min_over_time(timestamp({active})[$__range:$__interval])) and {active}"
    )
}

/// How long the restriction was active within the range, without gaps.
fn active_for(active: &str) -> String {
    format!("count_over_time({active}[$__range:$__interval]) * $__interval_ms / 1000 and {active}")
}

fn restrictions(title: &str, description: &str, active: &str, active_before: &str) -> Panel {
    Panel::new(Kind::Table, title, description, "none")
        .empty("No active restrictions")
        .set("maxDataPoints", 120)
        .only("since", &[("unit", json!("dateTimeAsIsoNoDateIfToday"))])
        .only("total", &[("unit", json!("s")), ("decimals", json!(0))])
        .sorted_by("since", true)
        .target(column(&since(active, active_before)))
        .target(column(&active_for(active)))
}

fn active_restrictions() -> Row {
    row(
        "Active restrictions",
        vec![
            restrictions(
                "Vertical: active restrictions",
                "Restrictions of targets and of pod updates: each active reason, the start of its \
                 current period, and its total duration within the time range. Without a container \
                 it applies to all pods of the VPA. Names link to the board of the object.",
                VPA_RESTRICTED,
                VPA_RESTRICTED_BEFORE,
            )
            .size(14, 9)
            .columns(&[
                ("namespace", "namespace"),
                ("name", "name"),
                ("container", "container"),
                ("resource", "resource"),
                ("reason", "reason"),
                ("Value #A", "since"),
                ("Value #B", "total"),
                ("cluster", "cluster"),
            ])
            .only(
                "name",
                &[("links", link_to("vertical", "Show this workload", &["namespace", "name"]))],
            ),
            restrictions(
                "Watermark: active restrictions",
                "Restrictions of replicas: each active reason, the start of its current period, and \
                 its total duration within the time range. Names link to the board of the object.",
                WPA_RESTRICTED,
                WPA_RESTRICTED_BEFORE,
            )
            .size(10, 9)
            .columns(&[
                ("namespace", "namespace"),
                ("name", "name"),
                ("reason", "reason"),
                ("Value #A", "since"),
                ("Value #B", "total"),
                ("cluster", "cluster"),
            ])
            .only(
                "name",
                &[("links", link_to("watermark", "Show this autoscaler", &["namespace", "name"]))],
            ),
            Panel::new(
                Kind::TimeSeries,
                "Vertical: restrictions by reason",
                "Active restrictions of VPAs over time, by reason. A step up shows when a cause \
                 began to affect many of them.",
                "none",
            )
            .size(14, 7)
            .stacked()
            .steps()
            .field("min", 0)
            .field("decimals", 0)
            .empty("No restrictions")
            .target(over_time(&format!("count by (reason) ({VPA_RESTRICTED})"), "{{reason}}")),
            Panel::new(
                Kind::TimeSeries,
                "Watermark: restrictions by reason",
                "WatermarkPodAutoscalers with each restriction over time.",
                "none",
            )
            .size(10, 7)
            .stacked()
            .steps()
            .field("min", 0)
            .field("decimals", 0)
            .empty("No restrictions")
            .target(over_time(&format!("count by (reason) ({WPA_RESTRICTED})"), "{{reason}}")),
        ],
    )
}

const ADDED: &str = "wpa_controller_upscale_replicas_total{@of_wpa}";
const REMOVED: &str = "wpa_controller_downscale_replicas_total{@of_wpa}";
const KILLS: &str = "plimsoll_container_oom_kills_total{@vpa}";

fn recent_changes() -> Row {
    row(
        "Recent changes",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Pod updates",
                "Actions of the updater on pods, by outcome. Evictions that continue for long are \
                 an eviction storm.",
                "none",
            )
            .size(8, 7)
            .bars()
            .target(over_time(
                &events("plimsoll_updater_actions_total{@}", "action, outcome"),
                "{{action}}: {{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "OOM kills",
                "OOM kills of containers with a VPA. Each one raises the memory target.",
                "none",
            )
            .empty("No OOM kills")
            .size(8, 7)
            .bars()
            .target(over_time(
                &format!(
                    "{} > 0",
                    events_once(KILLS, "namespace, name, container", "namespace, name")
                ),
                "{{namespace}}/{{name}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Replicas added and removed",
                "Replicas that the watermark controller added (positive) and removed (negative). \
                 Alternating bars mean flapping.",
                "none",
            )
            .size(8, 7)
            .bars()
            .field("min", json!(null))
            .target(over_time(&events(ADDED, ""), "added"))
            .target(over_time(&format!("-{}", events(REMOVED, "")), "removed")),
        ],
    )
}
