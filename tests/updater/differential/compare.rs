//! Compares the requests of two updaters about the same pods: which pods, which action, in which order, and the response of
//! the API server.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde_json::Value;

use super::dry_run_proxy::RecordedWrite;
use super::generated_pods::PodKind;
use super::scenario::{Scenario, ScenarioWorkload};

/// A write to a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodWrite {
    /// Evict the pod.
    Evict,
    /// Set these container resources: amounts by `CONTAINER LIST RESOURCE`.
    Resize(BTreeMap<String, String>),
    /// Set these annotations, or remove them if `None`.
    Annotate(BTreeMap<String, Option<String>>),
    /// Anything else, which no updater does.
    Other(String),
}

/// A write to a pod of some kind, and the response code.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodAction {
    /// Name of the pod's kind.
    pub kind: String,
    /// The write.
    pub act: PodWrite,
    /// Status code of the response.
    pub code: u16,
}

/// An expected difference.
#[derive(Debug)]
pub struct ExpectedDifference {
    /// Why the two differ.
    pub reason: &'static str,
    /// Whether this covers an action. Covered actions are left out on both sides.
    covers: fn(&PodAction) -> bool,
}

/// All expected differences.
pub const EXPECTED_DIFFERENCES: [ExpectedDifference; 1] = [ExpectedDifference {
    reason: "a resize that names no amount is not sent: upstream takes a container without resources for one that \
                 gets some, and retries until the pod is gone",
    covers: |action| matches!(&action.act, PodWrite::Resize(amounts) if amounts.is_empty()),
}];

/// The result of a comparison.
#[derive(Debug, Default)]
pub struct Findings {
    /// Unexpected differences, as text.
    pub unlisted: Vec<String>,
    /// How often each expected difference was found.
    pub listed: [usize; EXPECTED_DIFFERENCES.len()],
    /// VPAs with different pods of equal priority in upstream's view: their order is undefined.
    pub tied: usize,
    /// VPAs with more than one pod changed in a defined order.
    pub ordered: usize,
    /// Number of actions by type, on upstream's side.
    pub actions: BTreeMap<String, usize>,
}

/// Upstream's update priorities as it logs them, by namespace and name.
pub type Urgencies = BTreeMap<String, String>;

// === impl Findings ===

impl Findings {
    /// Compares both sides. With `unboosts`, requests for boosted pods come at any time, independent of the pass.
    pub fn of(
        scenario: &Scenario,
        sides: [&[RecordedWrite]; 2],
        urgencies: &Urgencies,
        (passes, unboosts): (usize, bool),
    ) -> Self {
        let mut findings = Self::default();
        let sides = sides.map(by_pod);
        for subject in &scenario.subjects {
            let ties = subject.has_unlike_ties(urgencies);
            findings.tied += usize::from(ties);
            let is_apart = |kind: &PodKind| unboosts && kind.is_boosted;
            for pass in 1..=passes {
                let compared = [0, 1].map(|side| {
                    let actions = actions_of(subject, &sides[side], |write, kind| {
                        write.pass == pass && !is_apart(kind)
                    });
                    without_expected(actions)
                });
                findings.count(&compared[0].0);
                let is_ordered = compared[0].0.iter().collect::<BTreeSet<_>>().len() > 1;
                findings.ordered += usize::from(is_ordered && pass == 1 && !ties);
                findings.compare(subject, &format!("pass {pass}"), compared, ties);
            }
            let compared = [0, 1].map(|side| {
                let actions = actions_of(subject, &sides[side], |_, kind| is_apart(kind));
                without_expected(once(subject, actions))
            });
            findings.count(&compared[0].0);
            findings.compare(subject, "boosted pods", compared, true);
        }
        findings
    }

    fn count(&mut self, actions: &[PodAction]) {
        for action in actions {
            let word = match &action.act {
                PodWrite::Evict => "evict",
                PodWrite::Resize(_) => "resize",
                PodWrite::Annotate(_) => "annotate",
                PodWrite::Other(_) => "other",
            };
            *self.actions.entry(format!("{word} {}", action.code)).or_default() += 1;
        }
    }

