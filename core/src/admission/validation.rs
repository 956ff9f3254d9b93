//! Validates VPAs: errors reject an object, warnings do not.

mod field_rules;
mod list_limits;
mod message_limits;
mod raw_vpa;
mod warnings;

use std::{collections::HashSet, fmt};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

pub use self::{
    list_limits::MAX_REQUIREMENTS,
    message_limits::{MAX_MESSAGE_BYTES, MAX_MESSAGES, truncated},
    warnings::{OtherAutoscaler, UtilizationMetric},
};
use self::{
    message_limits::{Errors, Warnings},
    raw_vpa::{RawVpa, Spec},
};
use crate::{
    sizing::{Operation, SizingRules},
    types::compat::{Compat, Fix},
};

/// Feature gates of VPA fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// `CPUStartupBoost`: startup boosts.
    pub startup_boost: bool,
    /// `PerVPAConfig`: recommender settings in a VPA.
    pub per_vpa_config: bool,
    /// `InPlace`: the update mode `InPlace`.
    pub in_place: bool,
}

/// The type of a field error, as in `field.ErrorType` of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorType {
    Required,
    /// The value is malformed or out of range.
    Invalid,
    /// The value is not in the list of supported values.
    NotSupported,
    /// The field must not be set.
    Forbidden,
    /// The list has too many items.
    TooMany,
    /// The object cannot be parsed.
    Internal,
}

impl FieldErrorType {
    /// The cause type in the API status, and the text of messages.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Required => ("FieldValueRequired", "Required value"),
            Self::Invalid => ("FieldValueInvalid", "Invalid value"),
            Self::NotSupported => ("FieldValueNotSupported", "Unsupported value"),
            Self::Forbidden => ("FieldValueForbidden", "Forbidden"),
            Self::TooMany => ("FieldValueTooMany", "Too many"),
            Self::Internal => ("InternalError", "Internal error"),
        }
    }

    /// The cause type in the API status.
    pub const fn cause_type(self) -> &'static str {
        self.names().0
    }
}

/// One error, which rejects the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    pub path: String,
    pub error_type: FieldErrorType,
    /// The invalid value, formatted.
    pub value: Option<String>,
    /// What is wrong, or what is expected.
    pub detail: String,
}

impl FieldError {
    /// The message without the path: the message of the cause in the API status.
    pub fn body(&self) -> String {
        let mut body = self.error_type.names().1.to_owned();
        let detail = Some(&self.detail).filter(|detail| !detail.is_empty());
        for part in self.value.iter().chain(detail) {
            body.push_str(": ");
            body.push_str(part);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.body())
    }
}

/// The result of validating an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationResult {
    /// Errors; empty if the object is valid.
    pub errors: Vec<FieldError>,
    pub warnings: Vec<String>,
    /// Defaulting, if the object is valid.
    pub operations: Vec<Operation>,
}

impl ValidationResult {
    /// The result for an object that cannot be parsed.
    pub fn unreadable(error: &serde_json::Error) -> Self {
        let detail = error.to_string();
        let error = FieldError {
            path: ".".into(),
            error_type: FieldErrorType::Internal,
            value: None,
            detail,
        };
        Self { errors: vec![error], ..Self::default() }.truncated()
    }

    /// Limits the number and length of messages to those of one review.
    #[must_use]
    pub fn truncated(self) -> Self {
        let (mut errors, mut warnings) = (Errors::default(), Warnings::default());
        self.errors.into_iter().for_each(|error| errors.add(error));
        self.warnings.iter().for_each(|text| warnings.add(format_args!("{text}")));
        Self { errors: errors.into_errors(), warnings: warnings.into_texts(), ..self }
    }

    /// Formats all errors as the message of an API status.
    pub fn message(&self, kind: &str, group: &str, name: &str) -> String {
        let mut known = HashSet::new();
        let mut texts: Vec<String> = self.errors.iter().map(FieldError::to_string).collect();
        texts.retain(|text| known.insert(text.clone()));
        let texts = match &texts[..] {
            [text] => text.clone(),
            texts => format!("[{}]", texts.join(", ")),
        };
        format!("{kind}.{group} \"{name}\" is invalid: {texts}")
    }
}

/// Validates an object. `old` is the stored object on an update: features that it uses already remain allowed. `others`
/// are the other known VPAs and HPAs of its namespace.
pub fn validate(
    object: &[u8],
    old: Option<&[u8]>,
    gates: FeatureGates,
    rules: SizingRules,
    others: &[OtherAutoscaler<'_>],
) -> ValidationResult {
    let result = validate_fields(object, old, gates, rules.compat, others);
    let accepts_unchanged = rules.fixes.has(Fix::UnchangedSpecIsAccepted);
    if accepts_unchanged
        && old.is_some_and(|old| !result.errors.is_empty() && has_same_spec(object, old))
    {
        // The stored spec is invalid already. An update of something else, such as an annotation by the updater, must pass.
        let mut warnings = result.warnings;
        let errors = result.errors.iter();
        warnings
            .extend(errors.map(|error| format!("{error}; accepted because the spec is unchanged")));
        return ValidationResult { warnings, ..ValidationResult::default() }.truncated();
    }
    result
}

/// Whether two objects have the same spec, byte for byte as the API server serializes it.
pub fn has_same_spec(object: &[u8], other: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Bare<'a> {
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
    }
    let spec = |bytes| serde_json::from_slice::<Bare<'_>>(bytes).ok()?.spec.map(RawValue::get);
    spec(object).is_some_and(|text| spec(other) == Some(text))
}

fn validate_fields(
    object: &[u8],
    old: Option<&[u8]>,
    gates: FeatureGates,
    compat: Compat,
    others: &[OtherAutoscaler<'_>],
) -> ValidationResult {
    let parse = |bytes: &[u8]| serde_json::from_slice::<RawVpa>(bytes);
    let new = match parse(object) {
        Ok(object) => object,
        Err(error) => return ValidationResult::unreadable(&error),
    };
    let old = match old.map(parse).transpose() {
        Ok(old) => old.unwrap_or_default(),
        Err(error) => return ValidationResult::unreadable(&error),
    };
    let (mut spec, old): (Spec, Spec) =
        (new.spec.unwrap_or_default(), old.spec.unwrap_or_default());
    let (mut errors, mut warnings) = (Errors::default(), Warnings::default());
    list_limits::enforce_list_limits(&mut spec, &old, &mut errors, &mut warnings);
    field_rules::check(&spec, &old, gates, &mut errors, &mut warnings);
    if compat == Compat::Plimsoll {
        warnings::add_warnings(&spec, &new.metadata.unwrap_or_default(), others, &mut warnings);
    }
    let (errors, warnings) = (errors.into_errors(), warnings.into_texts());
    let mut result = ValidationResult { errors, warnings, ..ValidationResult::default() };
    if result.errors.is_empty() && spec.update_policy.is_none() {
        let policy: Value = json!({"updateMode": "Recreate"});
        result.operations.push(Operation::add("/spec/updatePolicy", policy));
    }
    result
}
