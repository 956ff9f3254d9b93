//! Upstream's validation rules, with its order and messages.

use std::{collections::HashSet, fmt::Display};

use super::{
    FeatureGates, FieldError, FieldErrorType,
    message_limits::{Errors, Warnings},
    raw_vpa::{ContainerPolicy, CpuBoost, Spec, StartupBoost, UpdatePolicy, policy_path},
};
use crate::types::quantity::Quantity;

/// The update modes that are not deprecated, sorted.
const UPDATE_MODES: [&str; 5] = ["InPlace", "InPlaceOrRecreate", "Initial", "Off", "Recreate"];

/// Checks the spec of a VPA against the stored one.
pub(super) fn check(
    spec: &Spec,
    old: &Spec,
    gates: FeatureGates,
    errors: &mut Errors,
    warnings: &mut Warnings,
) {
    let mut check = Checker {
        gates: gates_in_use(old, gates),
        uncontrollable: uncontrollable_resources(old),
        errors,
        warnings,
    };
    if let Some(policy) = &spec.update_policy {
        check.check_update_policy(policy);
    }
    for (index, policy) in spec.container_policies().iter().enumerate() {
        check.check_container_policy(&policy_path(index), policy);
    }
    if let Some(boost) = &spec.startup_boost {
        check.check_boost("spec.startupBoost", boost);
    }
    let recommenders = spec.recommenders.as_ref().map_or(0, Vec::len);
    if recommenders > 1 {
        let value = recommenders.to_string();
        check.error(
            "spec.recommenders",
            FieldErrorType::TooMany,
            Some(value),
            "must have at most 1 item",
        );
    }
}

/// Unsupported resources that the stored object already has.
fn uncontrollable_resources(old: &Spec) -> HashSet<&str> {
    let named = old
        .container_policies()
        .iter()
        .flat_map(|policy| policy.controlled_resources.iter().flatten());
    named.map(String::as_str).filter(|name| !is_supported(name)).collect()
}

fn is_supported(resource: &str) -> bool {
    matches!(resource, "cpu" | "memory")
}

/// Returns the enabled feature gates, and those of features that the stored object already uses.
fn gates_in_use(old: &Spec, gates: FeatureGates) -> FeatureGates {
    let boosts = old.startup_boost.as_ref().is_some_and(|boost| boost.cpu.is_some())
        || old.container_policies().iter().any(|policy| policy.startup_boost.is_some());
    let tunes = |policy: &ContainerPolicy| {
        policy.oom_bump_up_ratio.is_some()
            || policy.oom_min_bump_up.is_some()
            || policy.memory_aggregation_interval_count.is_some()
            || policy.memory_aggregation_interval_seconds.is_some()
    };
    let evicts = |policy: &UpdatePolicy| policy.evict_after_oom_seconds.is_some();
    let configures = old.update_policy.as_ref().is_some_and(evicts)
        || old.container_policies().iter().any(tunes);
    FeatureGates {
        startup_boost: gates.startup_boost || boosts,
        per_vpa_config: gates.per_vpa_config || configures,
        in_place: gates.in_place || old.update_mode() == Some("InPlace"),
    }
}

struct Checker<'a> {
    gates: FeatureGates,
    uncontrollable: HashSet<&'a str>,
    errors: &'a mut Errors,
    warnings: &'a mut Warnings,
}

