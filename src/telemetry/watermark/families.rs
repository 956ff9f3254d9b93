//! Upstream's metrics of single WatermarkPodAutoscalers, under upstream's names, with the labels of three releases.

use plimsoll_core::scaling::MetricDecision;

use crate::telemetry::{
    definition::{Definition, counter, gauge},
    labels::LabelSet,
    replicas::{EmitSample, ReplicaRow, ReplicaSeries, UpstreamFamily, UpstreamSeries, bool_value},
};

/// The labels of a series of an object, with one additional label at its alphabetical position.
macro_rules! object_and {
    ($($first:literal)?; $($second:literal)?; $($third:literal)?; $($fourth:literal)?) => {
        &[
            $($first,)? "dry_run", $($second,)? "namespace", $($third,)?
            "resource_kind", "resource_name", "resource_namespace", "target_name",
            $($fourth,)? "wpa_name", "wpa_namespace",
        ]
    };
}

const OBJECT: &[&str] = object_and!(;;;);
const CONDITION: &[&str] = object_and!("condition";;;);
const METRIC: &[&str] = object_and!(; "metric_name";;);
const REASON: &[&str] = object_and!(;; "reason";);
const TRANSITION: &[&str] = object_and!(;;; "transition");
const LIFECYCLE: &[&str] = &[
    "dry_run",
    "lifecycle_status",
    "monitor_name",
    "monitor_namespace",
    "wpa_name",
    "wpa_namespace",
];
const TAGS: &[&str] = &["dry_run", "namespace", "resource_namespace", "wpa_name", "wpa_namespace"];

const PER_WPA: &str = "1 per WPA";
const PER_METRIC: &str = "1 per metric of a WPA";
const MILLI: &str = "thousandths of the unit of the metric";
const UNDECIDED: &str = "no decision has been made yet";

/// The definition with the labels of a release, which live as long as the process.
fn of_release(definition: Definition, set: LabelSet) -> Definition {
    let later: &[&str] = match set {
        LabelSet::V10 => &["dry_run", "namespace", "target_name"],
        LabelSet::V11 => &["dry_run"],
        LabelSet::V12 => &[],
    };
    let labels = definition.labels.iter().copied().filter(|label| !later.contains(label));
    definition.labels(labels.collect::<Vec<_>>().leak(), definition.series_count)
}

