//! The board of the inputs of decisions: histories, samples, checkpoints and the Prometheus that is queried.

use serde_json::json;

use super::dashboard::{Dashboard, Row, Variable, link_to, row};
use super::panel::{Kind, Panel};
use super::query::{column, events_once, now, once, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "history",
        title: "Plimsoll / History and Prometheus",
        description: "What decisions rest on: how far histories are, what became of samples, checkpoints, what a Prometheus \
                      answers and how fast, and whose data is old.",
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
        "How far are histories?",
        vec![
            Panel::new(
                Kind::Timeline,
                "History of the recommender",
                "The state of all histories together, by replica: failed if any is, then loading. \
                 While it is loading, nothing is recommended for VPAs whose history is not there \
                 yet.",
                "none",
            )
            .size(10, 6)
            .words(&[("1", "so it was", "blue")])
            .only_like("/loaded/", &[("mappings", json!([
                {"type": "value", "options": {"1": {"color": "green", "index": 0, "text": "so it was"}}},
            ]))])
            .only_like("/failed/", &[("mappings", json!([
                {"type": "value", "options": {"1": {"color": "red", "index": 0, "text": "so it was"}}},
            ]))])
            .ask(over_time(
                "max by (state, instance) (plimsoll_history_state{@} == 1)",
                "{{state}} {{instance}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "VPAs by the state of their history",
                "VPAs whose history is loaded, loading, failed or absent (looked for, and nothing \
                 is stored yet). One that replicas do not agree about counts as both.",
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
            .ask(over_time(
                "count by (history_state) (max by (cluster, namespace, name, history_state) \
                 (plimsoll_object_info{@vpa}))",
                "{{history_state}}",
            )),
            Panel::new(
                Kind::Stat,
                "Since the last save",
                "How long ago history was last saved without an error. What came since would be \
                 lost with the process, and is read again where it comes from a Prometheus.",
                "s",
            )
            .size(3, 6)
            .thresholds("green", &[(600.0, "orange"), (1_800.0, "red")])
            .ask(now(
                "time() - max(plimsoll_checkpoints_last_save_timestamp_seconds{@})",
                "since the last save",
            )),
            Panel::new(
                Kind::Stat,
                "Containers known",
                "Containers of VPAs that history is kept of.",
                "none",
            )
            .size(3, 6)
            .ask(now("max(vpa_recommender_aggregate_container_states_count{@})", "containers")),
        ],
    )
}

fn samples() -> Row {
    row(
        "What became of samples, kills and checkpoints?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Samples by outcome",
                "Samples of use a second, by what became of them. Only taken ones count; \
                 missing_pod is a pod that runs and that the source of usage says nothing of.",
                "cps",
            )
            .size(8, 8)
            .field("min", 0)
            .only("taken", &[("color", json!({"mode": "fixed", "fixedColor": "green"}))])
            .ask(over_time(
                &once("plimsoll_samples_total{@}", "job, outcome", "outcome"),
                "{{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Out-of-memory kills by source and outcome",
                "Kills by where they were seen, and whether they counted.",
                "none",
            )
            .size(8, 8)
            .bars()
            .empty("No kills yet")
            .ask(over_time(
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
                "Records of history a second: written, unchanged, loaded, and what went wrong with \
                 others.",
                "cps",
            )
            .size(8, 8)
            .field("min", 0)
            .ask(over_time(
                &once("plimsoll_checkpoints_total{@}", "job, outcome", "outcome"),
                "{{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "VPAs with and without a recommendation",
                "VPAs of the cluster as of the latest pass, by whether they have a recommendation.",
                "none",
            )
            .size(8, 7)
            .steps()
            .field("min", 0)
            .field("decimals", 0)
            .ask(over_time(
                "sum by (has_recommendation) (max by (cluster, api, has_recommendation, \
                 matches_pods, unsupported_config, update_mode) \
                 (vpa_recommender_vpa_objects_count{@}))",
                "has one: {{has_recommendation}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Answers of the metrics API",
                "Answers a second of the metrics API that live usage comes from, and queries that \
                 had none (true).",
                "reqps",
            )
            .size(8, 7)
            .field("min", 0)
            .only_like("/error: true/", &[("color", json!({"mode": "fixed", "fixedColor": "red"}))])
            .ask(over_time(
                &once(
                    "vpa_recommender_metric_server_responses{@}",
                    "job, client_name, is_error",
                    "client_name, is_error",
                ),
                "{{client_name}}, error: {{is_error}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Answers about metrics of WatermarkPodAutoscalers",
                "Answers a second by where the value comes from: ok, or why nothing is known.",
                "reqps",
            )
            .size(8, 7)
            .field("min", 0)
            .ask(over_time(
                "sum by (source, outcome) \
                 (rate(plimsoll_metric_outcomes_total{@}[$__rate_interval]))",
                "{{source}}: {{outcome}}",
            )),
        ],
    )
}

const UNASKED: &str = "No Prometheus is asked";

fn prometheus() -> Row {
    let quantile = |share: &str| {
        format!(
            "histogram_quantile({share}, sum by (le) \
             (rate(plimsoll_prometheus_query_duration_seconds_bucket{{@}}[$__rate_interval])))"
        )
    };
    row(
        "Does Prometheus answer?",
        vec![
            Panel::new(
                Kind::Stat,
                "Queries that were answered",
                "Of the latest queries that were made, the share that had an answer, with series or \
                 without.",
                "percentunit",
            )
            .size(4, 8)
            .empty(UNASKED)
            .field("decimals", 1)
            .thresholds("red", &[(0.9, "orange"), (0.99, "green")])
            .ask(over_time(
                "sum(rate(plimsoll_prometheus_queries_total{@, outcome=~\"ok|empty\"}\
                 [$__rate_interval])) \
                 / (sum(rate(plimsoll_prometheus_queries_total{@}[$__rate_interval])) > 0)",
                "answered",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Queries by outcome",
                "Queries a second to a Prometheus, for history, live usage and metrics: ok, empty \
                 where it knows no series, or why there was no answer.",
                "reqps",
            )
            .size(10, 8)
            .empty(UNASKED)
            .stacked()
            .field("min", 0)
            .only("ok", &[("color", json!({"mode": "fixed", "fixedColor": "green"}))])
            .only("unavailable", &[("color", json!({"mode": "fixed", "fixedColor": "red"}))])
            .only("timeout", &[("color", json!({"mode": "fixed", "fixedColor": "orange"}))])
            .only("empty", &[("color", json!({"mode": "fixed", "fixedColor": "yellow"}))])
            .ask(over_time(
                "sum by (outcome) (rate(plimsoll_prometheus_queries_total{@}[$__rate_interval]))",
                "{{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Duration of queries",
                "How long a Prometheus took to answer: half of the queries, and all but one in a \
                 hundred.",
                "s",
            )
            .size(10, 8)
            .empty(UNASKED)
            .field("min", 0)
            .ask(over_time(&quantile("0.5"), "half of them"))
            .ask(over_time(&quantile("0.99"), "99 %")),
        ],
    )
}

fn age() -> Row {
    let each = "min by (cluster, kind, namespace, name) \
                (plimsoll_staleness_seconds{@, namespace=~\"$namespace\", name=~\"$name\"})";
    row(
        "Whose data is old?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Age of the latest sample",
                "The age of the latest sample of an object, by kind: of the object whose is \
                 oldest, and of the one in the middle. Where the middle climbs, a source is away \
                 for all.",
                "s",
            )
            .size(12, 8)
            .field("min", 0)
            .ask(over_time(&format!("max by (kind) ({each})"), "{{kind}}: the oldest"))
            .ask(over_time(&format!("quantile by (kind) (0.5, {each})"), "{{kind}}: the middle")),
            Panel::new(
                Kind::Table,
                "The oldest",
                "The objects whose latest sample is oldest. Pods that are gone, or that nobody \
                 measures, are what to look for; plimsoll explain tells more.",
                "s",
            )
            .size(12, 8)
            .field("decimals", 0)
            .columns(&[
                ("kind", "kind"),
                ("namespace", "namespace"),
                ("name", "name"),
                ("Value", "age of its latest sample"),
                ("cluster", "cluster"),
            ])
            .sorted_by("age of its latest sample", true)
            .only(
                "name",
                &[(
                    "links",
                    link_to("overview", "Show it on the Overview", &["namespace", "name"]),
                )],
            )
            .ask(column(&format!("topk(15, {each})"))),
        ],
    )
}
