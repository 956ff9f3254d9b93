//! Compatibility with upstream: the two modes, and the named fixes in which they differ.

use strum::{Display, EnumString, VariantArray, VariantNames};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Display, EnumString)]
#[strum(serialize_all = "lowercase", parse_err_ty = String, parse_err_fn = unknown_mode)]
pub enum Compat {
    /// The numbers, writes and actions of the upstream release, including its defects.
    Upstream,
    /// Upstream's numbers, except where they are plainly wrong.
    #[default]
    Plimsoll,
}

fn unknown_mode(text: &str) -> String {
    format!("unknown mode `{text}`; use `upstream` or `plimsoll`")
}

/// A fix that can change a result. Each has a row in `docs/compatibility.md`, in this order, and can be disabled by name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Display, EnumString, VariantArray, VariantNames,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown_fix)]
#[repr(u8)]
pub enum Fix {
    /// The open memory window of each pod is saved (W2).
    MemoryWindowsSurviveRestart,
    /// Weights are saved exactly, not as ten-thousandths of the largest (W10).
    ExactWeightsSurviveRestart,
    /// Containers that left the pod template no longer get, or dilute, recommendations (W8).
    StaleContainersLeave,
    /// A history of only memory samples or OOM kills is sufficient (W11).
    MemoryOnlyHistoryCounts,
    /// A first sample of zero does not close the memory window to larger ones (W12).
    ZeroSampleKeepsWindowOpen,
    /// Removing an override from the policy restores the default (W16).
    RemovedOverrideRestoresDefault,
    /// A late OOM kill does not let older samples in again (W17).
    OomKeepsSampleOrder,
    /// An OOM bump is based on an observation, never on an earlier bump (row 23).
    OomBumpRestsOnObservation,
    /// OOM kills in the status of a pod that is seen for the first time count too (W6).
    KillsInDowntimeCount,
    /// CPU usage during a startup boost is not part of the history (W14).
    BoostSamplesStayOut,
    /// Samples and OOM kills with a timestamp in the future, from a clock ahead of ours, are rejected.
    FutureSamplesAreRefused,
    /// A LimitRange for pods does not change containers without a recommendation.
    PodRangeSparesOthers,
    /// A LimitRange for pods is enforced wherever possible: to the byte, and after all other rules.
    PodRangeIsMet,
    /// A container without a limit is capped to the maximum of its LimitRange.
    UnlimitedContainersObeyRangeMax,
    /// Limits that follow requests stay within LimitRanges, including the maximum ratio of limit to request.
    LimitsObeyRanges,
    /// Capping requests to limits does not turn a Burstable pod into a Guaranteed one.
    RequestsOnlyStaysBurstable,
    /// A boosted request also scales a limit that comes from the default of a LimitRange.
    BoostTakesDefaultLimitAlong,
    /// A startup boost of zero is no boost.
    BoostOfNothingIsNone,
    /// A startup boost never lowers CPU.
    BoostNeverLowers,
    /// A container with mode `Off` still gets its startup boost.
    BoostInModeOff,
    /// Pods that are not ready do not count as alive when the eviction limit is computed (defect 24).
    OnlyReadyPodsAreAlive,
    /// A controller of an unknown kind has the replicas of its `/scale`, not zero (defect 22).
    UnknownOwnersHaveReplicas,
    /// A boosted pod does not open its small replica group to evictions (defect 23).
    BoostLiftsUnboostOnly,
    /// Resize timeouts use the resize condition, not the time when the pod's name was first seen (defect 20).
    ResizeTimeoutsByCondition,
    /// `InPlace` waits for a resize that is in progress or deferred (defect 18).
    DeferredResizesWait,
    /// An infeasible resize is retried after some time (defect 19).
    InfeasibleResizesExpire,
    /// The age of a resized pod counts from its resize (defect 21).
    ResizeRenewsAge,
    /// Eviction requirements do not block in-place resizes (defect 32).
    RequirementsHoldEvictionsOnly,
    /// A resize that would change nothing, or the QoS class, is not requested (defects 34 and 35).
    OnlyPossibleResizes,
    /// Without a recommendation nothing is updated, whatever policy and LimitRange require (defect 39).
    NoRecommendationNoUpdate,
    /// An autoscaler without any metric or recommender changes nothing (B1).
    NoSourceHolds,
    /// Replicas are brought within their bounds even if no metric is available (B3).
    BoundsHoldWithoutMetrics,
    /// A pod that became ready before its readiness delay counts once the delay is over (B4).
    ReadinessDelayEnds,
    /// Pods that are not ready count as unavailable (B6).
    UnreadyPodsAreUnavailable,
    /// A metric of zero that must be ignored keeps the replicas, not only the ready ones (B7).
    ZeroKeepsReplicas,
    /// The capping conditions are set exactly as long as a proposal is capped (B9 and B10).
    CappingIsShownRight,
    /// Replicas that never changed are not reported as changed on the first pass (B19).
    FirstPassIsNoChange,
    /// A workload without pods is not scaled to one (B20), nor is one that does not report its replicas.
    MissingPodsForceNothing,
    /// Proposed replicas are computed in integers (B38 and B45).
    ReplicasAreCountedExactly,
    /// Surge pods beyond the replicas, as in a rolling update, do not raise the proposal.
    SurgePodsDoNotCount,
    /// A dry run starts no cooldown and is not counted as a change (B34).
    DryRunTakesNoTime,
    /// A VPA that was stored while invalid may be changed as long as its spec stays the same.
    UnchangedSpecIsAccepted,
}

fn unknown_fix(text: &str) -> String {
    let known = <Fix as VariantNames>::VARIANTS.join(", ");
    format!("unknown fix `{text}`; the fixes are {known}")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixes(u64);

impl Fixes {
    /// No fixes: upstream's numbers.
    pub const NONE: Self = Self(0);

    pub fn for_compat(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::NONE,
            Compat::Plimsoll => {
                <Fix as VariantArray>::VARIANTS.iter().copied().fold(Self::NONE, Self::with)
            }
        }
    }

    pub const fn has(self, fix: Fix) -> bool {
        self.0 & (1 << fix as u32) != 0
    }

    #[must_use]
    pub fn with(self, fix: Fix) -> Self {
        Self(self.0 | (1 << fix as u32))
    }

    #[must_use]
    pub fn without(self, fix: Fix) -> Self {
        Self(self.0 & !(1 << fix as u32))
    }
}

impl Default for Fixes {
    fn default() -> Self {
        Self::for_compat(Compat::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fix_has_a_unique_name_and_can_be_disabled_separately() {
        let all = <Fix as VariantArray>::VARIANTS;
        for &fix in all {
            assert_eq!(fix.to_string().parse(), Ok(fix));
            let without = Fixes::for_compat(Compat::Plimsoll).without(fix);
            assert!(!without.has(fix));
            assert_eq!(all.iter().filter(|other| without.has(**other)).count(), all.len() - 1);
            assert!(!Fixes::for_compat(Compat::Upstream).has(fix));
        }
    }

    #[test]
    fn an_unknown_fix_is_rejected_with_the_known_ones() {
        let error = "no-such".parse::<Fix>().expect_err("is unknown");
        assert!(error.contains("`no-such`") && error.contains("stale-containers-leave"), "{error}");
    }
}
