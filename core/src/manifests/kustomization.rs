//! Patches in kustomizations that set resources: objects that they patch are not edited.

use super::{
    lookup::Source,
    objects::objects,
    problem::Refusal,
    tree::{self, Document, Node, Tree},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KustomizePatch {
    pub line: usize,
    /// The kind that it patches; `None` for all.
    kind: Option<String>,
    /// The name that it patches; `None` for all.
    name: Option<String>,
    pub content: PatchContent,
}

/// What a patch does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatchContent {
    /// Sets resources itself, and why that cannot be edited.
    Refused(Refusal),
    /// Is in another file, whose path is relative to the kustomization.
    File(String),
}

impl KustomizePatch {
    /// Whether it may patch an object.
    pub fn targets(&self, kind: &str, name: &str) -> bool {
        let is = |pattern: &Option<String>, text: &str| {
            pattern.as_deref().is_none_or(|pattern| {
                // Kustomize takes them as regular expressions. Whatever is one may match.
                pattern == text || pattern.contains(['*', '+', '?', '[', '(', '|', '^', '$', '\\'])
            })
        };
        is(&self.kind, kind) && is(&self.name, name)
    }
}

/// Whether a file is a kustomization, by its name.
pub(super) fn is_kustomization(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    matches!(name, "kustomization.yaml" | "kustomization.yml" | "Kustomization")
}

/// The patches of a kustomization that may concern resources.
pub(super) fn patches(text: &str, tree: &Tree) -> Vec<KustomizePatch> {
    let mut found = Vec::new();
    for document in &tree.documents {
        let source = Source { text, document, comments: &tree.comments };
        for field in ["patches", "patchesJson6902", "patchesStrategicMerge"] {
            let list = source.value(&document.root, &[field]).ok().flatten();
            for item in list.map(Node::items).unwrap_or_default() {
                found.extend(patch(source, item));
            }
        }
    }
    found
}

fn patch(source: Source<'_>, item: &Node) -> Vec<KustomizePatch> {
    let text = |path: &[&str]| {
        let value = source.value(item, path).ok().flatten();
        value.and_then(Node::text).map(str::to_owned)
    };
    let (kind, name) = (text(&["target", "kind"]), text(&["target", "name"]));
    let (inline, path) = match item.text() {
        Some(inline) if inline.contains('\n') => (Some(inline.to_owned()), None),
        Some(path) => (None, Some(path.to_owned())),
        None => (text(&["patch"]), text(&["path"])),
    };
    let line = item.entries().first().map_or(item.line, |entry| entry.key.line);
    let with = |kind, name, content| KustomizePatch { line, kind, name, content };
    let mut found = Vec::new();
    if let Some(path) = path {
        found.push(with(kind.clone(), name.clone(), PatchContent::File(path)));
    }
    let Some(inline) = inline else { return found };
    let Ok(tree) = tree::parse(&inline) else { return found };
    if tree.documents.iter().any(sets_resources) {
        found.push(with(kind, name, PatchContent::Refused(Refusal::JsonPatch)));
    } else if inline.contains("resources") {
        for object in objects(&inline, &tree) {
            // A target replaces the name within the patch.
            let of_object = |text: &str| Some(text.to_owned());
            found.push(with(
                kind.clone().or_else(|| of_object(object.kind)),
                name.clone().or_else(|| of_object(object.name).filter(|_| kind.is_none())),
                PatchContent::Refused(Refusal::InlinePatch),
            ));
        }
    }
    found
}

/// Whether a document is a JSON patch that sets resources or a utilization target.
pub(super) fn sets_resources(document: &Document) -> bool {
    let field = |item: &Node, name: &str| {
        let entry = item.entries().iter().find(|entry| entry.key.text() == Some(name));
        entry.and_then(|entry| entry.value.text()).map(str::to_owned)
    };
    document.root.items().iter().any(|item| {
        field(item, "op").is_some()
            && field(item, "path").is_some_and(|path| {
                ["/resources", "tilization"].iter().any(|part| path.contains(part))
            })
    })
}
