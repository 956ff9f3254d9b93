//! Batches of workloads: those of one namespace, limited so that the selectors stay short.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    iter,
    sync::Arc,
};

use super::{
    owner_series::{self, OwnerSeries},
    pod_name_rules::OwnerRef,
};
use crate::prometheus::selector::{Pattern, literal_groups, literal_length};
use plimsoll_core::{
    history::SkippedRecord,
    types::{ContainerKey, ObjectKey},
};

/// Maximum length of a pod pattern. Servers match it against every known pod name, and some reject long queries.
pub(super) const LONGEST_PATTERN: usize = 4096;
/// Maximum number of patterns of single names in addition to the usual one. With more, all pods of the namespace are
/// queried at once.
const MOST_GROUPS: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct WorkloadBatch {
    pub(super) namespace: Arc<str>,
    pub(super) claims: Vec<WorkloadMatch>,
    pub(super) proof: OwnerSeries,
    /// The workload of each pod by its labels, if known. Then owners and names are not used.
    pub(super) labelled: Option<Arc<HashMap<Box<str>, usize>>>,
    /// Existing pods with unexpected names.
    pub(super) live_pods: Arc<HashMap<Box<str>, usize>>,
}

#[derive(Clone, Debug)]
pub(super) struct WorkloadMatch {
    pub(super) owner: OwnerRef,
    pub(super) vpas: Vec<ObjectKey>,
}

/// The pods of a workload by their names: generated ones, or any with the same prefix.
struct PodNameQuery<'a> {
    owner: &'a OwnerRef,
    by_prefix: bool,
}

impl PodNameQuery<'_> {
    fn pattern(&self) -> Pattern {
        if self.by_prefix { self.owner.prefix_pattern() } else { self.owner.pattern() }
    }

    fn matches(&self, pod: &str) -> bool {
        if self.by_prefix { self.owner.matches_prefix(pod) } else { self.owner.matches(pod) }
    }
}

impl WorkloadBatch {
    /// Creates a batch of these workloads, without any known pods.
    pub(super) fn new(namespace: Arc<str>, claims: Vec<WorkloadMatch>) -> Self {
        let (proof, labelled, live_pods) = (OwnerSeries::default(), None, Arc::default());
        Self { namespace, claims, proof, labelled, live_pods }
    }

