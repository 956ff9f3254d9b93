//! Who owns which pod, as kube-state-metrics said over time: deleted pods included.
//!
//! Asked from the index of the server (`/api/v1/series`), which reads no samples: an owner is in the labels, so it
//! suffices that a series was there.

#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::owner::Owner;
use crate::prometheus::{
    answer::{Labels, Series, Wants},
    client::Client,
    failure::Failure,
    schema::{Schema, States},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::Time;

/// What stands between a workload and its pods, where it is asked about.
const BETWEEN: [(&str, &str, &str); 2] =
    [("kube_replicaset_owner", "ReplicaSet", "replicaset"), ("kube_job_owner", "Job", "job_name")];

/// What one entry of a table takes, in points of sixteen bytes, besides its names.
const ENTRY: u64 = 12;

/// What was said of owners in a namespace, as far as names do not say the same. Of the pods of CronJobs there are
/// millions, and nearly all names tell whose they are.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof {
    pods: HashMap<Box<str>, Vec<Owner>>,
    /// Pods that a VPA selects now, whatever they are called: their owners are kept, since they alone say otherwise.
    live: Arc<HashMap<Box<str>, usize>>,
    /// ReplicaSets and Jobs, by name.
    between: HashMap<Box<str>, Vec<Made>>,
    /// Series about pods that came.
    said: usize,
    /// Whether any pod is of something of these kinds that made it for somebody else.
    is_between: [bool; BETWEEN.len()],
    /// What all this takes, in points.
    held: u64,
}

/// Something that owns pods, and what made it: `None` where it was said that nothing did.
#[derive(Clone, Debug)]
struct Made {
    made: Owner,
    by: Option<Owner>,
}

impl Proof {
    /// Asks who owned what, of everything whose owner is named like these. More than `most` points are not held: then it
    /// fails with [`Failure::Full`].
    pub(super) async fn ask(
        client: &Client,
        schema: &Schema,
        namespace: &str,
        owners: &[&Owner],
        live: &Arc<HashMap<Box<str>, usize>>,
        (from, to): (Time, Time),
        most: u64,
    ) -> Result<Self, Failure> {
        let mut proof = Self { live: Arc::clone(live), ..Self::default() };
        let Some(states) = &schema.states else { return Ok(proof) };
        let names = || Pattern::one_of(owners.iter().map(|owner| &*owner.name));
        // Whatever stands between begins with the owner's name.
        let begins = names().then(&Pattern::regex("(?:-.*)?"));
        if states.has("kube_pod_owner") {
            let pods = states.of("kube_pod_owner", namespace, &schema.matchers);
            let pods = pods.matches("owner_name", begins);
            let (label, about) = (&*states.pod, About::Pods);
            let mut said = Said { proof: &mut proof, owners, label, about, before: 0, most };
            client.series(&pods, (from, to), &mut said).await?;
        }
        for (number, (family, kind, label)) in BETWEEN.into_iter().enumerate() {
            if !proof.is_between[number] || !states.has(family) {
                continue;
            }
            // Of those that others made, it suffices to know that they are not ours.
            let between = states.of(family, namespace, &schema.matchers);
            let between = between.matches(label, names().then(&Pattern::regex("(?:-.*)?")));
            let (about, before) = (About::Between { kind }, proof.held);
            let mut said = Said { proof: &mut proof, owners, label, about, before, most };
            client.series(&between, (from, to), &mut said).await?;
        }
        Ok(proof)
    }

    /// About how many pods there were: of one that two copies tell of there are two.
    pub(super) fn pods(&self) -> usize {
        self.said
    }

    /// What it takes, in points.
    pub(super) fn held(&self) -> u64 {
        self.held
    }

    /// Whether there are pods of an owner whose names do not tell.
    pub(super) fn has_odd_pods_of(&self, owner: &Owner) -> bool {
        let is_odd = |pod: &str| !owner.fits(pod) && self.says(pod, owner) == Some(true);
        let makes_odd = |Made { made, by }: &Made| {
            by.as_ref() == Some(owner) && !owner.makes(&made.kind, &made.name)
        };
        self.pods.keys().any(|pod| is_odd(pod)) || self.between.values().flatten().any(makes_odd)
    }

