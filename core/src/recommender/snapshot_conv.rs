//! Converts between a live history and the backend-neutral snapshot.

use std::time::Duration;

use crate::{
    history::{BucketScheme, HistogramWeights, ReplicaState, SampleStats, Snapshot, checkpoint},
    types::Time,
};

use super::{
    aggregate::{self, Aggregate},
    buckets::Buckets,
    container::ContainerHistory,
    histogram::{Histogram, HistogramConfig},
    memory_window::{self, LargestReplicaPeaks},
    model_settings::ModelRules,
    plan::{ContainerPlan, PlanState},
};
use crate::types::compat::Fix;

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {why}")]
pub struct InvalidSnapshot {
    pub part: &'static str,
    pub why: String,
}

pub(super) fn to_snapshot(history: &ContainerHistory, now: Time, rules: &ModelRules) -> Snapshot {
    let (_, config) = history.histogram_configs(rules);
    let (cpu, memory) = aggregate::merged(history, rules);
    let mut closed = memory.clone().into_owned();
    let open = memory_window::subtract_open(&mut closed, config, &history.replicas, now);
    let standard = |histogram: &Histogram, buckets: fn(BucketScheme) -> &'static Buckets| {
        let rebucketed =
            histogram.rebucketed(buckets(rules.scheme), buckets(BucketScheme::Standard));
        rebucketed.to_weights(BucketScheme::Standard)
    };
    let (cpu_standard, memory_closed) = match rules.scheme {
        BucketScheme::Standard => (None, open.then(|| closed.to_weights(BucketScheme::Standard))),
        BucketScheme::Fine => {
            (Some(standard(&cpu, Buckets::cpu)), Some(standard(&closed, Buckets::memory)))
        }
    };
    Snapshot {
        owner: history.owner.clone(),
        cpu: cpu.to_weights(rules.scheme),
        memory: memory.to_weights(rules.scheme),
        cpu_standard,
        memory_closed,
        fleet: history
            .largest_replica
            .as_ref()
            .map(|largest| largest.peaks.to_weights(rules.scheme)),
        fleet_window: history.largest_replica.as_ref().map(|largest| largest.window.clone()),
        cpu_seen: history.cpu_samples,
        memory_seen: history.memory_samples,
        half_lives: Some(history.half_lives),
        created: Some(history.created),
        last_alive: history.last_alive,
        replicas: history.replicas.clone(),
        bump: history.bump,
        throttling: history.throttling.as_deref().copied(),
        bootstrapped: history.bootstrapped,
        plan: rules.plan.and(history.plan.as_deref()).map(|plan| plan.state.encode()),
    }
}

