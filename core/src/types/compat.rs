//! How close to upstream the model stays: the two modes, and the named fixes that separate them.

use std::{fmt, str::FromStr};

/// Whose numbers are wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compat {
    /// The numbers, writes and actions of upstream's release, its defects in numbers included.
    Upstream,
    /// The same numbers wherever upstream's are not plainly wrong.
    #[default]
    Plimsoll,
}

impl FromStr for Compat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "upstream" => Ok(Self::Upstream),
            "plimsoll" => Ok(Self::Plimsoll),
            other => Err(format!("unknown mode `{other}`; use `upstream` or `plimsoll`")),
        }
    }
}

/// A fix that can change a number. Each has a row in `docs/compatibility.md` and can be switched off by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Fix {
    /// The open memory window of each pod is part of what is saved (W2).
    MemoryWindowsSurviveRestart,
    /// Weights are saved as they are, not as ten-thousandths of the largest (W10).
    ExactWeightsSurviveRestart,
    /// Containers that left the pod template no longer get, or dilute, recommendations (W8).
    StaleContainersLeave,
    /// A history of memory samples or out-of-memory kills alone is a history (W11).
    MemoryOnlyHistoryCounts,
    /// A first sample of zero does not close the window to larger ones (W12).
    ZeroSampleKeepsWindowOpen,
    /// Taking an override out of the policy brings the default back (W16).
    RemovedOverrideRestoresDefault,
    /// A late out-of-memory kill does not let older samples in again (W17).
    OomKeepsSampleOrder,
    /// An out-of-memory bump starts from something observed, never from an earlier bump (row 23).
    OomBumpRestsOnObservation,
    /// Kills that a pod shows when it is first seen count too (W6).
    KillsInDowntimeCount,
    /// CPU that is used with a startup boost is not part of the history (W14).
    BoostSamplesStayOut,
    /// Samples and kills that a clock ahead of this process's dates into the future are not taken as they are.
    FutureSamplesAreRefused,
    /// A LimitRange for pods changes nothing about containers that nothing is recommended for.
    PodRangeSparesOthers,
    /// A LimitRange for pods is met wherever it can be: to the byte, and after all other rules.
    PodRangeIsMet,
    /// A container without any limit is held to the maximum of its LimitRange.
    UnlimitedContainersObeyRangeMax,
    /// Limits that follow requests stay inside of LimitRanges, their ratio of limit to request included.
    LimitsObeyRanges,
    /// Requests that are held to limits do not turn a Burstable pod into a Guaranteed one.
    RequestsOnlyStaysBurstable,
    /// A boosted request takes a limit that comes from a LimitRange's default along.
    BoostTakesDefaultLimitAlong,
    /// A startup boost of nothing is none.
    BoostOfNothingIsNone,
    /// A startup boost never lowers CPU.
    BoostNeverLowers,
    /// A container that is not sized still gets its startup boost.
    BoostInModeOff,
    /// A pod that is not ready is not alive when it is asked how many may go (defect 24).
    OnlyReadyPodsAreAlive,
    /// A controller of another kind wants as many pods as its `/scale` says, not none (defect 22).
    UnknownOwnersHaveReplicas,
    /// A boosted pod does not open its small group to evictions (defect 23).
    BoostLiftsUnboostOnly,
    /// How long a resize takes is told by its own condition, not by when its pod's name was first seen (defect 20).
    ResizeTimeoutsByCondition,
    /// `InPlace` waits for a resize that is under way, and for its turn (defect 18).
    DeferredResizesWait,
    /// A resize that was found impossible is tried again in time (defect 19).
    InfeasibleResizesExpire,
    /// A pod that was resized is as young as its resize (defect 21).
    ResizeRenewsAge,
    /// Eviction requirements do not hold resizes in place (defect 32).
    RequirementsHoldEvictionsOnly,
    /// A resize that would change nothing, or the QoS class, is not asked for (defects 34 and 35).
    OnlyPossibleResizes,
    /// Without a recommendation nothing is updated, whatever policy and LimitRange say (defect 39).
    NoRecommendationNoUpdate,
    /// An autoscaler without any metric or recommender changes nothing (B1).
    NoSourceHolds,
    /// Replicas are brought inside their bounds while metrics say nothing (B3).
    BoundsHoldWithoutMetrics,
    /// A pod that got ready sooner than its delay counts once the delay is over (B4).
    ReadinessDelayEnds,
    /// Pods that are not ready count where their share is asked for (B6).
    UnreadyPodsAreUnavailable,
    /// A metric of zero that says nothing keeps the replicas, not the ready ones of them (B7).
    ZeroKeepsReplicas,
    /// What a proposal ran into is shown as long as it does, and no longer (B9 and B10).
    CappingIsShownRight,
    /// Replicas that were never changed are not "changed" to what they are (B19).
    FirstPassIsNoChange,
    /// A workload whose pods are not there yet is not scaled to one (B20), nor one that does not say how many it has.
    MissingPodsForceNothing,
    /// What a metric asks for is divided in whole numbers (B38 and B45).
    ReplicasAreCountedExactly,
    /// Pods beyond the replicas, as in a rolling update, do not ask for more of them.
    SurgePodsDoNotCount,
    /// What a dry run would have changed uses up no window and is not counted (B34).
    DryRunTakesNoTime,
    /// A VPA that was stored while it was invalid may be changed as long as its spec stays.
    UnchangedSpecIsAccepted,
}