const fn per_object(
    definition: Definition,
    absent: &'static str,
    read: fn(&ReplicaRow<'_>) -> Option<f64>,
) -> UpstreamFamily {
    let definition = definition.labels(OBJECT, PER_WPA).absent(absent);
    UpstreamFamily { definition, values: ReplicaSeries::Object(read) }
}

const fn per_metric(
    definition: Definition,
    absent: &'static str,
    read: fn(&MetricDecision) -> Option<f64>,
) -> UpstreamFamily {
    let definition = definition.labels(METRIC, PER_METRIC).absent(absent);
    UpstreamFamily { definition, values: ReplicaSeries::Metric(read) }
}

const fn watermark(
    name: &'static str,
    help: &'static str,
    read: fn(&MetricDecision) -> Option<f64>,
) -> UpstreamFamily {
    per_metric(gauge(name, help).unit(MILLI), "the metric has no watermark", read)
}

const fn labelled(
    definition: Definition,
    each: fn(&ReplicaRow<'_>, &mut EmitSample<'_>),
) -> UpstreamFamily {
    UpstreamFamily { definition, values: ReplicaSeries::Labelled(each) }
}

/// The families with the labels of the latest release.
static FAMILIES: [UpstreamFamily; 18] = [
    labelled(
        gauge("wpa_controller_conditions", "1 while this condition of an object is true, else 0.")
            .labels(CONDITION, "3 per WPA")
            .absent("the object has no such condition"),
        |row, each| row.state.emit_conditions(each),
    ),
    per_object(
        counter(
            "wpa_controller_downscale_replicas_total",
            "Replicas that this process has removed in total. A dry run removes none.",
        )
        .unit("replicas"),
        "this process has not changed replicas yet",
        |row| row.state.replicas_moved.map(|(_, down)| down as f64),
    ),
    per_object(gauge("wpa_controller_dry_run", "1 in dry-run mode, else 0."), "", |row| {
        Some(bool_value(row.state.dry_run))
    }),
    watermark(
        "wpa_controller_high_watermak",
        "The same as wpa_controller_high_watermark, under the name that old dashboards use.",
        |metric| Some(metric.bounds?.high as f64),
    ),
    watermark(
        "wpa_controller_high_watermark",
        "The watermark above which replicas are added, without the tolerance.",
        |metric| Some(metric.bounds?.high as f64),
    ),
    UpstreamFamily {
        definition: gauge(
            "wpa_controller_labels_info",
            "Always 1; also has the configured labels of the object.",
        )
        .labels(TAGS, PER_WPA),
        values: ReplicaSeries::Tags,
    },
    labelled(
        gauge(
            "wpa_controller_lifecycle_control_status",
            "1 while the monitor of an object blocks scaling, 0 while it does not.",
        )
        .labels(LIFECYCLE, PER_WPA)
        .absent("the object has no such monitor"),
        |row, each| {
            if let Some(monitor) = &row.state.monitor {
                each("blocked", bool_value(monitor.blocks));
            }
        },
    ),
    watermark(
        "wpa_controller_low_watermak",
        "The same as wpa_controller_low_watermark, under the name that old dashboards use.",
        |metric| Some(metric.bounds?.low as f64),
    ),
    watermark(
        "wpa_controller_low_watermark",
        "The watermark below which replicas are removed, without the tolerance.",
        |metric| Some(metric.bounds?.low as f64),
    ),
    per_object(
        gauge("wpa_controller_max_replicas", "Maximum number of replicas.")
            .unit("replicas"),
        "",
        |row| Some(row.state.bounds.1.into()),
    ),
    per_object(
        gauge("wpa_controller_min_replicas", "Minimum number of replicas.")
            .unit("replicas"),
        "",
        |row| Some(row.state.bounds.0.into()),
    ),
    per_object(
        gauge(
            "wpa_controller_replicas_scaling_effective",
            "The replicas of the last decision, after all limits, windows and delays.",
        )
        .unit("replicas"),
        UNDECIDED,
        |row| row.state.desired_replicas.map(f64::from),
    ),
    per_metric(
        gauge(
            "wpa_controller_replicas_scaling_proposal",
            "The replicas that a metric proposes, before any limit.",
        )
        .unit("replicas"),
        "the metric is not available",
        |metric| metric.proposal.map(f64::from),
    ),
    labelled(
        gauge(
            "wpa_controller_restricted_scaling",
            "1 while this restriction applies (within the watermarks, or limited by the scale rate), else 0.",
        )
        .labels(REASON, "3 per WPA")
        .absent("a metric is not available"),
        |row, each| row.state.emit_cappings(each),
    ),
    per_object(
        gauge(
            "wpa_controller_scaling_active",
            "1 while replicas can be computed from the metrics, else 0.",
        ),
        UNDECIDED,
        |row| Some(bool_value(row.state.scaling_active)),
    ),
    labelled(
        gauge(
            "wpa_controller_transition_countdown",
            "Time until replicas may be added or removed again; 0 once they may.",
        )
        .labels(TRANSITION, "2 per WPA")
        .unit("seconds")
        .absent("replicas were never changed"),
        |row, each| row.state.emit_cooldowns(each),
    ),
    per_object(
        counter(
            "wpa_controller_upscale_replicas_total",
            "Replicas that this process has added in total. A dry run adds none.",
        )
        .unit("replicas"),
        "this process has not changed replicas yet",
        |row| row.state.replicas_moved.map(|(up, _)| up as f64),
    ),
    per_metric(
        gauge("wpa_controller_value", "The value that is compared with the watermarks.").unit(MILLI),
        "the metric is not available, or is a zero that is ignored",
        MetricDecision::counted_value,
    ),
];

/// Upstream's families with the labels of a release. `labels_as_tags` are the keys of the labels of objects to expose.
pub fn upstream_series(set: LabelSet, labels_as_tags: &[String]) -> UpstreamSeries {
    let families = FAMILIES.iter().map(|family| UpstreamFamily {
        definition: of_release(family.definition, set),
        values: family.values,
    });
    UpstreamSeries::new(families.collect(), labels_as_tags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_upstream_release_has_its_number_of_object_labels() {
        let dry_run = FAMILIES.iter().find(|family| family.definition.labels == OBJECT);
        let dry_run = dry_run.expect("a family of objects");
        let sets = [LabelSet::V10, LabelSet::V11, LabelSet::V12];
        assert_eq!(sets.map(|set| of_release(dry_run.definition, set).labels.len()), [5, 7, 8]);
        for family in &FAMILIES {
            assert!(family.definition.labels.is_sorted(), "{}", family.definition.name);
        }
        assert!(FAMILIES.is_sorted_by_key(|family| family.definition.name));
    }
}
