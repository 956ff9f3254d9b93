//! What a pod should have, as far as decisions need it: what is recommended for it after all rules, and what a resize
//! would write.

use super::skip::Skip;
use crate::{
    api::vpa::{Recommendation, UpdateMode},
    sizing::{
        self, Plan, Pod, Processed, Ranges, Refusal, Rules, Size,
        boost::{self, Originals, Standing},
        check,
        quota::{self, Change, Quota},
    },
    types::compat::Fix,
};

impl From<Refusal> for Skip {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::QuotaExceeded { excess } => Self::QuotaExceeded(excess.to_string().into()),
            other => Self::Unsizeable(other.to_string().into()),
        }
    }
}

/// When the pod that takes the place of an evicted one is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// At once: the one that still terminates counts in quotas, too.
    Beside,
    /// When the other one is gone.
    Afterwards,
}

/// By what the pods of one VPA are sized.
#[derive(Clone, Copy, Debug)]
pub struct Sizing<'a> {
    /// What the VPA wants.
    pub plan: Plan<'a>,
    /// What the namespace allows, if that could be read.
    pub ranges: Option<&'a Ranges>,
    /// What it has room for, as far as that could be read.
    pub quotas: &'a [Quota],
    /// By which rules.
    pub rules: Rules,
}

impl Sizing<'_> {
    /// What is recommended for a pod.
    pub fn recommendation(&self, pod: &Pod) -> Result<Recommendation, Skip> {
        let nothing = self.plan.recommendation.is_none();
        if nothing && self.rules.fixes.has(Fix::NoRecommendationNoUpdate) {
            return Err(Skip::NoRecommendation);
        }
        let ranges = self.ranges.ok_or(Refusal::RangesUnknown);
        let processed = ranges
            .and_then(|ranges| sizing::processed(pod, &self.plan, ranges, self.rules))
            .map_err(Skip::from)?
            .ok_or(Skip::NoRecommendation)?;
        let said = |one: Processed| one.said;
        let container_recommendations = processed.into_iter().map(said).collect();
        Ok(Recommendation { container_recommendations })
    }

    /// What each container is to have, but those that keep a boost. One whose boost is over and for which nothing is
    /// recommended gets back what it had before.
    fn wish(&self, pod: &Pod, boosts: &Standing<'_>, mode: UpdateMode) -> Result<Vec<Size>, Skip> {
        let sizes = sizing::sizes(pod, &self.plan, self.ranges, self.rules).map_err(Skip::from)?;
        let boosted: Vec<&str> = boost::boosted(pod).collect();
        let mut wish = Vec::with_capacity(sizes.len());
        for mut size in sizes {
            let Some(container) = pod.at(size.place) else { continue };
            let is_over = boosts.expired.contains(&&*container.name);
            if boosted.contains(&&*container.name) && !is_over {
                continue;
            }
            if mode == UpdateMode::Off {
                size = Size::none(size.place);
            }
            // Upstream reads what it had before even where it does not need it, and leaves the pod if it cannot.
            let is_asked = size.is_empty() || !self.rules.fixes.has(Fix::OnlyPossibleResizes);
            if is_over && is_asked {
                let before = Originals::read(pod, &container.name).map_err(Skip::from)?;
                if size.is_empty() {
                    let Originals { requests, limits } = before.unwrap_or_default();
                    size = Size { requests, limits, ..size };
                }
            }
            if !size.is_empty() {
                wish.push(size);
            }
        }
        if wish.is_empty() { Err(Skip::NothingToWrite) } else { Ok(wish) }
    }

    /// What the end of boosts would write.
    pub fn unboost(&self, pod: &Pod, boosts: &Standing<'_>) -> Result<Vec<Size>, Skip> {
        self.wish(pod, boosts, self.plan.mode())
    }

    /// What a resize of a pod would write.
    pub fn resize(&self, pod: &Pod, boosts: &Standing<'_>) -> Result<Vec<Size>, Skip> {
        let sizes = self.wish(pod, boosts, self.plan.mode())?;
        if !self.rules.fixes.has(Fix::OnlyPossibleResizes) {
            return Ok(sizes);
        }
        let changes = |size: &Size| pod.at(size.place).is_some_and(|one| size.changes(&one.spec));
        if !sizes.iter().any(changes) {
            return Err(Skip::NothingToWrite);
        }
        check::keeps_class(pod, &sizes).map_err(|_| Skip::QosWouldChange)?;
        self.accepts(pod, &sizes)?;
        Ok(sizes)
    }

    /// Whether a new pod in place of this one would get what is recommended: admission leaves a pod as it is that would
    /// be rejected otherwise, and then nothing is won by an eviction. One that is created before this one is gone has to
    /// find room beside it; one that finds room for neither its new nor its old size is created when this one is gone.
    pub fn replaces(&self, pod: &Pod, replacement: Replacement) -> Result<(), Skip> {
        let sizes = sizing::sizes(pod, &self.plan, self.ranges, self.rules).map_err(Skip::from)?;
        self.accepts(pod, &sizes)?;
        match replacement {
            Replacement::Beside => {
                quota::acceptable(self.quotas, pod, &sizes, Change::Creation).map_err(Skip::from)
            }
            Replacement::Afterwards => Ok(()),
        }
    }

    fn accepts(&self, pod: &Pod, sizes: &[Size]) -> Result<(), Skip> {
        let ranges = self.ranges.ok_or(Refusal::RangesUnknown).map_err(Skip::from)?;
        check::acceptable(pod, sizes, ranges).map_err(Skip::from)?;
        // What takes the place of a pod may use what that one had.
        quota::acceptable(self.quotas, pod, sizes, Change::Resize).map_err(Skip::from)
    }

    /// Whether writing these sizes restarts a container of the pod.
    pub fn restarts(pod: &Pod, sizes: &[Size]) -> bool {
        sizes.iter().any(|size| {
            let Some(container) = pod.at(size.place) else { return false };
            let (new, old) = (size.applied(&container.spec), &container.spec);
            let cpu = |it: &sizing::Resources| (it.requests().cpu(), it.limits().cpu());
            let memory = |it: &sizing::Resources| (it.requests().memory(), it.limits().memory());
            (container.restarts.on_cpu && cpu(&new) != cpu(old))
                || (container.restarts.on_memory && memory(&new) != memory(old))
        })
    }
}
