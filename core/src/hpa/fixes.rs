//! Named fixes: where the decision may differ from upstream's, each switched on or off by its name.

use std::{fmt, str::FromStr};

/// A decision that upstream makes otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Fix {
    /// Pods that the selector matches but the target does not own are left out, with their samples.
    OnlyOwnPodsCount,
    /// Within tolerance an average target keeps `spec.replicas`; `status.replicas` includes the surge of a rollout.
    SurgePodsDoNotCount,
    /// A remembered recommendation can hold replicas, never raise them.
    WindowOnlyHolds,
    /// Value targets multiply by pods that stay, not by those that are being deleted.
    TerminatingPodsAreNotReady,
    /// A Value target keeps the current count while no pod is ready.
    UnreadyWorkloadHolds,
    /// Utilization is relative to the requests that containers run with, not to those a pending resize asks for.
    ActuatedRequestsCount,
    /// Containers without a request are left out of utilization, with their usage.
    ContainersWithoutRequestAreLeftOut,
    /// Succeeded pods are ignored, as failed ones are.
    EndedPodsDoNotCount,
    /// A proposal that does not fit into a number of replicas is the largest number, not the smallest.
    ProposalsSaturate,
    /// A negative value is an error of the metric, not a reason to remove replicas.
    NegativeIsUnknown,
    /// Without any metric nothing is scaled.
    NoMetricHolds,
    /// The scale-up limit of a target at zero is at least one replica.
    PolicyLeavesZero,
    /// Recommendations and scale events that were persisted are used after a restart.
    MemorySurvivesRestart,
    /// An object that was deleted and created again does not inherit the recommendations of its predecessor.
    NewObjectNewMemory,
    /// Replicas that somebody else changed since they were read are not overwritten.
    ManualChangeStays,
    /// Names in messages are sorted, so that the status does not change when nothing has.
    MessagesStandStill,
}

impl Fix {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::OnlyOwnPodsCount,
        Self::SurgePodsDoNotCount,
        Self::WindowOnlyHolds,
        Self::TerminatingPodsAreNotReady,
        Self::UnreadyWorkloadHolds,
        Self::ActuatedRequestsCount,
        Self::ContainersWithoutRequestAreLeftOut,
        Self::EndedPodsDoNotCount,
        Self::ProposalsSaturate,
        Self::NegativeIsUnknown,
        Self::NoMetricHolds,
        Self::PolicyLeavesZero,
        Self::MemorySurvivesRestart,
        Self::NewObjectNewMemory,
        Self::ManualChangeStays,
        Self::MessagesStandStill,
    ];

    /// As it is written on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::OnlyOwnPodsCount => "only-own-pods-count",
            Self::SurgePodsDoNotCount => "surge-pods-do-not-count",
            Self::WindowOnlyHolds => "window-only-holds",
            Self::TerminatingPodsAreNotReady => "terminating-pods-are-not-ready",
            Self::UnreadyWorkloadHolds => "unready-workload-holds",
            Self::ActuatedRequestsCount => "actuated-requests-count",
            Self::ContainersWithoutRequestAreLeftOut => "containers-without-request-are-left-out",
            Self::EndedPodsDoNotCount => "ended-pods-do-not-count",
            Self::ProposalsSaturate => "proposals-saturate",
            Self::NegativeIsUnknown => "negative-is-unknown",
            Self::NoMetricHolds => "no-metric-holds",
            Self::PolicyLeavesZero => "policy-leaves-zero",
            Self::MemorySurvivesRestart => "memory-survives-restart",
            Self::NewObjectNewMemory => "new-object-new-memory",
            Self::ManualChangeStays => "manual-change-stays",
            Self::MessagesStandStill => "messages-stand-still",
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

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|fix| fix.name() == text)
            .ok_or_else(|| format!("unknown fix `{text}` of the HorizontalPodAutoscaler"))
    }
}

/// A set of fixes. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixes(u16);

impl Fixes {
    /// What kube-controller-manager 1.36.3 does.
    pub const UPSTREAM: Self = Self(0);

    /// Every fix.
    pub const ALL: Self = Self(u16::MAX);

    /// Whether one is on.
    pub const fn has(self, fix: Fix) -> bool {
        self.0 & (1 << fix as u8) != 0
    }

    /// The same set with one more.
    #[must_use]
    pub const fn with(self, fix: Fix) -> Self {
        Self(self.0 | (1 << fix as u8))
    }

    /// The same set without one.
    #[must_use]
    pub const fn without(self, fix: Fix) -> Self {
        Self(self.0 & !(1 << fix as u8))
    }
}

impl Default for Fixes {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<Fix> for Fixes {
    fn from_iter<I: IntoIterator<Item = Fix>>(fixes: I) -> Self {
        fixes.into_iter().fold(Self::UPSTREAM, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fix_is_found_by_its_name_and_is_a_bit_of_its_own() {
        let mut set = Fixes::UPSTREAM;
        for fix in Fix::ALL {
            assert_eq!(fix.name().parse(), Ok(fix));
            assert!(!set.has(fix));
            set = set.with(fix);
            assert!(set.has(fix) && !Fixes::ALL.without(fix).has(fix));
        }
        assert_eq!(set, Fixes::ALL);
        "surge".parse::<Fix>().expect_err("no such fix");
    }
}
