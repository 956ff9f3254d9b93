//! What a container needs of a resource according to its history, or why nothing can be said.

use super::{
    evidence::{ContainerEvidence, EvidenceGap, RunCounts},
    survey::{Amounts, Container, Resource, RunningAmounts},
    thresholds::UnsaidThresholds,
};
use crate::{
    recommender::{RecommendationReason, ResourceExplanation},
    types::{
        quantity::{Quantity, humanize},
        units::{Bytes, MilliCpu},
    },
};

/// What a container needs, in millicores or bytes. The lower bound is never above the target and the upper
/// bound never below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Need {
    /// What it should request.
    pub target: i64,
    /// With a lower request it should get more.
    pub lower: Option<i64>,
    /// With a higher request it needs less.
    pub upper: Option<i64>,
}

impl Need {
    /// A target without bounds.
    pub const fn exactly(target: i64) -> Self {
        Self { target, lower: None, upper: None }
    }

    /// The same bounds around another target.
    #[must_use]
    pub fn with_target(self, target: i64) -> Self {
        Self {
            target,
            lower: self.lower.map(|lower| lower.min(target)),
            upper: self.upper.map(|upper| upper.max(target)),
        }
    }

    /// Raises the target.
    #[must_use]
    pub fn at_least(self, floor: i64) -> Self {
        if floor > self.target { self.with_target(floor) } else { self }
    }
}

/// The amount of a resource, in millicores or bytes.
pub fn amount_of(amounts: &Amounts, resource: Resource) -> Option<i64> {
    match resource {
        Resource::Cpu => amounts.cpu.map(|amount| amount.0),
        Resource::Memory => amounts.memory.map(|amount| amount.0),
    }
}

/// The limit of a container in the pod template. Zero counts as unset.
pub fn limit_of(container: &Container, resource: Resource) -> Option<i64> {
    set_amount(&container.limits, resource)
}

/// What new pods of a container request by the pod template. Without a request, the API server sets it to the limit. Zero
/// counts as unset.
pub fn request_of(container: &Container, resource: Resource) -> Option<i64> {
    request(&container.requests, &container.limits, resource)
}

/// The limit that pods of a container run with.
pub fn running_limit_of(container: &Container, resource: Resource) -> Option<i64> {
    set_amount(
        &container.running.as_ref().map_or(container.limits, |running| running.limits),
        resource,
    )
}

/// What existing pods of a container request. It differs from [`request_of`] if they were sized when they were admitted, or
/// resized.
pub fn running_request_of(container: &Container, resource: Resource) -> Option<i64> {
    match container.running.as_deref() {
        Some(RunningAmounts { requests, limits }) => request(requests, limits, resource),
        None => request_of(container, resource),
    }
}

fn set_amount(amounts: &Amounts, resource: Resource) -> Option<i64> {
    amount_of(amounts, resource).filter(|amount| *amount > 0)
}

fn request(requests: &Amounts, limits: &Amounts, resource: Resource) -> Option<i64> {
    let request = amount_of(requests, resource);
    request.or_else(|| set_amount(limits, resource)).filter(|amount| *amount > 0)
}

/// An amount for people: `250m`, `844Mi`, `1.27Gi`.
pub fn amount_text(resource: Resource, amount: i64) -> String {
    match resource {
        Resource::Cpu => Quantity::cpu(MilliCpu(amount)).to_string(),
        Resource::Memory => humanize(Bytes(amount)).replace(".00", ""),
    }
}

/// What a container needs, or why that is unknown.
pub fn need(
    resource: Resource,
    evidence: Option<&ContainerEvidence>,
    thresholds: &UnsaidThresholds,
) -> Result<Need, EvidenceGap> {
    let evidence = evidence.ok_or(EvidenceGap::WithoutSeries)?;
    if let Some(gap) = evidence.gap {
        return Err(gap);
    }
    if let Some(runs) = evidence.runs {
        check_runs(runs, thresholds)?;
    }
    if let Some(targets) = &evidence.run_targets {
        let target = amount_of(&targets.amounts(), resource);
        return target.map(Need::exactly).ok_or(EvidenceGap::WithoutSeries);
    }
    let recommendation = evidence.recommendation.as_ref().ok_or(EvidenceGap::WithoutSeries)?;
    let explanation = &recommendation.explanation;
    if let Some(explanation) = explanation.get(resource) {
        check_samples(explanation, evidence.runs.is_some(), thresholds)?;
    }
    let [target, lower, upper] =
        [&recommendation.target, &recommendation.lower, &recommendation.upper]
            .map(|amounts| amounts.get(resource).map(|amount| resource.of_quantity(*amount)));
    let target = target.ok_or(EvidenceGap::WithoutSeries)?;
    Ok(Need { target, lower, upper }.with_target(target))
}

/// Checks that enough runs of a job have samples.
pub fn check_runs(runs: RunCounts, thresholds: &UnsaidThresholds) -> Result<(), EvidenceGap> {
    let share = f64::from(runs.seen) / f64::from(runs.total.max(1));
    if runs.seen < thresholds.runs || share < thresholds.seen_runs_share {
        return Err(EvidenceGap::TooFewRuns);
    }
    Ok(())
}

