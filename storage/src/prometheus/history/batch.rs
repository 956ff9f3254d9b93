//! What is asked together: workloads of one namespace, so many that a selector stays short.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use super::{
    owner::Owner,
    proof::{self, Proof},
};
use crate::{Skipped, VpaKey, prometheus::selector::Pattern};

/// The longest pattern of pods. Servers match it against every name of a pod that they know, and some refuse long queries.
pub(super) const LONGEST_PATTERN: usize = 4096;

/// Workloads that are asked for together.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) namespace: Arc<str>,
    pub(super) claims: Vec<Claim>,
    pub(super) proof: Proof,
    /// Whose pods there were, where their labels tell: then nothing else does.
    pub(super) labelled: Option<Arc<HashMap<Box<str>, usize>>>,
}

/// A workload and the VPAs that want its history.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) owner: Owner,
    pub(super) vpas: Vec<VpaKey>,
}

impl Batch {
    /// Sorts what is wanted into batches. What cannot be asked for is named.
    pub(super) fn all(wanted: &HashMap<VpaKey, Option<Box<str>>>) -> (Vec<Self>, Vec<Skipped>) {
        let mut workloads: BTreeMap<(Arc<str>, &str), Vec<VpaKey>> = BTreeMap::new();
        let mut skipped = Vec::new();
        for (vpa, owner) in wanted {
            match owner.as_deref() {
                Some(owner) => {
                    let workload = (Arc::clone(&vpa.namespace), owner);
                    workloads.entry(workload).or_default().push(vpa.clone());
                }
                None => skipped.push(Skipped {
                    what: vpa.to_string(),
                    why: "its target is not known, so its pods cannot be told".to_owned(),
                }),
            }
        }
        let mut batches: Vec<Self> = Vec::new();
        let mut length = 0;
        for ((namespace, text), mut vpas) in workloads {
            let Some(owner) = Owner::parse(text) else {
                skipped.extend(vpas.iter().map(|vpa| Skipped {
                    what: vpa.to_string(),
                    why: format!("{text:?} names no kind, so its pods cannot be told"),
                }));
                continue;
            };
            vpas.sort();
            let more = owner.pattern().as_str().len() + 1;
            let claim = Claim { owner, vpas };
            match batches.last_mut() {
                Some(batch) if batch.namespace == namespace && length + more <= LONGEST_PATTERN => {
                    batch.claims.push(claim);
                    length += more;
                }
                _ => {
                    let (proof, labelled) = (Proof::default(), None);
                    batches.push(Self { namespace, claims: vec![claim], proof, labelled });
                    length = more;
                }
            }
        }
        skipped.sort_by(|a, b| a.what.cmp(&b.what));
        (batches, skipped)
    }

    /// How many pods are known.
    pub(super) fn pods(&self) -> usize {
        self.labelled.as_ref().map_or_else(|| self.proof.pods(), |pods| pods.len())
    }

    /// The names of pods that are asked for.
    pub(super) fn pattern(&self) -> Pattern {
        if let Some(pods) = &self.labelled {
            return self.pattern_of(pods);
        }
        Pattern::any_of(self.claims.iter().map(|Claim { owner, .. }| {
            if self.proof.has_odd_pods_of(owner) { owner.wide_pattern() } else { owner.pattern() }
        }))
    }

    /// Of these pods, by the names that their owners give where those fit. What is not one of them comes along, and is
    /// passed over.
    fn pattern_of(&self, pods: &HashMap<Box<str>, usize>) -> Pattern {
        let (mut usual, mut odd) = (BTreeSet::new(), BTreeSet::new());
        for (pod, claim) in pods {
            if self.claims.get(*claim).is_some_and(|claim| claim.owner.fits(pod)) {
                usual.insert(*claim);
            } else {
                odd.insert(&**pod);
            }
        }
        let usual = usual.into_iter().map(|claim| self.claims[claim].owner.pattern());
        let pattern = Pattern::any_of(usual.chain(odd.into_iter().map(Pattern::literal)));
        let is_short = pattern.as_str().len() <= 2 * LONGEST_PATTERN;
        if is_short { pattern } else { Pattern::regex(".+") }
    }

    /// Whose pod this is.
    pub(super) fn claim_of(&self, pod: &str) -> Option<usize> {
        if let Some(pods) = &self.labelled {
            return pods.get(pod).copied();
        }
        let owners = self.claims.iter().map(|claim| &claim.owner);
        proof::claim_of(owners, self.proof.of(pod).as_ref(), pod)
    }

