//! Batches of several namespaces that are queried together, where the result is small.
//!
//! A history is read batch by batch, because it is large. Owners of pods, peaks and throttling have few values for each
//! container, so one query can be about many namespaces. Each value is assigned by the batch of its namespace, so it is the
//! same as if each batch were queried by itself.

use std::{collections::BTreeSet, sync::Arc};

use super::{
    owner_queries::query_owners,
    owner_series::OwnerSeries,
    workload_batch::{LONGEST_PATTERN, WorkloadBatch},
};
use crate::prometheus::{
    client::PrometheusClient,
    query_error::QueryError,
    schema::{KubeStateMetrics, MAX_NAMESPACES, Schema},
    selector::{Pattern, Selector},
};
use plimsoll_core::types::{ObjectKey, Time};

/// Maximum number of workloads of a group, so that results stay small.
const MAX_WORKLOADS: usize = 1_000;
/// Maximum length of the names of namespaces, and of the pattern of pods in a query with several selectors: queries through
/// the API server's proxy are part of a URL.
const LONGEST_NAMESPACES: usize = 1024;
const LONGEST_SHORT_PATTERN: usize = 1024;

#[derive(Clone, Debug)]
pub(super) struct BatchGroup {
    pub(super) batches: Vec<WorkloadBatch>,
    pub(super) has_owners: bool,
}

/// The index of a batch in its group, and of a workload in the batch.
pub(super) type GroupedWorkload = (usize, usize);

impl BatchGroup {
    /// A batch by itself.
    pub(super) fn single(batch: WorkloadBatch) -> Self {
        Self { batches: vec![batch], has_owners: false }
    }

