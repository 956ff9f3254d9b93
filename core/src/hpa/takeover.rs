//! Which HorizontalPodAutoscalers are scaled by Plimsoll while the built-in controller is running.
//!
//! The built-in controller changes no replicas in a direction whose `selectPolicy` is `Disabled`, except to stay within
//! the bounds. An annotation names the mode, and takes effect only together with the disabled directions; the rules that
//! were there before are kept in a second annotation.

pub mod manifest;
mod saved_behavior;
pub mod transition;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr};

use super::spec::{Behavior, SelectPolicy, Spec};
use crate::api::annotations::{AnnotationKey, InvalidAnnotation};

pub use saved_behavior::{InvalidBehavior, SavedBehavior};

const HORIZONTAL: &[&str] = &["horizontal"];

/// Names the mode of an object.
pub const MODE: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/hpa",
    expected: "`shadow`, `assist` or `drive`",
    effect: "who changes replicas: with `assist`, and `scaleDown.selectPolicy: Disabled`, the built-in controller adds replicas, and Plimsoll adds and removes them; with `drive`, and both directions `Disabled`, only Plimsoll changes replicas, and the built-in controller keeps the bounds. `plimsoll hpa adopt` sets all of it",
    overridden_flags: &[],
    applied_by: HORIZONTAL,
};

/// The rules that apply in place of the disabled ones.
pub const BEHAVIOR: AnnotationKey = AnnotationKey {
    name: "plimsoll.dev/behavior",
    expected: "the JSON of a `spec.behavior`, or `null`",
    effect: "the rules for scaling that apply in place of the disabled ones of `spec.behavior`; without it, the defaults of the API. If it is invalid, the object is only shadowed",
    overridden_flags: &[],
    applied_by: HORIZONTAL,
};

/// The annotation with which `plimsoll hpa pause` marks an object.
pub const PAUSED: &str = "plimsoll.dev/paused";

/// The mode of one object.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    IntoStaticStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum ObjectMode {
    /// The built-in controller scales; Plimsoll only decides and reports.
    #[default]
    Shadow,
    /// The built-in controller adds replicas; Plimsoll adds and removes them.
    Assist,
    /// Plimsoll scales; the built-in controller keeps the bounds.
    Drive,
}

/// A direction of scaling, by its name in `spec.behavior`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Display)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Direction {
    ScaleUp,
    ScaleDown,
}

/// Why an object that asks for a mode is only shadowed. The message is one line.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum IneffectiveMode {
    /// The annotation names no mode.
    #[error(transparent)]
    InvalidMode(#[from] InvalidAnnotation),
    /// Another controller owns the object, and writes its spec.
    #[error("{}: {mode} has no effect: {kind} {name} owns the object and writes its spec; remove the annotation", MODE.name)]
    Owned {
        /// The mode that the object asks for.
        mode: ObjectMode,
        /// The kind of the owner.
        kind: String,
        /// The name of the owner.
        name: String,
    },
    /// The built-in controller still scales in a direction that the mode needs.
    #[error(
        "{}: {mode} has no effect: selectPolicy of {} in spec.behavior is not Disabled, so the built-in controller acts; \
         run plimsoll hpa adopt", MODE.name, names(.directions)
    )]
    BuiltinActs {
        /// The mode that the object asks for.
        mode: ObjectMode,
        /// The directions that are not disabled.
        directions: Vec<Direction>,
    },
    /// The rules that should apply cannot be read.
    #[error("{}: {mode} has no effect: {error}", MODE.name)]
    InvalidBehavior {
        /// The mode that the object asks for.
        mode: ObjectMode,
        error: InvalidBehavior,
    },
}

impl IneffectiveMode {
    /// Whether an annotation is invalid, whatever other controllers do.
    pub fn is_invalid(&self) -> bool {
        matches!(self, Self::InvalidMode(_) | Self::InvalidBehavior { .. })
    }
}

