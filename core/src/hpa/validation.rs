//! Validates a HorizontalPodAutoscaler as the API server does, with its messages.

mod metric;

use std::fmt;

use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HPAScalingRules, HorizontalPodAutoscalerBehavior,
    HorizontalPodAutoscalerSpec,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as ApiQuantity;

use crate::types::Quantity;

/// The longest stabilization window, in seconds.
const LONGEST_WINDOW: i32 = 3600;
/// The longest period of a policy, in seconds.
const LONGEST_PERIOD: i32 = 1800;

/// The type of a violation, by its name in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ViolationKind {
    /// The field is missing.
    Required,
    /// The value is not allowed.
    Invalid,
    /// The field must not be set.
    Forbidden,
    /// The value is not one of a closed set.
    NotSupported,
}

/// A field that the API server rejects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The path of the field, such as `spec.metrics[0].type`.
    pub field: String,
    /// The type of the violation.
    pub kind: ViolationKind,
    /// The value, as printed in messages.
    pub value: String,
    /// The detail of the message.
    pub detail: String,
}

impl fmt::Display for ViolationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotSupported => "FieldValueNotSupported",
        })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, value, detail, .. } = self;
        match self.kind {
            ViolationKind::Required if detail.is_empty() => write!(f, "{field}: Required value"),
            ViolationKind::Required => write!(f, "{field}: Required value: {detail}"),
            ViolationKind::Invalid => write!(f, "{field}: Invalid value: {value}: {detail}"),
            ViolationKind::Forbidden => write!(f, "{field}: Forbidden: {detail}"),
            ViolationKind::NotSupported => {
                write!(f, "{field}: Unsupported value: {value}: {detail}")
            }
        }
    }
}

/// Violations of one object.
#[derive(Debug, Default)]
struct Violations(Vec<Violation>);

impl Violations {
    fn push(&mut self, field: &str, kind: ViolationKind, value: String, detail: &str) {
        self.0.push(Violation { field: field.to_owned(), kind, value, detail: detail.to_owned() });
    }

    fn required(&mut self, field: &str, detail: &str) {
        self.push(field, ViolationKind::Required, String::new(), detail);
    }

    fn forbidden(&mut self, field: &str, detail: &str) {
        self.push(field, ViolationKind::Forbidden, String::new(), detail);
    }

    fn invalid(&mut self, field: &str, value: impl fmt::Debug, detail: &str) {
        self.push(field, ViolationKind::Invalid, format!("{value:?}"), detail);
    }

    fn unsupported(&mut self, field: &str, value: &str, supported: &[&str]) {
        let names: Vec<_> = supported.iter().map(|name| format!("{name:?}")).collect();
        let detail = format!("supported values: {}", names.join(", "));
        self.push(field, ViolationKind::NotSupported, format!("{value:?}"), &detail);
    }

    /// Checks a name that becomes a path segment.
    fn path_segment(&mut self, field: &str, name: &str) {
        match name {
            "." | ".." => self.invalid(field, name, &format!("may not be '{name}'")),
            _ => {
                for forbidden in
                    ['/', '%'].into_iter().filter(|character| name.contains(*character))
                {
                    self.invalid(field, name, &format!("may not contain '{forbidden}'"));
                }
            }
        }
    }

