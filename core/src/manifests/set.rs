//! A set of manifests: keeps the files with objects of a report.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::rightsizing::report::Report;

use super::{
    MAX_FILE_BYTES, MAX_FILES, MAX_KEPT_BYTES,
    autoscaler::KIND as AUTOSCALER,
    kustomization::{self, KustomizePatch, PatchContent},
    objects::{Object, objects},
    plan::EditPlan,
    planner::Planner,
    problem::{Problem, Refusal, Refused},
    tree::{self, Tree},
};

/// The kind whose pod template may be in an object of another kind.
pub(super) const ROLLOUT: &str = "Rollout";

/// A cluster and a namespace.
type Namespace<'r> = (Option<&'r str>, &'r str);

/// Manifests, and the report that they are edited by. Only files with objects of the report are kept.
pub struct ManifestSet<'r> {
    pub(super) report: &'r Report,
    /// The workloads by kind and name, whatever their namespace.
    workloads: HashMap<(&'r str, &'r str), Vec<usize>>,
    autoscalers: HashMap<&'r str, BTreeSet<Namespace<'r>>>,
    pub(super) files: BTreeMap<Box<str>, ManifestFile>,
    /// Patches of kustomizations, with the file that they are in.
    patches: Vec<(Box<str>, KustomizePatch)>,
    /// The files with JSON patches that set resources.
    json_patches: BTreeSet<String>,
    problems: Vec<Problem>,
    added: usize,
    kept_bytes: usize,
}

/// A file with objects of the report.
pub(super) struct ManifestFile {
    pub text: String,
    pub objects: Vec<Identity>,
}

/// An object in a file.
pub(super) struct Identity {
    /// The index of the object in the file.
    pub index: usize,
    pub kind: Box<str>,
    pub namespace: Option<Box<str>>,
    pub name: Box<str>,
    pub line: usize,
    /// The object with the pod template, for a Rollout that refers to one.
    pub workload_ref: Option<(Box<str>, Box<str>)>,
}

impl Identity {
    fn new(index: usize, object: &Object<'_>) -> Self {
        Self {
            index,
            kind: object.kind.into(),
            namespace: object.namespace.map(Into::into),
            name: object.name.into(),
            line: object.line,
            workload_ref: object.workload_ref().map(|(kind, name)| (kind.into(), name.into())),
        }
    }

    /// Whether the object can be in a namespace.
    pub fn may_be_in(&self, namespace: &str) -> bool {
        self.namespace.as_deref().is_none_or(|stated| stated == namespace)
    }
}

impl<'r> ManifestSet<'r> {
    /// A set without files.
    pub fn new(report: &'r Report) -> Self {
        let mut workloads: HashMap<_, Vec<usize>> = HashMap::new();
        let mut autoscalers: HashMap<_, BTreeSet<_>> = HashMap::new();
        for (index, workload) in report.workloads.iter().enumerate() {
            workloads.entry((&*workload.kind, &*workload.name)).or_default().push(index);
            for change in &workload.target_changes {
                let namespace = (workload.cluster.as_deref(), &*workload.namespace);
                autoscalers.entry(&*change.target.name).or_default().insert(namespace);
            }
        }
        Self {
            report,
            workloads,
            autoscalers,
            files: BTreeMap::new(),
            patches: Vec::new(),
            json_patches: BTreeSet::new(),
            problems: Vec::new(),
            added: 0,
            kept_bytes: 0,
        }
    }

    /// Adds a problem that was found while files were read.
    pub fn add_problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// Adds a file. Files without objects of the report are not kept.
    pub fn add(&mut self, path: &str, text: &str) {
        self.added += 1;
        if self.added > MAX_FILES {
            if self.added == MAX_FILES + 1 {
                self.refuse_file(path, Refused { line: 1, reason: Refusal::TooManyFiles });
            }
            return;
        }
        if text.len() > MAX_FILE_BYTES {
            return self.refuse_file(path, Refused { line: 1, reason: Refusal::TooLarge });
        }
        let is_kustomization = kustomization::is_kustomization(path);
        let may_have_objects = text.contains("kind");
        if !may_have_objects && !is_kustomization && !text.contains("/resources") {
            return;
        }
        match tree::parse(text) {
            Ok(tree) => self.add_tree(path, text, &tree),
            Err(refused) if may_have_objects => {
                let template = text.lines().position(|line| line.contains("{{"));
                let template =
                    template.map(|index| Refused { line: index + 1, reason: Refusal::Template });
                self.refuse_file(path, template.unwrap_or(refused));
            }
            Err(_) => {}
        }
    }

