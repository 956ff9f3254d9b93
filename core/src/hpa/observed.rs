//! The inputs of a pass: the object, its scale and its pods. Also selects the rule and the pods.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;

use super::{
    conditions::SCALED_TO_ZERO,
    config::{Config, Tolerance},
    decision::Zone,
    fixes::{Fix, Fixes},
    hpa_state::HpaState,
    options::HpaOptions,
    pod::Pod,
    selector::Selector,
    spec::{Metric, Source, Spec},
};
use crate::{scaling::Restriction, types::Time};

/// The inputs of a pass, before metrics are fetched.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The namespace of the object.
    pub namespace: &'a str,
    /// The name of the object.
    pub name: &'a str,
    /// The UID of the object, to detect that it was recreated under the same name.
    pub uid: Option<&'a str>,
    /// The spec, with the defaults of the API server.
    pub spec: &'a Spec,
    /// The stored status.
    pub status: &'a HorizontalPodAutoscalerStatus,
    /// The scale of its target, or why it cannot be read.
    pub scale: Result<&'a ScaleValues, &'a ScaleError>,
    /// The pods of the namespace, or at least those that match the scale's selector.
    pub pods: &'a [Pod],
    /// The names of the other objects in the namespace, with the selectors of their targets where known.
    pub others: &'a [(String, Selector)],
    /// The state of the object between passes.
    pub memory: &'a HpaState,
    /// Flags and feature gates.
    pub config: &'a Config,
    pub fixes: Fixes,
    /// Options from the annotations of the object; [`NO_OPTIONS`](super::NO_OPTIONS) changes nothing.
    pub options: &'a HpaOptions,
    /// The current time.
    pub now: Time,
}

/// The bounds that apply to replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bounds {
    /// The minimum.
    pub(super) min: i32,
    /// The maximum up to which metrics may add replicas.
    pub(super) max: i32,
}

/// The fields of a scale.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScaleValues {
    /// `spec.replicas`.
    pub replicas: i32,
    pub status_replicas: i32,
    /// `status.selector`.
    pub selector: String,
}

/// Why a scale cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// `scaleTargetRef.apiVersion` is invalid.
    #[error("{0}")]
    InvalidApiVersion(String),
    /// The kind is unknown, or the request failed.
    #[error("{0}")]
    Failed(String),
}

/// Why the pods of a target cannot be selected.
pub(super) struct Unselected {
    pub(super) reason: &'static str,
    /// Reason and message of the event.
    pub(super) event: (&'static str, String),
    pub(super) condition: String,
    pub(super) restriction: Restriction,
}

impl Observed<'_> {
    /// The metrics of the spec, and those that annotations add.
    pub fn metrics(&self) -> impl Iterator<Item = &Metric> {
        self.spec.metrics.iter().chain(&self.options.metrics)
    }

    /// Whether the replicas follow metrics: the target has some, and they are within the bounds.
    pub fn needs_metrics(&self) -> bool {
        self.scale.is_ok_and(|scale| self.zone(scale) == Zone::Metrics)
    }

    /// The tolerance within which replicas are not changed.
    pub fn tolerance(&self) -> Tolerance {
        let without = self.config.tolerances(self.spec.behavior.as_ref());
        let replicas = self.scale.map_or(0, |scale| scale.replicas);
        self.options.tolerance(without, replicas)
    }

    /// The bounds, including those of the schedule. They are never outside of those of the spec.
    pub(super) fn bounds(&self) -> Bounds {
        let (min, max) = (self.spec.min_replicas, self.spec.max_replicas);
        let Some(scheduled) = self.options.schedule.bounds_at(self.now) else {
            return Bounds { min, max };
        };
        let min = min.max(scheduled.min.min(max));
        Bounds { min, max: scheduled.max.map_or(max, |scheduled| scheduled.min(max).max(min)) }
    }

