//! Who owns which pod, as kube-state-metrics said over time: deleted pods included.
//!
//! Asked from the index of the server (`/api/v1/series`), which reads no samples: an owner is in the labels, so it
//! suffices that a series was there.

use std::collections::{HashMap, HashSet};

use super::owner::Owner;
use crate::{
    Time,
    prometheus::{
        answer::{Labels, Series, Wants},
        client::Client,
        failure::Failure,
        schema::{Schema, States},
        selector::{Pattern, Selector},
    },
};

/// What was said of owners, by the name of what is owned; `None` where it was said that there is no owner.
type Said = HashMap<Box<str>, Vec<Option<Owner>>>;

/// What is known of owners in a namespace.
#[derive(Clone, Debug, Default)]
pub(super) struct Proof {
    pods: HashMap<Box<str>, Vec<Owner>>,
    between: HashMap<Owner, Option<Owner>>,
}

impl Proof {
    /// Asks who owned what, of everything whose owner is named like these.
    pub(super) async fn ask(
        client: &Client,
        schema: &Schema,
        namespace: &str,
        owners: &[&Owner],
        (from, to): (Time, Time),
    ) -> Result<Self, Failure> {
        let mut proof = Self::default();
        let Some(states) = &schema.states else { return Ok(proof) };
        let names = || Pattern::one_of(owners.iter().map(|owner| &*owner.name));
        // Whatever stands between begins with the owner's name.
        let begins = names().then(&Pattern::regex("(?:-.*)?"));
        if states.has("kube_pod_owner") {
            let pods = states.of("kube_pod_owner", namespace, &schema.matchers);
            let pods = pods.matches("owner_name", begins);
            let said = said(client, &pods, &states.pod, (from, to)).await?;
            let known = |(pod, owners): (_, Vec<_>)| (pod, owners.into_iter().flatten().collect());
            proof.pods = said.into_iter().map(known).collect();
            proof.pods.retain(|_, owners: &mut Vec<Owner>| !owners.is_empty());
        }
        for (family, kind, label) in [
            ("kube_replicaset_owner", "ReplicaSet", "replicaset"),
            ("kube_job_owner", "Job", "job_name"),
        ] {
            let is_needed = proof
                .pods
                .values()
                .flatten()
                .any(|owner| &*owner.kind == kind && !owners.contains(&owner));
            if !is_needed || !states.has(family) {
                continue;
            }
            // Of those that others made, it suffices to know that they are not ours.
            let between = states.of(family, namespace, &schema.matchers);
            let between = between.matches(label, names().then(&Pattern::regex("(?:-.*)?")));
            let said = said(client, &between, label, (from, to)).await?;
            for (name, mut owners) in said {
                let made = Owner { kind: kind.into(), name };
                proof.between.insert(made, owners.pop().flatten());
            }
        }
        Ok(proof)
    }

    /// How many pods are known.
    pub(super) fn pods(&self) -> usize {
        self.pods.len()
    }

    /// The known pods of an owner whose names do not tell.
    pub(super) fn has_odd_pods_of(&self, owner: &Owner) -> bool {
        self.pods.keys().any(|pod| !owner.fits(pod) && self.says(pod, owner) == Some(true))
    }

    /// What is known of who owns a pod, to be asked about one owner after the other. `None` where nothing is known.
    pub(super) fn of(&self, pod: &str) -> Option<Lineage<'_>> {
        let parents = self.pods.get(pod)?;
        Some(Lineage(parents.iter().map(|parent| (parent, self.between.get(parent))).collect()))
    }

    /// Whether this pod is of that owner; `None` where nothing is known of it.
    pub(super) fn says(&self, pod: &str, owner: &Owner) -> Option<bool> {
        self.of(pod)?.says(owner)
    }
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

/// The containers that were killed for lack of memory at some time, by pod.
pub(super) async fn killed(
    client: &Client,
    schema: &Schema,
    namespace: &str,
    pods: Pattern,
    (from, to): (Time, Time),
) -> Result<HashSet<Box<str>>, Failure> {
    let Some(states) = &schema.states else { return Ok(HashSet::new()) };
    let selector = reason(states, schema, namespace).matches(&states.pod, pods);
    let mut pods = Names { label: &states.pod, taken: HashSet::new() };
    client.series(&selector, (from, to), &mut pods).await?;
    Ok(pods.taken)
}

