//! Kills for lack of memory: what they show that a container needed, and how much it is given credit for.

use crate::{
    history::{OomBump, ReplicaState},
    types::Time,
};

use super::{
    container::{ContainerHistory, find_or_add},
    memory_window::{MemorySource, SampleRejected},
    settings::ModelRules,
};
use crate::types::{compat::Fix, units::Bytes};

/// A container that was killed for lack of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OomKill {
    /// Its memory request when it was killed; 0 when it had none.
    pub request: Bytes,
    /// Its memory limit when it was killed. Pods do not say whether the limit or the node ended them; a
    /// container with a limit counts as killed at it.
    pub limit: Option<Bytes>,
    /// What it was seen to use, where whoever killed it says so (an eviction does).
    pub usage: Option<Bytes>,
}

impl ContainerHistory {
    /// Takes an out-of-memory kill: the container is given credit for more than it had. Answers for how much.
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
        let known = find_or_add(&mut self.replicas, replica);
        if known.last_memory.is_some_and(|last| at < last.earlier(rules.interval)) {
            return Err(SampleRejected::TooOld);
        }
        let peak = known.usage_peak.unwrap_or(0);
        let base = self.observed_need(at, kill, rules).0.max(peak);
        let added = base.saturating_add(Bytes::from_f64(rules.oom_min_bump).0);
        let counted = added.max(Bytes(base).scale(rules.oom_ratio).0);
        let is_peak =
            self.add_memory_amount(replica, at, Bytes(counted), MemorySource::Bump, rules)?;
        let known = find_or_add(&mut self.replicas, replica);
        known.last_kill = known.last_kill.max(Some(at));
        if is_peak {
            self.record_bump(OomBump { at, base, counted }, rules);
        }
        Ok(Bytes(counted))
    }

    /// Whether a kill that a pod still shows is part of this history already. A history that came back
    /// without its pods does not say: then a kill counts if its window was still open when it was saved,
    /// because checkpoints leave out what is open.
    pub fn has_recorded_oom(&self, replica: &str, at: Time, rules: &ModelRules) -> bool {
        let known = self.replicas.binary_search_by(|known| (*known.name).cmp(replica));
        match known.ok().map(|index| &self.replicas[index]) {
            Some(ReplicaState { last_kill: Some(last), .. }) => at <= *last,
            Some(_) => false,
            None => {
                let closed = self.cpu_samples.last.map(|last| last.earlier(rules.interval));
                self.restored && closed.is_some_and(|closed| at <= closed)
            }
        }
    }

    /// Whether a kill of this pod was counted.
    pub fn has_oom_of(&self, replica: &str) -> bool {
        let known = self.replicas.binary_search_by(|known| (*known.name).cmp(replica));
        known.is_ok_and(|index| self.replicas[index].last_kill.is_some())
    }

    /// Keeps the largest bump that is still part of the history.
    pub(super) fn record_bump(&mut self, bump: OomBump, rules: &ModelRules) {
        let stands = self.bump.is_some_and(|known| {
            bump.at < known.at.later(rules.memory_span()) && known.counted > bump.counted
        });
        if !stands {
            let at = self.bump.map_or(bump.at, |known| known.at.max(bump.at));
            self.bump = Some(OomBump { at, ..bump });
        }
    }

    /// What the kill shows that the container needed, bumps left aside. Without a limit it was killed for
    /// a starved node, whatever it used; then a request that an earlier bump raised proves nothing, and
    /// what that bump started from stands.
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

/// The largest request that recommending a bump could have led to: one bucket of leeway for rounding, and
/// the margin. A request above that was raised by something else.
fn max_request_for_bump(bump: OomBump, rules: &ModelRules) -> i64 {
    let buckets = rules.memory_histogram_config().buckets;
    let edge = buckets.upper_edge(buckets.find(bump.counted as f64).saturating_add(1));
    Bytes::from_f64(edge * (1.0 + rules.margin)).0
}
