//! What is asked together: workloads of one namespace, so many that a selector stays short.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter,
    sync::Arc,
};

use super::{
    live_pods::{groups, length},
    owner_series::{self, OwnerSeries},
    pod_name_rules::OwnerRef,
};
use crate::prometheus::selector::Pattern;
use plimsoll_core::{history::SkippedRecord, types::ObjectKey};

/// The longest pattern of pods. Servers match it against every name of a pod that they know, and some refuse long queries.
pub(super) const LONGEST_PATTERN: usize = 4096;
/// So many patterns of single names are asked for beside the usual one. Of more names, all pods of the namespace are asked for,
/// which is one query.
const MOST_GROUPS: usize = 4;

/// Workloads that are asked for together.
#[derive(Clone, Debug)]
pub(super) struct WorkloadBatch {
    pub(super) namespace: Arc<str>,
    pub(super) claims: Vec<WorkloadMatch>,
    pub(super) proof: OwnerSeries,
    /// Whose pods there were, where their labels tell: then nothing else does.
    pub(super) labelled: Option<Arc<HashMap<Box<str>, usize>>>,
    /// Pods that are there now and are called otherwise than their workload's would be.
    pub(super) live_pods: Arc<HashMap<Box<str>, usize>>,
}

/// A workload and the VPAs that want its history.
#[derive(Clone, Debug)]
pub(super) struct WorkloadMatch {
    pub(super) owner: OwnerRef,
    pub(super) vpas: Vec<ObjectKey>,
}

/// Names that are asked for.
enum PodNameQuery<'a> {
    Generated(&'a OwnerRef),
    Prefix(&'a OwnerRef),
}

impl PodNameQuery<'_> {
    fn pattern(&self) -> Pattern {
        match self {
            Self::Generated(owner) => owner.pattern(),
            Self::Prefix(owner) => owner.prefix_pattern(),
        }
    }

    fn matches(&self, pod: &str) -> bool {
        match self {
            Self::Generated(owner) => owner.matches(pod),
            Self::Prefix(owner) => owner.matches_prefix(pod),
        }
    }
}

impl WorkloadBatch {
    /// Of these workloads, of whose pods nothing is known yet.
    pub(super) fn new(namespace: Arc<str>, claims: Vec<WorkloadMatch>) -> Self {
        let (proof, labelled, live) = (OwnerSeries::default(), None, Arc::default());
        Self { namespace, claims, proof, labelled, live_pods: live }
    }

    /// Sorts what is wanted into batches. What cannot be asked for is named.
    pub(super) fn all(
        wanted: &HashMap<ObjectKey, Option<Box<str>>>,
    ) -> (Vec<Self>, Vec<SkippedRecord>) {
        let mut workloads: BTreeMap<(Arc<str>, &str), Vec<ObjectKey>> = BTreeMap::new();
        let mut skipped = Vec::new();
        for (vpa, owner) in wanted {
            match owner.as_deref() {
                Some(owner) => {
                    let workload = (Arc::clone(&vpa.namespace), owner);
                    workloads.entry(workload).or_default().push(vpa.clone());
                }
                None => skipped.push(SkippedRecord {
                    record: vpa.to_string(),
                    reason: "its target is not known, so its pods cannot be told".to_owned(),
                }),
            }
        }
        let mut batches: Vec<Self> = Vec::new();
        let mut length = 0;
        for ((namespace, text), mut vpas) in workloads {
            let Some(owner) = OwnerRef::parse(text) else {
                skipped.extend(vpas.iter().map(|vpa| SkippedRecord {
                    record: vpa.to_string(),
                    reason: format!("{text:?} names no kind, so its pods cannot be told"),
                }));
                continue;
            };
            vpas.sort();
            let more = owner.pattern().as_str().len() + 1;
            let claim = WorkloadMatch { owner, vpas };
            match batches.last_mut() {
                Some(batch) if batch.namespace == namespace && length + more <= LONGEST_PATTERN => {
                    batch.claims.push(claim);
                    length += more;
                }
                _ => {
                    batches.push(Self::new(namespace, vec![claim]));
                    length = more;
                }
            }
        }
        skipped.sort_by(|a, b| a.record.cmp(&b.record));
        (batches, skipped)
    }

