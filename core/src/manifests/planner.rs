//! Plans the edits of a set of manifests: checks every value first, and edits only what can be edited
//! completely.

use std::collections::{BTreeMap, HashMap};

use crate::rightsizing::{
    fail_on::changes,
    report::{ResourceReport, TargetChange, WorkloadReport},
    survey::Resource,
};

use super::{
    autoscaler::KIND as AUTOSCALER,
    file_edit::{self, Wanted, WantedValue},
    objects::{Object, objects},
    plan::{EditPlan, EditedFile, Placement},
    problem::{Problem, Refusal, Refused},
    set::{Identity, ManifestSet, ROLLOUT},
    tree,
};

/// Where an object is.
#[derive(Clone, Copy)]
struct Place<'s> {
    path: &'s str,
    identity: &'s Identity,
}

/// The indices of the tasks of a file, and the workloads in it.
type FileContents<'s> = (Vec<usize>, Vec<(usize, Place<'s>)>);

/// A value to write.
struct Task<'s> {
    workload: usize,
    place: Place<'s>,
    wanted: WantedValue<'s>,
    resource: Resource,
    subject: String,
    /// The number of values that change, or why none does; `None` until the file has been searched.
    outcome: Option<Result<usize, Refused>>,
}

pub(super) struct Planner<'s> {
    set: &'s ManifestSet<'s>,
    /// The objects by kind and name.
    places: HashMap<(&'s str, &'s str), Vec<Place<'s>>>,
    plan: EditPlan,
    tasks: Vec<Task<'s>>,
    /// The workloads with their place.
    placed: Vec<(usize, Place<'s>)>,
}

impl<'s> Planner<'s> {
    pub fn new(set: &'s ManifestSet<'s>) -> Self {
        let mut places: HashMap<_, Vec<_>> = HashMap::new();
        for (path, file) in &set.files {
            for identity in &file.objects {
                let place = Place { path, identity };
                places.entry((&*identity.kind, &*identity.name)).or_default().push(place);
            }
        }
        let plan = EditPlan::default();
        Self { set, places, plan, tasks: Vec::new(), placed: Vec::new() }
    }

    pub fn plan(mut self, problems: Vec<Problem>) -> EditPlan {
        self.plan.problems = problems;
        let workloads = &self.set.report.workloads;
        let places: Vec<_> = workloads
            .iter()
            .enumerate()
            .map(|(index, workload)| self.place(index, workload))
            .collect();
        let mut owners: HashMap<(&str, usize), Vec<usize>> = HashMap::new();
        for (index, place) in places.iter().enumerate() {
            let Ok(Some(place)) = place else { continue };
            if wanted_resources(&workloads[index]).next().is_some() {
                owners.entry((place.path, place.identity.index)).or_default().push(index);
            }
        }
        for ((index, workload), place) in workloads.iter().enumerate().zip(places) {
            let is_wanted = wanted_resources(workload).next().is_some();
            match place {
                Ok(Some(place)) => {
                    self.placed.push((index, place));
                    let owners = owners.get(&(place.path, place.identity.index));
                    let other = owners.into_iter().flatten().find(|other| **other != index);
                    match other.filter(|_| is_wanted) {
                        Some(other) => self.plan.problems.push(Problem {
                            file: place.path.into(),
                            line: place.identity.line,
                            subject: Some(title(workload)),
                            reason: Refusal::SharedTemplate(title(&workloads[*other])),
                        }),
                        None => self.add_tasks(index, workload, place),
                    }
                }
                Ok(None) if is_wanted => {
                    self.plan.missing.push(format!("{}/{}", workload.namespace, workload.name));
                }
                Err(problem) if is_wanted => self.plan.problems.push(problem),
                _ => {}
            }
        }
        self.search_files();
        self.refuse_halves();
        self.edit_files();
        self.plan.problems.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        self.plan.placements.sort_by_key(|at| (at.workload, at.container, at.resource));
        self.plan
    }

