//! The board of the controllers themselves: leadership, whether loops keep up, and API server traffic.

mod updater_and_webhook;

use serde_json::json;

use super::dashboard::{Dashboard, Row, row};
use super::panel::{Kind, Panel};
use super::query::{column, events, now, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "controller",
        title: "Plimsoll / Controller health",
        description: "The roles themselves: who leads, whether loops keep up, queues, calls of the API server, writes, watches, \
                      the webhook, memory and CPU.",
        variables: vec![],
        from: "now-6h",
        interval: "1m",
        rows: vec![
            who(),
            loops(),
            api(),
            feeds(),
            updater_and_webhook::updater(),
            updater_and_webhook::webhook(),
            process(),
        ],
    }
}

fn who() -> Row {
    row(
        "Who works?",
        vec![
            Panel::new(
                Kind::Timeline,
                "Leaders",
                "Which replica may write, over time. Exactly one of each role should; where the \
                 bar moves from one to the other, the Lease did.",
                "none",
            )
            .size(12, 7)
            .words(&[("0", "stands by", "light-blue"), ("1", "leads", "green")])
            .ask(over_time(
                "max by (role, instance) (plimsoll_leader{@})",
                "{{role}} {{instance}}",
            )),
            Panel::new(
                Kind::Table,
                "Replicas",
                "What runs: each process with its version, for how long it has run, and whether it \
                 leads. Versions that differ for long are a rollout that hangs.",
                "none",
            )
            .size(12, 7)
            .columns(&[
                ("job", "job"),
                ("instance", "instance"),
                ("version", "version"),
                ("Value #B", "running for"),
                ("cluster", "cluster"),
            ])
            .only("running for", &[("unit", json!("s"))])
            .sorted_by("running for", false)
            .ask(column("max by (cluster, job, instance, version) (plimsoll_build_info{@})"))
            .ask(column(
                "time() - max by (cluster, job, instance) (process_start_time_seconds{@} and on \
                 (cluster, job, instance) plimsoll_build_info{@})",
            )),
        ],
    )
}

/// The mean of a histogram over time, by one label.
fn mean(family: &str, by: &str) -> String {
    format!(
        "sum by ({by}) (rate({family}_sum{{@}}[$__rate_interval])) / sum by ({by}) \
         (rate({family}_count{{@}}[$__rate_interval]))"
    )
}

/// The value below which this share of a histogram's observations lies.
fn quantile(share: &str, family: &str) -> String {
    format!(
        "histogram_quantile({share}, sum by (le) (rate({family}_bucket{{@}}[$__rate_interval])))"
    )
}

fn duration(title: &str, description: &str) -> Panel {
    Panel::new(Kind::TimeSeries, title, description, "s").size(8, 8).field("min", 0)
}