impl Checker<'_> {
    fn error(
        &mut self,
        path: &str,
        error_type: FieldErrorType,
        value: Option<String>,
        detail: impl Into<String>,
    ) {
        let (path, detail) = (path.to_owned(), detail.into());
        self.errors.add(FieldError { path, error_type, value, detail });
    }

    fn not_supported(&mut self, path: &str, value: &str, supported: &[&str]) {
        let detail = format!("supported values: {}", quoted(supported));
        self.error(path, FieldErrorType::NotSupported, Some(quote(value)), detail);
    }

    fn check_update_policy(&mut self, policy: &UpdatePolicy) {
        let mode_path = "spec.updatePolicy.updateMode";
        match policy.update_mode.as_deref() {
            None => {
                let detail = "updateMode is required if UpdatePolicy is used";
                self.error(mode_path, FieldErrorType::Required, None, detail);
            }
            Some(mode) => {
                if mode != "Auto" && !UPDATE_MODES.contains(&mode) {
                    self.not_supported(mode_path, mode, &UPDATE_MODES);
                }
                if mode == "Auto" {
                    self.warnings.add(format_args!(
                        "spec.updatePolicy: \"Auto\" mode is deprecated and will be removed in a future API version. \
                         Use explicit update modes like: [{}]. See \
                         https://github.com/kubernetes/autoscaler/issues/8424 for more details.",
                        UPDATE_MODES.join(" ")
                    ));
                }
                if mode == "InPlace" && !self.gates.in_place {
                    let detail = "in order to use UpdateMode InPlace, you must enable feature gate InPlace in the \
                                  admission-controller args";
                    self.error(mode_path, FieldErrorType::Forbidden, None, detail);
                }
            }
        }
        if let Some(replicas) = policy.min_replicas.filter(|replicas| *replicas <= 0) {
            let value = Some(replicas.to_string());
            let detail = "minReplicas has to be positive";
            self.error("spec.updatePolicy.minReplicas", FieldErrorType::Invalid, value, detail);
        }
        let seconds = policy.evict_after_oom_seconds;
        self.check_at_least("spec.updatePolicy.evictAfterOOMSeconds", seconds, 1, "1");
    }

    /// Checks a setting that requires the feature gate `PerVPAConfig` and has a minimum.
    fn check_at_least<N: Copy + PartialOrd + Display>(
        &mut self,
        path: &str,
        set: Option<N>,
        min: N,
        formatted_min: &str,
    ) {
        let Some(value) = set else { return };
        if !self.gates.per_vpa_config {
            let detail = "not supported when feature flag PerVPAConfig is disabled";
            self.error(path, FieldErrorType::Forbidden, None, detail);
        } else if value < min {
            let detail = format!("must be greater than or equal to {formatted_min}");
            self.error(path, FieldErrorType::Invalid, Some(value.to_string()), detail);
        }
    }

    fn check_container_policy(&mut self, path: &str, policy: &ContainerPolicy) {
        let at = |field: &str| format!("{path}.{field}");
        if policy.container_name.as_deref().unwrap_or_default().is_empty() {
            self.error(&at("containerName"), FieldErrorType::Required, None, "");
        }
        let mode = policy.mode.as_deref();
        if let Some(mode) = mode.filter(|mode| !["Auto", "Off"].contains(mode)) {
            self.not_supported(&at("mode"), mode, &["Auto", "Off"]);
        }
        for (resource, min) in policy.min_allowed.iter().flatten() {
            self.check_resolution(&at(&format!("minAllowed[{resource}]")), resource, *min);
            let max = policy.max_allowed.as_ref().and_then(|list| list.get(resource));
            if let Some(max) = max.filter(|max| *max < min) {
                let detail = format!("max resource for {resource} is lower than min of \"{min}\"");
                let value = Some(quote(&max.to_string()));
                self.error(
                    &at(&format!("maxAllowed[{resource}]")),
                    FieldErrorType::Invalid,
                    value,
                    detail,
                );
            }
        }
        for (resource, max) in policy.max_allowed.iter().flatten() {
            self.check_resolution(&at(&format!("maxAllowed[{resource}]")), resource, *max);
        }
        if mode == Some("Off") && policy.controlled_values.as_deref() == Some("RequestsAndLimits") {
            let detail = "controlledValues shouldn't be specified if container scaling mode is off";
            self.error(&at("controlledValues"), FieldErrorType::Forbidden, None, detail);
        }
        self.check_controlled_resources(&at("controlledResources"), policy);
        let ratio = policy.oom_bump_up_ratio.map(|ratio| ratio.milli_value() as f64 / 1000.0);
        self.check_at_least(&at("oomBumpUpRatio"), ratio, 1.0, "1.0");
        self.check_at_least(
            &at("oomMinBumpUp"),
            policy.oom_min_bump_up.map(Quantity::value),
            0,
            "0",
        );
        let seconds = policy.memory_aggregation_interval_seconds;
        self.check_at_least(&at("memoryAggregationIntervalSeconds"), seconds, 1, "1");
        let count = policy.memory_aggregation_interval_count;
        self.check_at_least(&at("memoryAggregationIntervalCount"), count, 1, "1");
        if let Some(boost) = &policy.startup_boost {
            self.check_boost(&at("startupBoost"), boost);
        }
    }

    fn check_controlled_resources(&mut self, path: &str, policy: &ContainerPolicy) {
        let resources = policy.controlled_resources.iter().flatten().enumerate();
        for (index, name) in resources.filter(|(_, name)| !is_supported(name)) {
            let path = format!("{path}[{index}]");
            if self.uncontrollable.contains(&**name) {
                self.warnings.add(format_args!(
                    "{path}: unsupported value {} is allowed only because it is present in the existing VPA object; \
                     supported values: \"cpu\", \"memory\"",
                    quote(name)
                ));
            } else {
                self.not_supported(&path, name, &["cpu", "memory"]);
            }
        }
    }

    fn check_boost(&mut self, path: &str, boost: &StartupBoost) {
        if !self.gates.startup_boost {
            let detail = "in order to use startupBoost, you must enable feature gate CPUStartupBoost in the \
                          admission-controller args";
            self.error(path, FieldErrorType::Forbidden, None, detail);
            return;
        }
        let Some(cpu) = &boost.cpu else { return };
        let at = |field: &str| format!("{path}.cpu.{field}");
        match cpu.kind.as_deref().unwrap_or_default() {
            "" => {
                let detail = "must be either Factor or Quantity";
                self.error(&at("type"), FieldErrorType::Required, None, detail);
            }
            "Factor" => self.check_factor(&at("factor"), cpu),
            "Quantity" => match cpu.quantity {
                None => {
                    let detail = "required when type is Quantity";
                    self.error(&at("quantity"), FieldErrorType::Required, None, detail);
                }
                Some(quantity) => self.check_resolution(&at("quantity"), "cpu", quantity),
            },
            other => self.not_supported(&at("type"), other, &["Factor", "Quantity"]),
        }
    }

    fn check_factor(&mut self, path: &str, cpu: &CpuBoost) {
        match cpu.factor {
            None => {
                self.error(path, FieldErrorType::Required, None, "required when type is Factor");
            }
            Some(factor) if factor < 1 => {
                let detail = "must be >= 1 for type Factor";
                self.error(path, FieldErrorType::Invalid, Some(factor.to_string()), detail);
            }
            Some(_) => {}
        }
    }

    fn check_resolution(&mut self, path: &str, resource: &str, amount: Quantity) {
        let (is_whole, unit) = match resource {
            "cpu" => (amount.is_whole_milli(), "milli CPUs"),
            "memory" => (amount.is_whole(), "bytes"),
            _ => return,
        };
        if !is_whole {
            let value = Some(quote(&amount.to_string()));
            let detail = format!("must be a whole number of {unit}");
            self.error(path, FieldErrorType::Invalid, value, detail);
        }
    }
}

fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

fn quoted(values: &[&str]) -> String {
    values.iter().map(|value| quote(value)).collect::<Vec<_>>().join(", ")
}