    fn reference(&mut self, field: &str, to: &CrossVersionObjectReference, needs_group: bool) {
        for (name, value) in [("kind", &to.kind), ("name", &to.name)] {
            let field = format!("{field}.{name}");
            if value.is_empty() {
                self.required(&field, "");
            } else {
                self.path_segment(&field, value);
            }
        }
        let version = to.api_version.as_deref().unwrap_or_default();
        let field = format!("{field}.apiVersion");
        let mut parts = version.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (_, _, Some(_)) => {
                self.invalid(
                    &field,
                    version,
                    &format!("unexpected GroupVersion string: {version}"),
                );
            }
            (group, second, _) => {
                let has_group = second.is_some() && group.is_some_and(|group| !group.is_empty());
                if needs_group && !has_group {
                    self.invalid(&field, version, "apiVersion must specify API group");
                }
            }
        }
    }

    fn behavior(&mut self, field: &str, behavior: &HorizontalPodAutoscalerBehavior) {
        let both = [("scaleUp", &behavior.scale_up), ("scaleDown", &behavior.scale_down)];
        for (direction, rules) in both {
            if let Some(rules) = rules {
                self.rules(&format!("{field}.{direction}"), rules);
            }
        }
    }

    fn rules(&mut self, field: &str, rules: &HPAScalingRules) {
        if let Some(window) = rules.stabilization_window_seconds {
            let field = format!("{field}.stabilizationWindowSeconds");
            if window < 0 {
                self.invalid(&field, window, "must be greater than or equal to zero");
            } else if window > LONGEST_WINDOW {
                self.invalid(
                    &field,
                    window,
                    &format!("must be less than or equal to {LONGEST_WINDOW}"),
                );
            }
        }
        if let Some(select) = &rules.select_policy {
            let supported = ["Disabled", "Max", "Min"];
            if !supported.contains(&select.as_str()) {
                self.unsupported(&format!("{field}.selectPolicy"), select, &supported);
            }
        }
        if let Some(tolerance) =
            rules.tolerance.as_ref().filter(|quantity| !is_at_least(quantity, false))
        {
            self.invalid(
                &format!("{field}.tolerance"),
                &tolerance.0,
                "must be greater than or equal to 0",
            );
        }
        let policies = rules.policies.as_deref().unwrap_or_default();
        if policies.is_empty() {
            self.required(&format!("{field}.policies"), "must specify at least one Policy");
        }
        for (index, policy) in policies.iter().enumerate() {
            let field = format!("{field}.policies[{index}]");
            let supported = ["Percent", "Pods"];
            if !supported.contains(&policy.type_.as_str()) {
                self.unsupported(&format!("{field}.type"), &policy.type_, &supported);
            }
            if policy.value <= 0 {
                self.invalid(&format!("{field}.value"), policy.value, "must be greater than zero");
            }
            let period = policy.period_seconds;
            let field = format!("{field}.periodSeconds");
            if period <= 0 {
                self.invalid(&field, period, "must be greater than zero");
            } else if period > LONGEST_PERIOD {
                self.invalid(
                    &field,
                    period,
                    &format!("must be less than or equal to {LONGEST_PERIOD}"),
                );
            }
        }
    }
}

/// Whether a quantity is positive (if `is_above`) or not negative.
fn is_at_least(quantity: &ApiQuantity, is_above: bool) -> bool {
    let parsed = quantity.0.trim().parse::<Quantity>();
    parsed
        .is_ok_and(|value| if is_above { value > Quantity::ZERO } else { value >= Quantity::ZERO })
}

/// Validates a spec with defaults applied. `may_be_zero` is set with the feature gate `HPAScaleToZero`, or if the stored
/// object already has `minReplicas: 0`.
pub fn validate(spec: &HorizontalPodAutoscalerSpec, may_be_zero: bool) -> Vec<Violation> {
    let mut violations = Violations::default();
    let lowest = i32::from(!may_be_zero);
    let min = spec.min_replicas.unwrap_or(1);
    if min < lowest {
        violations.invalid(
            "spec.minReplicas",
            min,
            &format!("must be greater than or equal to {lowest}"),
        );
    }
    let max = spec.max_replicas;
    if max == 0 {
        violations.required("spec.maxReplicas", "must be set and greater than 0");
    } else if max < 1 {
        violations.invalid("spec.maxReplicas", max, "must be greater than or equal to 1");
    }
    if max < min {
        violations.invalid(
            "spec.maxReplicas",
            max,
            "must be greater than or equal to `minReplicas`",
        );
    }
    let needs_group = spec.scale_target_ref.kind != "ReplicationController";
    violations.reference("spec.scaleTargetRef", &spec.scale_target_ref, needs_group);
    let metrics = spec.metrics.as_deref().unwrap_or_default();
    for (index, metric) in metrics.iter().enumerate() {
        metric::check(&mut violations, &format!("spec.metrics[{index}]"), metric);
    }
    let is_podless =
        metrics.iter().any(|metric| metric.object.is_some() || metric.external.is_some());
    if min == 0 && !is_podless {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        violations.forbidden("spec.metrics", detail);
    }
    if let Some(behavior) = &spec.behavior {
        violations.behavior("spec.behavior", behavior);
    }
    violations.0
}

/// Validates a behavior with defaults applied. `field` is its path.
pub fn validate_behavior(
    field: &str,
    behavior: &HorizontalPodAutoscalerBehavior,
) -> Vec<Violation> {
    let mut violations = Violations::default();
    violations.behavior(field, behavior);
    violations.0
}