/// Containers whose last end was for lack of memory.
pub(super) fn reason(states: &States, schema: &Schema, namespace: &str) -> Selector {
    let family = "kube_pod_container_status_last_terminated_reason";
    states.of(family, namespace, &schema.matchers).equals("reason", "OOMKilled")
}

/// What the series of a selector say of owners; `label` names what is owned.
async fn said(
    client: &Client,
    selector: &Selector,
    label: &str,
    span: (Time, Time),
) -> Result<Said, Failure> {
    let mut owners = Owners { label, said: Said::new() };
    client.series(selector, span, &mut owners).await?;
    Ok(owners.said)
}

/// Takes who owns what, and nothing else that labels say.
struct Owners<'a> {
    label: &'a str,
    said: Said,
}

impl Series for Owners<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Wants {
        if let Some(name) = labels.get(self.label) {
            let owner = owner(labels);
            match self.said.get_mut(name) {
                Some(owners) if owners.contains(&owner) => {}
                Some(owners) => owners.push(owner),
                None => {
                    self.said.insert(name.into(), vec![owner]);
                }
            }
        }
        Wants::Nothing
    }

    fn point(&mut self, _: Time, _: f64) {}

    fn discard(&mut self) {
        self.said.clear();
    }
}

/// Takes the values of one label.
struct Names<'a> {
    label: &'a str,
    taken: HashSet<Box<str>>,
}

impl Series for Names<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Wants {
        if let Some(name) = labels.get(self.label).filter(|name| !self.taken.contains(*name)) {
            self.taken.insert(name.into());
        }
        Wants::Nothing
    }

    fn point(&mut self, _: Time, _: f64) {}

    fn discard(&mut self) {
        self.taken.clear();
    }
}

fn owner(labels: Labels<'_>) -> Option<Owner> {
    let (kind, name) = (labels.get("owner_kind")?, labels.get("owner_name")?);
    let is_one = |text: &str| !text.is_empty() && text != "<none>";
    (is_one(kind) && is_one(name)).then(|| Owner { kind: kind.into(), name: name.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(text: &str) -> Owner {
        Owner::parse(text).expect("an owner")
    }

    #[test]
    fn what_is_known_of_owners_goes_before_names() {
        let mut proof = Proof::default();
        for (pod, parent) in [
            ("web-7d5f9c4b6d-x2x4z", "ReplicaSet/web-7d5f9c4b6d"),
            ("web-5d4f9c4b6d-x2x4z", "ReplicaSet/web-5d4f9c4b6d"),
            ("web-bcdf4-x2x4z", "DaemonSet/web-bcdf4"),
            ("web-odd", "ReplicaSet/web-7d5f9c4b6d"),
        ] {
            proof.pods.entry(pod.into()).or_default().push(owner(parent));
        }
        let web = owner("Deployment/web");
        proof.between.insert(owner("ReplicaSet/web-7d5f9c4b6d"), Some(web.clone()));
        assert_eq!(proof.says("web-7d5f9c4b6d-x2x4z", &web), Some(true));
        assert_eq!(proof.says("web-5d4f9c4b6d-x2x4z", &web), Some(true), "by the set's name");
        assert!(web.fits("web-bcdf4-x2x4z"));
        assert_eq!(proof.says("web-bcdf4-x2x4z", &web), Some(false), "of somebody else");
        assert_eq!(proof.says("web-odd", &web), Some(true), "though its name does not tell");
        assert!(proof.has_odd_pods_of(&web));
        assert_eq!(proof.says("web-77777-bbbbb", &web), None);
        let rollout = owner("Rollout/web");
        assert_eq!(proof.says("web-7d5f9c4b6d-x2x4z", &rollout), Some(false));
        let thing = owner("Thing/web");
        assert_eq!(proof.says("web-7d5f9c4b6d-x2x4z", &thing), None, "nobody knows");
        proof.between.insert(owner("ReplicaSet/web-5d4f9c4b6d"), None);
        assert_eq!(proof.says("web-5d4f9c4b6d-x2x4z", &web), Some(false), "it has no owner");
    }
}
