//! Rows of the controllers board that cover a single role: the updater and the webhook.

use super::super::dashboard::{Row, row};
use super::super::panel::{Kind, Panel};
use super::super::query::{events, now, over_time};
use super::{duration, quantile};

/// Pods of all workloads, as counted by the latest pass.
fn pods(family: &str, by: &str) -> String {
    format!("sum(max by ({by}) ({family}{{@}}))")
}

pub(super) fn updater() -> Row {
    row(
        "Updater",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Updater actions",
                "Actions on pods, by outcome.",
                "none",
            )
            .size(8, 8)
            .bars()
            .target(over_time(
                &events("plimsoll_updater_actions_total{@}", "action, outcome"),
                "{{action}}: {{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Pods skipped",
                "Pods that the latest pass did not update, by reason; plimsoll explain pod shows \
                 the same reasons for a single pod.",
                "none",
            )
            .size(8, 8)
            .stacked()
            .field("min", 0)
            .field("decimals", 0)
            .target(over_time("max by (reason) (plimsoll_updater_skipped_pods{@})", "{{reason}}")),
            Panel::new(
                Kind::TimeSeries,
                "Disruption budgets used",
                "Changes within the last hour as a fraction of those allowed in the cluster, by \
                 charge. At 100 % further changes wait.",
                "percentunit",
            )
            .size(8, 8)
            .steps()
            .field("min", 0)
            .field("max", 1)
            .target(over_time(
                "max by (charge) (plimsoll_updater_changes_within_hour{@}) \
                 / (max by (charge) (plimsoll_updater_changes_allowed{@}) > 0)",
                "{{charge}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "VPAs by recommender heartbeat",
                "VPAs by the state of their recommender's heartbeat. Pods of VPAs that are stale or \
                 loading are not updated.",
                "none",
            )
            .size(12, 7)
            .stacked()
            .steps()
            .field("min", 0)
            .target(over_time("max by (state) (plimsoll_updater_vpas_by_heartbeat{@})", "{{state}}")),
            Panel::new(
                Kind::TimeSeries,
                "Pods to be updated",
                "Pods that would be evicted or resized without restrictions. If a line stays up, \
                 updates are blocked; the Overview shows the reasons.",
                "none",
            )
            .size(12, 7)
            .field("min", 0)
            .target(over_time(
                &pods("vpa_updater_evictable_pods_total", "cluster, update_mode, vpa_size_log2"),
                "evictable",
            ))
            .target(over_time(
                &pods("vpa_updater_in_place_updatable_pods_total", "cluster, vpa_size_log2"),
                "resizable in place",
            ))
            .target(over_time(
                &pods("vpa_updater_controlled_pods_total", "cluster, update_mode, vpa_size_log2"),
                "controlled",
            )),
        ],
    )
}

pub(super) fn webhook() -> Row {
    row(
        "Admission webhook",
        vec![
            Panel::new(
                Kind::Stat,
                "Reachable",
                "Whether each replica responds on its own port to requests like those of an API \
                 server. While none does, pods are created with the requests of their template.",
                "none",
            )
            .size(4, 7)
            .words(&[("0", "no", "red"), ("1", "yes", "green")])
            .named()
            .target(now("min by (instance) (plimsoll_webhook_reachable{@})", "{{instance}}")),
            Panel::new(
                Kind::Stat,
                "Certificate expires in",
                "Time until the serving certificate expires. It is renewed well before that; below \
                 a week the renewal has failed.",
                "s",
            )
            .size(4, 7)
            .thresholds("red", &[(86_400.0, "orange"), (604_800.0, "green")])
            .target(now(
                "min(plimsoll_webhook_certificate_expiry_timestamp_seconds{@} - time())",
                "certificate expires in",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Admission reviews by outcome",
                "Admission reviews per second, by outcome. Pods without a VPA are no_vpa.",
                "reqps",
            )
            .size(8, 7)
            .field("min", 0)
            .target(over_time(
                "sum by (resource, outcome) \
                 (rate(plimsoll_admission_reviews_total{@}[$__rate_interval]))",
                "{{resource}}: {{outcome}}",
            )),
            duration(
                "Review duration",
                "Time from the arrival of a review to the end of its response: median and 99th \
                 percentile. It delays the creation of pods.",
            )
            .size(8, 7)
            .target(over_time(
                &quantile("0.5", "vpa_admission_controller_admission_latency_seconds"),
                "p50",
            ))
            .target(over_time(
                &quantile("0.99", "vpa_admission_controller_admission_latency_seconds"),
                "p99",
            )),
        ],
    )
}
