//! Between the history in use and the neutral snapshot that a storage keeps.

use std::time::Duration;

use crate::history::checkpoint;
use crate::{
    history::{Observed, Replica, Scheme, Snapshot, Weights},
    types::Time,
};

use super::{
    buckets::Buckets,
    container::{ContainerHistory, Fleet},
    histogram::{Axis, Histogram},
    pool::Pool,
    settings::Rules,
    window,
};
use crate::types::compat::Fix;

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
        let (_, axis) = self.axes(rules);
        let pool = self.pooled(rules);
        let (cpu, memory) = (pool.cpu(), pool.memory());
        let mut closed = memory.clone();
        let open = window::subtract_open(&mut closed, axis, &self.replicas, now);
        let standard = |histogram: &Histogram, buckets: fn(Scheme) -> &'static Buckets| {
            let rebucketed = histogram.rebucketed(buckets(rules.scheme), buckets(Scheme::Standard));
            rebucketed.to_weights(Scheme::Standard)
        };
        let (cpu_standard, memory_closed) = match rules.scheme {
            Scheme::Standard => (None, open.then(|| closed.to_weights(Scheme::Standard))),
            Scheme::Fine => {
                (Some(standard(cpu, Buckets::cpu)), Some(standard(&closed, Buckets::memory)))
            }
        };
        Snapshot {
            owner: self.owner.clone(),
            cpu: cpu.to_weights(rules.scheme),
            memory: memory.to_weights(rules.scheme),
            cpu_standard,
            memory_closed,
            fleet: self.fleet.as_ref().map(|fleet| fleet.peaks.to_weights(rules.scheme)),
            fleet_window: self.fleet.as_ref().map(|fleet| fleet.window.clone()),
            cpu_seen: self.cpu_seen,
            memory_seen: self.memory_seen,
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
        rules: &Rules,
    ) -> Result<Self, BadSnapshot> {
        let windows_survive = rules.fixes.has(Fix::MemoryWindowsSurviveRestart);
        let exact = rules.fixes.has(Fix::ExactWeightsSurviveRestart);
        let mut replicas = if windows_survive { known(snapshot, now, rules) } else { Vec::new() };
        let memory = match &snapshot.memory_closed {
            Some(closed) if !windows_survive => closed,
            _ => &snapshot.memory,
        };
        let return_of = Return { now, rules, exact };
        let mut history = Self::new(snapshot.created.unwrap_or(now).min(now), rules);
        // A checkpoint does not say which half-life it was made with; upstream takes the flag's.
        let kept = snapshot.half_lives.filter(|_| exact).unwrap_or_else(|| rules.half_lives());
        history.half_lives = kept;
        let (cpu_axis, memory_axis) = history.axes(rules);
        let cpu = return_of.histogram("cpu", &snapshot.cpu, Buckets::cpu, cpu_axis, &[])?;
        let memory =
            return_of.histogram("memory", memory, Buckets::memory, memory_axis, &replicas)?;
        if exact || windows_survive {
            (history.cpu, history.memory) = (cpu, memory);
        } else {
            history.apart = Some(Box::new(Pool { cpu, memory }));
        }
        if let (Some(peaks), Some(window), true) =
            (&snapshot.fleet, &snapshot.fleet_window, rules.per_replica_peaks)
        {
            let open = std::slice::from_ref(window);
            let peaks = return_of.histogram("fleet", peaks, Buckets::memory, memory_axis, open)?;
            history.fleet = Some(Box::new(Fleet { peaks, window: window.clone() }));
        }
        history.owner.clone_from(&snapshot.owner);
        history.cpu_seen = snapshot.cpu_seen;
        history.memory_seen = snapshot.memory_seen;
        if !exact {
            history.cpu_seen = in_seconds(history.cpu_seen);
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
        history.adopt(now, rules);
        Ok(history)
    }
}

/// The pods of a snapshot, by name, each once. A window that ends later than one can is not a window: it
/// would stay open for ever.
fn known(snapshot: &Snapshot, now: Time, rules: &Rules) -> Vec<Replica> {
    let latest = now.later(rules.interval.saturating_mul(2));
    let sane = |replica: &&Replica| replica.window_end.is_none_or(|end| end <= latest);
    let mut replicas: Vec<Replica> = snapshot.replicas.iter().filter(sane).cloned().collect();
    replicas.sort_by(|one, other| one.name.cmp(&other.name));
    replicas.dedup_by(|one, other| one.name == other.name);
    replicas
}

fn in_seconds(seen: Observed) -> Observed {
    let cut = |time: Option<Time>| time.map(|time| Time::from_secs(time.as_secs()));
    Observed { count: seen.count, first: cut(seen.first), last: cut(seen.last) }
}

/// How histograms come back.
struct Return<'a> {
    now: Time,
    rules: &'a Rules,
    exact: bool,
}

impl Return<'_> {
    /// A histogram from its weights, in the boundaries that are wanted now. The peaks of open windows are
    /// moved by themselves, so that each is found again by the sample that replaces it.
    fn histogram(
        &self,
        part: &'static str,
        weights: &Weights,
        buckets_of: fn(Scheme) -> &'static Buckets,
        axis: Axis<'static>,
        open: &[Replica],
    ) -> Result<Histogram, BadSnapshot> {
        let bad = |why: String| BadSnapshot { part, why };
        let ahead = axis.half_life.unwrap_or(Duration::ZERO).saturating_add(self.rules.interval);
        let latest = self.now.later(ahead.saturating_mul(2));
        if let Some(reference) = weights.reference.filter(|reference| *reference > latest) {
            return Err(bad(format!("reference {reference} lies in the future")));
        }
        let stored = buckets_of(weights.scheme);
        // A checkpoint can only say standard buckets; finer ones are ours and always exact.
        let mut histogram = if self.exact || weights.scheme != Scheme::Standard {
            Histogram::from_weights(stored, weights).map_err(bad)?
        } else {
            let as_saved = checkpoint::encode(weights)
                .and_then(|saved| checkpoint::decode(&saved, stored.count(), stored.epsilon()))
                .map_err(|error| bad(error.to_string()))?;
            Histogram::from_weights(stored, &as_saved).map_err(bad)?
        };
        if weights.scheme != self.rules.scheme {
            window::lift(&mut histogram, Axis { buckets: stored, ..axis }, open);
            histogram = histogram.rebucketed(stored, axis.buckets);
            window::lower(&mut histogram, axis, open);
        }
        Ok(histogram)
    }
}
