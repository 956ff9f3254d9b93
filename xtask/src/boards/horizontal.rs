//! The board of HorizontalPodAutoscalers: one of them, its metrics and replicas, and all of them in comparison with the
//! HPA controller of the cluster.

use serde_json::json;

use super::autoscaler::{AutoscalerKind, line};
use super::dashboard::{Dashboard, Row, link_to, row};
use super::panel::{Kind, Panel};
use super::query::{column, now, over_time};

const KIND: AutoscalerKind = AutoscalerKind("hpa");

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "horizontal",
        title: "Plimsoll / Horizontal",
        description: "One HorizontalPodAutoscaler: metric values and the band in which nothing happens, \
                      proposed and desired replicas, pods and restrictions; and all of them, compared with \
                      the HPA controller of the cluster.",
        variables: KIND.variables("HPA"),
        from: "now-6h",
        interval: "15s",
        rows: vec![state(), value(), replicas(), restrictions(), all(), comparison()],
    }
}

fn stat(title: &str, description: &str, unit: &str, expression: &str) -> Panel {
    Panel::new(Kind::Stat, title, description, unit).size(4, 4).target(now(expression, title))
}

fn state() -> Row {
    row(
        "$namespace/$name",
        vec![
            KIND.range_used(
                "Desired replicas within minReplicas and maxReplicas. At either end it cannot follow \
                 its metrics any further.",
            ),
            stat(
                "Desired replicas",
                "Latest decision, after stabilization, policies and bounds. In the mode shadow nothing \
                 is changed: these are the replicas that Plimsoll would set.",
                "none",
                "max(plimsoll_effective{@hpa})",
            ),
            stat(
                "Difference",
                "Desired replicas minus those that the HPA controller of the cluster decided. It is \
                 not 0 for a while after each change, and while a known bug of that controller applies.",
                "none",
                "max(plimsoll_shadow_difference{@hpa})",
            )
            .thresholds("orange", &[(0.0, "green"), (1.0, "orange")]),
            Panel::new(
                Kind::Stat,
                "Mode",
                "What the horizontal controller does with the object. In the mode shadow it observes.",
                "none",
            )
            .size(4, 4)
            .set("options.textMode", "name")
            .target(now("max by (update_mode) (plimsoll_object_info{@hpa})", "{{update_mode}}")),
            stat(
                "Metric age",
                "Time since a metric last had a value. Without one, no replicas are removed.",
                "s",
                "min(plimsoll_staleness_seconds{@hpa})",
            )
            .thresholds("green", &[(60.0, "orange"), (300.0, "red")]),
            stat(
                "Held for",
                "Remaining time until the recommendation that delays a change leaves the stabilization \
                 window.",
                "s",
                "max(plimsoll_transition_countdown_seconds{@hpa})",
            )
            .empty("not delayed")
            .thresholds("green", &[(1.0, "blue")]),
        ],
    )
}

const PER_METRIC: &str = "Needs --object-metrics=standard or all";

fn value() -> Row {
    let dash = ("custom.lineStyle", json!({"fill": "dash", "dash": [8, 6]}));
    let thin = ("custom.lineWidth", json!(1));
    row(
        "Metric $metric",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Value and target",
                "The value that is compared with the target: percent of the requests for a \
                 utilization, else in the unit of the metric. Within the band around the target, which \
                 is the tolerance, replicas do not change.",
                "short",
            )
            .size(16, 10)
            .empty(PER_METRIC)
            .set("options.legend.displayMode", "table")
            .set("options.legend.calcs", json!(["lastNotNull", "min", "max"]))
            .only(
                "upper end of the band",
                &line(
                    "red",
                    &[
                        ("custom.fillBelowTo", json!("lower end of the band")),
                        ("custom.fillOpacity", json!(10)),
                    ],
                ),
            )
            .only("lower end of the band", &line("blue", &[]))
            .only("target", &line("green", &[dash, thin]))
            .only("value", &line("text", &[("custom.lineWidth", json!(2))]))
            .target(over_time(&KIND.figure("plimsoll_high"), "upper end of the band"))
            .target(over_time(&KIND.figure("plimsoll_target"), "target"))
            .target(over_time(&KIND.figure("plimsoll_low"), "lower end of the band"))
            .target(over_time(&KIND.figure("plimsoll_value"), "value")),
            Panel::new(
                Kind::Bars,
                "All metrics: value by target",
                "Current value of each metric as a fraction of its target. The metric that proposes the \
                 most replicas is used.",
                "percentunit",
            )
            .size(8, 10)
            .empty(PER_METRIC)
            .field("min", 0)
            .field("max", 2)
            .thresholds("blue", &[(0.9, "green"), (1.1, "red")])
            .target(now(
                "max by (metric) (plimsoll_value{@hpa}) / max by (metric) (plimsoll_target{@hpa})",
                "{{metric}}",
            )),
        ],
    )
}

