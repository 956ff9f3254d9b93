//! Between the history in use and the neutral snapshot that a storage keeps.

use plimsoll_storage::{Scheme, Snapshot, Time, Weights, checkpoint};

use super::{
    buckets::Buckets,
    container::{ContainerHistory, Fleet},
    histogram::Histogram,
    settings::Rules,
    window,
};
use crate::compat::Fix;

/// A snapshot that cannot be taken back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{part}: {why}")]
pub struct BadSnapshot {
    /// Which part of it.
    pub part: &'static str,
    /// What is wrong with it.
    pub why: String,
}

impl ContainerHistory {
    /// Everything there is to remember, as of `now`.
    pub fn to_snapshot(&self, now: Time, rules: &Rules) -> Snapshot {
        let mut closed = self.memory.clone();
        let open = window::subtract_open(&mut closed, rules.memory_axis(), &self.replicas, now);
        Snapshot {
            owner: self.owner.clone(),
            cpu: self.cpu.to_weights(rules.scheme),
            memory: self.memory.to_weights(rules.scheme),
            memory_closed: open.then(|| closed.to_weights(rules.scheme)),
            fleet: self.fleet.as_ref().map(|fleet| fleet.peaks.to_weights(rules.scheme)),
            fleet_window: self.fleet.as_ref().map(|fleet| fleet.window.clone()),
            cpu_seen: self.cpu_seen,
            memory_seen: self.memory_seen,
            last_alive: self.last_alive,
            replicas: self.replicas.clone(),
            bump: self.bump,
        }
    }

    /// The history that a snapshot tells of. Under upstream's rules it comes back as a checkpoint would
    /// bring it: without open windows, in ten-thousandths of the largest weight.
    pub fn from_snapshot(
        snapshot: &Snapshot,
        now: Time,
        rules: &Rules,
    ) -> Result<Self, BadSnapshot> {
        let windows_survive = rules.fixes.has(Fix::MemoryWindowsSurviveRestart);
        let memory = match &snapshot.memory_closed {
            Some(closed) if !windows_survive => closed,
            _ => &snapshot.memory,
        };
        let (cpu_axis, memory_axis) = (rules.cpu_axis(), rules.memory_axis());
        let mut history = Self::new(now, rules);
        history.cpu = restore("cpu", &snapshot.cpu, Buckets::cpu, cpu_axis.buckets, rules)?;
        history.memory = restore("memory", memory, Buckets::memory, memory_axis.buckets, rules)?;
        if let (Some(peaks), Some(window), true) =
            (&snapshot.fleet, &snapshot.fleet_window, rules.per_replica_peaks)
        {
            let peaks = restore("fleet", peaks, Buckets::memory, memory_axis.buckets, rules)?;
            history.fleet = Some(Box::new(Fleet { peaks, window: window.clone() }));
        }
        history.owner.clone_from(&snapshot.owner);
        history.cpu_seen = snapshot.cpu_seen;
        history.memory_seen = snapshot.memory_seen;
        history.last_alive = snapshot.last_alive;
        if windows_survive {
            history.replicas.clone_from(&snapshot.replicas);
            history.replicas.sort_by(|one, other| one.name.cmp(&other.name));
            history.replicas.dedup_by(|one, other| one.name == other.name);
            history.bump = snapshot.bump;
        }
        Ok(history)
    }
}

fn restore(
    part: &'static str,
    weights: &Weights,
    buckets_of: fn(plimsoll_storage::Scheme) -> &'static Buckets,
    wanted: &Buckets,
    rules: &Rules,
) -> Result<Histogram, BadSnapshot> {
    let bad = |why: String| BadSnapshot { part, why };
    let stored = buckets_of(weights.scheme);
    // A checkpoint can only say standard buckets; finer ones are ours and always exact.
    let exact = rules.fixes.has(Fix::ExactWeightsSurviveRestart);
    let histogram = if exact || weights.scheme != Scheme::Standard {
        Histogram::from_weights(stored, weights).map_err(bad)?
    } else {
        let as_saved = checkpoint::encode(weights)
            .and_then(|saved| checkpoint::decode(&saved, stored.count(), stored.epsilon()))
            .map_err(|error| bad(error.to_string()))?;
        Histogram::from_weights(stored, &as_saved).map_err(bad)?
    };
    if weights.scheme == rules.scheme {
        Ok(histogram)
    } else {
        Ok(histogram.rebucketed(stored, wanted))
    }
}