    /// Where the pod template of a workload is; `None` if it is in no file.
    fn place(
        &self,
        index: usize,
        workload: &'s WorkloadReport,
    ) -> Result<Option<Place<'s>>, Problem> {
        let problem = |place: &Place<'s>, Refused { line, reason }| Problem {
            file: place.path.into(),
            line,
            subject: Some(title(workload)),
            reason,
        };
        let (mut kind, mut name) = (&*workload.kind, &*workload.name);
        loop {
            let places = self.places(kind, name, &workload.namespace);
            let place = match &places[..] {
                [] => return Ok(None),
                [only] => *only,
                [one, other, ..] => return Err(problem(one, several_objects(one, other))),
            };
            let namesakes = self.set.namesakes(index, place.identity);
            if namesakes > 1 {
                let reason = several_workloads(place.identity, namesakes);
                return Err(problem(&place, Refused { line: place.identity.line, reason }));
            }
            match &place.identity.workload_ref {
                Some((of_kind, of_name)) if kind == ROLLOUT && &**of_kind != ROLLOUT => {
                    (kind, name) = (of_kind, of_name);
                }
                _ => return Ok(Some(place)),
            }
        }
    }

    /// The objects with a kind, a name and a namespace, or with no namespace.
    fn places(&self, kind: &str, name: &str, namespace: &str) -> Vec<Place<'s>> {
        let all = self.places.get(&(kind, name)).into_iter().flatten();
        all.filter(|place| place.identity.may_be_in(namespace)).copied().collect()
    }

    fn add_tasks(&mut self, index: usize, workload: &'s WorkloadReport, place: Place<'s>) {
        let first = self.tasks.len();
        for (container, resource) in wanted_resources(workload) {
            self.tasks.push(Task {
                workload: index,
                place,
                wanted: WantedValue::Resource { container, resource },
                resource: resource.resource,
                subject: format!(
                    "{}, container {container}, {}",
                    title(workload),
                    resource.resource
                ),
                outcome: None,
            });
        }
        for change in workload.target_changes.iter().filter(|change| change.new_percent.is_some()) {
            let resource = change.target.resource;
            if self.tasks[first..].iter().any(|task| task.resource == resource) {
                let task = self.target_task(index, workload, place, change);
                self.tasks.push(task);
            }
        }
    }

    fn target_task(
        &self,
        index: usize,
        workload: &WorkloadReport,
        of_workload: Place<'s>,
        change: &'s TargetChange,
    ) -> Task<'s> {
        let (name, resource) = (&change.target.name, change.target.resource);
        let line = of_workload.identity.line;
        let places = self.places(AUTOSCALER, name, &workload.namespace);
        let (place, refused) = match &places[..] {
            _ if &*change.target.kind != AUTOSCALER => {
                let autoscaler = format!("{} {name}", change.target.kind);
                let reason = Refusal::OtherAutoscaler(autoscaler.into());
                (of_workload, Some(Refused { line, reason }))
            }
            [] => {
                let reason = Refusal::AutoscalerMissing(name.clone());
                (of_workload, Some(Refused { line, reason }))
            }
            [only] => {
                let namesakes = self.set.autoscaler_namesakes(only.identity);
                let reason = several_workloads(only.identity, namesakes);
                let refused = Refused { line: only.identity.line, reason };
                (*only, (namesakes > 1).then_some(refused))
            }
            [one, other, ..] => (*one, Some(several_objects(one, other))),
        };
        Task {
            workload: index,
            place,
            wanted: WantedValue::Target(change),
            resource,
            subject: format!("{}/{}/{name}, {resource}", workload.namespace, change.target.kind),
            outcome: refused.map(Err),
        }
    }

    /// Parses each file once: finds out what can be written, and where resources are.
    fn search_files(&mut self) {
        let mut by_path: BTreeMap<&str, FileContents<'s>> = BTreeMap::new();
        for (index, task) in
            self.tasks.iter().enumerate().filter(|(_, task)| task.outcome.is_none())
        {
            by_path.entry(task.place.path).or_default().0.push(index);
        }
        for (workload, place) in &self.placed {
            by_path.entry(place.path).or_default().1.push((*workload, *place));
        }
        for (path, (tasks, placed)) in by_path {
            let text = &self.set.files[path].text;
            // It was parsed before.
            let Ok(tree) = tree::parse(text) else { continue };
            let objects = objects(text, &tree);
            for (workload, place) in placed {
                if let Some(object) = objects.get(place.identity.index) {
                    self.add_placements(workload, path, *object);
                }
            }
            for index in tasks {
                let task = &mut self.tasks[index];
                if let Some(object) = objects.get(task.place.identity.index) {
                    task.outcome = Some(check(self.set, *object, task));
                }
            }
        }
    }

    fn add_placements(&mut self, index: usize, path: &str, object: Object<'_>) {
        for (number, container) in self.set.report.workloads[index].containers.iter().enumerate() {
            let Ok(node) = file_edit::container_node(object, &container.name) else { continue };
            self.plan.placements.extend(container.resources.iter().map(|resource| Placement {
                file: path.into(),
                line: node.line(resource.resource),
                workload: index,
                container: number,
                resource: resource.resource,
            }));
        }
    }

    /// Requests and a target that change together are written together or not at all.
    fn refuse_halves(&mut self) {
        let mut refused: HashMap<(usize, Resource), String> = HashMap::new();
        for task in &self.tasks {
            let is_joint = || {
                let targets = &self.set.report.workloads[task.workload].target_changes;
                targets.iter().any(|change| {
                    change.new_percent.is_some() && change.target.resource == task.resource
                })
            };
            if matches!(task.outcome, Some(Err(_))) && is_joint() {
                refused
                    .entry((task.workload, task.resource))
                    .or_insert_with(|| task.subject.clone());
            }
        }
        for task in &mut self.tasks {
            let other = refused.get(&(task.workload, task.resource));
            if let (Some(Ok(1..)), Some(other)) = (&task.outcome, other) {
                let reason = Refusal::ChangesTogether(other.clone());
                task.outcome = Some(Err(Refused { line: task.place.identity.line, reason }));
            }
        }
    }

    fn edit_files(&mut self) {
        let mut accepted: BTreeMap<&str, (usize, Vec<Wanted<'s>>)> = BTreeMap::new();
        for Task { place, wanted, subject, outcome, .. } in &self.tasks {
            match outcome {
                None | Some(Ok(0)) => {}
                Some(Ok(values)) => {
                    let (sum, all) = accepted.entry(place.path).or_default();
                    *sum += values;
                    all.push(Wanted { object: place.identity.index, value: *wanted });
                }
                Some(Err(Refused { line, reason })) => self.plan.problems.push(Problem {
                    file: place.path.into(),
                    line: *line,
                    subject: Some(subject.clone()),
                    reason: reason.clone(),
                }),
            }
        }
        for (path, (values, wanted)) in accepted {
            let before = self.set.files[path].text.clone();
            match file_edit::edit(&before, &wanted) {
                Ok(after) => {
                    self.plan.files.push(EditedFile { path: path.into(), before, after, values });
                }
                Err(Refused { line, reason }) => {
                    let file = path.into();
                    self.plan.problems.push(Problem { file, line, subject: None, reason });
                    // What changes together may be in several files, so none of them changes.
                    self.plan.files.clear();
                    return;
                }
            }
        }
    }
}

