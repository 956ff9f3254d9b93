//! What a container has in existing pods, and what its template asks for: a VerticalPodAutoscaler or a resize in place changes
//! pods alone.

use super::{
    need::{amount_text, limit_of, request_of, running_limit_of, running_request_of},
    report::TemplateAmounts,
    severity::Configured,
    survey::{Container, Resource},
};

/// What new pods get, which manifests change.
pub fn by_template(container: &Container, resource: Resource) -> Configured {
    Configured {
        request: request_of(container, resource),
        limit: limit_of(container, resource),
        is_unknown: container.resources_unknown,
    }
}

/// What pods run with: the basis of risk, waste and costs.
pub fn in_pods(container: &Container, resource: Resource) -> Configured {
    Configured {
        request: running_request_of(container, resource),
        limit: running_limit_of(container, resource),
        is_unknown: container.resources_unknown,
    }
}

/// What the template asks for, if pods run with other amounts.
pub fn template_amounts(container: &Container, resource: Resource) -> Option<TemplateAmounts> {
    let (template, pods) = (by_template(container, resource), in_pods(container, resource));
    let Configured { request, limit, .. } = template;
    (template != pods).then_some(TemplateAmounts { request, limit })
}

/// That pods run with another request than the template asks for, or with another limit.
pub fn running_remark(
    container: &Container,
    resource: Resource,
    vpa: Option<&str>,
) -> Option<String> {
    let (template, pods) = (by_template(container, resource), in_pods(container, resource));
    let (kind, asked, running) = if template.request == pods.request {
        ("limit", template.limit, pods.limit)
    } else {
        ("request", template.request, pods.request)
    };
    if asked == running {
        return None;
    }
    let text = |amount: Option<i64>| {
        amount.map_or_else(|| "none".to_owned(), |amount| amount_text(resource, amount))
    };
    let name = match resource {
        Resource::Cpu => "CPU",
        Resource::Memory => "memory",
    };
    let sized_by =
        vpa.map_or_else(String::new, |vpa| format!(", sized by VerticalPodAutoscaler {vpa}"));
    Some(format!(
        "{name} {kind}: the template asks for {}, pods run with {}{sized_by}",
        text(asked),
        text(running)
    ))
}