    fn compare(
        &mut self,
        subject: &ScenarioWorkload,
        when: &str,
        [theirs, ours]: [ComparedActions; 2],
        any_order: bool,
    ) {
        let left_out = theirs.1.iter().zip(&ours.1);
        for (found, (one, other)) in self.listed.iter_mut().zip(left_out) {
            let lacks = |one: &[PodAction], other: &[PodAction]| {
                one.iter().filter(|action| !other.contains(action)).count()
            };
            *found += lacks(one, other) + lacks(other, one);
        }
        let (mut one, mut other) = (theirs.0.clone(), ours.0.clone());
        if any_order {
            one.sort();
            other.sort();
        }
        // If only some of them may change, which ones is undefined too; how many is not.
        if any_order && one != other {
            for actions in [&mut one, &mut other] {
                actions.retain(PodAction::changes_a_pod);
                actions.iter_mut().for_each(PodAction::clear_kind);
            }
        }
        if one != other {
            let lines = |actions: &[PodAction]| {
                let lines: Vec<_> =
                    actions.iter().map(|action| format!("    {action}\n")).collect();
                lines.concat()
            };
            self.unlisted.push(format!(
                "{}/{} {when}\n  upstream\n{}  ours\n{}{}",
                subject.workload.namespace,
                subject.workload.name,
                lines(&theirs.0),
                lines(&ours.0),
                subject.described(),
            ));
        }
    }
}

/// Actions to compare, and those left out because they are expected to differ.
type ComparedActions = (Vec<PodAction>, [Vec<PodAction>; EXPECTED_DIFFERENCES.len()]);

/// Splits off the actions that are expected to differ.
fn without_expected(actions: Vec<IndexedAction>) -> ComparedActions {
    let mut left_out = <[Vec<PodAction>; EXPECTED_DIFFERENCES.len()]>::default();
    let mut left = Vec::new();
    for IndexedAction { action, .. } in actions {
        match EXPECTED_DIFFERENCES.iter().position(|listed| (listed.covers)(&action)) {
            Some(which) => left_out[which].push(action),
            None => left.push(action),
        }
    }
    (left, left_out)
}

impl ScenarioWorkload {
    /// Whether two pods of different kinds have equal priority.
    fn has_unlike_ties(&self, urgencies: &Urgencies) -> bool {
        let mut kinds = HashMap::new();
        (0..).zip(&self.pods).any(|(number, &kind)| {
            let name = self.workload.pod_name(number);
            let urgency = urgencies.get(&format!("{}/{name}", self.workload.namespace));
            urgency.is_some_and(|urgency| *kinds.entry(urgency).or_insert(kind) != kind)
        })
    }
}

impl PodAction {
    fn changes_a_pod(&self) -> bool {
        self.code < 300 && matches!(self.act, PodWrite::Evict | PodWrite::Resize(_))
    }

    fn clear_kind(&mut self) {
        self.kind.clear();
        if let PodWrite::Resize(amounts) = &mut self.act {
            amounts.clear();
        }
    }
}

impl fmt::Display for PodAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} -> {}", self.kind, self.act, self.code)
    }
}

/// An action, and the index of its pod.
struct IndexedAction {
    action: PodAction,
    pod: usize,
    pass: usize,
}

type ByPod<'a> = HashMap<(&'a str, &'a str), Vec<(usize, &'a RecordedWrite)>>;

/// Groups requests by namespace and pod, each with its index among all.
fn by_pod(writes: &[RecordedWrite]) -> ByPod<'_> {
    let mut found = ByPod::new();
    for (index, write) in writes.iter().enumerate() {
        let Some((namespace, pod)) = write.pod() else { continue };
        found.entry((namespace, pod)).or_default().push((index, write));
    }
    found
}

