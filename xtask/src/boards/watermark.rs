//! The board of one WatermarkPodAutoscaler: its metrics between the watermarks, the replicas they propose, and the
//! result.

use serde_json::json;

use super::autoscaler::{AutoscalerKind, line};
use super::dashboard::{Dashboard, Row, row};
use super::panel::{Kind, Panel};
use super::query::{events, now, over_time};

const KIND: AutoscalerKind = AutoscalerKind("wpa");

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "watermark",
        title: "Plimsoll / Watermark",
        description: "One WatermarkPodAutoscaler: metric values between the adjusted watermarks, proposed \
                      and desired replicas, restrictions and their remaining time.",
        variables: KIND.variables("WPA"),
        from: "now-6h",
        interval: "15s",
        rows: vec![state(), value(), replicas(), restrictions()],
    }
}

fn stat(title: &str, description: &str, unit: &str, expression: &str) -> Panel {
    Panel::new(Kind::Stat, title, description, unit).size(3, 4).target(now(expression, title))
}

fn state() -> Row {
    let yes = |good: &str, bad: &str| [("0", "no", bad.to_owned()), ("1", "yes", good.to_owned())];
    let yes_or_no = |panel: Panel, good: &str, bad: &str| {
        let words = yes(good, bad);
        let words: Vec<_> =
            words.iter().map(|(value, text, color)| (*value, *text, color.as_str())).collect();
        panel.words(&words)
    };
    row(
        "$namespace/$name",
        vec![
            KIND.range_used(
                "Current decision within minReplicas and maxReplicas. At either end it cannot \
                 follow its metrics any further.",
            ),
            stat(
                "Replicas",
                "Latest decision, after all limits, windows and delays; in a dry run the replicas \
                 that would be set.",
                "none",
                "max(plimsoll_effective{@wpa})",
            ),
            yes_or_no(
                stat(
                    "Scaling active",
                    "The condition ScalingActive: whether replicas can be computed from all metrics.",
                    "none",
                    "max(wpa_controller_scaling_active{@of_wpa})",
                ),
                "green",
                "red",
            ),
            yes_or_no(
                stat(
                    "Able to scale",
                    "The condition AbleToScale: whether the target exists and can be scaled.",
                    "none",
                    "max(wpa_controller_conditions{@of_wpa, condition=\"able_to_scale\"})",
                ),
                "green",
                "red",
            ),
            yes_or_no(
                stat(
                    "Dry run",
                    "Whether it is in dry run, in which it never changes replicas.",
                    "none",
                    "max(wpa_controller_dry_run{@of_wpa})",
                ),
                "orange",
                "green",
            ),
            stat(
                "Metric age",
                "Age of the latest metric value. Stale values do not change replicas.",
                "s",
                "min(plimsoll_staleness_seconds{@wpa})",
            )
            .thresholds("green", &[(60.0, "orange"), (300.0, "red")]),
            stat(
                "Upscale cooldown",
                "Remaining time after the last change until replicas may be added again.",
                "s",
                "min(plimsoll_transition_countdown_seconds{@wpa, transition=\"upscale\"})",
            )
            .empty("never scaled")
            .thresholds("green", &[(1.0, "blue")]),
            stat(
                "Downscale cooldown",
                "Remaining time after the last change until replicas may be removed again.",
                "s",
                "min(plimsoll_transition_countdown_seconds{@wpa, transition=\"downscale\"})",
            )
            .size(2, 4)
            .empty("never scaled")
            .thresholds("green", &[(1.0, "blue")]),
        ],
    )
}

const ADDED: &str = "wpa_controller_upscale_replicas_total{@of_wpa}";
const REMOVED: &str = "wpa_controller_downscale_replicas_total{@of_wpa}";

fn value() -> Row {
    let dash = ("custom.lineStyle", json!({"fill": "dash", "dash": [8, 6]}));
    let thin = ("custom.lineWidth", json!(1));
    let tolerance = "max(plimsoll_tolerance{@wpa})";
    let (high, low) = (KIND.figure("plimsoll_high"), KIND.figure("plimsoll_low"));
    row(
        "Metric $metric",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Value and watermarks",
                "The value that is compared with the watermarks, in the unit of the metric. \
                 Replicas are added above the adjusted high watermark and removed below the \
                 adjusted low one; in between they do not change. Adjusted watermarks include the \
                 tolerance of the object.",
                "short",
            )
            .size(16, 10)
            .empty("Needs --object-metrics=standard or all")
            .set("options.legend.displayMode", "table")
            .set("options.legend.calcs", json!(["lastNotNull", "min", "max"]))
            .only(
                "adjusted high watermark",
                &line(
                    "red",
                    &[
                        ("custom.fillBelowTo", json!("adjusted low watermark")),
                        ("custom.fillOpacity", json!(10)),
                    ],
                ),
            )
            .only("high watermark", &line("light-red", &[dash.clone(), thin.clone()]))
            .only("adjusted low watermark", &line("blue", &[]))
            .only("low watermark", &line("light-blue", &[dash, thin]))
            .only("value", &line("text", &[("custom.lineWidth", json!(2))]))
            .target(over_time(&format!("{high} * (1 + {tolerance})"), "adjusted high watermark"))
            .target(over_time(&high, "high watermark"))
            .target(over_time(&low, "low watermark"))
            .target(over_time(&format!("{low} * (1 - {tolerance})"), "adjusted low watermark"))
            .target(over_time(&KIND.figure("plimsoll_value"), "value")),
            Panel::new(
                Kind::Bars,
                "All metrics: position between watermarks",
                "Current value of each metric: 0 % is its low watermark, 100 % its high one. The \
                 metric that proposes the most replicas is used.",
                "percentunit",
            )
            .size(8, 10)
            .empty("Needs --object-metrics=standard or all, and two different watermarks")
            .field("min", 0)
            .field("max", 1)
            .thresholds("blue", &[(0.0, "green"), (1.0, "red")])
            .target(now(
                "(max by (metric) (plimsoll_value{@wpa}) - max by (metric) (plimsoll_low{@wpa})) / \
                 (max by (metric) (plimsoll_high{@wpa}) - max by (metric) (plimsoll_low{@wpa}))",
                "{{metric}}",
            )),
        ],
    )
}

fn replicas() -> Row {
    row(
        "Replicas",
        vec![
            KIND.replicas(
                "Replicas proposed by each metric before any limit, and the decision after limits, \
                 windows and delays. If the lines differ, the row below shows why.",
                &[],
            ),
            Panel::new(
                Kind::TimeSeries,
                "Replicas added and removed",
                "Replicas that were added (positive) and removed (negative). Alternating bars mean \
                 flapping: the watermarks are too close, or the windows too short.",
                "none",
            )
            .size(8, 9)
            .bars()
            .field("min", json!(null))
            .empty("Never scaled")
            .target(over_time(&events(ADDED, ""), "added"))
            .target(over_time(&format!("-{}", events(REMOVED, "")), "removed")),
        ],
    )
}

fn restrictions() -> Row {
    row(
        "Restrictions and cooldowns",
        vec![
            KIND.restrictions(
                "Restrictions of replicas over time. within_bounds is the healthy state: all \
                 metrics are between their watermarks. The reasons are those of plimsoll explain \
                 wpa.",
                ("within_bounds", "within watermarks"),
            ),
            KIND.countdowns(
                "Cooldowns",
                "Remaining time until replicas may be added or removed again. It stays 0 until the \
                 next change.",
                "min",
            )
            .empty("Never scaled"),
        ],
    )
}
