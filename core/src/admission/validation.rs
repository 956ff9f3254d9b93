//! What is wrong with a VPA object: errors that keep it out, and warnings that do not.

mod field_rules;
mod list_limits;
mod messages;
mod raw_vpa;
mod warnings;

use std::{collections::HashSet, fmt};

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

pub use self::{
    list_limits::MAX_REQUIREMENTS,
    messages::{MAX_MESSAGE_BYTES, MAX_MESSAGES, truncated},
    warnings::OtherAutoscaler,
};
use self::{
    messages::{Errors, Warnings},
    raw_vpa::{RawVpa, Spec},
};
use crate::{
    sizing::{Operation, SizingRules},
    types::compat::{Compat, Fix},
};

/// What VPAs may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    /// Startup boosts (`CPUStartupBoost`).
    pub startup_boost: bool,
    /// Settings of the model in a VPA (`PerVPAConfig`).
    pub per_vpa_config: bool,
    /// The mode `InPlace` (`InPlace`).
    pub in_place: bool,
}

/// What a field has wrong, in the API's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorType {
    /// It is not there.
    Required,
    /// Its value is not one that it can have.
    Invalid,
    /// Its value is none of those that it can have.
    NotSupported,
    /// It must not be there.
    Forbidden,
    /// It has too many entries.
    TooMany,
    /// It cannot be read.
    Internal,
}

impl FieldErrorType {
    /// The type of the cause in the API's answer.
    pub const fn cause_type(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One thing that keeps an object out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field.
    pub path: String,
    /// What is wrong with it.
    pub error_type: FieldErrorType,
    /// Its value, as it is shown.
    pub value: Option<String>,
    /// What to do.
    pub detail: String,
}

impl FieldError {
    /// What is wrong, without the field: the message of the cause in the API's answer.
    pub fn body(&self) -> String {
        let mut body = self.error_type.text().to_owned();
        for part in self.value.iter().chain(Some(&self.detail).filter(|it| !it.is_empty())) {
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

/// What is said about an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidationResult {
    /// What keeps it out; nothing when it is let in.
    pub errors: Vec<FieldError>,
    /// What its author is told.
    pub warnings: Vec<String>,
    /// What is filled in, where it is let in.
    pub operations: Vec<Operation>,
}

impl ValidationResult {
    fn unreadable(error: &serde_json::Error) -> Self {
        let detail = error.to_string();
        let error = FieldError {
            path: ".".into(),
            error_type: FieldErrorType::Internal,
            value: None,
            detail,
        };
        Self { errors: vec![error], ..Self::default() }.truncated()
    }

    /// The same with no more messages, and no longer ones, than a review may have.
    #[must_use]
    pub fn truncated(self) -> Self {
        let (mut errors, mut warnings) = (Errors::default(), Warnings::default());
        self.errors.into_iter().for_each(|error| errors.add(error));
        self.warnings.iter().for_each(|text| warnings.add(format_args!("{text}")));
        Self { errors: errors.into_errors(), warnings: warnings.into_texts(), ..self }
    }

    /// All errors as the API's message names them.
    pub fn message(&self, kind: &str, group: &str, name: &str) -> String {
        let mut known = HashSet::new();
        let mut texts: Vec<String> = self.errors.iter().map(FieldError::to_string).collect();
        texts.retain(|text| known.insert(text.clone()));
        let texts = match &texts[..] {
            [one] => one.clone(),
            all => format!("[{}]", all.join(", ")),
        };
        format!("{kind}.{group} \"{name}\" is invalid: {texts}")
    }
}

/// Looks an object over. `old` is what it was, when it is changed rather than created: what an object uses already it
/// may go on using. `others` are the other VPAs of its namespace and the HPAs, as far as they are known.
pub fn validate(
    object: &[u8],
    old: Option<&[u8]>,
    gates: FeatureGates,
    rules: SizingRules,
    others: &[OtherAutoscaler<'_>],
) -> ValidationResult {
    let verdict = validate_fields(object, old, gates, rules.compat, others);
    let accepts = rules.fixes.has(Fix::UnchangedSpecIsAccepted);
    if accepts && old.is_some_and(|old| !verdict.errors.is_empty() && has_same_spec(object, old)) {
        // The stored spec is invalid already. An update that leaves it alone, such as an annotation by the updater, must pass.
        let mut warnings = verdict.warnings;
        let wrong = verdict.errors.iter();
        warnings
            .extend(wrong.map(|error| format!("{error}; accepted because the spec is unchanged")));
        return ValidationResult { warnings, ..ValidationResult::default() }.truncated();
    }
    verdict
}

/// Whether two objects have the same spec, as the API server writes it.
fn has_same_spec(one: &[u8], other: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Bare<'a> {
        #[serde(borrow)]
        spec: Option<&'a RawValue>,
    }
    let spec = |object| serde_json::from_slice::<Bare<'_>>(object).ok()?.spec.map(RawValue::get);
    spec(one).is_some_and(|one| spec(other) == Some(one))
}

fn validate_fields(
    object: &[u8],
    old: Option<&[u8]>,
    gates: FeatureGates,
    compat: Compat,
    others: &[OtherAutoscaler<'_>],
) -> ValidationResult {
    let read = |bytes: &[u8]| serde_json::from_slice::<RawVpa>(bytes);
    let new = match read(object) {
        Ok(object) => object,
        Err(error) => return ValidationResult::unreadable(&error),
    };
    let old = match old.map(read).transpose() {
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
    let mut verdict = ValidationResult { errors, warnings, ..ValidationResult::default() };
    if verdict.errors.is_empty() && spec.update_policy.is_none() {
        let policy: Value = json!({"updateMode": "Recreate"});
        verdict.operations.push(Operation::add("/spec/updatePolicy", policy));
    }
    verdict
}