fn check(set: &ManifestSet<'_>, object: Object<'_>, task: &Task<'_>) -> Result<usize, Refused> {
    let outstanding = file_edit::check(object, task.wanted)?;
    match set.patched(task.place.identity) {
        Some(reason) if outstanding.values > 0 => Err(Refused { line: outstanding.line, reason }),
        _ => Ok(outstanding.values),
    }
}

/// The resources of a workload that should change, with their containers.
pub(super) fn wanted_resources(
    workload: &WorkloadReport,
) -> impl Iterator<Item = (&str, &ResourceReport)> {
    workload.containers.iter().flat_map(|container| {
        let wanted = container.resources.iter().filter(|resource| changes(&resource.change));
        wanted.map(|resource| (&*container.name, resource))
    })
}

fn title(workload: &WorkloadReport) -> String {
    format!("{}/{}/{}", workload.namespace, workload.kind, workload.name)
}

/// Workloads of one name and namespace differ in their cluster.
fn several_workloads(identity: &Identity, count: usize) -> Refusal {
    if identity.namespace.is_some() {
        Refusal::SeveralClusters(count)
    } else {
        Refusal::SeveralWorkloads(count)
    }
}

fn several_objects(one: &Place<'_>, other: &Place<'_>) -> Refused {
    let reason = Refusal::SeveralObjects { file: other.path.into(), line: other.identity.line };
    Refused { line: one.identity.line, reason }
}
