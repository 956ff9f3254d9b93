//! Compares what two updaters asked about the same pods: which were touched, how, in which order, and what the server
//! said to it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use serde_json::Value;

use super::dry_run_proxy::RecordedWrite;
use super::generated_pods::PodKind;
use super::scenario::{Scenario, ScenarioWorkload};

/// What was to be done to a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PodWrite {
    /// It was to go.
    Evict,
    /// Its containers were to have this: amounts by `CONTAINER LIST RESOURCE`.
    Resize(BTreeMap<String, String>),
    /// Its annotations were to say this, or not to be there.
    Annotate(BTreeMap<String, Option<String>>),
    /// Something that no updater does.
    Other(String),
}

/// What was to be done to a pod of some kind, and what the server said.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodAction {
    /// Name of its kind.
    pub kind: String,
    /// What.
    pub act: PodWrite,
    /// The server's code.
    pub code: u16,
}

/// A difference that is known.
#[derive(Debug)]
pub struct ExpectedDifference {
    /// Why.
    pub reason: &'static str,
    /// Whether it is about such a deed. Those are left out on both sides.
    covers: fn(&PodAction) -> bool,
}

/// All that are.
pub const EXPECTED_DIFFERENCES: [ExpectedDifference; 1] = [ExpectedDifference {
    reason: "a resize that names no amount is not sent: upstream takes a container without resources for one that \
                 gets some, and asks until the pod is gone",
    covers: |deed| matches!(&deed.act, PodWrite::Resize(amounts) if amounts.is_empty()),
}];

/// What came of a comparison.
#[derive(Debug, Default)]
pub struct Findings {
    /// Differences that are not listed, as text.
    pub unlisted: Vec<String>,
    /// How often each of the listed ones was found.
    pub listed: [usize; EXPECTED_DIFFERENCES.len()],
    /// VPAs with pods that are alike to upstream's eyes only: their order is nobody's.
    pub tied: usize,
    /// VPAs of which more than one pod was touched in order.
    pub ordered: usize,
    /// Deeds by what they are, on upstream's side.
    pub deeds: BTreeMap<String, usize>,
}

/// How urgent upstream finds pods, by namespace and name, as it prints it.
pub type Urgencies = BTreeMap<String, String>;

// === impl Findings ===

impl Findings {
    /// Compares both sides. With `unboosts`, pods that are boosted are asked about at any time, whatever the pass.
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
                let made = [0, 1].map(|side| {
                    let deeds = actions_of(subject, &sides[side], |one, kind| {
                        one.pass == pass && !is_apart(kind)
                    });
                    without_expected(deeds)
                });
                findings.count(&made[0].0);
                let is_ordered = made[0].0.iter().collect::<BTreeSet<_>>().len() > 1;
                findings.ordered += usize::from(is_ordered && pass == 1 && !ties);
                findings.compare(subject, &format!("pass {pass}"), made, ties);
            }
            let made = [0, 1].map(|side| {
                let deeds = actions_of(subject, &sides[side], |_, kind| is_apart(kind));
                without_expected(once(subject, deeds))
            });
            findings.count(&made[0].0);
            findings.compare(subject, "boosted pods", made, true);
        }
        findings
    }

    fn count(&mut self, deeds: &[PodAction]) {
        for deed in deeds {
            let word = match &deed.act {
                PodWrite::Evict => "evict",
                PodWrite::Resize(_) => "resize",
                PodWrite::Annotate(_) => "annotate",
                PodWrite::Other(_) => "other",
            };
            *self.deeds.entry(format!("{word} {}", deed.code)).or_default() += 1;
        }
    }

    fn compare(
        &mut self,
        subject: &ScenarioWorkload,
        what: &str,
        [theirs, ours]: [ComparedActions; 2],
        any_order: bool,
    ) {
        let left_out = theirs.1.iter().zip(&ours.1);
        for (found, (one, other)) in self.listed.iter_mut().zip(left_out) {
            let lacks = |one: &[PodAction], other: &[PodAction]| {
                one.iter().filter(|deed| !other.contains(deed)).count()
            };
            *found += lacks(one, other) + lacks(other, one);
        }
        let (mut one, mut other) = (theirs.0.clone(), ours.0.clone());
        if any_order {
            one.sort();
            other.sort();
        }
        // Where only some of them may change, it is as much a matter of luck which; not how many.
        if any_order && one != other {
            for deeds in [&mut one, &mut other] {
                deeds.retain(PodAction::changes_a_pod);
                deeds.iter_mut().for_each(PodAction::clear_kind);
            }
        }
        if one != other {
            let lines = |deeds: &[PodAction]| {
                let lines: Vec<_> = deeds.iter().map(|deed| format!("    {deed}\n")).collect();
                lines.concat()
            };
            self.unlisted.push(format!(
                "{}/{} {what}\n  upstream\n{}  ours\n{}{}",
                subject.workload.namespace,
                subject.workload.name,
                lines(&theirs.0),
                lines(&ours.0),
                subject.described(),
            ));
        }
    }
}

