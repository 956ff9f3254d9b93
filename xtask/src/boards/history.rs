//! The board of the inputs of decisions: histories, samples, checkpoints and the Prometheus that is queried.

use serde_json::json;

use super::dashboard::{Dashboard, Row, Variable, link_to, row};
use super::panel::{Kind, Panel};
use super::query::{column, events_once, now, once, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "history",
        title: "Plimsoll / History and Prometheus",
        description: "Inputs of decisions: state of history, samples, checkpoints, Prometheus queries and \
                      their latency, and stale objects.",
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
        ],
        from: "now-24h",
        interval: "1m",
        rows: vec![state(), samples(), prometheus(), age()],
    }
}

fn state() -> Row {
    row(
        "History",
        vec![
            Panel::new(
                Kind::Timeline,
                "Recommender history state",
                "Combined state of all histories by replica: failed if any failed, otherwise \
                 loading if any is loading. VPAs without history get no recommendation while it is \
                 loading.",
                "none",
            )
            .size(10, 6)
            .words(&[("1", "active", "blue")])
            .only_like("/loaded/", &[("mappings", json!([
                {"type": "value", "options": {"1": {"color": "green", "index": 0, "text": "active"}}},
            ]))])
            .only_like("/failed/", &[("mappings", json!([
                {"type": "value", "options": {"1": {"color": "red", "index": 0, "text": "active"}}},
            ]))])
            .target(over_time(
                "max by (state, instance) (plimsoll_history_state{@} == 1)",
                "{{state}} {{instance}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "VPAs by history state",
                "VPAs whose history is loaded, loading, failed or absent (nothing is stored yet). \
                 If replicas differ, a VPA counts in both states.",
                "none",
            )
            .size(8, 6)
            .stacked()
            .steps()
            .field("min", 0)
            .field("decimals", 0)
            .only("loaded", &[("color", json!({"mode": "fixed", "fixedColor": "green"}))])
            .only("failed", &[("color", json!({"mode": "fixed", "fixedColor": "red"}))])
            .only("loading", &[("color", json!({"mode": "fixed", "fixedColor": "blue"}))])
            .only("absent", &[("color", json!({"mode": "fixed", "fixedColor": "yellow"}))])
            .target(over_time(
                "count by (history_state) (max by (cluster, namespace, name, history_state) \
                 (plimsoll_object_info{@vpa}))",
                "{{history_state}}",
            )),
            Panel::new(
                Kind::Stat,
                "Time since last save",
                "Time since history was last saved without an error. A crash loses newer samples, \
                 unless history is read from Prometheus.",
                "s",
            )
            .size(3, 6)
            .thresholds("green", &[(600.0, "orange"), (1_800.0, "red")])
            .target(now(
                "time() - max(plimsoll_checkpoints_last_save_timestamp_seconds{@})",
                "since the last save",
            )),
            Panel::new(
                Kind::Stat,
                "Containers with history",
                "Containers of VPAs for which history is kept.",
                "none",
            )
            .size(3, 6)
            .target(now("max(vpa_recommender_aggregate_container_states_count{@})", "containers")),
        ],
    )
}

fn samples() -> Row {
    row(
        "Samples, OOM kills and checkpoints",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Samples by outcome",
                "Usage samples per second, by outcome. Only taken samples count; missing_pod is a \
                 running pod without usage.",
                "cps",
            )
            .size(8, 8)
            .field("min", 0)
            .only("taken", &[("color", json!({"mode": "fixed", "fixedColor": "green"}))])
            .target(over_time(
                &once("plimsoll_samples_total{@}", "job, outcome", "outcome"),
                "{{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "OOM kills by source and outcome",
                "OOM kills by source, and whether they were counted as samples.",
                "none",
            )
            .size(8, 8)
            .bars()
            .empty("No OOM kills")
            .target(over_time(
                &events_once(
                    "plimsoll_oom_kills_total{@}",
                    "job, source, outcome",
                    "source, outcome",
                ),
                "{{source}}: {{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Checkpoints by outcome",
                "Checkpoints per second: written, unchanged, loaded, or failed with a reason.",
                "cps",
            )
            .size(8, 8)
            .field("min", 0)
            .target(over_time(
                &once("plimsoll_checkpoints_total{@}", "job, outcome", "outcome"),
                "{{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "VPAs with and without a recommendation",
                "VPAs in the latest pass, with and without a recommendation.",
                "none",
            )
            .size(8, 7)
            .steps()
            .field("min", 0)
            .field("decimals", 0)
            .target(over_time(
                "sum by (has_recommendation) (max by (cluster, api, has_recommendation, \
                 matches_pods, unsupported_config, update_mode) \
                 (vpa_recommender_vpa_objects_count{@}))",
                "has recommendation: {{has_recommendation}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Metrics API responses",
                "Responses per second of the metrics API for live usage, and failed queries (error: \
                 true).",
                "reqps",
            )
            .size(8, 7)
            .field("min", 0)
            .only_like("/error: true/", &[("color", json!({"mode": "fixed", "fixedColor": "red"}))])
            .target(over_time(
                &once(
                    "vpa_recommender_metric_server_responses{@}",
                    "job, client_name, is_error",
                    "client_name, is_error",
                ),
                "{{client_name}}, error: {{is_error}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "WatermarkPodAutoscaler metrics by outcome",
                "Fetched metrics per second by source: ok, or why the value is not available.",
                "reqps",
            )
            .size(8, 7)
            .field("min", 0)
            .target(over_time(
                "sum by (source, outcome) \
                 (rate(plimsoll_metric_outcomes_total{@}[$__rate_interval]))",
                "{{source}}: {{outcome}}",
            )),
        ],
    )
}

const NO_QUERIES: &str = "No Prometheus queries";

fn prometheus() -> Row {
    let quantile = |share: &str| {
        format!(
            "histogram_quantile({share}, sum by (le) \
             (rate(plimsoll_prometheus_query_duration_seconds_bucket{{@}}[$__rate_interval])))"
        )
    };
    row(
        "Prometheus",
        vec![
            Panel::new(
                Kind::Stat,
                "Query success rate",
                "Fraction of recent queries that succeeded, including empty results.",
                "percentunit",
            )
            .size(4, 8)
            .empty(NO_QUERIES)
            .field("decimals", 1)
            .thresholds("red", &[(0.9, "orange"), (0.99, "green")])
            .target(over_time(
                "sum(rate(plimsoll_prometheus_queries_total{@, outcome=~\"ok|empty\"}\
                 [$__rate_interval])) \
                 / (sum(rate(plimsoll_prometheus_queries_total{@}[$__rate_interval])) > 0)",
                "succeeded",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Queries by outcome",
                "Prometheus queries per second for history, live usage and metrics: ok, empty if no \
                 series matched, or the error.",
                "reqps",
            )
            .size(10, 8)
            .empty(NO_QUERIES)
            .stacked()
            .field("min", 0)
            .only("ok", &[("color", json!({"mode": "fixed", "fixedColor": "green"}))])
            .only("unavailable", &[("color", json!({"mode": "fixed", "fixedColor": "red"}))])
            .only("timeout", &[("color", json!({"mode": "fixed", "fixedColor": "orange"}))])
            .only("empty", &[("color", json!({"mode": "fixed", "fixedColor": "yellow"}))])
            .target(over_time(
                "sum by (outcome) (rate(plimsoll_prometheus_queries_total{@}[$__rate_interval]))",
                "{{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Query duration",
                "Duration of Prometheus queries: median and 99th percentile.",
                "s",
            )
            .size(10, 8)
            .empty(NO_QUERIES)
            .field("min", 0)
            .target(over_time(&quantile("0.5"), "p50"))
            .target(over_time(&quantile("0.99"), "p99")),
        ],
    )
}

fn age() -> Row {
    let each = "min by (cluster, kind, namespace, name) \
                (plimsoll_staleness_seconds{@, namespace=~\"$namespace\", name=~\"$name\"})";
    row(
        "Stale data",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Age of the latest sample",
                "Age of the latest sample of an object, by kind: maximum and median. If the median \
                 rises, a source is unavailable for all objects.",
                "s",
            )
            .size(12, 8)
            .field("min", 0)
            .target(over_time(&format!("max by (kind) ({each})"), "{{kind}}: max"))
            .target(over_time(&format!("quantile by (kind) (0.5, {each})"), "{{kind}}: median")),
            Panel::new(
                Kind::Table,
                "Objects with the oldest samples",
                "Objects with the oldest latest sample. Typical causes are pods that are gone or \
                 are not measured; plimsoll explain has the details.",
                "s",
            )
            .size(12, 8)
            .field("decimals", 0)
            .columns(&[
                ("kind", "kind"),
                ("namespace", "namespace"),
                ("name", "name"),
                ("Value", "sample age"),
                ("cluster", "cluster"),
            ])
            .sorted_by("sample age", true)
            .only(
                "name",
                &[("links", link_to("overview", "Show on the Overview", &["namespace", "name"]))],
            )
            .target(column(&format!("topk(15, {each})"))),
        ],
    )
}
