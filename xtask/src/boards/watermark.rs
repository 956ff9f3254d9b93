//! The board of one WatermarkPodAutoscaler: its metrics between the watermarks, the replicas they propose, and the
//! result.

use serde_json::{Value, json};

use super::dashboard::{Dashboard, Row, Variable, row};
use super::panel::{Kind, Panel};
use super::query::{events, now, over_time};

pub(super) fn board() -> Dashboard {
    Dashboard {
        name: "watermark",
        title: "Plimsoll / Watermark",
        description: "One WatermarkPodAutoscaler: its values between the adjusted marks, the replicas that are asked for and \
                      those that come of it, what holds them, and until when.",
        variables: vec![
            Variable::one(
                "namespace",
                "Namespace",
                r#"label_values(plimsoll_object_info{cluster=~"$cluster", kind="wpa"}, namespace)"#,
            ),
            Variable::one(
                "name",
                "WPA",
                r#"label_values(plimsoll_object_info{cluster=~"$cluster", kind="wpa", namespace=~"$namespace"}, name)"#,
            ),
            Variable::one(
                "metric",
                "Metric",
                r#"label_values(plimsoll_high{cluster=~"$cluster", kind="wpa", namespace=~"$namespace", name=~"$name"}, metric)"#,
            ),
        ],
        from: "now-6h",
        interval: "15s",
        rows: vec![state(), value(), replicas(), held()],
    }
}

fn stat(title: &str, description: &str, unit: &str, expression: &str) -> Panel {
    Panel::new(Kind::Stat, title, description, unit).size(3, 4).ask(now(expression, title))
}

fn state() -> Row {
    let yes = |good: &str, bad: &str| [("0", "no", bad.to_owned()), ("1", "yes", good.to_owned())];
    let answers = |panel: Panel, good: &str, bad: &str| {
        let words = yes(good, bad);
        let words: Vec<_> =
            words.iter().map(|(value, text, color)| (*value, *text, color.as_str())).collect();
        panel.words(&words)
    };
    row(
        "$namespace/$name",
        vec![
            Panel::new(
                Kind::Gauge,
                "From fewest to most",
                "The replicas that were decided last, between the fewest and the most that there \
                 may be. At either end it cannot follow its metrics any more.",
                "percentunit",
            )
            .size(4, 4)
            .field("min", 0)
            .field("max", 1)
            .thresholds("green", &[(0.9, "orange"), (1.0, "red")])
            .ask(now(
                "(max(plimsoll_effective{@wpa}) - max(plimsoll_min_replicas{@wpa})) / \
                 (max(plimsoll_max_replicas{@wpa}) - max(plimsoll_min_replicas{@wpa}))",
                "of the way from fewest to most",
            )),
            stat(
                "Replicas",
                "The replicas that were decided last, after all limits, windows and delays; in a \
                 dry run those that there would be.",
                "none",
                "max(plimsoll_effective{@wpa})",
            ),
            answers(
                stat(
                    "Follows its metrics",
                    "The condition ScalingActive: whether every metric says something that \
                     replicas can be made from.",
                    "none",
                    "max(wpa_controller_scaling_active{@of_wpa})",
                ),
                "green",
                "red",
            ),
            answers(
                stat(
                    "Able to scale",
                    "The condition AbleToScale: whether the target is there and may be changed.",
                    "none",
                    "max(wpa_controller_conditions{@of_wpa, condition=\"able_to_scale\"})",
                ),
                "green",
                "red",
            ),
            answers(
                stat(
                    "Dry run",
                    "Whether it only computes. A dry run that was forgotten changes nothing \
                     however high the load is.",
                    "none",
                    "max(wpa_controller_dry_run{@of_wpa})",
                ),
                "orange",
                "green",
            ),
            stat(
                "Latest value",
                "How old the latest value is. A value that is too old changes nothing.",
                "s",
                "min(plimsoll_staleness_seconds{@wpa})",
            )
            .thresholds("green", &[(60.0, "orange"), (300.0, "red")]),
            stat(
                "May grow in",
                "How long it is until replicas may be added again, for all that the last change \
                 says.",
                "s",
                "min(plimsoll_transition_countdown_seconds{@wpa, transition=\"upscale\"})",
            )
            .empty("never changed")
            .thresholds("green", &[(1.0, "blue")]),
            stat(
                "May shrink in",
                "How long it is until replicas may be removed again, for all that the last change \
                 says.",
                "s",
                "min(plimsoll_transition_countdown_seconds{@wpa, transition=\"downscale\"})",
            )
            .size(2, 4)
            .empty("never changed")
            .thresholds("green", &[(1.0, "blue")]),
        ],
    )
}

