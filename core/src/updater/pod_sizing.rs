//! The resources that a pod should have: its capped recommendation, and what a resize would write.

use super::skip_reason::SkipReason;
use crate::{
    api::{
        ResourceList, ResourceName,
        vpa::{Recommendation, UpdateMode},
    },
    coordination::{Resource, SharedRequest},
    sizing::{
        self, CappedRecommendation, NamespaceLimitRanges, Pod, SizedContainer, SizingError,
        SizingRules, SizingSpec, api_validation,
        boost::{self, BoostStatus, OriginalResources},
        quota::{self, PodOperation, Quota},
    },
    types::compat::Fix,
};

impl From<SizingError> for SkipReason {
    fn from(error: SizingError) -> Self {
        match error {
            SizingError::QuotaExceeded { excess } => Self::QuotaExceeded(excess.to_string().into()),
            other => Self::Unsizeable(other.to_string().into()),
        }
    }
}

/// When the replacement of an evicted pod is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// Immediately: the terminating pod still counts against quotas.
    WhileTerminating,
    /// After the evicted pod is gone.
    AfterTermination,
}

/// The inputs for sizing the pods of one VPA.
#[derive(Clone, Copy, Debug)]
pub struct PodSizing<'a> {
    /// How the VPA sizes pods.
    pub spec: SizingSpec<'a>,
    /// LimitRanges of the namespace, if they could be read.
    pub limit_ranges: Option<&'a NamespaceLimitRanges>,
    /// ResourceQuotas of the namespace, as far as they could be read.
    pub quotas: &'a [Quota],
    pub rules: SizingRules,
}

