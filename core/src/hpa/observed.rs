//! What a pass is about: the object, its scale, its pods; by which rule it goes, and which pods are meant.

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;

use super::{
    conditions::SCALED_TO_ZERO,
    config::Config,
    decision::{Restriction, Zone},
    fixes::{Fix, Fixes},
    hpa_state::HpaState,
    pod::Pod,
    selector::Selector,
    spec::Spec,
};
use crate::types::Time;

/// What a pass is about, before metrics are fetched.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The object's uid: another one of the same name is not the same.
    pub uid: Option<&'a str>,
    /// What it asks for, completed with the defaults of the API server.
    pub spec: &'a Spec,
    /// Its status as it is stored.
    pub status: &'a HorizontalPodAutoscalerStatus,
    /// The scale of its target, or why it cannot be read.
    pub scale: Result<&'a ScaleValues, &'a ScaleError>,
    /// The pods of its namespace, or at least those that the scale's selector matches.
    pub pods: &'a [Pod],
    /// The other objects of its namespace with the selectors of their targets, as far as those are known.
    pub others: &'a [(String, Selector)],
    /// What is remembered of it.
    pub memory: &'a HpaState,
    /// Flags and feature gates.
    pub config: &'a Config,
    /// Which fixes are on.
    pub fixes: Fixes,
    /// The current time.
    pub now: Time,
}

/// What a scale says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScaleValues {
    /// `spec.replicas`
    pub replicas: i32,
    /// `status.replicas`
    pub status_replicas: i32,
    /// `status.selector`
    pub selector: String,
}

/// Why a scale cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScaleError {
    /// `scaleTargetRef.apiVersion` is no version of an API.
    #[error("{0}")]
    InvalidApiVersion(String),
    /// The kind is unknown, or the request failed.
    #[error("{0}")]
    Failed(String),
}

/// Why the pods of a target are not known.
pub(super) struct Unselected {
    pub(super) reason: &'static str,
    /// Reason and message of the event.
    pub(super) event: (&'static str, String),
    pub(super) condition: String,
    pub(super) restriction: Restriction,
}

impl Observed<'_> {
    /// By which rule the pass goes.
    pub(super) fn zone(&self, scale: &ScaleValues) -> Zone {
        let (min, max) = (self.spec.min_replicas, self.spec.max_replicas);
        if scale.replicas == 0 {
            let may_wake = min != 0 || self.spec.has_object_or_external_metric();
            return if self.was_scaled_to_zero() && may_wake {
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

    /// Whether a target at zero is there because this object brought it there.
    fn was_scaled_to_zero(&self) -> bool {
        let conditions = self.status.conditions.iter().flatten();
        let is_true =
            |kind: &str| conditions.clone().any(|one| one.type_ == kind && one.status == "True");
        self.config.scale_to_zero && is_true(SCALED_TO_ZERO)
    }

    /// The selector of the target, unless it selects the pods of other objects too.
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
        let has_same = |other: &Selector| pods.iter().any(|pod| other.matches(&pod.labels));
        let others = self.others.iter().filter(|(_, other)| has_same(other));
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

/// What becomes of an update of `/scale` that met a conflict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// It is written again.
    Write,
    /// Somebody else decided otherwise meanwhile: the next pass sees it.
    GiveUp,
}

/// Whether to write again, given the replicas that the decision is based on and those that there are now.
pub fn retry(decided_from: i32, now: i32, fixes: Fixes) -> Retry {
    if decided_from != now && fixes.has(Fix::ManualChangeStays) {
        Retry::GiveUp
    } else {
        Retry::Write
    }
}