impl Fix {
    /// All fixes, in the order of the table in the documentation.
    pub const ALL: [Self; 42] = [
        Self::MemoryWindowsSurviveRestart,
        Self::ExactWeightsSurviveRestart,
        Self::StaleContainersLeave,
        Self::MemoryOnlyHistoryCounts,
        Self::ZeroSampleKeepsWindowOpen,
        Self::RemovedOverrideRestoresDefault,
        Self::OomKeepsSampleOrder,
        Self::OomBumpRestsOnObservation,
        Self::KillsInDowntimeCount,
        Self::BoostSamplesStayOut,
        Self::FutureSamplesAreRefused,
        Self::PodRangeSparesOthers,
        Self::PodRangeIsMet,
        Self::UnlimitedContainersObeyRangeMax,
        Self::LimitsObeyRanges,
        Self::RequestsOnlyStaysBurstable,
        Self::BoostTakesDefaultLimitAlong,
        Self::BoostOfNothingIsNone,
        Self::BoostNeverLowers,
        Self::BoostInModeOff,
        Self::OnlyReadyPodsAreAlive,
        Self::UnknownOwnersHaveReplicas,
        Self::BoostLiftsUnboostOnly,
        Self::ResizeTimeoutsByCondition,
        Self::DeferredResizesWait,
        Self::InfeasibleResizesExpire,
        Self::ResizeRenewsAge,
        Self::RequirementsHoldEvictionsOnly,
        Self::OnlyPossibleResizes,
        Self::NoRecommendationNoUpdate,
        Self::NoSourceHolds,
        Self::BoundsHoldWithoutMetrics,
        Self::ReadinessDelayEnds,
        Self::UnreadyPodsAreUnavailable,
        Self::ZeroKeepsReplicas,
        Self::CappingIsShownRight,
        Self::FirstPassIsNoChange,
        Self::MissingPodsForceNothing,
        Self::ReplicasAreCountedExactly,
        Self::SurgePodsDoNotCount,
        Self::DryRunTakesNoTime,
        Self::UnchangedSpecIsAccepted,
    ];