/// What counts, and what is left out because it is listed.
type ComparedActions = (Vec<PodAction>, [Vec<PodAction>; EXPECTED_DIFFERENCES.len()]);

/// Leaves out what is listed.
fn without_expected(done: Vec<IndexedAction>) -> ComparedActions {
    let mut left_out = <[Vec<PodAction>; EXPECTED_DIFFERENCES.len()]>::default();
    let mut left = Vec::new();
    for IndexedAction { deed, .. } in done {
        match EXPECTED_DIFFERENCES.iter().position(|listed| (listed.covers)(&deed)) {
            Some(which) => left_out[which].push(deed),
            None => left.push(deed),
        }
    }
    (left, left_out)
}

impl ScenarioWorkload {
    /// Whether two pods that are not alike are equally urgent.
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

/// A deed, and the index of its pod.
struct IndexedAction {
    deed: PodAction,
    pod: usize,
    pass: usize,
}

type ByPod<'a> = HashMap<(&'a str, &'a str), Vec<(usize, &'a RecordedWrite)>>;

/// What was asked, by namespace and pod, each with its place among all.
fn by_pod(asked: &[RecordedWrite]) -> ByPod<'_> {
    let mut found = ByPod::new();
    for (place, one) in asked.iter().enumerate() {
        let Some((namespace, pod)) = one.pod() else { continue };
        found.entry((namespace, pod)).or_default().push((place, one));
    }
    found
}

/// What was done to those pods of a workload that are wanted, in order.
fn actions_of(
    subject: &ScenarioWorkload,
    asked: &ByPod<'_>,
    is_wanted: impl Fn(&RecordedWrite, &PodKind) -> bool,
) -> Vec<IndexedAction> {
    let mut found = Vec::new();
    let ScenarioWorkload { workload, kinds, pods, .. } = subject;
    for (pod, &kind) in pods.iter().enumerate() {
        let name = workload.pod_name(pod as u64);
        let Some(of_pod) = asked.get(&(&*workload.namespace, &*name)) else { continue };
        for &(place, one) in of_pod {
            if is_wanted(one, &kinds[kind]) {
                let act = PodWrite::of(one, &workload.containers);
                let deed = PodAction { kind: kinds[kind].name.clone(), act, code: one.code };
                found.push((place, IndexedAction { deed, pod, pass: one.pass }));
            }
        }
    }
    found.sort_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, done)| done).collect()
}

/// The end of a boost is tried until it is done, so it counts once for each pod. Where pods are looked at in passes too,
/// it is anybody's guess which of those that are alike were asked about twice.
fn once(subject: &ScenarioWorkload, mut done: Vec<IndexedAction>) -> Vec<IndexedAction> {
    let by = |one: &IndexedAction| match one.deed.act {
        PodWrite::Evict => (one.pass, one.pod),
        _ if subject.is_boosting() => (0, one.pod),
        _ => (0, 0),
    };
    done.sort_by(|one, other| (&one.deed, by(one)).cmp(&(&other.deed, by(other))));
    done.dedup_by(|one, other| one.deed == other.deed && by(one) == by(other));
    done
}

// === impl Asked ===

impl RecordedWrite {
    /// Namespace and name of the pod.
    pub fn pod(&self) -> Option<(&str, &str)> {
        let rest = self.path.strip_prefix("/api/v1/namespaces/")?;
        let mut words = rest.split('/');
        let (namespace, _, pod) = (words.next()?, words.next()?, words.next()?);
        Some((namespace, pod))
    }
}

// === impl Act ===

impl PodWrite {
    pub fn of(asked: &RecordedWrite, containers: &[String]) -> Self {
        let end = asked.path.split('/').nth(7);
        match (&*asked.method, end) {
            ("POST", Some("eviction")) => Self::Evict,
            ("PATCH", Some("resize")) => Self::Resize(amounts(&asked.body, containers)),
            ("PATCH", None) => Self::Annotate(annotations(&asked.body)),
            _ => Self::Other(format!("{} {}", asked.method, asked.path)),
        }
    }
}

/// Amounts of a patch: upstream writes operations, ours fields.
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
