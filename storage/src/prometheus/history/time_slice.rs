//! A slice of a batch's history, held in memory until it is complete. An incomplete slice does not count.

use super::workload_batch::WorkloadBatch;
use crate::prometheus::{
    client::{PrometheusClient, QueryRange, QueryStats},
    decode::{Interest, Labels, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
    schema::container_name,
};
use plimsoll_core::types::Time;

/// Points of several series in one vector.
#[derive(Debug, Default)]
pub(super) struct SeriesPoints {
    rows: Vec<PodSeries>,
    points: Vec<(Time, f64)>,
}

/// A series of a container of a pod. It may have several entries, in order of time.
#[derive(Debug)]
pub(super) struct PodSeries {
    pub(super) workload: usize,
    pub(super) container: Box<str>,
    pub(super) pod: Box<str>,
    start: usize,
    end: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SkippedCounts {
    /// Series without a pod or container label.
    pub unlabelled: u64,
    /// Series of pods of other workloads.
    pub other_workloads: u64,
    /// Points with invalid values: NaN, infinite or negative.
    pub invalid_points: u64,
}

impl SkippedCounts {
    pub(super) fn add(&mut self, other: Self) {
        self.unlabelled += other.unlabelled;
        self.other_workloads += other.other_workloads;
        self.invalid_points += other.invalid_points;
    }
}

/// The memory of a series without its points, in points.
const POINTS_PER_SERIES: u64 = 5;

#[derive(Debug)]
pub(super) struct SliceCollector<'a> {
    batch: &'a WorkloadBatch,
    pod: &'a str,
    container: &'a str,
    collected: SeriesPoints,
    skipped: SkippedCounts,
    max_points: u64,
    /// The lengths and counts at the last complete response.
    committed: (usize, usize, SkippedCounts),
}

impl<'a> SliceCollector<'a> {
    pub(super) fn new(
        batch: &'a WorkloadBatch,
        [_, pod, container]: [&'a str; 3],
        max_points: u64,
    ) -> Self {
        let (collected, skipped) = (SeriesPoints::default(), SkippedCounts::default());
        let committed = (0, 0, skipped);
        Self { batch, pod, container, collected, skipped, max_points, committed }
    }

    pub(super) async fn read(
        mut self,
        client: &PrometheusClient,
        queries: &[Query],
        grid: QueryRange,
        stats: &mut QueryStats,
    ) -> Result<(SeriesPoints, SkippedCounts), QueryError> {
        for query in queries {
            let part = client.range(query, grid, &mut self).await?;
            tracing::debug!(
                %query,
                from = %grid.step_time(0),
                steps = grid.step_count,
                queries = part.queries,
                series = part.series,
                points = part.points,
                bytes = part.bytes,
                time = ?part.time,
                "read part of history"
            );
            stats.merge(part);
        }
        Ok(self.into_committed())
    }

    /// Returns the points of complete responses.
    pub(super) fn into_committed(mut self) -> (SeriesPoints, SkippedCounts) {
        self.discard();
        (self.collected, self.skipped)
    }
}

impl SeriesVisitor for SliceCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let label_value = |label| labels.get(label).filter(|value| !value.is_empty());
        let (Some(pod), Some(container)) = (label_value(self.pod), label_value(self.container))
        else {
            self.skipped.unlabelled += 1;
            return Interest::LabelsOnly;
        };
        let container = container_name(container);
        // `POD` is the old name of the pod sandbox.
        let workload = Some(pod).filter(|_| container != "POD");
        let Some(workload) = workload.and_then(|pod| self.batch.workload_of(pod)) else {
            self.skipped.other_workloads += 1;
            return Interest::LabelsOnly;
        };
        let (pod, container) = (pod.into(), container.into());
        let at = self.collected.points.len();
        self.collected.rows.push(PodSeries { workload, container, pod, start: at, end: at });
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
        let (rows, points, skipped) = self.committed;
        self.collected.rows.truncate(rows);
        self.collected.points.truncate(points);
        self.skipped = skipped;
    }
}

impl SeriesPoints {
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    pub(super) fn size_in_points(&self) -> u64 {
        self.points.len() as u64 + POINTS_PER_SERIES * self.rows.len() as u64
    }

    /// Sorts by workload, container and pod. The entries of one series keep their order.
    pub(super) fn sort(&mut self) {
        self.rows.sort_by(|a, b| a.key().cmp(&b.key()));
    }

    /// The entries grouped by container and pod. Call [`Self::sort`] first.
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
        // Nearly always sorted already. The sort is stable for equal times.
        merged.sort_by_key(|(at, _)| *at);
        merged
    }

    /// The entries of this container. Call [`Self::sort`] first.
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
