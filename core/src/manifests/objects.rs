//! The objects of a file, and where their pod templates are.

use super::{
    lookup::{Source, refused},
    problem::{Refusal, Refused},
    tree::{Node, Tree},
};

/// How deep Lists of Lists are searched.
const MAX_LIST_DEPTH: usize = 2;

#[derive(Clone, Copy)]
pub(super) struct Object<'t> {
    pub source: Source<'t>,
    pub node: &'t Node,
    pub kind: &'t str,
    /// `None` if the manifest leaves it to the context, or to kustomize.
    pub namespace: Option<&'t str>,
    pub name: &'t str,
    pub line: usize,
}

/// All objects of a file with a kind and a name, in their order. Edits of values do not change it.
pub(super) fn objects<'t>(text: &'t str, tree: &'t Tree) -> Vec<Object<'t>> {
    let mut found = Vec::new();
    for document in &tree.documents {
        let source = Source { text, document, comments: &tree.comments };
        collect(source, &document.root, MAX_LIST_DEPTH, &mut found);
    }
    found
}

fn collect<'t>(source: Source<'t>, node: &'t Node, depth: usize, found: &mut Vec<Object<'t>>) {
    let Some(kind) = text_at(source, node, &["kind"]) else { return };
    if kind.ends_with("List") && depth > 0 {
        // An item that is an alias belongs to another object.
        let items = source.value(node, &["items"]).ok().flatten();
        for item in items.and_then(|items| source.items(items).ok()).unwrap_or_default() {
            collect(source, item, depth - 1, found);
        }
        return;
    }
    let Some(name) = text_at(source, node, &["metadata", "name"]) else { return };
    let namespace = text_at(source, node, &["metadata", "namespace"]);
    let line = node.entries().first().map_or(node.line, |first| first.key.line);
    found.push(Object { source, node, kind, namespace, name, line });
}

fn text_at<'t>(source: Source<'t>, node: &'t Node, path: &[&str]) -> Option<&'t str> {
    let value = source.value(node, path).ok().flatten()?;
    value.text().filter(|text| !value.is_null() && !text.is_empty())
}

impl<'t> Object<'t> {
    pub fn pod_spec(&self) -> Result<&'t Node, Refused> {
        let path: &[&str] = match self.kind {
            "Pod" => &["spec"],
            "CronJob" => &["spec", "jobTemplate", "spec", "template", "spec"],
            _ => &["spec", "template", "spec"],
        };
        self.source
            .value(self.node, path)?
            .ok_or_else(|| refused(self.node, Refusal::NoPodTemplate))
            .map_err(|error| Refused { line: error.line.max(self.line), ..error })
    }

    /// The kind and name of the object whose pod template a Rollout uses.
    pub fn workload_ref(&self) -> Option<(&'t str, &'t str)> {
        let text = |field| text_at(self.source, self.node, &["spec", "workloadRef", field]);
        Some((text("kind")?, text("name")?))
    }

    /// A container of its pods, by name.
    pub fn container(&self, name: &str) -> Result<&'t Node, Refused> {
        let pod_spec = self.pod_spec()?;
        let mut unknown = None;
        for list in ["containers", "initContainers"] {
            let items = match self.source.entry(pod_spec, list) {
                Ok(None) => continue,
                Ok(Some(entry)) => self.source.items(&entry.value),
                Err(refused) => Err(refused),
            };
            match items {
                Ok(items) => {
                    for item in items {
                        match self.container_name(item) {
                            Ok(Some(found)) if found == name => return Ok(item),
                            Ok(_) => {}
                            Err(refused) => unknown = unknown.or(Some(refused)),
                        }
                    }
                }
                Err(refused) => unknown = unknown.or(Some(refused)),
            }
        }
        Err(unknown.unwrap_or(Refused { line: self.line, reason: Refusal::ContainerMissing }))
    }

    fn container_name(&self, item: &'t Node) -> Result<Option<&'t str>, Refused> {
        // A patch that removes the container.
        if self.source.entry(item, "$patch").is_ok_and(|entry| entry.is_some()) {
            return Ok(None);
        }
        Ok(self.source.entry(item, "name")?.and_then(|entry| entry.value.text()))
    }

    /// The number of columns that a level of its blocks is indented by.
    pub fn indent_step(&self) -> usize {
        let column = |node: &Node| {
            let before = &self.source.text[..node.range.start];
            before.len() - before.rfind('\n').map_or(0, |newline| newline + 1)
        };
        let spec = self.node.entries().iter().find(|entry| entry.key.text() == Some("spec"));
        let child = spec.and_then(|spec| Some((spec, spec.value.entries().first()?)));
        match child {
            Some((spec, child)) if !spec.value.is_flow() => {
                column(&child.key).checked_sub(column(&spec.key)).filter(|step| *step > 0)
            }
            _ => None,
        }
        .unwrap_or(2)
    }
}
