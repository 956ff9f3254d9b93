//! Validates an entry of `spec.metrics` as the API server does.

use k8s_openapi::api::autoscaling::v2::{MetricIdentifier, MetricSpec, MetricTarget};

use super::{Violations, is_at_least};

/// Source types, with the block of each.
const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

/// Which target fields a source accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Targets {
    /// `averageValue` or `averageUtilization`.
    PerPod,
    /// `averageValue`.
    Average,
    /// `value`, `averageValue` or both.
    Either,
    /// `value` or `averageValue`.
    One,
}

pub(super) fn check(violations: &mut Violations, field: &str, metric: &MetricSpec) {
    let type_field = format!("{field}.type");
    if metric.type_.is_empty() {
        violations.required(&type_field, "must specify a metric source type");
    }
    // In the order in which upstream checks them.
    let blocks = [
        ("object", metric.object.is_some()),
        ("external", metric.external.is_some()),
        ("pods", metric.pods.is_some()),
        ("resource", metric.resource.is_some()),
        ("containerResource", metric.container_resource.is_some()),
    ];
    let present: Vec<_> =
        blocks.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    match SOURCES.iter().find(|(name, _)| *name == metric.type_) {
        None => {
            // Upstream reports this twice.
            for _ in 0..2 {
                violations.unsupported(&type_field, &metric.type_, &SOURCES.map(|(name, _)| name));
            }
        }
        Some((_, expected)) => {
            if !present.contains(expected) {
                let detail = "must populate information for the given metric source";
                violations.required(&format!("{field}.{expected}"), detail);
            }
            if present.len() > 1 {
                for other in present.iter().filter(|block| *block != expected) {
                    let detail = "must populate the given metric source only";
                    violations.forbidden(&format!("{field}.{other}"), detail);
                }
            }
        }
    }
    first_block(violations, field, metric);
}

/// Validates the first block in depth. Upstream does not check further ones.
fn first_block(violations: &mut Violations, field: &str, metric: &MetricSpec) {
    if let Some(source) = &metric.object {
        let field = format!("{field}.object");
        violations.reference(&format!("{field}.describedObject"), &source.described_object, false);
        identifier(violations, &field, &source.metric);
        target(violations, &field, &source.target, Targets::Either);
    } else if let Some(source) = &metric.external {
        let field = format!("{field}.external");
        identifier(violations, &field, &source.metric);
        target(violations, &field, &source.target, Targets::One);
    } else if let Some(source) = &metric.pods {
        let field = format!("{field}.pods");
        identifier(violations, &field, &source.metric);
        target(violations, &field, &source.target, Targets::Average);
    } else if let Some(source) = &metric.resource {
        let field = format!("{field}.resource");
        if source.name.is_empty() {
            violations.required(&format!("{field}.name"), "must specify a resource name");
        }
        target(violations, &field, &source.target, Targets::PerPod);
    } else if let Some(source) = &metric.container_resource {
        let field = format!("{field}.containerResource");
        container_resource(violations, &format!("{field}.name"), &source.name);
        let container = format!("{field}.container");
        if source.container.is_empty() {
            violations.required(&container, "must specify a container");
        } else if !is_label(&source.container) {
            let detail = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                          start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                          validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
            violations.invalid(&container, &source.container, detail);
        }
        target(violations, &field, &source.target, Targets::PerPod);
    }
}

fn identifier(violations: &mut Violations, field: &str, metric: &MetricIdentifier) {
    let field = format!("{field}.metric.name");
    if metric.name.is_empty() {
        violations.required(&field, "must specify a metric name");
    } else {
        violations.path_segment(&field, &metric.name);
    }
}

fn target(violations: &mut Violations, field: &str, target: &MetricTarget, targets: Targets) {
    let field = format!("{field}.target");
    let type_field = format!("{field}.type");
    if target.type_.is_empty() {
        violations.required(&type_field, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&target.type_.as_str()) {
        violations.invalid(
            &type_field,
            &target.type_,
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for (name, amount) in [("value", &target.value), ("averageValue", &target.average_value)] {
        if let Some(amount) = amount.as_ref().filter(|amount| !is_at_least(amount, true)) {
            violations.invalid(&format!("{field}.{name}"), &amount.0, "must be positive");
        }
    }
    if let Some(percent) = target.average_utilization.filter(|percent| *percent < 1) {
        violations.invalid(
            &format!("{field}.averageUtilization"),
            percent,
            "must be greater than 0",
        );
    }
    let (value, average) = (target.value.is_some(), target.average_value.is_some());
    let utilization = target.average_utilization.is_some();
    match targets {
        Targets::PerPod if average && utilization => violations.forbidden(
            &format!("{field}.averageValue"),
            "may not set both a target raw value and a target utilization",
        ),
        Targets::PerPod if !average && !utilization => violations.required(
            &format!("{field}.averageUtilization"),
            "must set either a target raw value or a target utilization",
        ),
        Targets::Average if !average => violations.required(
            &format!("{field}.averageValue"),
            "must specify a positive target averageValue",
        ),
        Targets::Either if !average && !value => violations.required(
            &format!("{field}.averageValue"),
            "must set either a target value or averageValue",
        ),
        Targets::One if average && value => violations.forbidden(
            &format!("{field}.value"),
            "may not set both a target value for metric and a per-pod target",
        ),
        Targets::One if !average && !value => violations.required(
            &format!("{field}.averageValue"),
            "must set either a target value for metric or a per-pod target",
        ),
        _ => {}
    }
}

/// Checks the name of a resource that containers can request.
fn container_resource(violations: &mut Violations, field: &str, name: &str) {
    let is_standard =
        matches!(name, "cpu" | "memory" | "ephemeral-storage") || name.starts_with("hugepages-");
    if name.is_empty() {
        violations.required(field, "must specify a resource name");
    } else if !name.contains('/') && !is_standard {
        violations.invalid(field, name, "must be a standard resource type or fully qualified");
        violations.invalid(field, name, "must be a standard resource for containers");
    } else if name.starts_with("requests.") {
        violations.invalid(field, name, "doesn't follow extended resource name standard");
    }
}

fn is_label(text: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.len() <= 63 && text.chars().all(is_inner) && !text.starts_with('-') && !text.ends_with('-')
}