    /// What is known of who owns a pod, to be asked about one owner after the other. `None` where nothing is known that its
    /// name does not tell.
    pub(super) fn of(&self, pod: &str) -> Option<Lineage<'_>> {
        if let Some(parents) = self.pods.get(pod) {
            return Some(Lineage(parents.iter().map(|it| (it, self.made_by(it))).collect()));
        }
        let made = self.between.get(parent_of(pod)?)?;
        Some(Lineage(made.iter().map(|Made { made, by }| (made, Some(by))).collect()))
    }

    fn made_by(&self, parent: &Owner) -> Option<&Option<Owner>> {
        let known = self.between.get(&parent.name)?;
        known.iter().find(|it| it.made.kind == parent.kind).map(|it| &it.by)
    }

    /// Whether this pod is of that owner; `None` where nothing is known of it.
    pub(super) fn says(&self, pod: &str, owner: &Owner) -> Option<bool> {
        self.of(pod)?.says(owner)
    }

    /// Takes the owner of a pod, if its name does not tell the same.
    fn take_pod(&mut self, owners: &[&Owner], pod: &str, parent: Owner) {
        self.said += 1;
        let stands_between = BETWEEN.iter().position(|(_, kind, _)| *kind == &*parent.kind);
        let stands_between = stands_between.filter(|_| !owners.contains(&&parent));
        if let Some(number) = stands_between {
            self.is_between[number] = true;
        }
        let all = || owners.iter().copied();
        let told = Lineage(vec![(&parent, None)]);
        let is_told_by_name = !self.live.contains_key(pod)
            && claim_of(all(), Some(&told), pod) == claim_of(all(), None, pod)
            // What made the parent is looked up by the parent's name.
            && (stands_between.is_none() || parent_of(pod) == Some(&*parent.name));
        match self.pods.get_mut(pod) {
            Some(parents) if parents.contains(&parent) => {}
            Some(parents) => {
                self.held += ENTRY / 2 + points(&[&parent.kind, &parent.name]);
                parents.push(parent);
            }
            None if is_told_by_name => {}
            None => {
                self.held += ENTRY + points(&[pod, &parent.kind, &parent.name]);
                self.pods.insert(pod.into(), vec![parent]);
            }
        }
    }

    /// Takes what made a ReplicaSet or a Job, if its name does not tell the same. What is said last holds.
    fn take_between(&mut self, owners: &[&Owner], made: Owner, by: Option<Owner>) {
        let mut makers = owners.iter().filter(|owner| owner.makes(&made.kind, &made.name));
        let is_told_by_name = match (makers.next(), makers.next()) {
            (Some(maker), None) => by.as_ref() == Some(*maker),
            // Of somebody else, which nobody would think otherwise; pods of unknown kinds go by more than names.
            (None, _) => {
                let is_foreign = by.as_ref().is_none_or(|by| !owners.contains(&by));
                is_foreign && (by.is_some() || owners.iter().all(|owner| owner.is_known()))
            }
            (Some(_), Some(_)) => false,
        };
        if let Some(known) = self.between.get_mut(&made.name) {
            if known.iter().any(|it| it.made == made && it.by == by) {
                return;
            }
            known.retain(|it| it.made != made);
            if known.is_empty() {
                self.between.remove(&made.name);
            }
        }
        if !is_told_by_name {
            let by_name = by.as_ref().map_or("", |by| &by.name);
            self.held += ENTRY + points(&[&made.name, &made.name, by_name]);
            self.between.entry(made.name.clone()).or_default().push(Made { made, by });
        }
    }
}

/// What texts take, in points.
fn points(texts: &[&str]) -> u64 {
    texts.iter().map(|text| text.len() as u64 / 16 + 1).sum()
}

/// The name of what owns a pod, if the API server made the pod's name unique: a dash and five characters.
fn parent_of(pod: &str) -> Option<&str> {
    let (parent, unique) = pod.rsplit_once('-')?;
    (unique.len() == 5).then_some(parent)
}

/// Whose pod this is, of these owners. What is known goes before what names look like, and among those the longest name
/// of a workload says most.
pub(super) fn claim_of<'a>(
    owners: impl Iterator<Item = &'a Owner>,
    lineage: Option<&Lineage<'_>>,
    pod: &str,
) -> Option<usize> {
    let mut likely: Option<(usize, usize)> = None;
    for (index, owner) in owners.enumerate() {
        let length = owner.name.len();
        match lineage.and_then(|lineage| lineage.says(owner)) {
            Some(true) => return Some(index),
            None if likely.is_none_or(|(_, other)| other < length) && owner.fits(pod) => {
                likely = Some((index, length));
            }
            Some(false) | None => {}
        }
    }
    likely.map(|(index, _)| index)
}

/// Those that own a pod, each with what made it where that is known.
#[derive(Debug)]
pub(super) struct Lineage<'a>(Vec<(&'a Owner, Option<&'a Option<Owner>>)>);

