//! Some hours with series of every family in docs/metrics.md, and a few values that are easy to verify.

use jiff::{SignedDuration, Timestamp};

use super::families::documented;
use crate::support::prometheus_server::History;

/// The end of the sample data.
pub const END: &str = "2026-11-22T00:00:00Z";

/// Scrapes are a minute apart.
const STEP: SignedDuration = SignedDuration::from_mins(1);

/// Target labels that the operator sets.
const SCRAPED: [(&str, &str); 2] = [("job", "kube-system/plimsoll"), ("instance", "10.0.0.1:8942")];

type Labels = Vec<(String, String)>;

pub fn end() -> Timestamp {
    END.parse().expect("valid timestamp")
}

/// The values of a label.
fn label_values(family: &str, label: &str) -> &'static [&'static str] {
    match label {
        "charge" => &["disruption", "resize"],
        "condition" => &["able_to_scale", "scaling_limited"],
        "container" => &["main"],
        "dry_run" | "is_error" | "is_oom" | "unsupported_config" => &["false"],
        "history_state" => &["loaded"],
        "kind" if family.starts_with("plimsoll_write") => &["status", "lease"],
        "kind" => &["vpa", "wpa", "hpa"],
        "metric" | "metric_name" => &["requests"],
        "name" | "vpa_name" | "wpa_name" | "target_name" | "resource_name" => &["web"],
        "namespace" | "vpa_namespace" | "wpa_namespace" | "resource_namespace" => &["shop"],
        "outcome" => &["ok", "failed"],
        "reason" => &["max_allowed", "max", "metric_unknown", "no_scale", "within_bounds"],
        "result" => &["same", "later", "unexplained"],
        "resource" => &["cpu", "memory"],
        "role" => &["recommender", "updater"],
        "state" if family == "plimsoll_pods" => &["counted", "foreign"],
        "state" => &["loaded", "fresh"],
        "transition" => &["upscale", "downscale"],
        "verb" => &["get", "patch"],
        "code" => &["200", "none"],
        _ => &["one"],
    }
}

/// Every series of a family.
fn series(family: &str, labels: &[String]) -> Vec<Labels> {
    let mut all: Vec<Labels> =
        vec![SCRAPED.map(|(name, value)| (name.into(), value.into())).into()];
    for label in labels {
        let values = label_values(family, label);
        all = all
            .into_iter()
            .flat_map(|known| {
                values.iter().map(move |value| {
                    let mut more = known.clone();
                    more.push((label.clone(), (*value).to_owned()));
                    more
                })
            })
            .collect();
    }
    if labels.iter().any(|label| label == "kind") && family.starts_with("plimsoll_") {
        all.iter_mut().for_each(drop_labels_of_other_kind);
    }
    all.sort();
    all.dedup();
    all
}

/// Neither kind has labels of the other.
fn drop_labels_of_other_kind(labels: &mut Labels) {
    let is_vpa = labels.iter().any(|(name, value)| name == "kind" && value == "vpa");
    let of_others = if is_vpa { ["metric", "transition"] } else { ["container", "resource"] };
    labels.retain(|(name, _)| !of_others.contains(&&**name));
}

fn has_label(labels: &Labels, name: &str, value: &str) -> bool {
    labels.iter().any(|(known, found)| known == name && found == value)
}

/// The value of a gauge.
fn gauge(family: &str, labels: &Labels, at: Timestamp) -> f64 {
    let (is_cpu, is_hpa) = (has_label(labels, "resource", "cpu"), has_label(labels, "kind", "hpa"));
    let scales_replicas = is_hpa || has_label(labels, "kind", "wpa");
    let scale = if scales_replicas || is_cpu { 1.0 } else { 1e9 };
    match family {
        // Three pods, one of which has been resized and another not yet.
        "plimsoll_request" => 3.0 * scale,
        "plimsoll_request_min" => scale,
        "plimsoll_request_all_pods" => 6.0 * scale,
        "plimsoll_target" if is_hpa => 100.0,
        "plimsoll_target" => 0.5 * scale,
        "plimsoll_low" if scales_replicas => 90.0,
        "plimsoll_high" if scales_replicas => 120.0,
        "plimsoll_value" if scales_replicas => 105.0,
        "plimsoll_low" => 0.25 * scale,
        "plimsoll_high" => 2.4 * scale,
        "plimsoll_value" => 0.4 * scale,
        "plimsoll_proposal" => 0.6 * scale,
        "plimsoll_replicas" => 3.0,
        "plimsoll_shadow_difference" => -1.0,
        "plimsoll_pods" if has_label(labels, "state", "counted") => 4.0,
        "plimsoll_min_replicas" => 2.0,
        "plimsoll_max_replicas" => 10.0,
        "plimsoll_effective" => 4.0,
        "plimsoll_tolerance" => 0.05,
        "plimsoll_staleness_seconds" => 42.0,
        // The target is capped during the last three hours.
        "plimsoll_restricted_scaling" if has_label(labels, "reason", "max_allowed") => {
            f64::from(u8::from(at > end() - SignedDuration::from_hours(3)))
        }
        name if name.ends_with("timestamp_seconds") => at.as_second() as f64 - 30.0,
        "process_start_time_seconds" => at.as_second() as f64 - 3_600.0,
        "process_max_fds" => 1_024.0,
        _ => 1.0,
    }
}

/// A history of some hours, at least three.
pub fn history(hours: i64) -> History {
    let start = end() - SignedDuration::from_hours(hours);
    let mut history = History::new(start, end(), STEP);
    for (family, documented) in documented() {
        for labels in series(&family, &documented.labels) {
            let (name, of, kind) = (family.clone(), labels.clone(), documented.kind.clone());
            let labels: Vec<(&str, &str)> =
                labels.iter().map(|(name, value)| (&**name, &**value)).collect();
            let rising = |share: f64| {
                move |at: Timestamp| {
                    let minutes = (at - start).total(jiff::Unit::Minute);
                    minutes.ok().map(|minutes| minutes * share)
                }
            };
            history = match &*kind {
                "counter" => history.series(&family, &labels, rising(1.0)),
                "histogram" => [("0.1", 0.5), ("1", 1.0), ("+Inf", 1.0)]
                    .into_iter()
                    .fold(history, |history, (bound, share)| {
                        let labels = [&labels[..], &[("le", bound)]].concat();
                        history.series(&format!("{family}_bucket"), &labels, rising(share))
                    })
                    .series(&format!("{family}_count"), &labels, rising(1.0))
                    .series(&format!("{family}_sum"), &labels, rising(0.2)),
                _ => history.series(&family, &labels, move |at| Some(gauge(&name, &of, at))),
            };
        }
    }
    history
}
