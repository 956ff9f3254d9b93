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
        description: "Health of the roles: leadership, loop lag, queues, API server requests, writes, \
                      watches, webhook, memory and CPU.",
        variables: vec![],
        from: "now-6h",
        interval: "1m",
        rows: vec![
            replicas(),
            loops(),
            api_traffic(),
            watches(),
            updater_and_webhook::updater(),
            updater_and_webhook::webhook(),
            process(),
        ],
    }
}

fn replicas() -> Row {
    row(
        "Replicas and leadership",
        vec![
            Panel::new(
                Kind::Timeline,
                "Leaders",
                "The leader of each role over time. Exactly one is expected; a bar that moves to \
                 another replica is a leader transition.",
                "none",
            )
            .size(12, 7)
            .words(&[("0", "standby", "light-blue"), ("1", "leader", "green")])
            .target(over_time(
                "max by (role, instance) (plimsoll_leader{@})",
                "{{role}} {{instance}}",
            )),
            Panel::new(
                Kind::Table,
                "Replicas",
                "Each process with its version and uptime. Versions that differ for long mean a \
                 stuck rollout.",
                "none",
            )
            .size(12, 7)
            .columns(&[
                ("job", "job"),
                ("instance", "instance"),
                ("version", "version"),
                ("Value #B", "uptime"),
                ("cluster", "cluster"),
            ])
            .only("uptime", &[("unit", json!("s"))])
            .sorted_by("uptime", false)
            .target(column("max by (cluster, job, instance, version) (plimsoll_build_info{@})"))
            .target(column(
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
        "Control loops",
        vec![
            duration(
                "Loop lag",
                "Delay of the latest pass of each role, and the 90th percentile of the delay of \
                 reconciles of single objects. Growing lag means that the work exceeds the interval.",
            )
            .field("custom.lineWidth", 2)
            .target(over_time("max by (role) (plimsoll_loop_lag_seconds{@})", "{{role}}"))
            .target(over_time(
                &quantile("0.9", "plimsoll_watermark_lateness_seconds"),
                "watermark, p90",
            )),
            duration(
                "Time since last successful pass",
                "Time since the last pass that ended without an error. A sawtooth as high as the \
                 interval is normal; a rising line is a loop that fails or hangs.",
            )
            .target(over_time(
                "time() - max by (cluster, role) (plimsoll_loop_last_success_timestamp_seconds{@})",
                "{{cluster}} {{role}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Queue depth",
                "Pending writes by kind, and WatermarkPodAutoscalers that are due. Checkpoints are \
                 queued most of the time, because their writes are spread over the interval.",
                "none",
            )
            .size(8, 8)
            .field("min", 0)
            .target(over_time("max by (kind) (plimsoll_write_queue{@})", "writes: {{kind}}"))
            .target(over_time("max by (name) (workqueue_depth{@})", "reconciles: {{name}}"))
            .target(over_time(
                "max by (controller) (controller_runtime_active_workers{@})",
                "active workers: {{controller}}",
            )),
            duration(
                "Recommender: duration by step",
                "Average duration of each step of a pass; total is the whole pass.",
            )
            .target(over_time(
                &mean("vpa_recommender_execution_latency_seconds", "step"),
                "{{step}}",
            )),
            duration(
                "Updater: duration by step",
                "Average duration of each step of a pass; total is the whole pass.",
            )
            .target(over_time(&mean("vpa_updater_execution_latency_seconds", "step"), "{{step}}")),
            duration(
                "Watermark: reconcile duration",
                "Duration of a WatermarkPodAutoscaler reconcile until the last write: median and \
                 99th percentile, and the average of each step. Slow metric sources cause slow \
                 reconciles.",
            )
            .target(over_time(&quantile("0.5", "controller_runtime_reconcile_time_seconds"), "p50"))
            .target(over_time(
                &quantile("0.99", "controller_runtime_reconcile_time_seconds"),
                "p99",
            ))
            .target(over_time(&mean("plimsoll_watermark_step_seconds", "step"), "{{step}}")),
        ],
    )
}

fn api_traffic() -> Row {
    row(
        "API server traffic",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "API requests by verb",
                "Requests to the API server per second, by verb.",
                "reqps",
            )
            .size(6, 8)
            .stacked()
            .field("min", 0)
            .target(over_time(
                "sum by (verb) (rate(plimsoll_api_requests_total{@}[$__rate_interval]))",
                "{{verb}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "API requests by code",
                "Requests to the API server per second, by response code; none is no response. 403 \
                 is a missing permission, 409 a write conflict, 429 throttling or a \
                 PodDisruptionBudget.",
                "reqps",
            )
            .size(6, 8)
            .field("min", 0)
            .only_like("5..", &[("color", json!({"mode": "fixed", "fixedColor": "red"}))])
            .only("none", &[("color", json!({"mode": "fixed", "fixedColor": "dark-red"}))])
            .target(over_time(
                "sum by (code) (rate(plimsoll_api_requests_total{@}[$__rate_interval]))",
                "{{code}}",
            )),
            duration(
                "API server latency (p90)",
                "90th percentile of the API server's response time by verb, without client-side \
                 rate limiting. Slow responses cause slow passes.",
            )
            .size(6, 8)
            .target(over_time(
                "histogram_quantile(0.9, sum by (verb, le) \
                 (rate(plimsoll_api_request_duration_seconds_bucket{@}[$__rate_interval])))",
                "{{verb}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Writes by kind and outcome",
                "Writes to the cluster per second, by kind and response code. fenced writes were \
                 not sent, because this replica is not the leader.",
                "wps",
            )
            .size(6, 8)
            .field("min", 0)
            .target(over_time(
                "sum by (kind, outcome) (rate(plimsoll_writes_total{@}[$__rate_interval]))",
                "{{kind}}: {{outcome}}",
            )),
        ],
    )
}

fn watches() -> Row {
    row(
        "Watches",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Watched objects",
                "Existing objects in the watch caches.",
                "none",
            )
            .size(8, 7)
            .field("min", 0)
            .target(over_time(
                "max by (job, feed) (plimsoll_feed_objects{@})",
                "{{feed}} of {{job}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Watch errors",
                "Watches that failed or were restarted with a list, and objects that could not be \
                 parsed and are ignored.",
                "none",
            )
            .size(8, 7)
            .bars()
            .target(over_time(&events("plimsoll_feed_errors_total{@}", ""), "errors"))
            .target(over_time(&events("plimsoll_feed_restarts_total{@}", ""), "restarts"))
            .target(over_time(&events("plimsoll_feed_malformed_total{@}", ""), "invalid objects")),
            Panel::new(
                Kind::Stat,
                "Watches synced",
                "Fraction of a role's watches that have synced. Below 100 % the role waits, and \
                 /readyz reports it.",
                "percentunit",
            )
            .size(8, 7)
            .thresholds("orange", &[(1.0, "green")])
            .named()
            .target(now("avg by (job) (plimsoll_feed_synced{@})", "{{job}}")),
        ],
    )
}

/// Excludes other processes that run under the same job.
const OURS: &str = "and on (cluster, job, instance) plimsoll_build_info{@}";

fn process() -> Row {
    let by_process = "{{job}} {{instance}}";
    row(
        "Resource usage",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Memory",
                "Resident memory of each process.",
                "bytes",
            )
            .size(8, 7)
            .field("min", 0)
            .target(over_time(&format!("process_resident_memory_bytes{{@}} {OURS}"), by_process)),
            Panel::new(Kind::TimeSeries, "CPU, in cores", "CPU usage of each process.", "none")
                .size(8, 7)
                .field("min", 0)
                .target(over_time(
                    &format!("rate(process_cpu_seconds_total{{@}}[$__rate_interval]) {OURS}"),
                    by_process,
                )),
            Panel::new(
                Kind::TimeSeries,
                "Open file descriptors",
                "Open file descriptors of each process, including connections, as a fraction of the \
                 maximum.",
                "percentunit",
            )
            .size(8, 7)
            .field("min", 0)
            .target(over_time(
                &format!("process_open_fds{{@}} / process_max_fds{{@}} {OURS}"),
                by_process,
            )),
        ],
    )
}