    /// Groups VPAs into batches. Also returns those that cannot be queried.
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
                    reason: "its target is unknown, so its pods cannot be identified".to_owned(),
                }),
            }
        }
        let mut batches: Vec<Self> = Vec::new();
        let mut length = 0;
        for ((namespace, text), mut vpas) in workloads {
            let Some(owner) = OwnerRef::parse(text) else {
                skipped.extend(vpas.iter().map(|vpa| SkippedRecord {
                    record: vpa.to_string(),
                    reason: format!("{text:?} has no kind, so its pods cannot be identified"),
                }));
                continue;
            };
            vpas.sort();
            let pattern_length = owner.pattern().as_str().len() + 1;
            let claim = WorkloadMatch { owner, vpas };
            match batches.last_mut() {
                Some(batch)
                    if batch.namespace == namespace
                        && length + pattern_length <= LONGEST_PATTERN =>
                {
                    batch.claims.push(claim);
                    length += pattern_length;
                }
                _ => {
                    batches.push(Self::new(namespace, vec![claim]));
                    length = pattern_length;
                }
            }
        }
        skipped.sort_by(|a, b| a.record.cmp(&b.record));
        (batches, skipped)
    }

    /// Assigns pods to the workloads of their VPAs. For VPAs of several workloads a combined workload is added. Pods without
    /// a VPA of this batch are omitted.
    pub(super) fn match_pods<'a>(
        &mut self,
        pods: impl IntoIterator<Item = (&'a str, &'a [ObjectKey])>,
    ) -> HashMap<Box<str>, usize> {
        // A VPA of several workloads counts for the first one. The others are combined ones, added below.
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
                // A pod that VPAs of several workloads select belongs to all of them.
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

    pub(super) fn pods(&self) -> usize {
        let known = self.labelled.as_ref().map_or_else(|| self.proof.pods(), |pods| pods.len());
        known + self.live_pods.len()
    }

    /// The patterns of pod names, one per query. No name matches two of them, or its samples would count twice.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        let (name_queries, single_names) = self.name_queries();
        let usual = name_queries.iter().map(PodNameQuery::pattern);
        let usual =
            Pattern::any_of(usual.chain(single_names.iter().map(|pod| Pattern::literal(pod))));
        let match_all = || vec![Pattern::regex(".+")];
        if self.labelled.is_some() && usual.as_str().len() > 2 * LONGEST_PATTERN {
            return match_all();
        }
        let is_covered = |pod: &&str| {
            single_names.contains(pod) || name_queries.iter().any(|query| query.matches(pod))
        };
        let live: BTreeSet<&str> =
            self.live_pods.keys().map(|pod| &**pod).filter(|pod| !is_covered(pod)).collect();
        let mut groups = literal_groups(live, LONGEST_PATTERN);
        match &groups[..] {
            [] => return vec![usual],
            [group] if usual.as_str().len() + literal_length(group) <= LONGEST_PATTERN => {
                let generated = name_queries.iter().map(PodNameQuery::pattern);
                let names = single_names.into_iter().chain(groups.remove(0)).map(Pattern::literal);
                return vec![Pattern::any_of(generated.chain(names))];
            }
            several if several.len() > MOST_GROUPS => return match_all(),
            _ => {}
        }
        iter::once(usual).chain(groups.into_iter().map(Pattern::any_literal)).collect()
    }

    /// The names to query without existing pods: generated names of owners, and single names. Pods of other workloads may
    /// match too, and are skipped.
    fn name_queries(&self) -> (Vec<PodNameQuery<'_>>, BTreeSet<&str>) {
        let Some(pods) = &self.labelled else {
            let queries = self.claims.iter().map(|WorkloadMatch { owner, .. }| {
                let by_prefix = self.proof.has_unexpected_pod_names(owner);
                PodNameQuery { owner, by_prefix }
            });
            return (queries.collect(), BTreeSet::new());
        };
        let (mut usual, mut unexpected) = (BTreeSet::new(), BTreeSet::new());
        for (pod, claim) in &**pods {
            if self.claims.get(*claim).is_some_and(|claim| claim.owner.matches(pod)) {
                usual.insert(*claim);
            } else {
                unexpected.insert(&**pod);
            }
        }
        let generated = |claim: usize| {
            let owner = &self.claims[claim].owner;
            PodNameQuery { owner, by_prefix: false }
        };
        (usual.into_iter().map(generated).collect(), unexpected)
    }

    /// The workload of a pod. An existing pod belongs to the VPA that selects it, unless its owner says otherwise.
    pub(super) fn workload_of(&self, pod: &str) -> Option<usize> {
        let live = self.live_pods.get(pod).copied();
        if let Some(pods) = &self.labelled {
            return pods.get(pod).copied().or(live);
        }
        let owners = || self.claims.iter().map(|claim| &claim.owner);
        let timeline = self.proof.timeline_of(pod);
        let likely = owner_series::workload_of(owners(), timeline.as_ref(), pod);
        let Some((workload, timeline)) = live.zip(timeline.as_ref()) else {
            return live.or(likely);
        };
        let is_owned_by = |workload: usize| timeline.is_owned_by(&self.claims.get(workload)?.owner);
        match likely.filter(|likely| is_owned_by(*likely) == Some(true)) {
            None if is_owned_by(workload) != Some(false) => Some(workload),
            _ => likely,
        }
    }

    /// Splits a batch that is too large into two. `None` for a single workload.
    pub(super) fn split(&self) -> Option<[Self; 2]> {
        let middle = self.claims.len() / 2;
        let half = |claims: &[WorkloadMatch], from: usize| {
            let of_half = |pods: &Arc<HashMap<Box<str>, usize>>| {
                let range = from..from + claims.len();
                let in_half = pods.iter().filter(|(_, claim)| range.contains(claim));
                Arc::new(in_half.map(|(pod, claim)| (pod.clone(), claim - from)).collect())
            };
            let (labelled, live) = (self.labelled.as_ref().map(of_half), of_half(&self.live_pods));
            let (namespace, proof) = (Arc::clone(&self.namespace), OwnerSeries::default());
            Self { namespace, claims: claims.to_vec(), proof, labelled, live_pods: live }
        };
        let (first, second) = self.claims.split_at(middle);
        (middle > 0).then(|| [half(first, 0), half(second, middle)])
    }

    pub(super) fn keys(&self, workload: usize, container: &str) -> Vec<ContainerKey> {
        let container: Arc<str> = container.into();
        let vpas = self.claims.get(workload).map_or(&[][..], |claim| &claim.vpas[..]);
        vpas.iter().map(|vpa| ContainerKey::new(vpa.clone(), Arc::clone(&container))).collect()
    }

    pub(super) fn vpas(&self) -> impl Iterator<Item = &ObjectKey> {
        let vpas: BTreeSet<_> = self.claims.iter().flat_map(|claim| &claim.vpas).collect();
        vpas.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::history::LivePods;

    #[test]
    fn workloads_of_a_namespace_are_queried_together() {
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
        assert_eq!(claims.len(), 1, "each workload is queried once");
        assert_eq!(claims[0].vpas.len(), 2);
        let pod = "web-7-7d5f9c4b6d-x2x4z";
        let batch = batches.iter().find(|batch| batch.workload_of(pod).is_some()).expect("one");
        assert!(seven(&batch.claims[batch.workload_of(pod).expect("it")]));
    }

    #[test]
    fn a_batch_that_is_too_large_is_split_in_half() {
        let owners = ["a", "b", "c"].map(|name| {
            let owner = format!("apps/StatefulSet/{name}");
            (ObjectKey::new("shop", name), Some(owner.into()))
        });
        let (mut batches, _) = WorkloadBatch::all(&owners.into_iter().collect());
        let batch = &mut batches[0];
        let labelled =
            [("one", 0), ("two", 1), ("three", 2)].map(|(pod, claim)| (pod.into(), claim));
        batch.labelled = Some(Arc::new(labelled.into_iter().collect()));
        let [first, second] = batch.split().expect("a batch of three can be split");
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
    fn labels_take_precedence_over_names_and_owners() {
        let owners = ["web", "db"].map(|name| {
            let owner = format!("apps/StatefulSet/{name}");
            (ObjectKey::new("a", name), Some(owner.into()))
        });
        let (mut batches, _) = WorkloadBatch::all(&owners.into_iter().collect());
        let batch = &mut batches[0];
        assert_eq!(batch.workload_of("web-0"), Some(1));
        let labelled = [("web-1", 1), ("canary", 1), ("db-0", 0)];
        let labelled = labelled.map(|(pod, claim)| (pod.into(), claim));
        batch.labelled = Some(Arc::new(labelled.into_iter().collect()));
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
        assert!(!pattern(batch).contains("web"), "nothing is queried");
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
    fn many_running_pods_are_queried_in_groups_and_very_many_without_names() {
        let names = |count: usize| -> Vec<String> {
            (0..count).map(|number| format!("an-odd-name-of-a-pod-{number}")).collect()
        };
        for (count, patterns) in [(100, 1), (400, 4), (2_000, 1)] {
            let names = names(count);
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            let batch = deployment(&names);
            let queries = batch.patterns();
            assert_eq!(queries.len(), patterns, "{count}");
            assert!(queries.iter().all(|one| one.as_str().len() <= LONGEST_PATTERN + 64));
            assert!(names.iter().all(|pod| batch.workload_of(pod) == Some(0)), "{count}");
        }
    }
}
