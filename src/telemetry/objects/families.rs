//! The families of single objects, and how each reads its values from rows.

use super::{ContainerRow, VpaRow};
use crate::telemetry::{
    definition::{Definition, counter, gauge},
    replicas::ReplicaSeries,
};
use plimsoll_core::recommender::estimate::Resource;

/// A family, and how it reads its values from rows. The text format requires the series of a family to be contiguous, so
/// each family iterates over all objects.
pub(in crate::telemetry) struct ObjectFamily {
    pub definition: Definition,
    pub vpa_series: Option<VpaSeries>,
    /// The labels and values for WPAs, if any.
    pub wpa_series: Option<LabelledSeries>,
    /// The labels and values for HPAs, if any.
    pub hpa_series: Option<LabelledSeries>,
}

/// Labels, and what has them.
pub(in crate::telemetry) type LabelledSeries = (&'static [&'static str], ReplicaSeries);

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
const PER_RESOURCE_OR_METRIC: &str = "2 per container, 1 per metric of a WPA or HPA";
const PER_WPA: &str = "1 per WPA or HPA";

impl ObjectFamily {
    const fn new(definition: Definition) -> Self {
        Self { definition, vpa_series: None, wpa_series: None, hpa_series: None }
    }

    const fn vpa(self, values: VpaSeries) -> Self {
        Self { vpa_series: Some(values), ..self }
    }

    const fn wpa(self, labels: &'static [&'static str], values: ReplicaSeries) -> Self {
        Self { wpa_series: Some((labels, values)), ..self }
    }

    const fn hpa(self, labels: &'static [&'static str], values: ReplicaSeries) -> Self {
        Self { hpa_series: Some((labels, values)), ..self }
    }
}

/// A gauge for containers of VPAs and for metrics of WPAs.
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

/// Without pods there are no requests, which is different from a request of 0.
const NO_POD: &str = "no pod has the container, or it has no recommendation";
const AMOUNT_UNIT: &str = "cores or bytes; of a WPA or HPA what the metric counts, or percent";