fn replicas() -> Row {
    row(
        "Replicas and pods",
        vec![
            KIND.replicas(
                "Replicas proposed by each metric before any limit, the decision after limits and \
                 windows, and that of the HPA controller of the cluster. If proposal and decision \
                 differ, the row below shows why.",
                &[(
                    "HPA controller",
                    "orange",
                    "max(plimsoll_effective{@hpa}) - max(plimsoll_shadow_difference{@hpa})",
                )],
            ),
            Panel::new(
                Kind::TimeSeries,
                "Pods by how they count",
                "Pods of the selector, for the metric that decides: counted, not ready, without a \
                 sample (missing), or ignored because they end. A foreign pod belongs to another \
                 workload and is also in one of the other states.",
                "none",
            )
            .size(8, 9)
            .steps()
            .field("decimals", 0)
            .field("min", 0)
            .empty("No metric of pods")
            .only("counted", &line("green", &[]))
            .only("unready", &line("orange", &[]))
            .only("missing", &line("yellow", &[]))
            .only("ignored", &line("text", &[]))
            .only("foreign", &line("red", &[("custom.lineWidth", json!(2))]))
            .target(over_time("max by (state) (plimsoll_pods{@hpa})", "{{state}}")),
        ],
    )
}

fn restrictions() -> Row {
    row(
        "Restrictions",
        vec![
            KIND.restrictions(
                "Why replicas are not those that the metrics propose, over time. within_tolerance is \
                 the healthy state. The reasons are those of plimsoll explain hpa.",
                ("within_tolerance", "within tolerance"),
            ),
            KIND.countdowns(
                "Stabilization",
                "Remaining time until a past recommendation no longer delays adding (upscale) or \
                 removing (downscale) replicas.",
                "max",
            )
            .empty("Never delayed"),
        ],
    )
}

/// The number of HPAs with a restriction.
fn restricted(reasons: &str) -> String {
    format!(
        "sum(max by (cluster, namespace, name) \
         (plimsoll_restricted_scaling{{@, kind=\"hpa\", reason=~\"{reasons}\"}}))"
    )
}

fn all() -> Row {
    let count = |title: &str, description: &str, expression: &str| {
        stat(title, description, "none", expression).empty("none")
    };
    let bad = |panel: Panel| panel.thresholds("green", &[(1.0, "red")]);
    row(
        "All HPAs",
        vec![
            count(
                "HPAs",
                "HorizontalPodAutoscalers that are observed.",
                "count(max by (cluster, namespace, name) (plimsoll_object_info{@, kind=\"hpa\"}))",
            ),
            bad(count(
                "At their maximum",
                "HPAs whose metrics ask for more replicas than maxReplicas.",
                &restricted("max"),
            )),
            bad(count(
                "Metric unknown",
                "HPAs without any of their metrics, or without one that is needed to remove replicas.",
                &restricted("metric_unknown|partial_metrics"),
            )),
            bad(count(
                "Cannot scale",
                "HPAs whose target cannot be read, whose selector is invalid, or that select the same \
                 pods as another one.",
                &restricted("no_scale|invalid_selector|ambiguous_selector"),
            )),
            bad(count(
                "With foreign pods",
                "HPAs whose selector also matches pods of other workloads, which the HPA controller of \
                 the cluster counts.",
                "count(max by (cluster, namespace, name) \
                 (plimsoll_pods{@, kind=\"hpa\", state=\"foreign\"}) > 0)",
            )),
            count(
                "Different",
                "HPAs whose desired replicas are not those of the HPA controller of the cluster.",
                "count(max by (cluster, namespace, name) (plimsoll_shadow_difference{@}) != 0)",
            ),
            Panel::new(
                Kind::TimeSeries,
                "HPAs by reason",
                "HPAs over time by why their replicas are not those that their metrics propose. Many at \
                 once have one cause, such as a metrics API that does not respond.",
                "none",
            )
            .size(8, 9)
            .steps()
            .field("decimals", 0)
            .field("min", 0)
            .empty("No restrictions")
            .target(over_time(
                "sum by (reason) (max by (cluster, namespace, name, reason) \
                 (plimsoll_restricted_scaling{@, kind=\"hpa\"}))",
                "{{reason}}",
            )),
            objects(
                "HPAs that need attention",
                "HPAs at their maximum, with an unknown metric, or that cannot scale at all. Names link \
                 to the object.",
                &[("namespace", "namespace"), ("name", "name"), ("reason", "reason"), ("cluster", "cluster")],
                "max by (cluster, namespace, name, reason) (plimsoll_restricted_scaling{@, kind=\"hpa\", \
                 reason=~\"max|metric_unknown|partial_metrics|no_scale|invalid_selector|ambiguous_selector\"} == 1)",
            )
            .empty("None")
            .sorted_by("reason", false),
            objects(
                "HPAs with a different decision",
                "Desired replicas minus those of the HPA controller of the cluster, where they differ: \
                 most often what its known bugs cost. Names link to the object.",
                &[
                    ("namespace", "namespace"),
                    ("name", "name"),
                    ("Value", "difference"),
                    ("cluster", "cluster"),
                ],
                "topk(15, max by (cluster, namespace, name) (plimsoll_shadow_difference{@}) > 0) or \
                 bottomk(15, max by (cluster, namespace, name) (plimsoll_shadow_difference{@}) < 0)",
            )
            .empty("No differences")
            .sorted_by("difference", true),
        ],
    )
}

