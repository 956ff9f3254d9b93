//! A part of a batch's history, held until all of it has come: then it counts, or none of it does.

use super::workload_batch::WorkloadBatch;
use crate::prometheus::{
    decode::{Interest, Labels, SeriesVisitor},
    schema::container_name,
};
use plimsoll_core::types::Time;

/// Points of some series, close together.
#[derive(Debug, Default)]
pub(super) struct SeriesPoints {
    rows: Vec<PodSeries>,
    points: Vec<(Time, f64)>,
}

/// A series: a container of a pod. It may come several times, in order of time.
#[derive(Debug)]
pub(super) struct PodSeries {
    pub(super) workload: usize,
    pub(super) container: Box<str>,
    pub(super) pod: Box<str>,
    start: usize,
    end: usize,
}

/// What was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedCounts {
    /// Series without a label of pod or container.
    pub unlabelled: u64,
    /// Series of pods of other workloads.
    pub other_workloads: u64,
    /// Points that are no amounts: NaN, infinite or below zero.
    pub invalid_points: u64,
}

impl SkippedCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.unlabelled += other.unlabelled;
        self.other_workloads += other.other_workloads;
        self.invalid_points += other.invalid_points;
    }
}

/// What a series takes besides its points, in points: its names and where they are.
const POINTS_PER_SERIES: u64 = 5;

/// Takes series of a batch.
#[derive(Debug)]
pub(super) struct SliceCollector<'a> {
    batch: &'a WorkloadBatch,
    pod: &'a str,
    container: &'a str,
    collected: SeriesPoints,
    skipped: SkippedCounts,
    /// How much may be held, in points.
    max_points: u64,
    /// How much of it counts.
    committed: (usize, usize, SkippedCounts),
}

impl<'a> SliceCollector<'a> {
    /// Of these labels; so much at most.
    pub(super) fn new(
        batch: &'a WorkloadBatch,
        [_, pod, container]: [&'a str; 3],
        most: u64,
    ) -> Self {
        let whole = (0, 0, SkippedCounts::default());
        Self {
            batch,
            pod,
            container,
            collected: SeriesPoints::default(),
            skipped: whole.2,
            max_points: most,
            committed: whole,
        }
    }

    /// What counts.
    pub(super) fn into_committed(mut self) -> (SeriesPoints, SkippedCounts) {
        self.discard();
        (self.collected, self.skipped)
    }
}

impl SeriesVisitor for SliceCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let some = |label| labels.get(label).filter(|value| !value.is_empty());
        let (Some(pod), Some(container)) = (some(self.pod), some(self.container)) else {
            self.skipped.unlabelled += 1;
            return Interest::LabelsOnly;
        };
        let container = container_name(container);
        // The sandbox around containers, by its old name.
        let claim = Some(pod).filter(|_| container != "POD");
        let Some(claim) = claim.and_then(|pod| self.batch.workload_of(pod)) else {
            self.skipped.other_workloads += 1;
            return Interest::LabelsOnly;
        };
        let (pod, container) = (pod.into(), container.into());
        let at = self.collected.points.len();
        self.collected.rows.push(PodSeries { workload: claim, container, pod, start: at, end: at });
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        let Some(row) = self.collected.rows.last_mut() else { return };
        if !value.is_finite() || value < 0.0 {
            self.skipped.invalid_points += 1;
            return;
        }
        self.collected.points.push((at, value));
        row.end += 1;
    }

    fn finish(&mut self) {
        self.committed = (self.collected.rows.len(), self.collected.points.len(), self.skipped);
    }

    fn is_full(&self) -> bool {
        self.collected.size_in_points() > self.max_points
    }

    fn discard(&mut self) {
        let (rows, points, passed) = self.committed;
        self.collected.rows.truncate(rows);
        self.collected.points.truncate(points);
        self.skipped = passed;
    }
}

impl SeriesPoints {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// What they take, in points.
    pub(super) fn size_in_points(&self) -> u64 {
        self.points.len() as u64 + POINTS_PER_SERIES * self.rows.len() as u64
    }

    /// Rows by container and pod, those of one pod next to each other and in the order in which they came.
    pub(super) fn sort(&mut self) {
        self.rows.sort_by(|a, b| a.key().cmp(&b.key()));
    }

    /// The containers of pods that there are, each with its rows. Sorted before.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[PodSeries]> {
        self.rows.chunk_by(|a, b| a.key() == b.key())
    }

    /// The points of one container of one pod, in order of time.
    pub(super) fn points_of<'a>(
        &'a self,
        rows: &'a [PodSeries],
        merged: &'a mut Vec<(Time, f64)>,
    ) -> &'a [(Time, f64)] {
        if let [row] = rows {
            return &self.points[row.start..row.end];
        }
        merged.clear();
        for row in rows {
            merged.extend_from_slice(&self.points[row.start..row.end]);
        }
        // Nearly always it is in order already; of the same time the first that came stays first.
        merged.sort_by_key(|(at, _)| *at);
        merged
    }

    /// The rows of this container, if there are any. Sorted before.
    pub(super) fn find(&self, key: (usize, &str, &str)) -> &[PodSeries] {
        let start = self.rows.partition_point(|row| row.key() < key);
        let end = self.rows.partition_point(|row| row.key() <= key);
        &self.rows[start..end]
    }
}

impl PodSeries {
    pub(super) fn key(&self) -> (usize, &str, &str) {
        (self.workload, &self.container, &self.pod)
    }
}
