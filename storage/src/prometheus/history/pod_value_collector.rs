//! Collects the largest values of single series of pods.

use std::collections::HashMap;

use super::{
    batch_group::{BatchGroup, GroupedWorkload},
    pod_values::{PodQuery, PodValue},
};
use crate::prometheus::{
    decode::{Interest, Labels, SeriesVisitor},
    schema::{Schema, container_name},
};
use plimsoll_core::types::Time;

/// The memory of a value with its names, in points of sixteen bytes.
const POINTS_PER_VALUE: u64 = 10;
/// The memory of the peak of a day.
const POINTS_PER_DAY: u64 = 2;

/// The largest value of one series, or those of each day of one container of all pods.
#[derive(Clone, Debug)]
pub(super) struct CollectedValue {
    query: usize,
    workload: GroupedWorkload,
    pod: Box<str>,
    container: Box<str>,
    /// One value, or the largest of each day in order of time.
    largest: Vec<(Time, f64)>,
    label: Box<str>,
}

impl CollectedValue {
    pub(super) fn pass_on(
        &self,
        group: &BatchGroup,
        accept: &mut (dyn FnMut(PodValue<'_>) + Send),
    ) {
        let (batch, workload) = self.workload;
        let claim = group.batches.get(batch).and_then(|batch| batch.claims.get(workload));
        for vpa in claim.iter().flat_map(|claim| &claim.vpas) {
            let Self { query, pod, container, label, .. } = self;
            for &(at, value) in &self.largest {
                accept(PodValue { query: *query, vpa, pod, container, value, at, label });
            }
        }
    }

    pub(super) fn names(&self) -> (usize, GroupedWorkload, &str, &str) {
        (self.query, self.workload, &self.container, &self.pod)
    }

    fn add_of_day(&mut self, at: Time, value: f64) {
        let position = self.largest.binary_search_by_key(&day(at), |(known, _)| day(*known));
        match position {
            Ok(index) if value > self.largest[index].1 => self.largest[index] = (at, value),
            Ok(_) => {}
            Err(index) => self.largest.insert(index, (at, value)),
        }
    }
}

/// The day of a time in UTC.
fn day(at: Time) -> i64 {
    at.as_secs().div_euclid(86_400)
}

pub(super) struct LargestValues<'a> {
    group: &'a BatchGroup,
    query: usize,
    namespace: &'a str,
    pod: &'a str,
    /// The label of containers; `None` for queries about pods.
    container: Option<&'a str>,
    /// Whether series without a container count too.
    may_lack_container: bool,
    /// The label whose value is wanted.
    label: Option<&'static str>,
    /// Whether the values of all pods are one for each day.
    is_by_day: bool,
    collected: Vec<CollectedValue>,
    /// The first value of the current series. A pod may belong to several workloads.
    current: usize,
    committed: usize,
    /// By day, the index of each container in `merged`.
    indices: HashMap<(GroupedWorkload, Box<str>), usize>,
    merged: Vec<CollectedValue>,
    /// The memory of `merged`, in points.
    merged_points: u64,
    pub(super) max_points: u64,
}

impl<'a> LargestValues<'a> {
    pub(super) fn new(
        group: &'a BatchGroup,
        index: usize,
        query: &PodQuery,
        schema: &'a Schema,
    ) -> Self {
        let [namespace, pod, container] = schema.usage.container_labels();
        let mut this = Self {
            group,
            query: index,
            namespace,
            pod,
            container: Some(container),
            may_lack_container: matches!(query, PodQuery::Jvm { .. }),
            label: None,
            max_points: 0,
            is_by_day: query.is_by_day(),
            collected: Vec::new(),
            current: 0,
            committed: 0,
            indices: HashMap::new(),
            merged: Vec::new(),
            merged_points: 0,
        };
        if let PodQuery::ContainerState { .. }
        | PodQuery::PodState { .. }
        | PodQuery::PodLabel { .. } = query
            && let Some(states) = &schema.kube_state_metrics
        {
            (this.namespace, this.pod) = (&states.namespace, &states.pod);
            let of_containers = matches!(query, PodQuery::ContainerState { .. });
            this.container = of_containers.then_some(&*states.container);
            if let PodQuery::PodLabel { label, .. } = query {
                this.label = Some(label);
            }
        }
        this
    }

    pub(super) fn into_committed(mut self) -> Vec<CollectedValue> {
        self.discard();
        self.merged.append(&mut self.collected);
        self.merged
    }

    /// Moves the values of a complete response to those of their containers.
    fn merge_pods(&mut self) {
        for value in self.collected.drain(..) {
            let key = (value.workload, value.container.clone());
            let Some(known) = self.indices.get(&key).map(|index| &mut self.merged[*index]) else {
                self.indices.insert(key, self.merged.len());
                self.merged_points +=
                    POINTS_PER_VALUE + POINTS_PER_DAY * value.largest.len() as u64;
                self.merged.push(CollectedValue { pod: Box::default(), ..value });
                continue;
            };
            let before = known.largest.len();
            for (at, new) in value.largest {
                known.add_of_day(at, new);
            }
            self.merged_points += POINTS_PER_DAY * (known.largest.len() - before) as u64;
        }
    }
}

impl SeriesVisitor for LargestValues<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let value_of = |label: &str| labels.get(label).filter(|value| !value.is_empty());
        self.current = self.collected.len();
        let Some(pod) = value_of(self.pod) else { return Interest::LabelsOnly };
        let container = match self.container.map(value_of) {
            Some(Some(name)) => Some(container_name(name)).filter(|name| *name != "POD"),
            Some(None) => self.may_lack_container.then_some(""),
            None => Some(""),
        };
        let Some(container) = container else { return Interest::LabelsOnly };
        let label = self.label.map(|label| {
            let exported = format!("exported_{label}");
            value_of(&exported).or_else(|| value_of(label)).unwrap_or_default()
        });
        for workload in self.group.workloads_of(labels.get(self.namespace), pod) {
            // A list of series has no points.
            let largest = label.is_some().then_some((Time::EPOCH, 0.0));
            self.collected.push(CollectedValue {
                query: self.query,
                workload,
                pod: pod.into(),
                container: container.into(),
                largest: largest.into_iter().collect(),
                label: label.unwrap_or_default().into(),
            });
        }
        let is_wanted = self.collected.len() > self.current && label.is_none();
        if is_wanted { Interest::Points } else { Interest::LabelsOnly }
    }

    fn point(&mut self, at: Time, value: f64) {
        if !value.is_finite() {
            return;
        }
        for collected in &mut self.collected[self.current..] {
            if self.is_by_day {
                collected.add_of_day(at, value);
            } else if collected.largest.first().is_none_or(|(_, largest)| value > *largest) {
                collected.largest = vec![(at, value)];
            }
        }
    }

    fn finish(&mut self) {
        if self.is_by_day {
            self.merge_pods();
        }
        (self.current, self.committed) = (self.collected.len(), self.collected.len());
    }

    fn is_full(&self) -> bool {
        self.collected.len() as u64 * POINTS_PER_VALUE + self.merged_points > self.max_points
    }

    fn discard(&mut self) {
        self.collected.truncate(self.committed);
        self.current = self.collected.len();
    }
}