    /// Whether the target may have zero replicas now: an annotation allows it, and the object has a metric that exists without pods.
    /// The schedule has a minimum above zero.
    pub(super) fn may_be_zero(&self) -> bool {
        self.can_leave_zero() && self.options.schedule.bounds_at(self.now).is_none()
    }

    fn can_leave_zero(&self) -> bool {
        self.options.scale_to_zero && self.metrics().any(is_podless)
    }

    /// The rule that the pass follows.
    pub(super) fn zone(&self, scale: &ScaleValues) -> Zone {
        let (min, max) = (self.bounds().min, self.spec.max_replicas);
        if scale.replicas == 0 {
            if self.can_leave_zero() && self.memory.scaled_to_zero {
                return if self.may_be_zero() { Zone::Metrics } else { Zone::BelowMin };
            }
            let can_scale_up = min != 0 || self.spec.has_object_or_external_metric();
            return if self.was_scaled_to_zero() && can_scale_up {
                Zone::Metrics
            } else {
                Zone::Disabled
            };
        }
        match scale.replicas {
            many if many > max => Zone::AboveMax,
            few if few < min => Zone::BelowMin,
            _ => Zone::Metrics,
        }
    }

    /// Whether this object scaled the target to zero.
    fn was_scaled_to_zero(&self) -> bool {
        let conditions = self.status.conditions.iter().flatten();
        let is_true = |kind: &str| {
            conditions
                .clone()
                .any(|condition| condition.type_ == kind && condition.status == "True")
        };
        self.config.scale_to_zero && is_true(SCALED_TO_ZERO)
    }

    /// The selector of the target. Returns an error if another object selects the same pods.
    pub(super) fn select(&self, scale: &ScaleValues) -> Result<Selector, Unselected> {
        if scale.selector.is_empty() {
            let error = "selector is required".to_owned();
            return Err(Unselected {
                reason: "InvalidSelector",
                event: ("SelectorRequired", error),
                condition: "the HPA target's scale is missing a selector".to_owned(),
                restriction: Restriction::InvalidSelector,
            });
        }
        let selector = Selector::parse(&scale.selector).map_err(|error| {
            let message = format!(
                "couldn't convert selector into a corresponding internal selector object: {error}"
            );
            Unselected {
                reason: "InvalidSelector",
                event: ("InvalidSelector", message.clone()),
                condition: message,
                restriction: Restriction::InvalidSelector,
            }
        })?;
        let pods: Vec<_> = self.pods.iter().filter(|pod| selector.matches(&pod.labels)).collect();
        let selects_same_pods =
            |other: &Selector| pods.iter().any(|pod| other.matches(&pod.labels));
        let others = self.others.iter().filter(|(_, other)| selects_same_pods(other));
        let mut names: Vec<_> =
            others.map(|(name, _)| format!("{}/{name}", self.namespace)).collect();
        if names.is_empty() {
            return Ok(selector);
        }
        names.push(format!("{}/{}", self.namespace, self.name));
        if self.fixes.has(Fix::MessagesStandStill) {
            names.sort();
        }
        let names = names.join(" ");
        let message = format!(
            "pods by selector {} are controlled by multiple HPAs: [{names}]",
            scale.selector
        );
        Err(Unselected {
            reason: "AmbiguousSelector",
            event: ("AmbiguousSelector", message.clone()),
            condition: message,
            restriction: Restriction::AmbiguousSelector,
        })
    }
}

/// Whether a metric exists without pods.
pub(super) fn is_podless(metric: &Metric) -> bool {
    matches!(
        metric.source,
        Source::Object { .. } | Source::External { .. } | Source::Prometheus { .. }
    )
}

/// How to continue after a conflict while updating `/scale`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Write again.
    Write,
    /// Another client changed the replicas meanwhile. The next pass observes the change.
    GiveUp,
}

/// Whether to write again, given the replicas that the decision is based on and the current ones.
pub fn retry(decided_from: i32, now: i32, fixes: Fixes) -> Retry {
    if decided_from != now && fixes.has(Fix::ManualChangeStays) {
        Retry::GiveUp
    } else {
        Retry::Write
    }
}