/// Checks that the samples cover enough. Short runs of a job cannot have many samples, so their number does
/// not matter.
fn check_samples(
    explanation: &ResourceExplanation,
    is_job: bool,
    thresholds: &UnsaidThresholds,
) -> Result<(), EvidenceGap> {
    let evidence = &explanation.evidence;
    if evidence.samples == 0 || explanation.target.decided_by == RecommendationReason::NoData {
        return Err(EvidenceGap::WithoutSeries);
    }
    if is_job {
        return Ok(());
    }
    if evidence.covered().as_secs_f64() < thresholds.covered_hours * 3600.0 {
        return Err(EvidenceGap::TooYoung);
    }
    if evidence.samples < thresholds.samples {
        return Err(EvidenceGap::TooFewSamples);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        rightsizing::{
            runs::RunTargets,
            testing::{HOUR, evidence, explained},
        },
        types::Time,
    };

    fn container(request: Option<i64>, limit: Option<i64>) -> Container {
        let amounts = |cpu: Option<i64>| Amounts { cpu: cpu.map(MilliCpu), memory: None };
        Container { requests: amounts(request), limits: amounts(limit), ..Container::default() }
    }

    #[test]
    fn a_missing_request_is_the_limit() {
        for (request, limit, expected) in [
            (Some(100), Some(200), Some(100)),
            (None, Some(200), Some(200)),
            (Some(0), Some(200), None),
            (None, Some(0), None),
            (None, None, None),
        ] {
            let container = container(request, limit);
            assert_eq!(request_of(&container, Resource::Cpu), expected, "{request:?} {limit:?}");
        }
    }

    #[test]
    fn amounts_are_printed_for_people() {
        for (resource, amount, text) in [
            (Resource::Cpu, 250, "250m"),
            (Resource::Cpu, 2000, "2"),
            (Resource::Memory, 844 << 20, "844Mi"),
            (Resource::Memory, 1_363_148_800, "1.27Gi"),
            (Resource::Memory, 5, "5"),
        ] {
            assert_eq!(amount_text(resource, amount), text);
        }
    }

    #[test]
    fn bounds_stay_around_the_target() {
        let need = Need { target: 100, lower: Some(80), upper: Some(200) };
        assert_eq!(need.at_least(50), need);
        assert_eq!(need.at_least(300), Need { target: 300, lower: Some(80), upper: Some(300) });
        assert_eq!(need.with_target(60), Need { target: 60, lower: Some(60), upper: Some(200) });
    }

    #[test]
    fn nothing_is_said_with_too_little_history() {
        let thresholds = UnsaidThresholds::default();
        let need_of =
            |evidence: &ContainerEvidence| need(Resource::Cpu, Some(evidence), &thresholds);
        assert_eq!(need(Resource::Cpu, None, &thresholds), Err(EvidenceGap::WithoutSeries));
        let full = evidence([80, 100, 200], [1, 2, 3]);
        let expected = Need { target: 100, lower: Some(80), upper: Some(200) };
        assert_eq!(need_of(&full), Ok(expected));
        let mut gap = full.clone();
        gap.gap = Some(EvidenceGap::AmbiguousOwner);
        assert_eq!(need_of(&gap), Err(EvidenceGap::AmbiguousOwner));
        for (hours, samples, expected) in [
            (24 * HOUR, 100, Ok(expected)),
            (24 * HOUR - 1, 100_000, Err(EvidenceGap::TooYoung)),
            (192 * HOUR, 99, Err(EvidenceGap::TooFewSamples)),
            (192 * HOUR, 0, Err(EvidenceGap::WithoutSeries)),
        ] {
            let mut changed = full.clone();
            let recommendation = changed.recommendation.as_mut().expect("a recommendation");
            let explanation = explained(Time::EPOCH, Time::from_secs(hours), samples);
            recommendation.explanation.cpu = Some(explanation);
            assert_eq!(need_of(&changed), expected, "{hours} s, {samples} samples");
        }
        let empty = ContainerEvidence::default();
        assert_eq!(need_of(&empty), Err(EvidenceGap::WithoutSeries));
        let mut memory_only = full;
        memory_only.recommendation.as_mut().expect("a recommendation").target.cpu = None;
        assert_eq!(need_of(&memory_only), Err(EvidenceGap::WithoutSeries));
    }

    #[test]
    fn jobs_need_runs_instead_of_samples() {
        let thresholds = UnsaidThresholds::default();
        let targets = RunTargets { cpu: Some(MilliCpu(300)), ..RunTargets::default() };
        for (seen, total, expected) in [
            (41, 44, Ok(Need::exactly(300))),
            (3, 5, Ok(Need::exactly(300))),
            (3, 6, Err(EvidenceGap::TooFewRuns)),
            (2, 2, Err(EvidenceGap::TooFewRuns)),
            (0, 0, Err(EvidenceGap::TooFewRuns)),
        ] {
            let evidence = ContainerEvidence {
                runs: Some(RunCounts { total, seen, ..RunCounts::default() }),
                run_targets: Some(targets),
                ..ContainerEvidence::default()
            };
            let of = |resource| need(resource, Some(&evidence), &thresholds);
            assert_eq!(of(Resource::Cpu), expected, "{seen} of {total}");
            let memory = expected.and(Err(EvidenceGap::WithoutSeries));
            assert_eq!(of(Resource::Memory), memory, "{seen} of {total}");
        }
        // The samples of a few short runs cover less than a day.
        let mut sampled = evidence([80, 100, 200], [1, 2, 3]);
        sampled.runs = Some(RunCounts { total: 3, seen: 3, ..RunCounts::default() });
        let explanation = explained(Time::EPOCH, Time::from_secs(HOUR), 9);
        sampled.recommendation.as_mut().expect("a recommendation").explanation.cpu =
            Some(explanation);
        let need = need(Resource::Cpu, Some(&sampled), &thresholds).expect("a number");
        assert_eq!(need.target, 100);
    }
}
