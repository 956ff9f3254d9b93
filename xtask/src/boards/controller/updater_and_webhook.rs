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
        "What does the updater do?",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Actions",
                "What was done to pods, and what came of it.",
                "none",
            )
            .size(8, 8)
            .bars()
            .ask(over_time(
                &events("plimsoll_updater_actions_total{@}", "action, outcome"),
                "{{action}}: {{outcome}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Pods that were left as they are",
                "Pods that the latest pass did not change, by the reason why; plimsoll explain pod \
                 says the same words of a single one.",
                "none",
            )
            .size(8, 8)
            .stacked()
            .field("min", 0)
            .field("decimals", 0)
            .ask(over_time("max by (reason) (plimsoll_updater_skipped_pods{@})", "{{reason}}")),
            Panel::new(
                Kind::TimeSeries,
                "Budgets that are spent",
                "How much of what may be changed in the cluster within an hour was changed in the \
                 last one, by what changes are charged as. At 100 % the rest waits.",
                "percentunit",
            )
            .size(8, 8)
            .steps()
            .field("min", 0)
            .field("max", 1)
            .ask(over_time(
                "max by (charge) (plimsoll_updater_changes_within_hour{@}) \
                 / (max by (charge) (plimsoll_updater_changes_allowed{@}) > 0)",
                "{{charge}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "VPAs by their recommender's heartbeat",
                "What the updater knows of the recommenders of all VPAs. Pods of those that are \
                 stale or loading are left alone.",
                "none",
            )
            .size(12, 7)
            .stacked()
            .steps()
            .field("min", 0)
            .ask(over_time("max by (state) (plimsoll_updater_vpas_by_heartbeat{@})", "{{state}}")),
            Panel::new(
                Kind::TimeSeries,
                "Pods to be changed",
                "Pods that would be evicted or resized if there were no limits. A line that stays \
                 up is held back: the Overview says by what.",
                "none",
            )
            .size(12, 7)
            .field("min", 0)
            .ask(over_time(
                &pods("vpa_updater_evictable_pods_total", "cluster, update_mode, vpa_size_log2"),
                "to be evicted",
            ))
            .ask(over_time(
                &pods("vpa_updater_in_place_updatable_pods_total", "cluster, vpa_size_log2"),
                "to be resized",
            ))
            .ask(over_time(
                &pods("vpa_updater_controlled_pods_total", "cluster, update_mode, vpa_size_log2"),
                "of all",
            )),
        ],
    )
}

pub(super) fn webhook() -> Row {
    row(
        "Does the webhook answer?",
        vec![
            Panel::new(
                Kind::Stat,
                "Reachable",
                "Whether the webhook answers on its own port as an API server would ask. While it \
                 does not, pods are created with the requests of their templates.",
                "none",
            )
            .size(4, 7)
            .words(&[("0", "no", "red"), ("1", "yes", "green")])
            .named()
            .ask(now("min by (instance) (plimsoll_webhook_reachable{@})", "{{instance}}")),
            Panel::new(
                Kind::Stat,
                "Certificate ends in",
                "How long the certificate that is shown is good for. It is replaced well before \
                 its end; below a week something keeps that from happening.",
                "s",
            )
            .size(4, 7)
            .thresholds("red", &[(86_400.0, "orange"), (604_800.0, "green")])
            .ask(now(
                "min(plimsoll_webhook_certificate_expiry_timestamp_seconds{@} - time())",
                "certificate ends in",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Reviews by outcome",
                "Reviews a second, by what came of them. Pods that nobody sizes are no_vpa.",
                "reqps",
            )
            .size(8, 7)
            .field("min", 0)
            .ask(over_time(
                "sum by (resource, outcome) \
                 (rate(plimsoll_admission_reviews_total{@}[$__rate_interval]))",
                "{{resource}}: {{outcome}}",
            )),
            duration(
                "Time of an answer",
                "From the arrival of a review to the end of its answer: half of them, and all but \
                 one in a hundred. Creating a pod takes so much longer.",
            )
            .size(8, 7)
            .ask(over_time(
                &quantile("0.5", "vpa_admission_controller_admission_latency_seconds"),
                "half of them",
            ))
            .ask(over_time(
                &quantile("0.99", "vpa_admission_controller_admission_latency_seconds"),
                "99 %",
            )),
        ],
    )
}