/// A table of objects.
fn objects(title: &str, description: &str, columns: &[(&str, &str)], expression: &str) -> Panel {
    Panel::new(Kind::Table, title, description, "none")
        .size(8, 9)
        .columns(columns)
        .only(
            "name",
            &[("links", link_to("horizontal", "Show this autoscaler", &["namespace", "name"]))],
        )
        .target(column(expression))
}

/// A percentile of the observations of a histogram.
fn quantile(share: &str, family: &str) -> String {
    format!(
        "histogram_quantile({share}, sum by (le) (rate({family}_bucket{{@}}[$__rate_interval])))"
    )
}

fn comparison() -> Row {
    row(
        "Comparison and controller",
        vec![
            Panel::new(
                Kind::Stat,
                "Same decisions",
                "Fraction of recent decisions that the HPA controller of the cluster made as well, at \
                 once or later.",
                "percentunit",
            )
            .size(4, 8)
            .field("decimals", 1)
            .thresholds("red", &[(0.95, "orange"), (0.99, "green")])
            .target(over_time(
                "sum(rate(plimsoll_shadow_passes_total{@, result=~\"same|later\"}[$__rate_interval])) \
                 / (sum(rate(plimsoll_shadow_passes_total{@}[$__rate_interval])) > 0)",
                "same",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Decisions by result of the comparison",
                "Decisions per second: the same, the same later, or why the HPA controller of the cluster \
                 decided differently. Only unexplained ones need attention.",
                "cps",
            )
            .size(8, 8)
            .stacked()
            .field("min", 0)
            .only("same", &line("green", &[]))
            .only("later", &line("light-green", &[]))
            .only("warming", &line("blue", &[]))
            .only("sampling", &line("yellow", &[]))
            .only("unexplained", &line("red", &[]))
            .target(over_time(
                "sum by (result) (rate(plimsoll_shadow_passes_total{@}[$__rate_interval]))",
                "{{result}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Reconcile duration and delay",
                "Duration of a reconcile, and how late it starts. Growing delay means that the work \
                 exceeds the period.",
                "s",
            )
            .size(6, 8)
            .field("min", 0)
            .target(over_time(&quantile("0.5", "plimsoll_horizontal_reconcile_seconds"), "duration, p50"))
            .target(over_time(&quantile("0.99", "plimsoll_horizontal_reconcile_seconds"), "duration, p99"))
            .target(over_time(&quantile("0.99", "plimsoll_horizontal_lateness_seconds"), "delay, p99")),
            Panel::new(
                Kind::TimeSeries,
                "Reconciles by outcome",
                "Reconciles per second: decided, held because nothing can be decided, or invalid.",
                "reqps",
            )
            .size(6, 8)
            .stacked()
            .field("min", 0)
            .target(over_time(
                "sum by (outcome) (rate(plimsoll_horizontal_reconciles_total{@}[$__rate_interval]))",
                "{{outcome}}",
            )),
        ],
    )
}
