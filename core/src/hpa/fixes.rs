//! Named fixes: deviations from upstream, each enabled or disabled by name.

use strum::{Display, EnumString, VariantArray};

/// A deviation from upstream.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Display, EnumString, VariantArray,
)]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown_fix)]
#[repr(u8)]
pub enum Fix {
    /// Pods that match the selector but are not owned by the target are ignored, with their samples, and so are samples of
    /// pods that do not exist.
    OnlyOwnPodsCount,
    /// Within tolerance, an average target keeps `spec.replicas`; upstream uses `status.replicas`, which includes surge
    /// pods.
    SurgePodsDoNotCount,
    /// A past recommendation can delay a change but never raise the replicas.
    WindowOnlyHolds,
    /// `Value` targets do not count pods that are being deleted.
    TerminatingPodsAreNotReady,
    /// A `Value` target keeps the current replicas while no pod is ready.
    UnreadyWorkloadHolds,
    /// Utilization is relative to the actuated requests of containers, not to those of a pending resize.
    ActuatedRequestsCount,
    /// Containers without a request are excluded from utilization, with their usage.
    ContainersWithoutRequestAreLeftOut,
    /// Succeeded pods are ignored, as failed ones are.
    EndedPodsDoNotCount,
    /// A proposal that overflows becomes the largest number of replicas, not the smallest.
    ProposalsSaturate,
    /// A negative value is an error of the metric and does not remove replicas.
    NegativeIsUnknown,
    /// Usage of a pod that was measured more than five minutes ago is ignored, as if there were none.
    StaleUsageIsUnknown,
    /// Without any metric, replicas are not changed.
    NoMetricHolds,
    /// A policy always allows scaling up from zero to one replica.
    PolicyLeavesZero,
    /// Recommendations and scale events are persisted and restored after a restart.
    MemorySurvivesRestart,
    /// An object that was deleted and recreated does not inherit the recommendations of its predecessor.
    NewObjectNewMemory,
    /// Replicas that were changed by another client since they were read are not overwritten.
    ManualChangeStays,
    /// Names in messages are sorted, so that the status does not change without a reason.
    MessagesStandStill,
}

fn unknown_fix(text: &str) -> String {
    format!("unknown fix `{text}` of the HorizontalPodAutoscaler")
}

impl Fix {
    pub const ALL: &[Self] = Self::VARIANTS;
}

/// A set of fixes. All are on by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fixes(u32);

impl Fixes {
    /// No fix: the behavior of kube-controller-manager 1.36.3.
    pub const UPSTREAM: Self = Self(0);

    pub const ALL: Self = Self((1 << Fix::ALL.len()) - 1);

    /// Whether a fix is on.
    pub const fn has(self, fix: Fix) -> bool {
        self.0 & (1 << fix as u8) != 0
    }

    /// Returns the set with a fix added.
    #[must_use]
    pub const fn with(self, fix: Fix) -> Self {
        Self(self.0 | (1 << fix as u8))
    }

    /// Returns the set with a fix removed.
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
    fn every_fix_has_a_unique_name_and_bit() {
        let mut set = Fixes::UPSTREAM;
        for &fix in Fix::VARIANTS {
            assert_eq!(fix.to_string().parse(), Ok(fix));
            assert!(!set.has(fix));
            set = set.with(fix);
            assert!(set.has(fix) && !Fixes::ALL.without(fix).has(fix));
        }
        assert_eq!(set, Fixes::ALL);
        "surge".parse::<Fix>().expect_err("no such fix");
    }
}