    /// Two batches in place of one that is too much at once. `None` for one workload.
    pub(super) fn halves(&self) -> Option<[Self; 2]> {
        let middle = self.claims.len() / 2;
        let half = |claims: &[Claim], from: usize| {
            let labelled = self.labelled.as_ref().map(|pods| {
                let own = from..from + claims.len();
                let of_it = pods.iter().filter(|(_, claim)| own.contains(claim));
                Arc::new(of_it.map(|(pod, claim)| (pod.clone(), claim - from)).collect())
            });
            let (namespace, proof) = (Arc::clone(&self.namespace), Proof::default());
            Self { namespace, claims: claims.to_vec(), proof, labelled }
        };
        let (first, second) = self.claims.split_at(middle);
        (middle > 0).then(|| [half(first, 0), half(second, middle)])
    }

    /// All VPAs of it, each once.
    pub(super) fn vpas(&self) -> impl Iterator<Item = &VpaKey> {
        let all: BTreeSet<_> = self.claims.iter().flat_map(|claim| &claim.vpas).collect();
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_are_asked_for_together_within_a_namespace() {
        let mut wanted = HashMap::new();
        for number in 0..100 {
            for namespace in ["a", "b"] {
                let name = format!("web-{number}");
                let owner = format!("apps/Deployment/{name}");
                wanted.insert(VpaKey::new(namespace, name), Some(owner.into()));
            }
        }
        wanted.insert(VpaKey::new("a", "again"), Some("apps/Deployment/web-7".into()));
        wanted.insert(VpaKey::new("a", "lost"), None);
        wanted.insert(VpaKey::new("a", "odd"), Some("odd".into()));
        let (batches, skipped) = Batch::all(&wanted);
        assert_eq!(batches.len(), 4);
        assert_eq!(skipped.len(), 2);
        for batch in &batches {
            assert!(batch.pattern().as_str().len() <= LONGEST_PATTERN + 8);
            assert!(batch.vpas().all(|vpa| vpa.namespace == batch.namespace));
        }
        let seven = |claim: &Claim| &*claim.owner.name == "web-7";
        let claims: Vec<_> = batches
            .iter()
            .filter(|batch| &*batch.namespace == "a")
            .flat_map(|batch| &batch.claims)
            .filter(|claim| seven(claim))
            .collect();
        assert_eq!(claims.len(), 1, "a workload is asked for once");
        assert_eq!(claims[0].vpas.len(), 2);
        let pod = "web-7-7d5f9c4b6d-x2x4z";
        let batch = batches.iter().find(|batch| batch.claim_of(pod).is_some()).expect("one");
        assert!(seven(&batch.claims[batch.claim_of(pod).expect("it")]));
    }

    #[test]
    fn a_batch_that_is_too_much_is_asked_for_in_halves() {
        let owners = ["a", "b", "c"].map(|name| {
            let owner = format!("apps/StatefulSet/{name}");
            (VpaKey::new("shop", name), Some(owner.into()))
        });
        let (mut batches, _) = Batch::all(&owners.into_iter().collect());
        let batch = &mut batches[0];
        let told = [("one", 0), ("two", 1), ("three", 2)].map(|(pod, claim)| (pod.into(), claim));
        batch.labelled = Some(Arc::new(told.into_iter().collect()));
        let [first, second] = batch.halves().expect("three can be parted");
        let names = |batch: &Batch| {
            let all: Vec<String> = batch.vpas().map(|vpa| vpa.name.to_string()).collect();
            all.join(",")
        };
        assert_eq!((names(&first), names(&second)), ("a".to_owned(), "b,c".to_owned()));
        let claims = ["one", "two", "three"].map(|pod| (first.claim_of(pod), second.claim_of(pod)));
        assert_eq!(claims, [(Some(0), None), (None, Some(0)), (None, Some(1))]);
        assert!(first.halves().is_none() && second.halves().is_some());
    }

    #[test]
    fn where_labels_tell_names_and_owners_do_not() {
        let owners = ["web", "db"].map(|name| {
            let owner = format!("apps/StatefulSet/{name}");
            (VpaKey::new("a", name), Some(owner.into()))
        });
        let (mut batches, _) = Batch::all(&owners.into_iter().collect());
        let batch = &mut batches[0];
        assert_eq!(batch.claim_of("web-0"), Some(1));
        let told = [("web-1", 1), ("canary", 1), ("db-0", 0)];
        let told = told.map(|(pod, claim)| (pod.into(), claim));
        batch.labelled = Some(Arc::new(told.into_iter().collect()));
        for (pod, claim) in
            [("web-0", None), ("web-1", Some(1)), ("canary", Some(1)), ("db-0", Some(0))]
        {
            assert_eq!(batch.claim_of(pod), claim, "{pod}");
        }
        assert_eq!(batch.pattern().as_str(), "(?:db-[0-9]{1,10}|web-[0-9]{1,10}|canary)");
        assert_eq!(batch.pods(), 3);
        let many = (0..1000).map(|number| (format!("a-long-name-{number}").into(), 0));
        batch.labelled = Some(Arc::new(many.collect()));
        assert_eq!(batch.pattern().as_str(), ".+");
        batch.labelled = Some(Arc::default());
        assert!(!batch.pattern().as_str().contains("web"), "nothing is asked for");
    }
}