impl Lineage<'_> {
    /// Whether the pod is of that owner; `None` where nothing is known of it.
    pub(super) fn says(&self, owner: &Owner) -> Option<bool> {
        // A name that was used twice is of both.
        let mut verdict = None;
        for (parent, made_by) in &self.0 {
            match leads(parent, *made_by, owner) {
                Some(true) => return Some(true),
                Some(false) => verdict = Some(false),
                None if verdict.is_none() => {}
                None => verdict = None,
            }
        }
        verdict
    }
}

/// Whether what owns a pod is this owner, or was made by it.
fn leads(parent: &Owner, made_by: Option<&Option<Owner>>, owner: &Owner) -> Option<bool> {
    if parent == owner {
        return Some(true);
    }
    match made_by {
        Some(Some(made_by)) if made_by == owner => return Some(true),
        Some(made_by) if owner.is_known() || made_by.is_none() => return Some(false),
        _ => {}
    }
    if owner.is_known() {
        // Nothing is known of what stands between but its name.
        return Some(owner.makes(&parent.kind, &parent.name));
    }
    // What a kind of somebody's own makes, nobody knows: names decide.
    None
}

/// The pods that were killed for lack of memory at some time, and what they take, in points; no more than `most`.
pub(super) async fn killed(
    client: &Client,
    schema: &Schema,
    namespace: &str,
    pods: Pattern,
    (from, to): (Time, Time),
    most: u64,
) -> Result<(HashSet<Box<str>>, u64), Failure> {
    let Some(states) = &schema.states else { return Ok((HashSet::new(), 0)) };
    let selector = reason(states, schema, namespace).matches(&states.pod, pods);
    let mut pods = Names { label: &states.pod, taken: HashSet::new(), held: 0, most };
    client.series(&selector, (from, to), &mut pods).await?;
    Ok((pods.taken, pods.held))
}

/// Containers whose last end was for lack of memory.
pub(super) fn reason(states: &States, schema: &Schema, namespace: &str) -> Selector {
    let family = "kube_pod_container_status_last_terminated_reason";
    states.of(family, namespace, &schema.matchers).equals("reason", "OOMKilled")
}

/// What series tell of.
enum About {
    Pods,
    Between { kind: &'static str },
}

/// Takes who owns what, and nothing else that labels say.
struct Said<'a> {
    proof: &'a mut Proof,
    owners: &'a [&'a Owner],
    /// The name of what is owned.
    label: &'a str,
    about: About,
    /// Points that were held before.
    before: u64,
    /// Points that may be held.
    most: u64,
}

impl Series for Said<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Wants {
        if let Some(name) = labels.get(self.label) {
            let owner = owner(labels);
            match (&self.about, owner) {
                (About::Pods, Some(owner)) => self.proof.take_pod(self.owners, name, owner),
                (About::Pods, None) => {}
                (About::Between { kind }, by) => {
                    let made = Owner { kind: (*kind).into(), name: name.into() };
                    self.proof.take_between(self.owners, made, by);
                }
            }
        }
        Wants::Nothing
    }

    fn point(&mut self, _: Time, _: f64) {}

    fn is_full(&self) -> bool {
        self.proof.held > self.most
    }

    fn discard(&mut self) {
        // It comes again from its beginning.
        match &self.about {
            About::Pods => *self.proof = Proof::default(),
            About::Between { kind } => self.proof.between.retain(|_, known| {
                known.retain(|it| *it.made.kind != **kind);
                !known.is_empty()
            }),
        }
        self.proof.held = self.before;
    }
}

/// Takes the values of one label.
struct Names<'a> {
    label: &'a str,
    taken: HashSet<Box<str>>,
    held: u64,
    most: u64,
}

impl Series for Names<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Wants {
        if let Some(name) = labels.get(self.label).filter(|name| !self.taken.contains(*name)) {
            self.held += ENTRY / 4 + points(&[name]);
            self.taken.insert(name.into());
        }
        Wants::Nothing
    }

    fn point(&mut self, _: Time, _: f64) {}

    fn is_full(&self) -> bool {
        self.held > self.most
    }

    fn discard(&mut self) {
        self.taken.clear();
        self.held = 0;
    }
}

fn owner(labels: Labels<'_>) -> Option<Owner> {
    let (kind, name) = (labels.get("owner_kind")?, labels.get("owner_name")?);
    let is_one = |text: &str| !text.is_empty() && text != "<none>";
    (is_one(kind) && is_one(name)).then(|| Owner { kind: kind.into(), name: name.into() })
}
