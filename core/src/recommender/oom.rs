//! OOM kills: what they tell about the memory that a container needed, and the resulting bump.

use crate::{
    history::{OomBump, ReplicaState},
    types::Time,
};

use super::{
    container::{ContainerHistory, find_or_add},
    memory_window::{MemorySource, SampleRejected},
    model_settings::ModelRules,
};
use crate::types::{compat::Fix, units::Bytes};

/// An OOM kill of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// Its memory request at that time; 0 if it had none.
    pub request: Bytes,
    /// Its memory limit at that time. The pod status does not tell whether the container or the node ran out of memory; a
    /// container with a limit is treated as killed at its limit.
    pub limit: Option<Bytes>,
    /// Its usage, if known (from an eviction).
    pub usage: Option<Bytes>,
}

impl ContainerHistory {
    /// Records an OOM kill: adds a bumped memory amount. Returns that amount.
    pub fn record_oom(
        &mut self,
        replica: &str,
        at: Time,
        kill: OomKill,
        rules: &ModelRules,
    ) -> Result<Bytes, SampleRejected> {
        if kill.request.0 < 0 || kill.usage.is_some_and(|usage| usage.0 < 0) {
            return Err(SampleRejected::Negative);
        }
        let replica_state = find_or_add(&mut self.replicas, replica);
        if replica_state.last_memory.is_some_and(|last| at < last.earlier(rules.interval)) {
            return Err(SampleRejected::TooOld);
        }
        let peak = replica_state.usage_peak.unwrap_or(0);
        let base = self.observed_need(at, kill, rules).0.max(peak);
        let added = base.saturating_add(Bytes::from_f64(rules.oom_min_bump).0);
        let counted = added.max(Bytes(base).scale(rules.oom_ratio).0);
        let is_peak =
            self.add_memory_amount(replica, at, Bytes(counted), MemorySource::Bump, rules)?;
        let replica_state = find_or_add(&mut self.replicas, replica);
        replica_state.last_kill = replica_state.last_kill.max(Some(at));
        if is_peak {
            self.record_bump(OomBump { at, base, counted }, rules);
        }
        Ok(Bytes(counted))
    }

    /// Whether an OOM kill in a pod's status is already part of this history. A stored history without pods does not tell:
    /// then a kill is new if its window was still open when the history was saved, because checkpoints leave out open
    /// windows.
    pub fn has_recorded_oom(&self, replica: &str, at: Time, rules: &ModelRules) -> bool {
        let index = self.replicas.binary_search_by(|state| (*state.name).cmp(replica));
        match index.ok().map(|index| &self.replicas[index]) {
            Some(ReplicaState { last_kill: Some(last), .. }) => at <= *last,
            Some(_) => false,
            None => {
                let closed = self.cpu_samples.last.map(|last| last.earlier(rules.interval));
                self.restored && closed.is_some_and(|closed| at <= closed)
            }
        }
    }

    /// Whether an OOM kill of this pod was counted.
    pub fn has_oom_of(&self, replica: &str) -> bool {
        let index = self.replicas.binary_search_by(|state| (*state.name).cmp(replica));
        index.is_ok_and(|index| self.replicas[index].last_kill.is_some())
    }

    /// Keeps the largest bump that is not too old.
    pub(super) fn record_bump(&mut self, bump: OomBump, rules: &ModelRules) {
        let keeps_existing = self.bump.is_some_and(|existing| {
            bump.at < existing.at.later(rules.memory_span()) && existing.counted > bump.counted
        });
        if !keeps_existing {
            let at = self.bump.map_or(bump.at, |existing| existing.at.max(bump.at));
            self.bump = Some(OomBump { at, ..bump });
        }
    }

    /// The memory that the container needed according to the OOM kill, without bumps. Without a limit, the container was
    /// killed because the node ran out of memory, whatever it used. Then a request that an earlier bump raised is no
    /// evidence, and the base of that bump is used.
    fn observed_need(&self, at: Time, kill: OomKill, rules: &ModelRules) -> Bytes {
        if let Some(usage) = kill.usage {
            return usage;
        }
        let bump = self.bump.filter(|bump| {
            rules.fixes.has(Fix::OomBumpRestsOnObservation)
                && kill.limit.is_none()
                && at < bump.at.later(rules.memory_span())
                && kill.request.0 <= max_request_for_bump(*bump, rules)
        });
        bump.map_or(kill.request, |bump| Bytes(kill.request.0.min(bump.base)))
    }
}

/// The largest request that can result from recommending a bump: one bucket of tolerance for rounding, and the margin.
/// A larger request has another reason.
fn max_request_for_bump(bump: OomBump, rules: &ModelRules) -> i64 {
    let buckets = rules.memory_histogram_config().buckets;
    let edge = buckets.upper_edge(buckets.find(bump.counted as f64).saturating_add(1));
    Bytes::from_f64(edge * (1.0 + rules.margin)).0
}