    /// The name that `--disable-fix` takes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemoryWindowsSurviveRestart => "memory-windows-survive-restart",
            Self::ExactWeightsSurviveRestart => "exact-weights-survive-restart",
            Self::StaleContainersLeave => "stale-containers-leave",
            Self::MemoryOnlyHistoryCounts => "memory-only-history-counts",
            Self::ZeroSampleKeepsWindowOpen => "zero-sample-keeps-window-open",
            Self::RemovedOverrideRestoresDefault => "removed-override-restores-default",
            Self::OomKeepsSampleOrder => "oom-keeps-sample-order",
            Self::OomBumpRestsOnObservation => "oom-bump-rests-on-observation",
            Self::KillsInDowntimeCount => "kills-in-downtime-count",
            Self::BoostSamplesStayOut => "boost-samples-stay-out",
            Self::FutureSamplesAreRefused => "future-samples-are-refused",
            Self::PodRangeSparesOthers => "pod-range-spares-others",
            Self::PodRangeIsMet => "pod-range-is-met",
            Self::UnlimitedContainersObeyRangeMax => "unlimited-containers-obey-range-max",
            Self::LimitsObeyRanges => "limits-obey-ranges",
            Self::RequestsOnlyStaysBurstable => "requests-only-stays-burstable",
            Self::BoostTakesDefaultLimitAlong => "boost-takes-default-limit-along",
            Self::BoostOfNothingIsNone => "boost-of-nothing-is-none",
            Self::BoostNeverLowers => "boost-never-lowers",
            Self::BoostInModeOff => "boost-in-mode-off",
            Self::OnlyReadyPodsAreAlive => "only-ready-pods-are-alive",
            Self::UnknownOwnersHaveReplicas => "unknown-owners-have-replicas",
            Self::BoostLiftsUnboostOnly => "boost-lifts-unboost-only",
            Self::ResizeTimeoutsByCondition => "resize-timeouts-by-condition",
            Self::DeferredResizesWait => "deferred-resizes-wait",
            Self::InfeasibleResizesExpire => "infeasible-resizes-expire",
            Self::ResizeRenewsAge => "resize-renews-age",
            Self::RequirementsHoldEvictionsOnly => "requirements-hold-evictions-only",
            Self::OnlyPossibleResizes => "only-possible-resizes",
            Self::NoRecommendationNoUpdate => "no-recommendation-no-update",
            Self::NoSourceHolds => "no-source-holds",
            Self::BoundsHoldWithoutMetrics => "bounds-hold-without-metrics",
            Self::ReadinessDelayEnds => "readiness-delay-ends",
            Self::UnreadyPodsAreUnavailable => "unready-pods-are-unavailable",
            Self::ZeroKeepsReplicas => "zero-keeps-replicas",
            Self::CappingIsShownRight => "capping-is-shown-right",
            Self::FirstPassIsNoChange => "first-pass-is-no-change",
            Self::MissingPodsForceNothing => "missing-pods-force-nothing",
            Self::ReplicasAreCountedExactly => "replicas-are-counted-exactly",
            Self::SurgePodsDoNotCount => "surge-pods-do-not-count",
            Self::DryRunTakesNoTime => "dry-run-takes-no-time",
            Self::UnchangedSpecIsAccepted => "unchanged-spec-is-accepted",
        }
    }
}

impl fmt::Display for Fix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Fix {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|fix| fix.name() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::name).join(", ");
            format!("unknown fix `{text}`; the fixes are {known}")
        })
    }
}

/// The fixes that are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixes(u64);

impl Fixes {
    /// None: upstream's numbers.
    pub const NONE: Self = Self(0);

    /// What a mode starts from.
    pub fn for_compat(compat: Compat) -> Self {
        match compat {
            Compat::Upstream => Self::NONE,
            Compat::Plimsoll => Fix::ALL.into_iter().fold(Self::NONE, Self::with),
        }
    }

    /// Whether this fix is on.
    pub const fn has(self, fix: Fix) -> bool {
        self.0 & (1 << fix as u32) != 0
    }

    /// These and one more.
    #[must_use]
    pub fn with(self, fix: Fix) -> Self {
        Self(self.0 | (1 << fix as u32))
    }

    /// These without one.
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
    fn every_fix_is_found_by_its_name_and_switches_alone() {
        for fix in Fix::ALL {
            assert_eq!(fix.name().parse::<Fix>(), Ok(fix));
            let without = Fixes::for_compat(Compat::Plimsoll).without(fix);
            assert!(!without.has(fix));
            assert_eq!(
                Fix::ALL.into_iter().filter(|other| without.has(*other)).count(),
                Fix::ALL.len() - 1
            );
            assert!(!Fixes::for_compat(Compat::Upstream).has(fix));
        }
    }

    #[test]
    fn an_unknown_fix_is_answered_with_the_known_ones() {
        let error = "no-such".parse::<Fix>().expect_err("is unknown");
        assert!(error.contains("`no-such`") && error.contains("stale-containers-leave"), "{error}");
    }
}