    fn add_tree(&mut self, path: &str, text: &str, tree: &Tree) {
        if kustomization::is_kustomization(path) {
            let patches = kustomization::patches(text, tree);
            self.patches.extend(patches.into_iter().map(|patch| (path.into(), patch)));
        }
        if tree.documents.iter().any(kustomization::sets_resources) {
            self.json_patches.insert(path.to_owned());
        }
        let found = objects(text, tree);
        let identities: Vec<_> = found
            .iter()
            .enumerate()
            .filter(|(_, object)| self.is_relevant(object))
            .map(|(index, object)| Identity::new(index, object))
            .collect();
        let Some(first) = identities.first() else { return };
        if let Some(line) = lone_carriage_return(text) {
            return self.refuse_file(path, Refused { line, reason: Refusal::LineEnd });
        }
        self.kept_bytes += text.len();
        if self.kept_bytes > MAX_KEPT_BYTES {
            let line = first.line;
            return self.refuse_file(path, Refused { line, reason: Refusal::TooManyBytes });
        }
        self.files.insert(path.into(), ManifestFile { text: text.to_owned(), objects: identities });
    }

    fn refuse_file(&mut self, path: &str, Refused { line, reason }: Refused) {
        self.problems.push(Problem { file: path.into(), line, subject: None, reason });
    }

    fn is_relevant(&self, object: &Object<'_>) -> bool {
        self.workloads.contains_key(&(object.kind, object.name))
            || (object.kind == AUTOSCALER && self.autoscalers.contains_key(object.name))
            || (matches!(object.kind, "Deployment" | "ReplicaSet" | "PodTemplate")
                && self.workloads.keys().any(|(kind, _)| *kind == ROLLOUT))
    }

    pub fn plan(mut self) -> EditPlan {
        let problems = std::mem::take(&mut self.problems);
        Planner::new(&self).plan(problems)
    }

    /// How many workloads of the report an object can be; one of them is known.
    pub(super) fn namesakes(&self, workload: usize, identity: &Identity) -> usize {
        let known = &self.report.workloads[workload];
        let same = self.workloads.get(&(&*known.kind, &*known.name));
        let others = same.into_iter().flatten().filter(|other| {
            **other != workload && identity.may_be_in(&self.report.workloads[**other].namespace)
        });
        1 + others.count()
    }

    /// How many autoscalers of the report an object can be.
    pub(super) fn autoscaler_namesakes(&self, identity: &Identity) -> usize {
        let namespaces = self.autoscalers.get(&*identity.name);
        let may_be = |(_, namespace): &&Namespace<'_>| identity.may_be_in(namespace);
        namespaces.map_or(0, |namespaces| namespaces.iter().filter(may_be).count())
    }

    /// Why the resources of an object are set elsewhere; `None` if they are not.
    pub(super) fn patched(&self, identity: &Identity) -> Option<Refusal> {
        let mut concerned =
            self.patches.iter().filter(|(_, patch)| patch.targets(&identity.kind, &identity.name));
        concerned.find_map(|(path, patch)| match &patch.content {
            PatchContent::Refused(reason) => Some(reason.clone()),
            PatchContent::File(file) => {
                let is_json_patch = self.json_patches.contains(&relative_to(path, file));
                is_json_patch.then_some(Refusal::JsonPatch)
            }
        })
    }
}

/// The path of a file that a kustomization names.
fn relative_to(kustomization: &str, file: &str) -> String {
    let mut parts: Vec<&str> = kustomization.split('/').collect();
    parts.pop();
    for part in file.split('/') {
        match part {
            "." | "" => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The line with a carriage return that is not part of a line break: YAML ends the line there, editors do
/// not.
fn lone_carriage_return(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let is_alone = |at: &usize| bytes[*at] == b'\r' && bytes.get(at + 1) != Some(&b'\n');
    let at = (0..bytes.len()).find(is_alone)?;
    Some(text[..at].matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_kustomizations_are_resolved() {
        for (kustomization, file, path) in [
            ("deploy/prod/kustomization.yaml", "../base/./p.yaml", "deploy/base/p.yaml"),
            ("kustomization.yaml", "p.yaml", "p.yaml"),
            ("kustomization.yaml", "../p.yaml", "../p.yaml"),
            ("../kustomization.yaml", "../p.yaml", "../../p.yaml"),
        ] {
            assert_eq!(relative_to(kustomization, file), path);
        }
    }
}
