//! A part of a batch's history, held until all of it has come: then it counts, or none of it does.

use super::batch::Batch;
use crate::prometheus::{
    answer::{Labels, Series, Wants},
    schema::container_name,
};
use plimsoll_core::types::Time;

/// Points of some series, close together.
#[derive(Debug, Default)]
pub(super) struct Points {
    rows: Vec<Row>,
    points: Vec<(Time, f64)>,
}

/// A series: a container of a pod. It may come several times, in order of time.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) claim: usize,
    pub(super) container: Box<str>,
    pub(super) pod: Box<str>,
    start: usize,
    end: usize,
}

/// What was passed over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Series without a label of pod or container.
    pub unlabelled: u64,
    /// Series of pods of other workloads.
    pub foreign: u64,
    /// Points that are no amounts: NaN, infinite or below zero.
    pub odd_points: u64,
}

impl Passed {
    pub(super) fn add(&mut self, other: Self) {
        self.unlabelled += other.unlabelled;
        self.foreign += other.foreign;
        self.odd_points += other.odd_points;
    }
}

/// What a series takes besides its points, in points: its names and where they are.
const ROW: u64 = 5;

/// Takes series of a batch.
#[derive(Debug)]
pub(super) struct Taker<'a> {
    batch: &'a Batch,
    pod: &'a str,
    container: &'a str,
    taken: Points,
    passed: Passed,
    /// How much may be held, in points.
    most: u64,
    /// How much of it counts.
    whole: (usize, usize, Passed),
}

impl<'a> Taker<'a> {
    /// Of these labels; so much at most.
    pub(super) fn new(batch: &'a Batch, [_, pod, container]: [&'a str; 3], most: u64) -> Self {
        let whole = (0, 0, Passed::default());
        Self { batch, pod, container, taken: Points::default(), passed: whole.2, most, whole }
    }

    /// What counts.
    pub(super) fn done(mut self) -> (Points, Passed) {
        self.discard();
        (self.taken, self.passed)
    }
}

impl Series for Taker<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Wants {
        let some = |label| labels.get(label).filter(|value| !value.is_empty());
        let (Some(pod), Some(container)) = (some(self.pod), some(self.container)) else {
            self.passed.unlabelled += 1;
            return Wants::Nothing;
        };
        let container = container_name(container);
        // The sandbox around containers, by its old name.
        let claim = Some(pod).filter(|_| container != "POD");
        let Some(claim) = claim.and_then(|pod| self.batch.claim_of(pod)) else {
            self.passed.foreign += 1;
            return Wants::Nothing;
        };
        let (pod, container) = (pod.into(), container.into());
        let at = self.taken.points.len();
        self.taken.rows.push(Row { claim, container, pod, start: at, end: at });
        Wants::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        let Some(row) = self.taken.rows.last_mut() else { return };
        if !value.is_finite() || value < 0.0 {
            self.passed.odd_points += 1;
            return;
        }
        self.taken.points.push((at, value));
        row.end += 1;
    }

    fn finish(&mut self) {
        self.whole = (self.taken.rows.len(), self.taken.points.len(), self.passed);
    }

    fn is_full(&self) -> bool {
        self.taken.held() > self.most
    }

    fn discard(&mut self) {
        let (rows, points, passed) = self.whole;
        self.taken.rows.truncate(rows);
        self.taken.points.truncate(points);
        self.passed = passed;
    }
}

impl Points {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// What they take, in points.
    pub(super) fn held(&self) -> u64 {
        self.points.len() as u64 + ROW * self.rows.len() as u64
    }

    /// Rows by container and pod, those of one pod next to each other and in the order in which they came.
    pub(super) fn sort(&mut self) {
        self.rows.sort_by(|a, b| a.key().cmp(&b.key()));
    }

    /// The containers of pods that there are, each with its rows. Sorted before.
    pub(super) fn groups(&self) -> impl Iterator<Item = &[Row]> {
        self.rows.chunk_by(|a, b| a.key() == b.key())
    }

    /// The points of one container of one pod, in order of time.
    pub(super) fn of<'a>(
        &'a self,
        rows: &'a [Row],
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
    pub(super) fn find(&self, key: (usize, &str, &str)) -> &[Row] {
        let start = self.rows.partition_point(|row| row.key() < key);
        let end = self.rows.partition_point(|row| row.key() <= key);
        &self.rows[start..end]
    }
}

impl Row {
    pub(super) fn key(&self) -> (usize, &str, &str) {
        (self.claim, &self.container, &self.pod)
    }
}
