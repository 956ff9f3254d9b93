//! Edits one file until it has all wanted values.

use crate::rightsizing::report::{ResourceReport, TargetChange};

use super::{
    autoscaler,
    objects::{Object, objects},
    problem::{Refusal, Refused},
    resources::ContainerNode,
    text_edit::{self, TextEdit},
    tree,
};

/// How often a file is parsed at most. A container needs up to four passes: values and a removal, an
/// insertion, another one, and a pass that finds nothing left.
const MAX_PASSES: usize = 8;

/// A value that an object should have.
#[derive(Clone, Copy)]
pub(super) struct Wanted<'r> {
    /// The index of the object in the file.
    pub object: usize,
    pub value: WantedValue<'r>,
}

#[derive(Clone, Copy)]
pub(super) enum WantedValue<'r> {
    Resource { container: &'r str, resource: &'r ResourceReport },
    Target(&'r TargetChange),
}

/// What one wanted value takes.
pub(super) struct Outstanding {
    /// How many values change.
    pub values: usize,
    /// The line of the value, or what is closest to it.
    pub line: usize,
}

/// Looks whether a wanted value can be written, without a change.
pub(super) fn check(object: Object<'_>, wanted: WantedValue<'_>) -> Result<Outstanding, Refused> {
    match wanted {
        WantedValue::Resource { container, resource } => {
            let container = container_node(object, container)?;
            let changes = container.changes(resource)?;
            container.edits(&changes)?;
            let line = container.line(resource.resource);
            Ok(Outstanding { values: changes.len(), line })
        }
        WantedValue::Target(target) => {
            let edit = autoscaler::edit(object, target)?;
            Ok(Outstanding { values: usize::from(edit.is_some()), line: object.line })
        }
    }
}

/// The container of an object.
pub(super) fn container_node<'t>(
    object: Object<'t>,
    name: &str,
) -> Result<ContainerNode<'t>, Refused> {
    let node = object.container(name)?;
    Ok(ContainerNode { source: object.source, node, step: object.indent_step() })
}

/// Writes the wanted values of a file. The result was parsed again and has all of them.
pub(super) fn edit(before: &str, wanted: &[Wanted<'_>]) -> Result<String, Refused> {
    let mut text = before.to_owned();
    for _ in 0..MAX_PASSES {
        let edits = outstanding_edits(&text, wanted)?;
        if edits.is_empty() {
            return Ok(text);
        }
        let not_verified = Refused { line: 1, reason: Refusal::NotVerified };
        text = text_edit::apply(&text, edits).ok_or(not_verified)?;
    }
    Err(Refused { line: 1, reason: Refusal::NotVerified })
}

fn outstanding_edits(text: &str, wanted: &[Wanted<'_>]) -> Result<Vec<TextEdit>, Refused> {
    let tree = tree::parse(text)?;
    let objects = objects(text, &tree);
    let mut edits = Vec::new();
    let mut rest = wanted;
    // Both resources of a container are one edit, as they may need the same new lines.
    while let Some(first) = rest.first() {
        let object =
            objects.get(first.object).ok_or(Refused { line: 1, reason: Refusal::NotVerified })?;
        let WantedValue::Resource { container: name, .. } = first.value else {
            if let WantedValue::Target(target) = first.value {
                edits.extend(autoscaler::edit(*object, target)?);
            }
            rest = &rest[1..];
            continue;
        };
        let same = |wanted: &&Wanted<'_>| {
            wanted.object == first.object
                && matches!(wanted.value, WantedValue::Resource { container, .. } if container == name)
        };
        let count = rest.iter().take_while(same).count();
        let container = container_node(*object, name)?;
        let mut changes = Vec::new();
        for wanted in &rest[..count] {
            if let WantedValue::Resource { resource, .. } = wanted.value {
                changes.extend(container.changes(resource)?);
            }
        }
        edits.extend(container.edits(&changes)?);
        rest = &rest[count..];
    }
    Ok(edits)
}