impl PodSizing<'_> {
    /// Returns the capped recommendation of a pod.
    pub fn recommendation(&self, pod: &Pod) -> Result<Recommendation, SkipReason> {
        let is_missing = self.spec.recommendation.is_none();
        if is_missing && self.rules.fixes.has(Fix::NoRecommendationNoUpdate) {
            return Err(SkipReason::NoRecommendation);
        }
        let ranges = self.limit_ranges.ok_or(SizingError::LimitRangesUnknown);
        let capped = ranges
            .and_then(|ranges| sizing::cap_recommendation(pod, &self.spec, ranges, self.rules))?
            .ok_or(SkipReason::NoRecommendation)?;
        let recommendation = |container: CappedRecommendation| container.recommendation;
        let container_recommendations = capped.into_iter().map(recommendation).collect();
        Ok(Recommendation { container_recommendations })
    }

    /// The sizing if these were the requests that autoscalers of replicas use too.
    #[must_use]
    pub fn with_shared<'b>(&self, shared: &'b [SharedRequest]) -> PodSizing<'b>
    where
        Self: 'b,
    {
        PodSizing { spec: self.spec.with_shared_requests(shared), ..*self }
    }

    /// Returns the desired resources of each container, except those whose boost is active. A container whose boost has
    /// expired and that has no recommendation gets its original resources.
    pub fn desired_resources(
        &self,
        pod: &Pod,
        boosts: &BoostStatus<'_>,
    ) -> Result<Vec<SizedContainer>, SkipReason> {
        let sizes = sizing::size_containers(pod, &self.spec, self.limit_ranges, self.rules)?;
        let boosted: Vec<&str> = boost::boosted_containers(pod).collect();
        let mut desired = Vec::with_capacity(sizes.len());
        for mut size in sizes {
            let Some(container) = pod.container(size.container) else { continue };
            let is_expired = boosts.expired.contains(&&*container.name);
            if boosted.contains(&&*container.name) && !is_expired {
                continue;
            }
            if self.spec.update_mode() == UpdateMode::Off {
                size = SizedContainer::unchanged(size.container);
            }
            // Upstream reads the original resources even if it does not need them, and skips the pod if that fails.
            let needs_originals =
                size.is_empty() || !self.rules.fixes.has(Fix::OnlyPossibleResizes);
            let keeps_cpu = size.requests.cpu().is_none() && self.holds_cpu(&container.name);
            if is_expired && (needs_originals || keeps_cpu) {
                let original = OriginalResources::from_pod(pod, &container.name)?;
                let OriginalResources { requests, limits } = original.unwrap_or_default();
                if size.is_empty() {
                    size = SizedContainer { requests, limits, ..size };
                } else if keeps_cpu {
                    let cpu = |list: &ResourceList| list.cpu().map(|cpu| (ResourceName::Cpu, cpu));
                    size.requests.extend(cpu(&requests));
                    size.limits.extend(cpu(&limits));
                }
            }
            if !size.is_empty() {
                desired.push(size);
            }
        }
        if desired.is_empty() { Err(SkipReason::NothingToWrite) } else { Ok(desired) }
    }

    /// Whether the CPU request of a container is held, because an autoscaler of replicas follows it.
    fn holds_cpu(&self, container: &str) -> bool {
        let mut shared = self.spec.shared_requests.iter();
        shared.any(|request| {
            request.resource == Resource::Cpu && request.is_held() && request.counts(container)
        })
    }

    /// Returns what a resize of a pod would write.
    pub fn resized(
        &self,
        pod: &Pod,
        boosts: &BoostStatus<'_>,
    ) -> Result<Vec<SizedContainer>, SkipReason> {
        let sizes = self.desired_resources(pod, boosts)?;
        if !self.rules.fixes.has(Fix::OnlyPossibleResizes) {
            return Ok(sizes);
        }
        let changes = |size: &SizedContainer| {
            pod.container(size.container).is_some_and(|container| size.changes(&container.spec))
        };
        if !sizes.iter().any(changes) {
            return Err(SkipReason::NothingToWrite);
        }
        api_validation::ensure_same_qos_class(pod, &sizes)
            .map_err(|_| SkipReason::QosWouldChange)?;
        self.ensure_accepted(pod, &sizes)?;
        Ok(sizes)
    }

    /// Returns an error if the replacement of a pod would not get the recommended resources: admission does not size a pod
    /// that would then be rejected, so an eviction would achieve nothing. A replacement that is created before this pod is
    /// gone needs quota in addition to it; if even its old size does not fit, it is created once this pod is gone.
    pub fn ensure_replacement_sized(
        &self,
        pod: &Pod,
        replacement: Replacement,
    ) -> Result<(), SkipReason> {
        let sizes = sizing::size_containers(pod, &self.spec, self.limit_ranges, self.rules)?;
        self.ensure_accepted(pod, &sizes)?;
        if replacement == Replacement::WhileTerminating {
            quota::ensure_quota(self.quotas, pod, &sizes, PodOperation::Create)?;
        }
        Ok(())
    }

    fn ensure_accepted(&self, pod: &Pod, sizes: &[SizedContainer]) -> Result<(), SkipReason> {
        let ranges = self.limit_ranges.ok_or(SizingError::LimitRangesUnknown)?;
        api_validation::ensure_accepted(pod, sizes, ranges)?;
        // A replacement may use the quota of the pod that it replaces.
        Ok(quota::ensure_quota(self.quotas, pod, sizes, PodOperation::Resize)?)
    }

    /// Whether writing these sizes restarts a container of the pod.
    pub fn restarts_containers(pod: &Pod, sizes: &[SizedContainer]) -> bool {
        sizes.iter().any(|size| {
            let Some(container) = pod.container(size.container) else { return false };
            let (new, old) = (size.apply_to(&container.spec), &container.spec);
            let cpu = |resources: &sizing::Resources| {
                (resources.requests().cpu(), resources.limits().cpu())
            };
            let memory = |resources: &sizing::Resources| {
                (resources.requests().memory(), resources.limits().memory())
            };
            (container.resize_restarts.on_cpu && cpu(&new) != cpu(old))
                || (container.resize_restarts.on_memory && memory(&new) != memory(old))
        })
    }
}
