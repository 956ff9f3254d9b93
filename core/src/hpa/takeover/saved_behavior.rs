//! The behavior that is kept in an annotation while directions of `spec.behavior` are disabled.

use std::collections::BTreeMap;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerBehavior;
use serde_json::Value;

use super::BEHAVIOR;
use crate::{
    api::annotations::MAX_VALUE_BYTES,
    hpa::{defaults::complete_behavior, spec::Behavior, validation::validate_behavior},
};

/// An annotation that holds no valid behavior. The message is one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {}: {}; correct it", BEHAVIOR.name, .0)]
pub struct InvalidBehavior(pub(super) String);

/// A behavior as it was saved; `None` if the object had none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SavedBehavior(pub Option<HorizontalPodAutoscalerBehavior>);

impl SavedBehavior {
    /// Reads the annotation of an object. `None` if it is not set.
    pub fn read(annotations: &BTreeMap<String, String>) -> Result<Option<Self>, InvalidBehavior> {
        annotations.get(BEHAVIOR.name).map(|text| Self::parse(text)).transpose()
    }

    fn parse(text: &str) -> Result<Self, InvalidBehavior> {
        if text.len() > MAX_VALUE_BYTES {
            let message = format!("{} bytes are more than {MAX_VALUE_BYTES}", text.len());
            return Err(InvalidBehavior(message));
        }
        let value = serde_json::from_str(text).map_err(|error| InvalidBehavior(error.to_string()));
        Self::from_json(&value?).map_err(InvalidBehavior)
    }

    /// Parses the JSON of a `spec.behavior`. Fields that are unknown here are rejected: they would get lost.
    pub(super) fn from_json(value: &Value) -> Result<Self, String> {
        if value.is_null() {
            return Ok(Self(None));
        }
        let behavior: HorizontalPodAutoscalerBehavior =
            serde_json::from_value(value.clone()).map_err(|error| error.to_string())?;
        let known = serde_json::to_value(&behavior).map_err(|error| error.to_string())?;
        if let Some(field) = unknown_field("behavior", value, &known) {
            return Err(format!("unknown field {field}"));
        }
        let mut completed = behavior.clone();
        complete_behavior(&mut completed);
        match validate_behavior("behavior", &completed).first() {
            Some(violation) => Err(violation.to_string()),
            None => Ok(Self(Some(behavior))),
        }
    }

    /// The value of the annotation.
    pub fn to_annotation(&self) -> String {
        serde_json::to_value(&self.0).unwrap_or_default().to_string()
    }

    /// The behavior with the defaults that the API server sets.
    pub fn completed(&self) -> HorizontalPodAutoscalerBehavior {
        let mut behavior = self.0.clone().unwrap_or_default();
        complete_behavior(&mut behavior);
        behavior
    }

    /// The rules, with defaults.
    pub(super) fn completed_rules(&self) -> Result<Behavior, InvalidBehavior> {
        Behavior::read(&self.completed()).map_err(|error| InvalidBehavior(error.to_string()))
    }
}

/// The path of a field that is set in `value` and was not understood.
fn unknown_field(path: &str, value: &Value, known: &Value) -> Option<String> {
    match (value, known) {
        (Value::Object(value), Value::Object(known)) => value.iter().find_map(|(name, value)| {
            let path = format!("{path}.{name}");
            match known.get(name) {
                Some(known) => unknown_field(&path, value, known),
                None => (!value.is_null()).then_some(path),
            }
        }),
        (Value::Array(value), Value::Array(known)) => {
            let mut both = value.iter().zip(known).enumerate();
            both.find_map(|(index, (value, known))| {
                unknown_field(&format!("{path}[{index}]"), value, known)
            })
        }
        _ => None,
    }
}