/// Restores a history as of `now`.
pub(super) fn from_snapshot(
    snapshot: &Snapshot,
    now: Time,
    rules: &ModelRules,
) -> Result<ContainerHistory, InvalidSnapshot> {
    let windows_survive = rules.fixes.has(Fix::MemoryWindowsSurviveRestart);
    let exact = rules.fixes.has(Fix::ExactWeightsSurviveRestart);
    let mut replicas =
        if windows_survive { known_replicas(snapshot, now, rules) } else { Vec::new() };
    let memory = match &snapshot.memory_closed {
        Some(closed) if !windows_survive => closed,
        _ => &snapshot.memory,
    };
    let restore = HistogramRestore { now, rules, exact };
    let mut history = ContainerHistory::new(snapshot.created.unwrap_or(now).min(now), rules);
    // A checkpoint does not have its half-lives; upstream assumes those of the flags.
    let half_lives = snapshot.half_lives.filter(|_| exact).unwrap_or_else(|| rules.half_lives());
    history.half_lives = half_lives;
    let (cpu_config, memory_config) = history.histogram_configs(rules);
    let cpu = restore.histogram("cpu", &snapshot.cpu, Buckets::cpu, cpu_config, &[])?;
    let memory = restore.histogram("memory", memory, Buckets::memory, memory_config, &replicas)?;
    if exact || windows_survive {
        (history.cpu, history.memory) = (cpu, memory);
    } else {
        history.restored_aggregate = Some(Box::new(Aggregate { cpu, memory }));
    }
    if let (Some(peaks), Some(window), true) =
        (&snapshot.fleet, &snapshot.fleet_window, rules.per_replica_peaks)
    {
        let open = std::slice::from_ref(window);
        let peaks = restore.histogram("fleet", peaks, Buckets::memory, memory_config, open)?;
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
    // Without one, or with one of another version, the plan starts from the histograms.
    history.plan = rules
        .plan
        .and(snapshot.plan.as_ref())
        .and_then(|encoded| PlanState::decode(encoded).ok())
        .map(|state| Box::new(ContainerPlan::new(state)));
    history.restored = true;
    history.adopt_half_lives(now, rules);
    Ok(history)
}

/// Returns the pods of a snapshot, sorted by name and deduplicated. Drops pods whose window ends later than is possible,
/// because it would stay open forever.
fn known_replicas(snapshot: &Snapshot, now: Time, rules: &ModelRules) -> Vec<ReplicaState> {
    let latest = now.later(rules.interval.saturating_mul(2));
    let is_valid = |replica: &&ReplicaState| replica.window_end.is_none_or(|end| end <= latest);
    let mut replicas: Vec<ReplicaState> =
        snapshot.replicas.iter().filter(is_valid).cloned().collect();
    replicas.sort_by(|a, b| a.name.cmp(&b.name));
    replicas.dedup_by(|a, b| a.name == b.name);
    replicas
}

fn truncate_to_seconds(stats: SampleStats) -> SampleStats {
    let truncate = |time: Option<Time>| time.map(|time| Time::from_secs(time.as_secs()));
    SampleStats { count: stats.count, first: truncate(stats.first), last: truncate(stats.last) }
}

/// How to restore histograms.
struct HistogramRestore<'a> {
    now: Time,
    rules: &'a ModelRules,
    exact: bool,
}

impl HistogramRestore<'_> {
    /// Restores a histogram from its weights and converts it to the configured boundaries. The peaks of open windows are
    /// converted separately, so that the sample that replaces a peak can subtract it exactly.
    fn histogram(
        &self,
        part: &'static str,
        weights: &HistogramWeights,
        buckets_of: fn(BucketScheme) -> &'static Buckets,
        config: HistogramConfig<'static>,
        open: &[ReplicaState],
    ) -> Result<Histogram, InvalidSnapshot> {
        let invalid = |why: String| InvalidSnapshot { part, why };
        let tolerance =
            config.half_life.unwrap_or(Duration::ZERO).saturating_add(self.rules.interval);
        let latest = self.now.later(tolerance.saturating_mul(2));
        if let Some(reference) = weights.reference.filter(|reference| *reference > latest) {
            return Err(invalid(format!("reference time {reference} is in the future")));
        }
        let stored = buckets_of(weights.scheme);
        // A checkpoint only has standard buckets; finer ones are only in exact formats.
        let mut histogram = if self.exact || weights.scheme != BucketScheme::Standard {
            Histogram::from_weights(stored, weights).map_err(invalid)?
        } else {
            let as_saved = checkpoint::encode(weights)
                .and_then(|saved| checkpoint::decode(&saved, stored.count(), stored.epsilon))
                .map_err(|error| invalid(error.to_string()))?;
            Histogram::from_weights(stored, &as_saved).map_err(invalid)?
        };
        if weights.scheme != self.rules.scheme {
            memory_window::remove_open_peaks(
                &mut histogram,
                HistogramConfig { buckets: stored, ..config },
                open,
            );
            histogram = histogram.rebucketed(stored, config.buckets);
            memory_window::restore_open_peaks(&mut histogram, config, open);
        }
        Ok(histogram)
    }
}