fn line(color: &str, more: &[(&'static str, Value)]) -> Vec<(&'static str, Value)> {
    let color = ("color", json!({"mode": "fixed", "fixedColor": color}));
    std::iter::once(color).chain(more.iter().cloned()).collect()
}

const ADDED: &str = "wpa_controller_upscale_replicas_total{@of_wpa}";
const REMOVED: &str = "wpa_controller_downscale_replicas_total{@of_wpa}";

/// The measured value of a metric or one of its watermarks.
fn figure(family: &str) -> String {
    format!(r#"max({family}{{@wpa, metric=~"$metric"}})"#)
}

fn value() -> Row {
    let dash = ("custom.lineStyle", json!({"fill": "dash", "dash": [8, 6]}));
    let thin = ("custom.lineWidth", json!(1));
    let tolerance = "max(plimsoll_tolerance{@wpa})";
    let (high, low) = (figure("plimsoll_high"), figure("plimsoll_low"));
    row(
        "Metric $metric",
        vec![
            Panel::new(
                Kind::TimeSeries,
                "Value between its marks",
                "What is compared with the marks, in what the metric counts. Above the adjusted \
                 high mark replicas are added, below the adjusted low mark they are removed; in \
                 the band between them nothing changes. Adjusted marks are the marks of the object \
                 with its tolerance.",
                "short",
            )
            .size(16, 10)
            .empty("Needs --object-metrics=standard or all")
            .set("options.legend.displayMode", "table")
            .set("options.legend.calcs", json!(["lastNotNull", "min", "max"]))
            .only(
                "adjusted high mark",
                &line(
                    "red",
                    &[
                        ("custom.fillBelowTo", json!("adjusted low mark")),
                        ("custom.fillOpacity", json!(10)),
                    ],
                ),
            )
            .only("high mark", &line("light-red", &[dash.clone(), thin.clone()]))
            .only("adjusted low mark", &line("blue", &[]))
            .only("low mark", &line("light-blue", &[dash, thin]))
            .only("value", &line("text", &[("custom.lineWidth", json!(2))]))
            .ask(over_time(&format!("{high} * (1 + {tolerance})"), "adjusted high mark"))
            .ask(over_time(&high, "high mark"))
            .ask(over_time(&low, "low mark"))
            .ask(over_time(&format!("{low} * (1 - {tolerance})"), "adjusted low mark"))
            .ask(over_time(&figure("plimsoll_value"), "value")),
            Panel::new(
                Kind::Bars,
                "All metrics: from the low mark to the high mark",
                "Where each metric lies now: 0 % is its low mark, 100 % its high mark. The object \
                 follows the one that asks for most replicas.",
                "percentunit",
            )
            .size(8, 10)
            .empty("Needs --object-metrics=standard or all, and marks that differ")
            .field("min", 0)
            .field("max", 1)
            .thresholds("blue", &[(0.0, "green"), (1.0, "red")])
            .ask(now(
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
            Panel::new(
                Kind::TimeSeries,
                "Asked for, and what came of it",
                "The replicas that each metric asks for before any limit, and those that were \
                 decided after limits, windows and delays. Where the lines part, the row below \
                 says why.",
                "none",
            )
            .size(16, 9)
            .steps()
            .field("decimals", 0)
            .field("min", 0)
            .only("fewest", &line("light-blue", &[]))
            .only("most", &line("light-red", &[]))
            .only("decided", &line("text", &[("custom.lineWidth", json!(3))]))
            .ask(over_time("max by (metric) (plimsoll_proposal{@wpa})", "asked for by {{metric}}"))
            .ask(over_time("max(plimsoll_effective{@wpa})", "decided"))
            .ask(over_time("max(plimsoll_min_replicas{@wpa})", "fewest"))
            .ask(over_time("max(plimsoll_max_replicas{@wpa})", "most")),
            Panel::new(
                Kind::TimeSeries,
                "Added and removed",
                "Replicas that were added (above) and removed (below). Both by turns is flapping: \
                 the marks are too close, or windows too short.",
                "none",
            )
            .size(8, 9)
            .bars()
            .field("min", json!(null))
            .empty("Replicas were never changed")
            .ask(over_time(&events(ADDED, ""), "added"))
            .ask(over_time(&format!("-{}", events(REMOVED, "")), "removed")),
        ],
    )
}

fn held() -> Row {
    row(
        "What holds it, and until when?",
        vec![
            Panel::new(
                Kind::Timeline,
                "Restrictions",
                "When which reason kept replicas from what the metrics ask for. within_bounds is \
                 how it should be: all metrics lie between their marks. The words are those of \
                 plimsoll explain wpa.",
                "none",
            )
            .size(16, 9)
            .empty("Nothing held it back")
            .words(&[("1", "held", "orange")])
            .only("within_bounds", &[("mappings", json!([
                {"type": "value", "options": {"1": {"color": "green", "index": 0, "text": "between its marks"}}},
            ]))])
            .ask(over_time(
                "max by (reason) (plimsoll_restricted_scaling{@wpa} == 1)",
                "{{reason}}",
            )),
            Panel::new(
                Kind::TimeSeries,
                "Countdowns",
                "How long it was at each time until replicas might be added or removed again. It \
                 falls to 0 and stays there until the next change.",
                "s",
            )
            .size(8, 9)
            .field("min", 0)
            .field("custom.fillOpacity", 15)
            .empty("Replicas were never changed")
            .ask(over_time(
                "min by (transition) (plimsoll_transition_countdown_seconds{@wpa})",
                "until {{transition}}",
            )),
        ],
    )
}