pub(in crate::telemetry) static OBJECT_FAMILIES: [ObjectFamily; 21] = [
    ObjectFamily::new(gauge(
            "plimsoll_object_info",
            "Always 1; the labels have further information about an object.",
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
            "1 per object",
        ))
        .vpa(VpaSeries::Info)
        .wpa(&["dry_run", "kind", "name", "namespace", "target_kind", "target_name"],
            ReplicaSeries::Object(|_| Some(1.0)))
        .hpa(&["kind", "name", "namespace", "target_kind", "target_name", "update_mode"],
            ReplicaSeries::Object(|_| Some(1.0))),
    ObjectFamily::new(gauge("plimsoll_staleness_seconds", "Age of the latest sample or value of an object.")
            .labels(VPA_LABELS, "1 per object")
            .unit("seconds")
            .absent("no sample was ever seen"))
        .vpa(VpaSeries::Vpa(|row| row.staleness_seconds))
        .wpa(WPA_LABELS, ReplicaSeries::Object(|row| row.state.staleness_seconds(row.now)))
        .hpa(WPA_LABELS, ReplicaSeries::Object(|row| row.state.staleness_seconds(row.now))),
    ObjectFamily::new(gauge(
            "plimsoll_replicas",
            "Number of pods of an object that have not terminated; multiply a container's target by this.",
        )
        .labels(VPA_LABELS, "1 per VPA")
        .unit("pods"))
        .vpa(VpaSeries::Vpa(|row| Some(row.pods as f64))),
    ObjectFamily::new(per_container_or_metric(
            "plimsoll_value",
            "The measured value. Of a VPA: the recent peak usage of a container. Of a WPA: the value compared with the watermarks.",
        )
        .unit(AMOUNT_UNIT)
        .absent("there are no usage samples, or the metric is not available"))
        .vpa(VpaSeries::Container(|row| row.recommendation.peak))
        .wpa(WPA_METRIC_LABELS, ReplicaSeries::Metric(|metric| Some(metric.counted_value()? / 1000.0)))
        .hpa(WPA_METRIC_LABELS, ReplicaSeries::Metric(|metric| Some(metric.value? / 1000.0))),
    ObjectFamily::new(per_container_or_metric(
            "plimsoll_low",
            "The lower threshold. Of a VPA: the lower bound, below which a request is raised. Of a WPA: the low watermark, below which replicas are removed.",
        )
        .unit(AMOUNT_UNIT)
        .absent("the container has no recommendation, or the metric has no watermark"))
        .vpa(VpaSeries::Container(|row| Some(row.recommendation.lower)))
        .wpa(WPA_METRIC_LABELS, ReplicaSeries::Metric(|metric| Some(metric.bounds?.low as f64 / 1000.0)))
        .hpa(WPA_METRIC_LABELS,
            ReplicaSeries::Metric(|metric| Some(metric.bounds?.tolerated_low as f64 / 1000.0))),
    ObjectFamily::new(per_container_or_metric(
            "plimsoll_high",
            "The upper threshold. Of a VPA: the upper bound, above which a request is lowered. Of a WPA: the high watermark, above which replicas are added.",
        )
        .unit(AMOUNT_UNIT)
        .absent("the container has no recommendation, or the metric has no watermark"))
        .vpa(VpaSeries::Container(|row| Some(row.recommendation.upper)))
        .wpa(WPA_METRIC_LABELS, ReplicaSeries::Metric(|metric| Some(metric.bounds?.high as f64 / 1000.0)))
        .hpa(WPA_METRIC_LABELS,
            ReplicaSeries::Metric(|metric| Some(metric.bounds?.tolerated_high as f64 / 1000.0))),
    ObjectFamily::new(gauge(
            "plimsoll_tolerance",
            "Tolerance around the watermarks of a WPA: replicas are added above high * (1 + this), and removed below low * (1 - this).",
        )
        .labels(WPA_LABELS, "1 per WPA")
        .unit("share of the watermark"))
        .wpa(WPA_LABELS, ReplicaSeries::Object(|row| Some(row.state.tolerance as f64 / 1000.0))),
    ObjectFamily::new(per_container_or_metric(
            "plimsoll_target",
            "The target. Of a VPA: the recommended target of a container. Of an HPA: what the value is compared with.",
        )
        .unit(AMOUNT_UNIT)
        .absent("the container has no recommendation, or the metric has no target"))
        .vpa(VpaSeries::Container(|row| Some(row.recommendation.target)))
        .hpa(WPA_METRIC_LABELS, ReplicaSeries::Metric(|metric| Some(metric.bounds?.high as f64 / 1000.0))),
    ObjectFamily::new(per_container_or_metric(
            "plimsoll_proposal",
            "The proposal before limits. Of a VPA: the uncapped target. Of a WPA: the replicas that a metric proposes.",
        )
        .unit("cores or bytes; of a WPA replicas")
        .absent("the container has no recommendation, or the metric is not available"))
        .vpa(VpaSeries::Container(|row| Some(row.recommendation.uncapped)))
        .wpa(WPA_METRIC_LABELS, ReplicaSeries::Metric(|metric| metric.proposal.map(f64::from)))
        .hpa(WPA_METRIC_LABELS, ReplicaSeries::Metric(|metric| metric.proposal.map(f64::from))),
    ObjectFamily::new(per_wpa(
            "plimsoll_effective",
            "The replicas of the last decision of a WPA, after all limits, including in dry-run mode.",
        )
        .absent("no decision has been made yet"))
        .wpa(WPA_LABELS, ReplicaSeries::Object(|row| row.state.desired_replicas.map(f64::from)))
        .hpa(WPA_LABELS, ReplicaSeries::Object(|row| row.state.desired_replicas.map(f64::from))),
    ObjectFamily::new(per_wpa("plimsoll_min_replicas", "Minimum number of replicas."))
        .wpa(WPA_LABELS, ReplicaSeries::Object(|row| Some(row.state.bounds.0.into())))
        .hpa(WPA_LABELS, ReplicaSeries::Object(|row| Some(row.state.bounds.0.into()))),
    ObjectFamily::new(per_wpa("plimsoll_max_replicas", "Maximum number of replicas."))
        .wpa(WPA_LABELS, ReplicaSeries::Object(|row| Some(row.state.bounds.1.into())))
        .hpa(WPA_LABELS, ReplicaSeries::Object(|row| Some(row.state.bounds.1.into()))),
    ObjectFamily::new(gauge(
            "plimsoll_transition_countdown_seconds",
            "Time until the forbidden window after the last change ends and replicas may be added (upscale) or removed (downscale) again; 0 once they may.",
        )
        .labels(&["kind", "name", "namespace", "transition"], "2 per WPA")
        .unit("seconds")
        .absent("replicas were never changed"))
        .wpa(&["kind", "name", "namespace", "transition"],
            ReplicaSeries::Labelled(|row, each| row.state.emit_cooldowns(each)))
        .hpa(&["kind", "name", "namespace", "transition"],
            ReplicaSeries::Labelled(|row, each| row.state.emit_held(row.now, each))),
    ObjectFamily::new(gauge(
            "plimsoll_pods",
            "Pods of the selector of an HPA by how they counted for the decision. A pod that the target does not own is also in one of the other states.",
        )
        .labels(&["kind", "name", "namespace", "state"], "5 per HPA")
        .unit("pods")
        .absent("the deciding metric is not one of pods"))
        .hpa(&["kind", "name", "namespace", "state"],
            ReplicaSeries::Labelled(|row, each| row.state.emit_pods(each))),
    ObjectFamily::new(per_wpa(
            "plimsoll_shadow_difference",
            "Desired replicas of an HPA minus those that the HPA controller of the cluster decided.",
        )
        .absent("nothing was decided"))
        .hpa(WPA_LABELS, ReplicaSeries::Object(|row| row.state.shadow_difference.map(f64::from))),
    ObjectFamily::new(per_container(
            "plimsoll_request",
            "The largest request of a container in any pod of a VPA that has not terminated.",
        )
        .absent("no pod has such a request"))
        .vpa(VpaSeries::Container(|row| (row.requests)(row.resource)?.largest)),
    ObjectFamily::new(per_container(
            "plimsoll_request_min",
            "The smallest request of a container in any pod of a VPA that has not terminated. A pod without a request counts as 0.",
        )
        .absent(NO_POD))
        .vpa(VpaSeries::Container(|row| Some((row.requests)(row.resource)?.smallest))),
    ObjectFamily::new(per_container(
            "plimsoll_request_all_pods",
            "The sum of the requests of a container in all pods of a VPA that have not terminated. A pod without a request counts as 0.",
        )
        .absent(NO_POD))
        .vpa(VpaSeries::Container(|row| Some((row.requests)(row.resource)?.sum))),
    ObjectFamily::new(per_container(
            "plimsoll_confidence",
            "Confidence of the recommendation of a VPA, in days of samples.",
        )
        .unit("days"))
        .vpa(VpaSeries::Container(|row| Some(f64::from(row.recommendation.confidence)))),
    ObjectFamily::new(counter(
            "plimsoll_container_oom_kills_total",
            "OOM kills of a container that were added to its history since this process started tracking it.",
        )
        .labels(CONTAINER_LABELS, "1 per container")
        .absent("the container has no recommendation"))
        .vpa(VpaSeries::Container(|row| {
            (row.resource == Resource::Memory).then_some(row.oom_kills as f64)
        })),
    ObjectFamily::new(gauge(
            "plimsoll_restricted_scaling",
            "1 while this restriction limits the target or blocks updates of pods, else 0.",
        )
        .labels(
            RESTRICTION_LABELS,
            "7 for each of 2 per container, 41 per VPA of an updater, 13 per WPA, 20 per HPA; only those that have been 1",
        )
        .absent("it has not been 1 since the process started; with `all` it is 0"))
        .vpa(VpaSeries::Restrictions)
        .wpa(&["kind", "name", "namespace", "reason"], ReplicaSeries::Restrictions)
        .hpa(&["kind", "name", "namespace", "reason"], ReplicaSeries::Restrictions),
];
