//! Between the history in use and the neutral snapshot that a storage keeps.

use std::time::Duration;

use crate::history::checkpoint;
use crate::{
    history::{BucketScheme, HistogramWeights, ReplicaState, SampleStats, Snapshot},
    types::Time,
};

use super::{
    aggregate::Aggregate,
    buckets::Buckets,
    container::{ContainerHistory, LargestReplicaPeaks},
    histogram::{Histogram, HistogramConfig},
    memory_window,
    settings::ModelRules,
};
use crate::types::compat::Fix;

/// A snapshot that cannot be taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {why}")]
pub struct InvalidSnapshot {
    /// Which part of it.
    pub part: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl ContainerHistory {
    /// Everything there is to remember, as of `now`.
    pub fn to_snapshot(&self, now: Time, rules: &ModelRules) -> Snapshot {
        let (_, axis) = self.histogram_configs(rules);
        let pool = self.aggregate(rules);
        let (cpu, memory) = (pool.cpu(), pool.memory());
        let mut closed = memory.clone();
        let open = memory_window::subtract_open(&mut closed, axis, &self.replicas, now);
        let standard = |histogram: &Histogram, buckets: fn(BucketScheme) -> &'static Buckets| {
            let rebucketed =
                histogram.rebucketed(buckets(rules.scheme), buckets(BucketScheme::Standard));
            rebucketed.to_weights(BucketScheme::Standard)
        };
        let (cpu_standard, memory_closed) = match rules.scheme {
            BucketScheme::Standard => {
                (None, open.then(|| closed.to_weights(BucketScheme::Standard)))
            }
            BucketScheme::Fine => {
                (Some(standard(cpu, Buckets::cpu)), Some(standard(&closed, Buckets::memory)))
            }
        };
        Snapshot {
            owner: self.owner.clone(),
            cpu: cpu.to_weights(rules.scheme),
            memory: memory.to_weights(rules.scheme),
            cpu_standard,
            memory_closed,
            fleet: self.largest_replica.as_ref().map(|fleet| fleet.peaks.to_weights(rules.scheme)),
            fleet_window: self.largest_replica.as_ref().map(|fleet| fleet.window.clone()),
            cpu_seen: self.cpu_samples,
            memory_seen: self.memory_samples,
            half_lives: Some(self.half_lives),
            created: Some(self.created),
            last_alive: self.last_alive,
            replicas: self.replicas.clone(),
            bump: self.bump,
            throttling: self.throttling.as_deref().copied(),
            bootstrapped: self.bootstrapped,
        }
    }

    /// The history that a snapshot tells of. Under upstream's rules it comes back as a checkpoint would
    /// bring it: without open windows, in ten-thousandths of the largest weight, at whole seconds.
    pub fn from_snapshot(
        snapshot: &Snapshot,
        now: Time,
        rules: &ModelRules,
    ) -> Result<Self, InvalidSnapshot> {
        let windows_survive = rules.fixes.has(Fix::MemoryWindowsSurviveRestart);
        let exact = rules.fixes.has(Fix::ExactWeightsSurviveRestart);
        let mut replicas =
            if windows_survive { known_replicas(snapshot, now, rules) } else { Vec::new() };
        let memory = match &snapshot.memory_closed {
            Some(closed) if !windows_survive => closed,
            _ => &snapshot.memory,
        };
        let return_of = HistogramRestore { now, rules, exact };
        let mut history = Self::new(snapshot.created.unwrap_or(now).min(now), rules);
        // A checkpoint does not say which half-life it was made with; upstream takes the flag's.
        let kept = snapshot.half_lives.filter(|_| exact).unwrap_or_else(|| rules.half_lives());
        history.half_lives = kept;
        let (cpu_axis, memory_axis) = history.histogram_configs(rules);
        let cpu = return_of.histogram("cpu", &snapshot.cpu, Buckets::cpu, cpu_axis, &[])?;
        let memory =
            return_of.histogram("memory", memory, Buckets::memory, memory_axis, &replicas)?;
        if exact || windows_survive {
            (history.cpu, history.memory) = (cpu, memory);
        } else {
            history.restored_aggregate = Some(Box::new(Aggregate { cpu, memory }));
        }
        if let (Some(peaks), Some(window), true) =
            (&snapshot.fleet, &snapshot.fleet_window, rules.per_replica_peaks)
        {
            let open = std::slice::from_ref(window);
            let peaks = return_of.histogram("fleet", peaks, Buckets::memory, memory_axis, open)?;
            history.largest_replica =
                Some(Box::new(LargestReplicaPeaks { peaks, window: window.clone() }));
        }
        history.owner.clone_from(&snapshot.owner);
        history.cpu_samples = snapshot.cpu_seen;
        history.memory_samples = snapshot.memory_seen;
        if !exact {
            history.cpu_samples = truncate_to_seconds(history.cpu_samples);
        }
        history.last_alive = snapshot.last_alive;
        history.throttling = snapshot.throttling.map(Box::new);
        if windows_survive {
            replicas.shrink_to_fit();
            history.replicas = replicas;
            history.bump = snapshot.bump;
        }
        history.bootstrapped = snapshot.bootstrapped;
        history.restored = true;
        history.adopt_half_lives(now, rules);
        Ok(history)
    }
}