/// Returns the actions on the selected pods of a workload, in order.
fn actions_of(
    subject: &ScenarioWorkload,
    writes: &ByPod<'_>,
    is_wanted: impl Fn(&RecordedWrite, &PodKind) -> bool,
) -> Vec<IndexedAction> {
    let mut found = Vec::new();
    let ScenarioWorkload { workload, kinds, pods, .. } = subject;
    for (pod, &kind) in pods.iter().enumerate() {
        let name = workload.pod_name(pod as u64);
        let Some(of_pod) = writes.get(&(&*workload.namespace, &*name)) else { continue };
        for &(index, write) in of_pod {
            if is_wanted(write, &kinds[kind]) {
                let act = PodWrite::of(write, &workload.containers);
                let action = PodAction { kind: kinds[kind].name.clone(), act, code: write.code };
                found.push((index, IndexedAction { action, pod, pass: write.pass }));
            }
        }
    }
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, action)| action).collect()
}

/// The removal of a boost is retried until it succeeds, so count it once for each pod. If passes handle the same pods too,
/// which of several equal pods gets a second request is undefined.
fn once(subject: &ScenarioWorkload, mut actions: Vec<IndexedAction>) -> Vec<IndexedAction> {
    let key = |left: &IndexedAction| match left.action.act {
        PodWrite::Evict => (left.pass, left.pod),
        _ if subject.is_boosting() => (0, left.pod),
        _ => (0, 0),
    };
    actions.sort_by(|left, right| (&left.action, key(left)).cmp(&(&right.action, key(right))));
    actions.dedup_by(|left, right| left.action == right.action && key(left) == key(right));
    actions
}

// === impl RecordedWrite ===

impl RecordedWrite {
    /// Namespace and name of the pod.
    pub fn pod(&self) -> Option<(&str, &str)> {
        let rest = self.path.strip_prefix("/api/v1/namespaces/")?;
        let mut segments = rest.split('/');
        let (namespace, _, pod) = (segments.next()?, segments.next()?, segments.next()?);
        Some((namespace, pod))
    }
}

// === impl PodWrite ===

impl PodWrite {
    pub fn of(write: &RecordedWrite, containers: &[String]) -> Self {
        let end = write.path.split('/').nth(7);
        match (&*write.method, end) {
            ("POST", Some("eviction")) => Self::Evict,
            ("PATCH", Some("resize")) => Self::Resize(amounts(&write.body, containers)),
            ("PATCH", None) => Self::Annotate(annotations(&write.body)),
            _ => Self::Other(format!("{} {}", write.method, write.path)),
        }
    }
}

/// Returns the amounts in a patch: upstream sends JSON Patch operations, Plimsoll sends fields.
fn amounts(body: &Value, containers: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for operation in body.as_array().into_iter().flatten() {
        let path: Vec<_> = operation["path"].as_str().unwrap_or_default().split('/').collect();
        let ["", "spec", "containers", index, "resources", list, resource] = path[..] else {
            continue;
        };
        let name = index.parse().ok().and_then(|index: usize| containers.get(index));
        let name = name.map_or("nobody", |name| name);
        let amount = operation["value"].as_str().unwrap_or_default();
        found.insert(format!("{name} {list} {resource}"), amount.to_owned());
    }
    for kind in ["containers", "initContainers"] {
        for container in body["spec"][kind].as_array().into_iter().flatten() {
            let name = container["name"].as_str().unwrap_or_default();
            for (list, amounts) in container["resources"].as_object().into_iter().flatten() {
                for (resource, amount) in amounts.as_object().into_iter().flatten() {
                    let amount = amount.as_str().unwrap_or_default();
                    found.insert(format!("{name} {list} {resource}"), amount.to_owned());
                }
            }
        }
    }
    found
}

fn annotations(body: &Value) -> BTreeMap<String, Option<String>> {
    let mut found = BTreeMap::new();
    for operation in body.as_array().into_iter().flatten() {
        let path = operation["path"].as_str().unwrap_or_default();
        if let Some(key) = path.strip_prefix("/metadata/annotations/") {
            let key = key.replace("~1", "/").replace("~0", "~");
            found.insert(key, operation["value"].as_str().map(str::to_owned));
        }
    }
    for (key, value) in body["metadata"]["annotations"].as_object().into_iter().flatten() {
        found.insert(key.clone(), value.as_str().map(str::to_owned));
    }
    found
}
