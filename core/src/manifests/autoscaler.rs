//! Edits of utilization targets of HorizontalPodAutoscalers.

use crate::rightsizing::report::TargetChange;

use super::{
    block_edit,
    lookup::{Source, refused},
    objects::Object,
    problem::{Refusal, Refused},
    text_edit::TextEdit,
    tree::{Entry, Node},
};

/// The kind that is edited.
pub(super) const KIND: &str = "HorizontalPodAutoscaler";

/// The edit that writes the new percentage; `None` if the file has it already.
pub(super) fn edit(object: Object<'_>, wanted: &TargetChange) -> Result<Option<TextEdit>, Refused> {
    let Some(percent) = wanted.new_percent else { return Ok(None) };
    let missing = || Refused { line: object.line, reason: Refusal::MetricMissing };
    let (mapping, entry) = target(object, wanted)?.ok_or_else(missing)?;
    let written = entry.value.text().unwrap_or_default();
    match written.parse::<u32>() {
        Ok(current) if current == percent => Ok(None),
        Ok(_) => block_edit::replace_scalar(object.source, mapping, entry, &percent.to_string())
            .map(Some),
        Err(_) => Err(object.source.unexpected(&entry.value, Refusal::NotNumber)),
    }
}

/// The entry with the percentage, and the mapping that it is in.
fn target<'t>(
    object: Object<'t>,
    wanted: &TargetChange,
) -> Result<Option<(&'t Node, &'t Entry)>, Refused> {
    let source = object.source;
    let Some(spec) = source.value(object.node, &["spec"])? else { return Ok(None) };
    let mut found = None;
    if let Some(metrics) = source.entry(spec, "metrics")? {
        for metric in source.items(&metrics.value)? {
            let Some(entry) = metric_target(source, metric, wanted)? else { continue };
            if found.replace(entry).is_some() {
                let resource: &str = wanted.target.resource.into();
                return Err(refused(metric, Refusal::DuplicateKey(resource.to_owned())));
            }
        }
    }
    // Version 1 of the API only knows CPU.
    let is_cpu = wanted.target.resource == crate::rightsizing::survey::Resource::Cpu;
    if found.is_none() && is_cpu && wanted.target.container.is_none() {
        found = source.entry(spec, "targetCPUUtilizationPercentage")?.map(|entry| (spec, entry));
    }
    Ok(found)
}

fn metric_target<'t>(
    source: Source<'t>,
    metric: &'t Node,
    wanted: &TargetChange,
) -> Result<Option<(&'t Node, &'t Entry)>, Refused> {
    let field = if wanted.target.container.is_some() { "containerResource" } else { "resource" };
    let Some(of_resource) = source.value(metric, &[field])? else { return Ok(None) };
    let text = |key| -> Result<_, Refused> {
        Ok(source.entry(of_resource, key)?.and_then(|entry| entry.value.text()))
    };
    let resource: &str = wanted.target.resource.into();
    let is_container = wanted.target.container.as_deref();
    if text("name")? != Some(resource)
        || (is_container.is_some() && text("container")? != is_container)
    {
        return Ok(None);
    }
    if let Some(target) = source.value(of_resource, &["target"])? {
        return Ok(source.entry(target, "averageUtilization")?.map(|entry| (target, entry)));
    }
    // v2beta1.
    Ok(source.entry(of_resource, "targetAverageUtilization")?.map(|entry| (of_resource, entry)))
}