fn loops() -> Row {
    row(
        "Do loops keep up?",
        vec![
            duration(
                "Lag",
                "How much later than planned the latest pass of a role began, and how late nine of \
                 ten looks at WatermarkPodAutoscalers were. Growing lag is work that does not fit \
                 into the interval.",
            )
            .field("custom.lineWidth", 2)
            .ask(over_time("max by (role) (plimsoll_loop_lag_seconds{@})", "{{role}}"))
            .ask(over_time(
                &quantile("0.9", "plimsoll_watermark_lateness_seconds"),
                "watermark, 90 % of looks",
            )),
            duration(
                "Since the last good pass",
                "How long ago the latest pass without an error ended. A saw tooth of the \
                 interval's height is right; a line that climbs is a loop that fails or hangs.",
            )
            .ask(over_time(
                "time() - max by (cluster, role) (plimsoll_loop_last_success_timestamp_seconds{@})",
                "{{cluster}} {{role}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Queues",
                "What waits: writes by kind, and WatermarkPodAutoscalers whose turn has come. \
                 Checkpoints wait most of the time, for they are written in turns.",
                "none",
            )
            .size(8, 8)
            .field("min", 0)
            .ask(over_time("max by (kind) (plimsoll_write_queue{@})", "writes: {{kind}}"))
            .ask(over_time("max by (name) (workqueue_depth{@})", "looks: {{name}}"))
            .ask(over_time(
                "max by (controller) (controller_runtime_active_workers{@})",
                "workers at work: {{controller}}",
            )),
            duration(
                "Recommender: duration by step",
                "How long each step of a pass took, on average. total is all of it.",
            )
            .ask(over_time(&mean("vpa_recommender_execution_latency_seconds", "step"), "{{step}}")),
            duration(
                "Updater: duration by step",
                "How long each step of a pass took, on average. total is all of it.",
            )
            .ask(over_time(&mean("vpa_updater_execution_latency_seconds", "step"), "{{step}}")),
            duration(
                "Watermark: duration of a look",
                "How long a look at a WatermarkPodAutoscaler took, from its turn to the last \
                 write: half of them, and all but one in a hundred; and each of its steps, on \
                 average. Slow metrics make slow looks.",
            )
            .ask(over_time(
                &quantile("0.5", "controller_runtime_reconcile_time_seconds"),
                "half of them",
            ))
            .ask(over_time(&quantile("0.99", "controller_runtime_reconcile_time_seconds"), "99 %"))
            .ask(over_time(&mean("plimsoll_watermark_step_seconds", "step"), "{{step}}")),
        ],
    )
}

fn api() -> Row {
    row(
        "What is exchanged with the API server?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Calls by verb",
                "Calls of the API server a second, by verb.",
                "reqps",
            )
            .size(6, 8)
            .stacked()
            .field("min", 0)
            .ask(over_time(
                "sum by (verb) (rate(plimsoll_api_requests_total{@}[$__rate_interval]))",
                "{{verb}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Calls by code",
                "Calls of the API server a second, by the code of the answer; none is no answer at \
                 all. 403 is a right that is missing, 409 a write that somebody else came before, \
                 429 a server that asks for patience.",
                "reqps",
            )
            .size(6, 8)
            .field("min", 0)
            .only_like("5..", &[("color", json!({"mode": "fixed", "fixedColor": "red"}))])
            .only("none", &[("color", json!({"mode": "fixed", "fixedColor": "dark-red"}))])
            .ask(over_time(
                "sum by (code) (rate(plimsoll_api_requests_total{@}[$__rate_interval]))",
                "{{code}}",
            )),
            duration(
                "Time of an answer",
                "How long the API server takes to answer nine of ten calls, by verb, without the \
                 wait for a turn. Slow answers make slow passes.",
            )
            .size(6, 8)
            .ask(over_time(
                "histogram_quantile(0.9, sum by (verb, le) \
                 (rate(plimsoll_api_request_duration_seconds_bucket{@}[$__rate_interval])))",
                "{{verb}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Writes by kind and outcome",
                "Writes to the cluster a second, by what was written and the code of the answer. \
                 fenced was not sent, because this replica does not lead.",
                "wps",
            )
            .size(6, 8)
            .field("min", 0)
            .ask(over_time(
                "sum by (kind, outcome) (rate(plimsoll_writes_total{@}[$__rate_interval]))",
                "{{kind}}: {{outcome}}",
            )),
        ],
    )
}

fn feeds() -> Row {
    row(
        "Do watches tell what there is?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Objects",
                "Objects that watches have told of and that are still there.",
                "none",
            )
            .size(8, 7)
            .field("min", 0)
            .ask(over_time("max by (job, feed) (plimsoll_feed_objects{@})", "{{feed}} of {{job}}")),
            Panel::new(
                Kind::TimeSeries,
                "Trouble",
                "Watches that ended with an error or began again with a list, and objects that \
                 could not be read and were passed over.",
                "none",
            )
            .size(8, 7)
            .bars()
            .ask(over_time(&events("plimsoll_feed_errors_total{@}", ""), "errors"))
            .ask(over_time(&events("plimsoll_feed_restarts_total{@}", ""), "begun again"))
            .ask(over_time(&events("plimsoll_feed_malformed_total{@}", ""), "unreadable objects")),
            Panel::new(
                Kind::Stat,
                "Watches that have told of everything",
                "Of the watches that a role needs, the share that has told of every object. Below \
                 100 % it waits, and says so at /readyz.",
                "percentunit",
            )
            .size(8, 7)
            .thresholds("orange", &[(1.0, "green")])
            .named()
            .ask(now("avg by (job) (plimsoll_feed_synced{@})", "{{job}}")),
        ],
    )
}

/// Excludes other processes that run under the same job.
const OURS: &str = "and on (cluster, job, instance) plimsoll_build_info{@}";

fn process() -> Row {
    let by_process = "{{job}} {{instance}}";
    row(
        "What does it cost?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Memory",
                "Memory of each process that is in RAM.",
                "bytes",
            )
            .size(8, 7)
            .field("min", 0)
            .ask(over_time(&format!("process_resident_memory_bytes{{@}} {OURS}"), by_process)),
            Panel::new(Kind::TimeSeries, "CPU, in cores", "CPU that each process uses.", "none")
                .size(8, 7)
                .field("min", 0)
                .ask(over_time(
                    &format!("rate(process_cpu_seconds_total{{@}}[$__rate_interval]) {OURS}"),
                    by_process,
                )),
            Panel::new(
                Kind::TimeSeries,
                "Open files",
                "Of the files that a process may have open, the share that is: connections count \
                 as files.",
                "percentunit",
            )
            .size(8, 7)
            .field("min", 0)
            .ask(over_time(
                &format!("process_open_fds{{@}} / process_max_fds{{@}} {OURS}"),
                by_process,
            )),
        ],
    )
}
