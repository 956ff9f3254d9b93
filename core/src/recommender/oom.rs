//! OOM kills: what they tell about the memory that a container needed, and the resulting bump.

use crate::{
    history::{OomBump, ReplicaState},
    types::Time,
};

use super::{memory_window::SampleRejected, model_settings::ModelRules};
use crate::types::{compat::Fix, units::Bytes};

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

impl OomKill {
    /// Returns the bump that results from the kill of a replica at this time; `last` is the previous one.
    pub(super) fn bump(
        self,
        at: Time,
        replica: Option<&ReplicaState>,
        last: Option<OomBump>,
        rules: &ModelRules,
    ) -> Result<OomBump, SampleRejected> {
        if self.request.0 < 0 || self.usage.is_some_and(|usage| usage.0 < 0) {
            return Err(SampleRejected::Negative);
        }
        let last_memory = replica.and_then(|replica| replica.last_memory);
        if last_memory.is_some_and(|last| at < last.earlier(rules.interval)) {
            return Err(SampleRejected::TooOld);
        }
        let peak = replica.and_then(|replica| replica.usage_peak).unwrap_or(0);
        let base = self.observed_need(at, last, rules).0.max(peak);
        let added = base.saturating_add(Bytes::from_f64(rules.oom_min_bump).0);
        let counted = added.max(Bytes(base).scale(rules.oom_ratio).0);
        Ok(OomBump { at, base, counted })
    }

    /// The memory that the container needed according to the OOM kill, without bumps. Without a limit, the container was
    /// killed because the node ran out of memory, whatever it used. Then a request that an earlier bump raised is no
    /// evidence, and the base of that bump is used.
    fn observed_need(self, at: Time, last: Option<OomBump>, rules: &ModelRules) -> Bytes {
        if let Some(usage) = self.usage {
            return usage;
        }
        let bump = last.filter(|bump| {
            rules.fixes.has(Fix::OomBumpRestsOnObservation)
                && self.limit.is_none()
                && at < bump.at.later(rules.memory_span())
                && self.request.0 <= max_request_for_bump(*bump, rules)
        });
        bump.map_or(self.request, |bump| Bytes(self.request.0.min(bump.base)))
    }
}

/// Returns the larger bump, unless it is too old, with the time of the later one.
pub(super) fn latest_bump(last: Option<OomBump>, bump: OomBump, rules: &ModelRules) -> OomBump {
    let Some(last) = last else { return bump };
    let is_recent = bump.at < last.at.later(rules.memory_span());
    if is_recent && last.counted > bump.counted {
        return last;
    }
    OomBump { at: last.at.max(bump.at), ..bump }
}

/// The largest request that can result from recommending a bump: one bucket of tolerance for rounding, and the margin.
/// A larger request has another reason.
fn max_request_for_bump(bump: OomBump, rules: &ModelRules) -> i64 {
    let buckets = rules.memory_histogram_config().buckets;
    let edge = buckets.upper_edge(buckets.find(bump.counted as f64).saturating_add(1));
    Bytes::from_f64(edge * (1.0 + rules.margin)).0
}