    /// Groups batches, which are sorted by namespace.
    pub(super) fn all(batches: Vec<WorkloadBatch>) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for batch in batches {
            match groups.last_mut() {
                Some(group) if group.has_room_for(&batch) => group.batches.push(batch),
                _ => groups.push(Self::single(batch)),
            }
        }
        groups
    }

    fn has_room_for(&self, batch: &WorkloadBatch) -> bool {
        let mut namespaces = self.namespaces();
        namespaces.insert(&batch.namespace);
        let length: usize = namespaces.iter().map(|name| name.len() + 1).sum();
        let workloads: usize = self.batches.iter().map(|batch| batch.claims.len()).sum();
        workloads + batch.claims.len() <= MAX_WORKLOADS
            && namespaces.len() <= MAX_NAMESPACES
            && length <= LONGEST_NAMESPACES
    }

    pub(super) fn namespaces(&self) -> BTreeSet<&str> {
        self.batches.iter().map(|batch| &*batch.namespace).collect()
    }

    /// The first namespace, for errors.
    pub(super) fn first_namespace(&self) -> Arc<str> {
        self.batches.first().map_or_else(|| "".into(), |batch| Arc::clone(&batch.namespace))
    }

    pub(super) fn workloads(&self) -> usize {
        self.batches.iter().map(|batch| batch.claims.len()).sum()
    }

    /// The number of pods that are known.
    pub(super) fn pods(&self) -> usize {
        self.batches.iter().map(WorkloadBatch::pods).sum()
    }

    /// The memory of the owners of pods, in points.
    pub(super) fn size_in_points(&self) -> u64 {
        self.batches.iter().map(|batch| batch.proof.size_in_points).sum()
    }

    /// Patterns of pod names, one per query. If all names are too long for one query, all pods of the namespaces are queried:
    /// those of other workloads are skipped.
    pub(super) fn patterns(&self) -> Vec<Pattern> {
        if let [batch] = &self.batches[..] {
            return batch.patterns();
        }
        let patterns = self.batches.iter().map(WorkloadBatch::patterns);
        let patterns: Option<Vec<Pattern>> =
            patterns.map(|mut patterns| patterns.pop().filter(|_| patterns.is_empty())).collect();
        // A pattern that matches every name would match those of all batches.
        let all = patterns.map(Pattern::any_of).filter(|all| all.as_str().len() <= LONGEST_PATTERN);
        vec![all.unwrap_or_else(|| Pattern::regex(".+"))]
    }

    /// The same for queries with several selectors: all pods of the namespaces if the names are long.
    pub(super) fn short_patterns(&self) -> Vec<Pattern> {
        let patterns = self.patterns();
        match &patterns[..] {
            [one] if one.as_str().len() <= LONGEST_SHORT_PATTERN => patterns,
            _ => vec![Pattern::regex(".+")],
        }
    }

    /// Restricts usage series to containers of these pods.
    pub(super) fn usage(&self, schema: &Schema, series: Selector, pods: Pattern) -> Selector {
        schema.of_pods_in(series, &Vec::from_iter(self.namespaces()), pods)
    }

    /// Selects a family of kube-state-metrics in the namespaces.
    pub(super) fn states(
        &self,
        states: &KubeStateMetrics,
        schema: &Schema,
        family: &str,
    ) -> Selector {
        states.selector_in(family, &Vec::from_iter(self.namespaces()), &schema.matchers)
    }

    /// The workloads of a pod. A series of a group of one batch need not have a label for the namespace.
    pub(super) fn workloads_of(
        &self,
        namespace: Option<&str>,
        pod: &str,
    ) -> impl Iterator<Item = GroupedWorkload> {
        let is_one = self.batches.len() == 1;
        self.batches.iter().enumerate().filter_map(move |(index, batch)| {
            let is_here = is_one || namespace == Some(&*batch.namespace);
            is_here.then(|| batch.workload_of(pod)).flatten().map(|workload| (index, workload))
        })
    }

    pub(super) fn vpas(&self) -> impl Iterator<Item = &ObjectKey> {
        self.batches.iter().flat_map(WorkloadBatch::vpas)
    }

    /// Splits a group that is too large, or that a failure concerns only a part of. `None` for a single workload. The owners
    /// of pods are kept if only batches are separated.
    pub(super) fn split(&self) -> Option<[Self; 2]> {
        if let [batch] = &self.batches[..] {
            return batch.split().map(|halves| halves.map(Self::single));
        }
        let mut first = self.clone();
        let second = first.batches.split_off(self.batches.len() / 2);
        let second = Self { batches: second, has_owners: self.has_owners };
        Some([first, second])
    }

    pub(super) fn set_owners(&mut self, owners: Vec<OwnerSeries>) {
        for (batch, owners) in self.batches.iter_mut().zip(owners) {
            batch.proof = owners;
        }
        self.has_owners = true;
    }

    /// Queries the owners of pods, unless that was done. If that is impossible, only names determine them; fails if it may be
    /// possible later or for a smaller group.
    pub(super) async fn query_owners(
        &mut self,
        client: &PrometheusClient,
        schema: &Schema,
        span: (Time, Time),
        max_points: u64,
    ) -> Result<(), QueryError> {
        if self.has_owners {
            return Ok(());
        }
        match query_owners(client, schema, self, span, max_points).await {
            Ok(owners) => self.set_owners(owners),
            Err(failure) if failure.is_transient() || self.batches.len() > 1 => {
                return Err(failure);
            }
            Err(QueryError::CollectorFull) if self.workloads() > 1 => {
                return Err(QueryError::CollectorFull);
            }
            // Match pods by name only, as for their usage.
            Err(failure) => tracing::debug!(%failure, "failed to query owners of pods"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn batches(namespaces: usize, workloads: usize) -> Vec<WorkloadBatch> {
        let mut wanted = HashMap::new();
        for namespace in 0..namespaces {
            for workload in 0..workloads {
                let name = format!("web-{workload}");
                let owner = format!("apps/StatefulSet/{name}");
                wanted.insert(
                    ObjectKey::new(format!("team-{namespace:03}"), name),
                    Some(owner.into()),
                );
            }
        }
        WorkloadBatch::all(&wanted).0
    }

    #[test]
    fn groups_are_limited_by_workloads_and_namespaces() {
        for (namespaces, workloads, groups) in
            [(1, 1, 1), (20, 50, 1), (21, 50, 2), (50, 2, 1), (51, 2, 2), (1, 400, 1)]
        {
            let all = BatchGroup::all(batches(namespaces, workloads));
            assert_eq!(all.len(), groups, "{namespaces} of {workloads}");
            let total: usize = all.iter().map(BatchGroup::workloads).sum();
            assert_eq!(total, namespaces * workloads);
        }
    }

    #[test]
    fn a_pod_belongs_to_a_workload_of_its_namespace() {
        let group = BatchGroup::all(batches(2, 2)).remove(0);
        let of = |namespace: Option<&str>, pod: &str| -> Vec<GroupedWorkload> {
            group.workloads_of(namespace, pod).collect()
        };
        assert_eq!(of(Some("team-000"), "web-1-0"), [(0, 1)]);
        assert_eq!(of(Some("team-001"), "web-0-7"), [(1, 0)]);
        assert_eq!(of(Some("team-002"), "web-0-7"), []);
        assert_eq!(of(None, "web-0-7"), []);
        let alone = BatchGroup::all(batches(1, 1)).remove(0);
        assert_eq!(alone.workloads_of(None, "web-0-7").count(), 1);
    }

    #[test]
    fn many_names_are_queried_without_names() {
        let pattern = |group: &BatchGroup| {
            let [pattern] = &group.patterns()[..] else { panic!("one pattern") };
            pattern.as_str().to_owned()
        };
        let few = BatchGroup::all(batches(2, 1)).remove(0);
        assert_eq!(pattern(&few), "(?:web-0-[0-9]{1,10}|web-0-[0-9]{1,10})");
        let many = BatchGroup::all(batches(20, 50)).remove(0);
        assert_eq!(pattern(&many), ".+");
        let alone = BatchGroup::all(batches(1, 80)).remove(0);
        assert!(pattern(&alone).len() > LONGEST_SHORT_PATTERN);
        let short = |group: &BatchGroup| group.short_patterns()[0].as_str().to_owned();
        assert_eq!((short(&alone), short(&few)), (".+".to_owned(), pattern(&few)));
    }

    #[test]
    fn a_group_is_split_by_batches_and_then_by_workloads() {
        let mut group = BatchGroup::all(batches(2, 2)).remove(0);
        group.has_owners = true;
        let [first, second] = group.split().expect("two namespaces");
        assert!(first.has_owners && second.has_owners);
        assert_eq!(first.namespaces(), BTreeSet::from(["team-000"]));
        let [half, _] = second.split().expect("two workloads");
        assert!(!half.has_owners, "owners that follow from the names of all are not stored");
        assert!(half.split().is_none());
    }
}