/// The pods of a snapshot, by name, each once. A window that ends later than one can is not a window: it
/// would stay open for ever.
fn known_replicas(snapshot: &Snapshot, now: Time, rules: &ModelRules) -> Vec<ReplicaState> {
    let latest = now.later(rules.interval.saturating_mul(2));
    let sane = |replica: &&ReplicaState| replica.window_end.is_none_or(|end| end <= latest);
    let mut replicas: Vec<ReplicaState> = snapshot.replicas.iter().filter(sane).cloned().collect();
    replicas.sort_by(|one, other| one.name.cmp(&other.name));
    replicas.dedup_by(|one, other| one.name == other.name);
    replicas
}

fn truncate_to_seconds(seen: SampleStats) -> SampleStats {
    let cut = |time: Option<Time>| time.map(|time| Time::from_secs(time.as_secs()));
    SampleStats { count: seen.count, first: cut(seen.first), last: cut(seen.last) }
}

/// How histograms come back.
struct HistogramRestore<'a> {
    now: Time,
    rules: &'a ModelRules,
    exact: bool,
}

impl HistogramRestore<'_> {
    /// A histogram from its weights, in the boundaries that are wanted now. The peaks of open windows are
    /// moved by themselves, so that each is found again by the sample that replaces it.
    fn histogram(
        &self,
        part: &'static str,
        weights: &HistogramWeights,
        buckets_of: fn(BucketScheme) -> &'static Buckets,
        axis: HistogramConfig<'static>,
        open: &[ReplicaState],
    ) -> Result<Histogram, InvalidSnapshot> {
        let bad = |why: String| InvalidSnapshot { part, why };
        let ahead = axis.half_life.unwrap_or(Duration::ZERO).saturating_add(self.rules.interval);
        let latest = self.now.later(ahead.saturating_mul(2));
        if let Some(reference) = weights.reference.filter(|reference| *reference > latest) {
            return Err(bad(format!("reference {reference} lies in the future")));
        }
        let stored = buckets_of(weights.scheme);
        // A checkpoint can only say standard buckets; finer ones are ours and always exact.
        let mut histogram = if self.exact || weights.scheme != BucketScheme::Standard {
            Histogram::from_weights(stored, weights).map_err(bad)?
        } else {
            let as_saved = checkpoint::encode(weights)
                .and_then(|saved| checkpoint::decode(&saved, stored.count(), stored.epsilon()))
                .map_err(|error| bad(error.to_string()))?;
            Histogram::from_weights(stored, &as_saved).map_err(bad)?
        };
        if weights.scheme != self.rules.scheme {
            memory_window::remove_open_peaks(
                &mut histogram,
                HistogramConfig { buckets: stored, ..axis },
                open,
            );
            histogram = histogram.rebucketed(stored, axis.buckets);
            memory_window::restore_open_peaks(&mut histogram, axis, open);
        }
        Ok(histogram)
    }
}