    /// The workloads that pods with these VPAs belong to: a new one, where the VPAs are of several. Pods of no VPA of the
    /// batch are left out.
    pub(super) fn match_pods<'a>(
        &mut self,
        pods: impl IntoIterator<Item = (&'a str, &'a [ObjectKey])>,
    ) -> HashMap<Box<str>, usize> {
        // A VPA of several counts as of the first one: the others are made here.
        let claims = self.claims.iter().enumerate().rev();
        let claim_of: HashMap<ObjectKey, usize> = claims
            .flat_map(|(index, claim)| claim.vpas.iter().cloned().zip(iter::repeat(index)))
            .collect();
        let mut shared: HashMap<Vec<usize>, usize> = HashMap::new();
        let mut claimed = HashMap::new();
        for (pod, vpas) in pods {
            let own: BTreeSet<usize> =
                vpas.iter().filter_map(|vpa| claim_of.get(vpa)).copied().collect();
            let Some(&first) = own.first() else { continue };
            let claim = if own.len() == 1 {
                first
            } else {
                // One that VPAs of several workloads select is of all of them.
                *shared.entry(own.iter().copied().collect()).or_insert_with(|| {
                    let vpas = own.iter().flat_map(|index| self.claims[*index].vpas.clone());
                    let (vpas, owner) = (vpas.collect(), self.claims[first].owner.clone());
                    self.claims.push(WorkloadMatch { owner, vpas });
                    self.claims.len() - 1
                })
            };
            claimed.insert(pod.into(), claim);
        }
        claimed
    }

    /// How many pods are known.
    pub(super) fn pods(&self) -> usize {
        let known = self.labelled.as_ref().map_or_else(|| self.proof.pods(), |pods| pods.len());
        known + self.live_pods.len()
    }

    /// The names of pods that are asked for, one pattern after the other. No name fits two of them: its samples would count
    /// twice.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        let (asked, singly) = self.name_queries();
        let usual = asked.iter().map(PodNameQuery::pattern);
        let usual = Pattern::any_of(usual.chain(singly.iter().map(|pod| Pattern::literal(pod))));
        let all = || vec![Pattern::regex(".+")];
        if self.labelled.is_some() && usual.as_str().len() > 2 * LONGEST_PATTERN {
            return all();
        }
        let is_asked =
            |pod: &&str| singly.contains(pod) || asked.iter().any(|one| one.matches(pod));
        let live: BTreeSet<&str> =
            self.live_pods.keys().map(|pod| &**pod).filter(|pod| !is_asked(pod)).collect();
        let mut groups = groups(live, LONGEST_PATTERN);
        match &groups[..] {
            [] => return vec![usual],
            [one] if usual.as_str().len() + length(one) <= LONGEST_PATTERN => {
                let together = asked.iter().map(PodNameQuery::pattern);
                let names = singly.into_iter().chain(groups.remove(0)).map(Pattern::literal);
                return vec![Pattern::any_of(together.chain(names))];
            }
            several if several.len() > MOST_GROUPS => return all(),
            _ => {}
        }
        iter::once(usual).chain(groups.into_iter().map(Pattern::any_literal)).collect()
    }

    /// What is asked for beside pods that are there now: names that owners give, and single ones. What is not of the batch
    /// comes along, and is passed over.
    fn name_queries(&self) -> (Vec<PodNameQuery<'_>>, BTreeSet<&str>) {
        let Some(pods) = &self.labelled else {
            let asked = self.claims.iter().map(|WorkloadMatch { owner, .. }| {
                if self.proof.has_unexpected_pod_names(owner) {
                    PodNameQuery::Prefix(owner)
                } else {
                    PodNameQuery::Generated(owner)
                }
            });
            return (asked.collect(), BTreeSet::new());
        };
        let (mut usual, mut odd) = (BTreeSet::new(), BTreeSet::new());
        for (pod, claim) in &**pods {
            if self.claims.get(*claim).is_some_and(|claim| claim.owner.matches(pod)) {
                usual.insert(*claim);
            } else {
                odd.insert(&**pod);
            }
        }
        let usual =
            usual.into_iter().map(|claim| PodNameQuery::Generated(&self.claims[claim].owner));
        (usual.collect(), odd)
    }

    /// Whose pod this is. Of a pod that is there now, the VPA selects it: only its owner says more.
    pub(super) fn workload_of(&self, pod: &str) -> Option<usize> {
        let live = self.live_pods.get(pod).copied();
        if let Some(pods) = &self.labelled {
            return pods.get(pod).copied().or(live);
        }
        let owners = || self.claims.iter().map(|claim| &claim.owner);
        let lineage = self.proof.timeline_of(pod);
        let likely = owner_series::workload_of(owners(), lineage.as_ref(), pod);
        let Some((claim, lineage)) = live.zip(lineage.as_ref()) else { return live.or(likely) };
        let says = |claim: usize| lineage.is_owned_by(&self.claims.get(claim)?.owner);
        match likely.filter(|likely| says(*likely) == Some(true)) {
            None if says(claim) != Some(false) => Some(claim),
            _ => likely,
        }
    }

    /// Two batches in place of one that is too much at once. `None` for one workload.
    pub(super) fn split(&self) -> Option<[Self; 2]> {
        let middle = self.claims.len() / 2;
        let half = |claims: &[WorkloadMatch], from: usize| {
            let of_half = |pods: &Arc<HashMap<Box<str>, usize>>| {
                let own = from..from + claims.len();
                let of_it = pods.iter().filter(|(_, claim)| own.contains(claim));
                Arc::new(of_it.map(|(pod, claim)| (pod.clone(), claim - from)).collect())
            };
            let (labelled, live) = (self.labelled.as_ref().map(of_half), of_half(&self.live_pods));
            let (namespace, proof) = (Arc::clone(&self.namespace), OwnerSeries::default());
            Self { namespace, claims: claims.to_vec(), proof, labelled, live_pods: live }
        };
        let (first, second) = self.claims.split_at(middle);
        (middle > 0).then(|| [half(first, 0), half(second, middle)])
    }

    /// All VPAs of it, each once.
    pub(super) fn vpas(&self) -> impl Iterator<Item = &ObjectKey> {
        let all: BTreeSet<_> = self.claims.iter().flat_map(|claim| &claim.vpas).collect();
        all.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::history::LivePods;

    #[test]
    fn workloads_are_asked_for_together_within_a_namespace() {
        let mut wanted = HashMap::new();
        for number in 0..100 {
            for namespace in ["a", "b"] {
                let name = format!("web-{number}");
                let owner = format!("apps/Deployment/{name}");
                wanted.insert(ObjectKey::new(namespace, name), Some(owner.into()));
            }
        }
        wanted.insert(ObjectKey::new("a", "again"), Some("apps/Deployment/web-7".into()));
        wanted.insert(ObjectKey::new("a", "lost"), None);
        wanted.insert(ObjectKey::new("a", "odd"), Some("odd".into()));
        let (batches, skipped) = WorkloadBatch::all(&wanted);
        assert_eq!(batches.len(), 4);
        assert_eq!(skipped.len(), 2);
        for batch in &batches {
            let [pattern] = &batch.patterns()[..] else { panic!("one pattern") };
            assert!(pattern.as_str().len() <= LONGEST_PATTERN + 8);
            assert!(batch.vpas().all(|vpa| vpa.namespace == batch.namespace));
        }
        let seven = |claim: &WorkloadMatch| &*claim.owner.name == "web-7";
        let claims: Vec<_> = batches
            .iter()
            .filter(|batch| &*batch.namespace == "a")
            .flat_map(|batch| &batch.claims)
            .filter(|claim| seven(claim))
            .collect();
        assert_eq!(claims.len(), 1, "a workload is asked for once");
        assert_eq!(claims[0].vpas.len(), 2);
        let pod = "web-7-7d5f9c4b6d-x2x4z";
        let batch = batches.iter().find(|batch| batch.workload_of(pod).is_some()).expect("one");
        assert!(seven(&batch.claims[batch.workload_of(pod).expect("it")]));
    }

    #[test]
    fn a_batch_that_is_too_much_is_asked_for_in_halves() {
        let owners = ["a", "b", "c"].map(|name| {
            let owner = format!("apps/StatefulSet/{name}");
            (ObjectKey::new("shop", name), Some(owner.into()))
        });
        let (mut batches, _) = WorkloadBatch::all(&owners.into_iter().collect());
        let batch = &mut batches[0];
        let told = [("one", 0), ("two", 1), ("three", 2)].map(|(pod, claim)| (pod.into(), claim));
        batch.labelled = Some(Arc::new(told.into_iter().collect()));
        let [first, second] = batch.split().expect("three can be parted");
        let names = |batch: &WorkloadBatch| {
            let all: Vec<String> = batch.vpas().map(|vpa| vpa.name.to_string()).collect();
            all.join(",")
        };
        assert_eq!((names(&first), names(&second)), ("a".to_owned(), "b,c".to_owned()));
        let claims =
            ["one", "two", "three"].map(|pod| (first.workload_of(pod), second.workload_of(pod)));
        assert_eq!(claims, [(Some(0), None), (None, Some(0)), (None, Some(1))]);
        assert!(first.split().is_none() && second.split().is_some());
    }

    #[test]
    fn where_labels_tell_names_and_owners_do_not() {
        let owners = ["web", "db"].map(|name| {
            let owner = format!("apps/StatefulSet/{name}");
            (ObjectKey::new("a", name), Some(owner.into()))
        });
        let (mut batches, _) = WorkloadBatch::all(&owners.into_iter().collect());
        let batch = &mut batches[0];
        assert_eq!(batch.workload_of("web-0"), Some(1));
        let told = [("web-1", 1), ("canary", 1), ("db-0", 0)];
        let told = told.map(|(pod, claim)| (pod.into(), claim));
        batch.labelled = Some(Arc::new(told.into_iter().collect()));
        for (pod, claim) in
            [("web-0", None), ("web-1", Some(1)), ("canary", Some(1)), ("db-0", Some(0))]
        {
            assert_eq!(batch.workload_of(pod), claim, "{pod}");
        }
        let pattern = |batch: &WorkloadBatch| {
            let patterns = batch.patterns();
            assert_eq!(patterns.len(), 1);
            patterns[0].as_str().to_owned()
        };
        assert_eq!(pattern(batch), "(?:db-[0-9]{1,10}|web-[0-9]{1,10}|canary)");
        assert_eq!(batch.pods(), 3);
        let many = (0..1000).map(|number| (format!("a-long-name-{number}").into(), 0));
        batch.labelled = Some(Arc::new(many.collect()));
        assert_eq!(pattern(batch), ".+");
        batch.labelled = Some(Arc::default());
        assert!(!pattern(batch).contains("web"), "nothing is asked for");
    }

    fn deployment(pods: &[&str]) -> WorkloadBatch {
        let web = ObjectKey::new("a", "web");
        let owner = "apps/Deployment/web";
        let wanted = [(web.clone(), Some(owner.into()))];
        let mut batch = WorkloadBatch::all(&wanted.into_iter().collect()).0.remove(0);
        let mut live = LivePods::new();
        live.add(&web, owner, pods.iter().copied());
        live.assign_to(&mut batch);
        batch
    }

    #[test]
    fn pods_that_are_there_now_are_asked_for_by_their_own_names() {
        let usual = "web-7d5f9c4b6d-x2x4z";
        let batch = deployment(&["front.end", usual, "web-canary"]);
        let [pattern] = &batch.patterns()[..] else { panic!("one pattern") };
        let names = "|front\\.end|web-canary)";
        assert!(pattern.as_str().ends_with(names), "{}", pattern.as_str());
        for pod in ["front.end", usual, "web-canary"] {
            assert_eq!(batch.workload_of(pod), Some(0), "{pod}");
        }
        assert_eq!(batch.workload_of("another"), None);
    }

    #[test]
    fn many_pods_that_are_there_now_are_asked_for_in_groups_and_very_many_all_at_once() {
        let names = |count: usize| -> Vec<String> {
            (0..count).map(|number| format!("an-odd-name-of-a-pod-{number}")).collect()
        };
        for (count, patterns) in [(100, 1), (400, 4), (2_000, 1)] {
            let names = names(count);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let batch = deployment(&names);
            let asked = batch.patterns();
            assert_eq!(asked.len(), patterns, "{count}");
            assert!(asked.iter().all(|one| one.as_str().len() <= LONGEST_PATTERN + 64));
            assert!(names.iter().all(|pod| batch.workload_of(pod) == Some(0)), "{count}");
        }
    }

    #[test]
    fn a_pod_that_is_there_now_is_asked_for_once() {
        let mut wanted = HashMap::new();
        for (name, owner) in [("web", "apps/Deployment/web"), ("db", "apps/StatefulSet/db")] {
            wanted.insert(ObjectKey::new("a", name), Some(owner.into()));
        }
        let mut batch = WorkloadBatch::all(&wanted).0.remove(0);
        let mut live = LivePods::new();
        // Named as one of the other workload: its samples would come by both patterns.
        live.add(&ObjectKey::new("a", "web"), "apps/Deployment/web", ["db-7"]);
        live.assign_to(&mut batch);
        assert_eq!(batch.patterns().len(), 1);
        let claim = batch.workload_of("db-7").expect("it is of one");
        assert_eq!(&*batch.claims[claim].owner.name, "web", "the VPA selects it");
    }
}