/// Who scales an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Takeover {
    /// The mode that the annotation asks for.
    pub requested: ObjectMode,
    /// The mode that applies.
    pub mode: ObjectMode,
    /// Why the requested mode does not apply. The restriction `builtin_acts` reports it.
    pub ineffective: Option<IneffectiveMode>,
    /// The behavior that applies in place of the one of the spec, unless the mode is `Shadow`.
    behavior: Option<Behavior>,
}

fn names(directions: &[Direction]) -> String {
    let names: Vec<_> = directions.iter().map(ToString::to_string).collect();
    names.join(" and ")
}

impl ObjectMode {
    /// The name, as in the annotation.
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// The directions that the built-in controller must not scale in.
    pub fn disabled_directions(self) -> &'static [Direction] {
        match self {
            Self::Shadow => &[],
            Self::Assist => &[Direction::ScaleDown],
            Self::Drive => &[Direction::ScaleUp, Direction::ScaleDown],
        }
    }
}

/// The mode that an object asks for.
pub fn requested_mode(
    annotations: &BTreeMap<String, String>,
) -> Result<ObjectMode, InvalidAnnotation> {
    MODE.read(annotations, |value| value.parse().ok()).map(Option::unwrap_or_default)
}

/// Who scales an object, given its annotations, owner references and spec of the same version.
pub fn takeover(
    annotations: &BTreeMap<String, String>,
    owners: &[OwnerReference],
    spec: &Spec,
) -> Takeover {
    let requested = match requested_mode(annotations) {
        Ok(ObjectMode::Shadow) => return Takeover::default(),
        Ok(requested) => requested,
        Err(error) => return Takeover { ineffective: Some(error.into()), ..Takeover::default() },
    };
    match effective_behavior(requested, annotations, owners, spec) {
        Ok(behavior) => Takeover { requested, mode: requested, ineffective: None, behavior },
        Err(reason) => Takeover { requested, ineffective: Some(reason), ..Takeover::default() },
    }
}

/// The behavior that applies in a mode, or why the mode has no effect.
fn effective_behavior(
    mode: ObjectMode,
    annotations: &BTreeMap<String, String>,
    owners: &[OwnerReference],
    spec: &Spec,
) -> Result<Option<Behavior>, IneffectiveMode> {
    if let Some(owner) = controlling_owner(owners) {
        let (kind, name) = (owner.kind.clone(), owner.name.clone());
        return Err(IneffectiveMode::Owned { mode, kind, name });
    }
    let is_enabled = |direction: &&Direction| {
        let rules = spec.behavior.as_ref().map(|behavior| match direction {
            Direction::ScaleUp => &behavior.scale_up,
            Direction::ScaleDown => &behavior.scale_down,
        });
        rules.is_none_or(|rules| rules.select_policy != SelectPolicy::Disabled)
    };
    let directions: Vec<_> =
        mode.disabled_directions().iter().filter(is_enabled).copied().collect();
    if !directions.is_empty() {
        return Err(IneffectiveMode::BuiltinActs { mode, directions });
    }
    let invalid = |error| IneffectiveMode::InvalidBehavior { mode, error };
    let saved = SavedBehavior::read(annotations).map_err(invalid)?.unwrap_or_default();
    let rules = saved.completed_rules().map_err(invalid)?;
    Ok(match mode {
        ObjectMode::Assist => {
            let scale_up = spec.behavior.clone().unwrap_or_default().scale_up;
            Some(Behavior { scale_up, scale_down: rules.scale_down })
        }
        // Without a behavior, other limits apply than those of the default behavior.
        ObjectMode::Shadow | ObjectMode::Drive => saved.0.is_some().then_some(rules),
    })
}

/// The owner that writes the object, if it has one.
pub fn controlling_owner(owners: &[OwnerReference]) -> Option<&OwnerReference> {
    owners.iter().find(|owner| owner.controller == Some(true))
}

