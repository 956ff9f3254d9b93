//! Which families there are of single objects, and what each takes from the rows of a kind.

use super::{ContainerRow, VpaRow};
use crate::telemetry::{
    definition::{Definition, counter, gauge},
    watermark::WpaSeries,
};
use plimsoll_core::recommender::estimate::Resource;

/// A family, and what it takes from each row. The text format wants a family in one piece, so each is a pass of its
/// own, over all kinds.
pub(in crate::telemetry) struct ObjectFamily {
    pub definition: Definition,
    /// What it takes of VPAs.
    pub vpa_series: Option<VpaSeries>,
    /// What it takes of WPAs, and those of its labels that they have.
    pub wpa_series: Option<(&'static [&'static str], WpaSeries)>,
}

pub(in crate::telemetry) enum VpaSeries {
    Info,
    Vpa(fn(&VpaRow<'_>) -> Option<f64>),
    Container(fn(&ContainerRow<'_>) -> Option<f64>),
    Restrictions,
}

pub(super) const VPA_INFO_LABELS: &[&str] =
    &["history_state", "kind", "name", "namespace", "update_mode"];
pub(super) const VPA_LABELS: &[&str] = &["kind", "name", "namespace"];
pub(super) const CONTAINER_LABELS: &[&str] =
    &["container", "kind", "name", "namespace", "resource"];
pub(super) const RESTRICTION_LABELS: &[&str] =
    &["container", "kind", "name", "namespace", "reason", "resource"];

const WPA_LABELS: &[&str] = VPA_LABELS;
const WPA_METRIC_LABELS: &[&str] = &["kind", "metric", "name", "namespace"];
const PER_RESOURCE: &str = "2 per container";
const PER_RESOURCE_OR_METRIC: &str = "2 per container, 1 per metric of a WPA";
const PER_WPA: &str = "1 per WPA";

/// Of containers and of metrics of WPAs.
const fn per_container_or_metric(name: &'static str, help: &'static str) -> Definition {
    gauge(name, help).labels(
        &["container", "kind", "metric", "name", "namespace", "resource"],
        PER_RESOURCE_OR_METRIC,
    )
}

const fn per_container(name: &'static str, help: &'static str) -> Definition {
    gauge(name, help)
        .labels(CONTAINER_LABELS, PER_RESOURCE)
        .unit("cores or bytes")
        .absent("the container has no recommendation")
}

const fn per_wpa(name: &'static str, help: &'static str) -> Definition {
    gauge(name, help).labels(WPA_LABELS, PER_WPA).unit("replicas")
}

/// A request is of a pod, and what no pod has is not 0.
const NO_POD: &str = "no pod has the container, or it has no recommendation";
const AMOUNT_UNIT: &str = "cores or bytes; of a WPA what the metric counts";

pub(in crate::telemetry) static OBJECT_FAMILIES: [ObjectFamily; 19] = [
    ObjectFamily {
        definition: gauge(
            "plimsoll_object_info",
            "Always 1; what else is to be known of an object.",
        )
        .labels(
            &[
                "dry_run",
                "history_state",
                "kind",
                "name",
                "namespace",
                "target_kind",
                "target_name",
                "update_mode",
            ],
            "1 per VPA or WPA",
        ),
        vpa_series: Some(VpaSeries::Info),
        wpa_series: Some((
            &["dry_run", "kind", "name", "namespace", "target_kind", "target_name"],
            WpaSeries::Object(|_| Some(1.0)),
        )),
    },
    ObjectFamily {
        definition: gauge("plimsoll_staleness_seconds", "Age of the latest sample or value of an object.")
            .labels(VPA_LABELS, "1 per VPA or WPA")
            .unit("seconds")
            .absent("no sample was ever seen"),
        vpa_series: Some(VpaSeries::Vpa(|row| row.staleness_seconds)),
        wpa_series: Some((WPA_LABELS, WpaSeries::Object(|row| row.staleness_seconds))),
    },
    ObjectFamily {
        definition: gauge(
            "plimsoll_replicas",
            "How many pods there are of an object, without those that have ended: a container's target counts as often.",
        )
        .labels(VPA_LABELS, "1 per VPA")
        .unit("pods"),
        vpa_series: Some(VpaSeries::Vpa(|row| Some(row.pods as f64))),
        wpa_series: None,
    },
    ObjectFamily {
        definition: per_container_or_metric(
            "plimsoll_value",
            "What is measured. Of a VPA: the largest use of a container of late. Of a WPA: what is compared with the marks.",
        )
        .unit(AMOUNT_UNIT)
        .absent("no use was seen, or the metric is not known"),
        vpa_series: Some(VpaSeries::Container(|row| row.recommendation.peak)),
        wpa_series: Some((WPA_METRIC_LABELS, WpaSeries::Metric(|row| Some(row.value_milli? / 1000.0)))),
    },
    ObjectFamily {
        definition: per_container_or_metric(
            "plimsoll_low",
            "Below this something is done. Of a VPA: the lower bound, below which a request is raised. Of a WPA: the low mark, below which replicas are removed.",
        )
        .unit(AMOUNT_UNIT)
        .absent("the container has no recommendation, or the metric no mark"),
        vpa_series: Some(VpaSeries::Container(|row| Some(row.recommendation.lower))),
        wpa_series: Some((WPA_METRIC_LABELS, WpaSeries::Metric(|row| Some(row.low_milli? / 1000.0)))),
    },
    ObjectFamily {
        definition: per_container_or_metric(
            "plimsoll_high",
            "Above this something is done. Of a VPA: the upper bound, above which a request is cut. Of a WPA: the high mark, above which replicas are added.",
        )
        .unit(AMOUNT_UNIT)
        .absent("the container has no recommendation, or the metric no mark"),
        vpa_series: Some(VpaSeries::Container(|row| Some(row.recommendation.upper))),
        wpa_series: Some((WPA_METRIC_LABELS, WpaSeries::Metric(|row| Some(row.high_milli? / 1000.0)))),
    },
    ObjectFamily {
        definition: gauge(
            "plimsoll_tolerance",
            "How far beyond its marks a value of a WPA may lie: replicas are added above high * (1 + this), and removed below low * (1 - this).",
        )
        .labels(WPA_LABELS, PER_WPA)
        .unit("share of the mark"),
        vpa_series: None,
        wpa_series: Some((WPA_LABELS, WpaSeries::Object(|row| Some(row.tolerance)))),
    },
    ObjectFamily {
        definition: per_container("plimsoll_target", "What it should be. Of a VPA: the target."),
        vpa_series: Some(VpaSeries::Container(|row| Some(row.recommendation.target))),
        wpa_series: None,
    },
    ObjectFamily {
        definition: per_container_or_metric(
            "plimsoll_proposal",
            "What it would be without limits. Of a VPA: the uncapped target. Of a WPA: the replicas that a metric asks for.",
        )
        .unit("cores or bytes; of a WPA replicas")
        .absent("the container has no recommendation, or the metric is not known"),
        vpa_series: Some(VpaSeries::Container(|row| Some(row.recommendation.uncapped))),
        wpa_series: Some((WPA_METRIC_LABELS, WpaSeries::Metric(|row| row.proposal))),
    },
    ObjectFamily {
        definition: per_wpa(
            "plimsoll_effective",
            "What it is after everything that limits it. Of a WPA: the replicas that were decided last, in a dry run too.",
        )
        .absent("nothing could be decided yet"),
        vpa_series: None,
        wpa_series: Some((WPA_LABELS, WpaSeries::Object(|row| row.effective_replicas))),
    },
    ObjectFamily {
        definition: per_wpa("plimsoll_min_replicas", "The fewest replicas that there may be."),
        vpa_series: None,
        wpa_series: Some((WPA_LABELS, WpaSeries::Object(|row| Some(row.min_replicas.into())))),
    },
    ObjectFamily {
        definition: per_wpa("plimsoll_max_replicas", "The most replicas that there may be."),
        vpa_series: None,
        wpa_series: Some((WPA_LABELS, WpaSeries::Object(|row| Some(row.max_replicas.into())))),
    },
    ObjectFamily {
        definition: gauge(
            "plimsoll_transition_countdown_seconds",
            "How long it is until replicas may be added (upscale) or removed (downscale) again, for all that the last change says; 0 once they may.",
        )
        .labels(&["kind", "name", "namespace", "transition"], "2 per WPA")
        .unit("seconds")
        .absent("replicas were never changed"),
        vpa_series: None,
        wpa_series: Some((
            &["kind", "name", "namespace", "transition"],
            WpaSeries::Labelled(|row, each| row.emit_cooldowns(each)),
        )),
    },
    ObjectFamily {
        definition: per_container(
            "plimsoll_request",
            "The largest request that a container has in any pod of a VPA, of pods that have not ended.",
        )
        .absent("no pod has a request for it"),
        vpa_series: Some(VpaSeries::Container(|row| (row.requests)(row.resource)?.largest)),
        wpa_series: None,
    },
    ObjectFamily {
        definition: per_container(
            "plimsoll_request_min",
            "The smallest request that a container has in any pod of a VPA, of pods that have not ended. One that states none has 0.",
        )
        .absent(NO_POD),
        vpa_series: Some(VpaSeries::Container(|row| Some((row.requests)(row.resource)?.smallest))),
        wpa_series: None,
    },
    ObjectFamily {
        definition: per_container(
            "plimsoll_request_all_pods",
            "What a container requests in all pods of a VPA together, of pods that have not ended. One that states none adds 0.",
        )
        .absent(NO_POD),
        vpa_series: Some(VpaSeries::Container(|row| Some((row.requests)(row.resource)?.sum))),
        wpa_series: None,
    },
    ObjectFamily {
        definition: per_container(
            "plimsoll_confidence",
            "How much the numbers rest on. Of a VPA: days of samples.",
        )
        .unit("days"),
        vpa_series: Some(VpaSeries::Container(|row| Some(f64::from(row.recommendation.confidence)))),
        wpa_series: None,
    },
    ObjectFamily {
        definition: counter(
            "plimsoll_container_oom_kills_total",
            "Out-of-memory kills of a container that its history has counted since this process knows of it.",
        )
        .labels(CONTAINER_LABELS, "1 per container")
        .absent("the container has no recommendation"),
        vpa_series: Some(VpaSeries::Container(|row| {
            (row.resource == Resource::Memory).then_some(row.oom_kills as f64)
        })),
        wpa_series: None,
    },
    ObjectFamily {
        definition: gauge(
            "plimsoll_restricted_scaling",
            "Whether the target would be another one, or pods would be changed, without this limit: 1 while it is so, else 0.",
        )
        .labels(
            RESTRICTION_LABELS,
            "7 for each of 2 per container, 35 per VPA of an updater, 12 per WPA, of which there are those that have held",
        )
        .absent("it has not held since the process started; with `all` it is 0 then"),
        vpa_series: Some(VpaSeries::Restrictions),
        wpa_series: Some((&["kind", "name", "namespace", "reason"], WpaSeries::Restrictions)),
    },
];
