//! What a pod should have, as far as decisions need it: what is recommended for it after all rules, and what a resize
//! would write.

use super::skip_reason::SkipReason;
use crate::{
    api::vpa::{Recommendation, UpdateMode},
    sizing::{
        self, CappedRecommendation, NamespaceLimitRanges, Pod, SizedContainer, SizingError,
        SizingRules, SizingSpec, api_validation,
        boost::{self, BoostStatus, OriginalResources},
        quota::{self, PodOperation, Quota},
    },
    types::compat::Fix,
};

impl From<SizingError> for SkipReason {
    fn from(refusal: SizingError) -> Self {
        match refusal {
            SizingError::QuotaExceeded { excess } => Self::QuotaExceeded(excess.to_string().into()),
            other => Self::Unsizeable(other.to_string().into()),
        }
    }
}

/// When the pod that takes the place of an evicted one is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// At once: the one that still terminates counts in quotas, too.
    WhileTerminating,
    /// When the other one is gone.
    AfterTermination,
}

/// By what the pods of one VPA are sized.
#[derive(Clone, Copy, Debug)]
pub struct PodSizing<'a> {
    /// What the VPA wants.
    pub spec: SizingSpec<'a>,
    /// What the namespace allows, if that could be read.
    pub limit_ranges: Option<&'a NamespaceLimitRanges>,
    /// What it has room for, as far as that could be read.
    pub quotas: &'a [Quota],
    /// By which rules.
    pub rules: SizingRules,
}

impl PodSizing<'_> {
    /// What is recommended for a pod.
    pub fn recommendation(&self, pod: &Pod) -> Result<Recommendation, SkipReason> {
        let nothing = self.spec.recommendation.is_none();
        if nothing && self.rules.fixes.has(Fix::NoRecommendationNoUpdate) {
            return Err(SkipReason::NoRecommendation);
        }
        let ranges = self.limit_ranges.ok_or(SizingError::LimitRangesUnknown);
        let processed = ranges
            .and_then(|ranges| sizing::cap_recommendation(pod, &self.spec, ranges, self.rules))
            .map_err(SkipReason::from)?
            .ok_or(SkipReason::NoRecommendation)?;
        let said = |one: CappedRecommendation| one.recommendation;
        let container_recommendations = processed.into_iter().map(said).collect();
        Ok(Recommendation { container_recommendations })
    }

    /// What each container is to have, but those that keep a boost. One whose boost is over and for which nothing is
    /// recommended gets back what it had before.
    fn desired_resources(
        &self,
        pod: &Pod,
        boosts: &BoostStatus<'_>,
        mode: UpdateMode,
    ) -> Result<Vec<SizedContainer>, SkipReason> {
        let sizes = sizing::size_containers(pod, &self.spec, self.limit_ranges, self.rules)
            .map_err(SkipReason::from)?;
        let boosted: Vec<&str> = boost::boosted_containers(pod).collect();
        let mut wish = Vec::with_capacity(sizes.len());
        for mut size in sizes {
            let Some(container) = pod.container(size.container) else { continue };
            let is_over = boosts.expired.contains(&&*container.name);
            if boosted.contains(&&*container.name) && !is_over {
                continue;
            }
            if mode == UpdateMode::Off {
                size = SizedContainer::unchanged(size.container);
            }
            // Upstream reads what it had before even where it does not need it, and leaves the pod if it cannot.
            let is_asked = size.is_empty() || !self.rules.fixes.has(Fix::OnlyPossibleResizes);
            if is_over && is_asked {
                let before =
                    OriginalResources::from_pod(pod, &container.name).map_err(SkipReason::from)?;
                if size.is_empty() {
                    let OriginalResources { requests, limits } = before.unwrap_or_default();
                    size = SizedContainer { requests, limits, ..size };
                }
            }
            if !size.is_empty() {
                wish.push(size);
            }
        }
        if wish.is_empty() { Err(SkipReason::NothingToWrite) } else { Ok(wish) }
    }

    /// What the end of boosts would write.
    pub fn without_boost(
        &self,
        pod: &Pod,
        boosts: &BoostStatus<'_>,
    ) -> Result<Vec<SizedContainer>, SkipReason> {
        self.desired_resources(pod, boosts, self.spec.update_mode())
    }

    /// What a resize of a pod would write.
    pub fn resized(
        &self,
        pod: &Pod,
        boosts: &BoostStatus<'_>,
    ) -> Result<Vec<SizedContainer>, SkipReason> {
        let sizes = self.desired_resources(pod, boosts, self.spec.update_mode())?;
        if !self.rules.fixes.has(Fix::OnlyPossibleResizes) {
            return Ok(sizes);
        }
        let changes = |size: &SizedContainer| {
            pod.container(size.container).is_some_and(|one| size.changes(&one.spec))
        };
        if !sizes.iter().any(changes) {
            return Err(SkipReason::NothingToWrite);
        }
        api_validation::ensure_same_qos_class(pod, &sizes)
            .map_err(|_| SkipReason::QosWouldChange)?;
        self.ensure_accepted(pod, &sizes)?;
        Ok(sizes)
    }

    /// Whether a new pod in place of this one would get what is recommended: admission leaves a pod as it is that would
    /// be rejected otherwise, and then nothing is won by an eviction. One that is created before this one is gone has to
    /// find room beside it; one that finds room for neither its new nor its old size is created when this one is gone.
    pub fn ensure_replacement_sized(
        &self,
        pod: &Pod,
        replacement: Replacement,
    ) -> Result<(), SkipReason> {
        let sizes = sizing::size_containers(pod, &self.spec, self.limit_ranges, self.rules)
            .map_err(SkipReason::from)?;
        self.ensure_accepted(pod, &sizes)?;
        match replacement {
            Replacement::WhileTerminating => {
                quota::ensure_quota(self.quotas, pod, &sizes, PodOperation::Create)
                    .map_err(SkipReason::from)
            }
            Replacement::AfterTermination => Ok(()),
        }
    }

    fn ensure_accepted(&self, pod: &Pod, sizes: &[SizedContainer]) -> Result<(), SkipReason> {
        let ranges =
            self.limit_ranges.ok_or(SizingError::LimitRangesUnknown).map_err(SkipReason::from)?;
        api_validation::ensure_accepted(pod, sizes, ranges).map_err(SkipReason::from)?;
        // What takes the place of a pod may use what that one had.
        quota::ensure_quota(self.quotas, pod, sizes, PodOperation::Resize).map_err(SkipReason::from)
    }

    /// Whether writing these sizes restarts a container of the pod.
    pub fn restarts_containers(pod: &Pod, sizes: &[SizedContainer]) -> bool {
        sizes.iter().any(|size| {
            let Some(container) = pod.container(size.container) else { return false };
            let (new, old) = (size.apply_to(&container.spec), &container.spec);
            let cpu = |it: &sizing::Resources| (it.requests().cpu(), it.limits().cpu());
            let memory = |it: &sizing::Resources| (it.requests().memory(), it.limits().memory());
            (container.resize_restarts.on_cpu && cpu(&new) != cpu(old))
                || (container.resize_restarts.on_memory && memory(&new) != memory(old))
        })
    }
}