impl Takeover {
    /// The spec that decisions in the mode that applies are based on: the rules of the annotation replace those that are
    /// disabled for the built-in controller.
    pub fn effective_spec(&self, spec: &Spec) -> Spec {
        match self.mode {
            ObjectMode::Shadow => spec.clone(),
            ObjectMode::Assist | ObjectMode::Drive => {
                Spec { behavior: self.behavior.clone(), ..spec.clone() }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn spec(behavior: &Value) -> Spec {
        let spec = json!({"minReplicas": 2, "maxReplicas": 10, "behavior": behavior,
            "scaleTargetRef": {"kind": "Deployment", "name": "web"}});
        Spec::read(&serde_json::from_value(spec).expect("a spec")).expect("a valid spec")
    }

    fn annotations(values: &[(&AnnotationKey, &str)]) -> BTreeMap<String, String> {
        values.iter().map(|(key, value)| (key.name.to_owned(), (*value).to_owned())).collect()
    }

    fn disabled() -> Value {
        json!({"selectPolicy": "Disabled"})
    }

    fn pair() -> Value {
        json!({"scaleUp": disabled(), "scaleDown": disabled()})
    }

    fn owner(controller: Option<bool>) -> OwnerReference {
        OwnerReference {
            kind: "ScaledObject".to_owned(),
            name: "web".to_owned(),
            controller,
            ..OwnerReference::default()
        }
    }

    #[test]
    fn a_mode_needs_the_disabled_directions_that_belong_to_it() {
        use ObjectMode::{Assist, Drive, Shadow};
        let down = json!({"scaleDown": disabled()});
        let up = json!({"scaleUp": disabled()});
        for (asked, behavior, mode, missing) in [
            (None, Value::Null, Shadow, None),
            // Disabling directions is an ordinary setting of the API.
            (None, pair(), Shadow, None),
            (Some("shadow"), pair(), Shadow, None),
            (Some("assist"), down.clone(), Assist, None),
            (Some(" assist "), pair(), Assist, None),
            (Some("assist"), Value::Null, Shadow, Some("scaleDown")),
            (Some("assist"), up.clone(), Shadow, Some("scaleDown")),
            (Some("drive"), pair(), Drive, None),
            (Some("drive"), down, Shadow, Some("scaleUp")),
            (Some("drive"), up, Shadow, Some("scaleDown")),
            (Some("drive"), json!({}), Shadow, Some("scaleUp and scaleDown")),
            (Some("drive"), Value::Null, Shadow, Some("scaleUp and scaleDown")),
        ] {
            let annotations =
                asked.map_or_else(BTreeMap::new, |mode| annotations(&[(&MODE, mode)]));
            let found =
                takeover(&annotations, &[owner(None), owner(Some(false))], &spec(&behavior));
            assert_eq!(found.mode, mode, "{asked:?} {behavior}");
            let message = found.ineffective.map(|reason| reason.to_string());
            let expected = missing.map(|directions| {
                format!(
                    "plimsoll.dev/hpa: {} has no effect: selectPolicy of {directions} in spec.behavior is not Disabled, so the \
                     built-in controller acts; run plimsoll hpa adopt",
                    asked.unwrap_or_default()
                )
            });
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn an_object_with_a_controlling_owner_is_only_shadowed() {
        let found =
            takeover(&annotations(&[(&MODE, "drive")]), &[owner(Some(true))], &spec(&pair()));
        assert_eq!((found.requested, found.mode), (ObjectMode::Drive, ObjectMode::Shadow));
        assert_eq!(
            found.ineffective.expect("a reason").to_string(),
            "plimsoll.dev/hpa: drive has no effect: ScaledObject web owns the object and writes its spec; remove the annotation"
        );
        assert_eq!(
            takeover(&BTreeMap::new(), &[owner(Some(true))], &spec(&pair())),
            Takeover::default()
        );
    }

    #[test]
    fn an_invalid_annotation_leaves_the_object_to_the_builtin_controller() {
        let of = |annotations| {
            let found = takeover(&annotations, &[], &spec(&pair()));
            assert_eq!(found.mode, ObjectMode::Shadow);
            assert_eq!(found.effective_spec(&spec(&pair())), spec(&pair()));
            found.ineffective.expect("a reason").to_string()
        };
        assert_eq!(
            of(annotations(&[(&MODE, "Drive")])),
            "annotation plimsoll.dev/hpa: `Drive` is not `shadow`, `assist` or `drive`; it is ignored"
        );
        let long = "x".repeat(20_000);
        for (behavior, message) in [
            ("", "EOF while parsing a value at line 1 column 0"),
            ("{\"scaleDown\": 5}", "invalid type: integer `5`, expected HPAScalingRules"),
            ("[]", "invalid type: sequence, expected HorizontalPodAutoscalerBehavior"),
            ("{\"scaledown\": {}}", "unknown field behavior.scaledown"),
            (
                "{\"scaleUp\": {\"policies\": [{\"type\": \"Pods\", \"value\": 1, \"periodSeconds\": 9, \"per\": 1}]}}",
                "unknown field behavior.scaleUp.policies[0].per",
            ),
            (
                "{\"scaleUp\": {\"selectPolicy\": \"disabled\"}}",
                "behavior.scaleUp.selectPolicy: Unsupported value: \"disabled\": supported values: \"Disabled\", \"Max\", \"Min\"",
            ),
            (
                "{\"scaleDown\": {\"policies\": []}}",
                "behavior.scaleDown.policies: Required value: must specify at least one Policy",
            ),
            (
                "{\"scaleDown\": {\"tolerance\": \"much\"}}",
                "behavior.scaleDown.tolerance: Invalid value: \"much\": must be greater than or equal to 0",
            ),
            (&long, "20000 bytes are more than 16384"),
        ] {
            let expected = format!(
                "plimsoll.dev/hpa: drive has no effect: annotation plimsoll.dev/behavior: {message}; correct it"
            );
            assert_eq!(of(annotations(&[(&MODE, "drive"), (&BEHAVIOR, behavior)])), expected);
        }
    }

    #[test]
    fn the_rules_of_the_annotation_replace_the_disabled_ones() {
        let saved = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]},
            "scaleDown": {"selectPolicy": "Min", "stabilizationWindowSeconds": 60, "tolerance": "50m"}});
        let pair = spec(&pair());
        let of = |mode, behavior: Option<&str>, spec: &Spec| {
            let mut values = vec![(&MODE, mode)];
            values.extend(behavior.map(|behavior| (&BEHAVIOR, behavior)));
            let found = takeover(&annotations(&values), &[], spec);
            assert_eq!(found.ineffective, None);
            found.effective_spec(spec).behavior
        };
        let mut completed: k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior =
            serde_json::from_value(saved.clone()).expect("a behavior");
        crate::hpa::defaults::complete_behavior(&mut completed);
        let completed = Behavior::read(&completed).expect("valid");
        assert_eq!(completed.scale_up.stabilization_window_seconds, Some(0));
        assert_eq!(of("drive", Some(&saved.to_string()), &pair), Some(completed.clone()));
        // No behavior is not the default behavior: other limits apply.
        assert_eq!(of("drive", Some("null"), &pair), None);
        assert_eq!(of("drive", None, &pair), None);
        let default = of("drive", Some("{}"), &pair).expect("a behavior");
        assert_eq!(default.scale_down.policies.len(), 1);
        assert_eq!(of("drive", Some("{\"scaleUp\": null}"), &pair), Some(default.clone()));

        let own =
            spec(&json!({"scaleUp": {"stabilizationWindowSeconds": 30}, "scaleDown": disabled()}));
        let own_rules = own.behavior.clone().expect("a behavior").scale_up;
        let assisted = of("assist", Some(&saved.to_string()), &own).expect("a behavior");
        assert_eq!(
            (assisted.scale_up, assisted.scale_down),
            (own_rules.clone(), completed.scale_down)
        );
        let assisted = of("assist", None, &own).expect("a behavior");
        assert_eq!((assisted.scale_up, assisted.scale_down), (own_rules, default.scale_down));
    }
}
