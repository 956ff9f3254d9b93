//! Proposals of metrics that every pod has: utilization of requests, and averages.

use serde::Serialize;

use super::{
    config::Tolerance,
    error::MetricError,
    fixes::{Fix, Fixes},
    numbers::{percent, sum, to_replicas},
    pod::Pod,
    pod_groups::{PodGroups, ReadinessRules},
    requests::{PodRequests, RequestRules, Requests},
    samples::{Sample, Samples},
};

/// Why a metric proposes the number of replicas that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnchangedReason {
    /// The ratio is within tolerance.
    WithinTolerance,
    /// With missing and unready pods filled in, the ratio is within tolerance.
    PaddedWithinTolerance,
    /// With missing and unready pods filled in, the direction would change.
    PaddingTurnsDirection,
    /// With missing and unready pods filled in, the number would go against the direction.
    PaddingTurnsNumber,
    /// No pod is ready, so that a Value target has nothing to multiply.
    NobodyReady,
}

/// A number of replicas, and how it came about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// How many replicas.
    pub replicas: i32,
    /// The measured value relative to the target.
    pub ratio: f64,
    /// The same with missing and unready pods filled in, where that was done.
    pub padded_ratio: Option<f64>,
    /// Why it is the current number, if it is.
    pub kept: Option<UnchangedReason>,
    /// Percent of the requests.
    pub utilization: Option<i32>,
    /// The value, or its average, in milli-units.
    pub value: i64,
    /// Which pods counted, where pods are asked one by one.
    pub groups: Option<PodGroups>,
}

/// What proposals of one object have in common.
#[derive(Clone, Copy, Debug)]
pub struct Calculator<'a> {
    /// `scale.spec.replicas`
    pub replicas: i32,
    /// `scale.status.replicas`
    pub status_replicas: i32,
    /// The pods of the scale's selector that count at all.
    pub pods: &'a [&'a Pod],
    /// Within which no change is made.
    pub tolerance: Tolerance,
    /// When a pod is ready.
    pub readiness: ReadinessRules,
    /// Which fixes are on.
    pub fixes: Fixes,
}

/// What a pod that is missing, or unready, or superfluous does to a metric.
trait Measure {
    /// The ratio to the target, and what is shown of it.
    fn ratio(&self, samples: &Samples) -> Result<(f64, Option<i32>, i64), MetricError>;

    /// What a missing pod counts on a way down.
    fn fallback(&self, pod: &str) -> i64;
}

struct Utilization<'a> {
    target: i32,
    requests: &'a Requests,
    fixes: Fixes,
}

struct Average {
    target: i64,
    fixes: Fixes,
}

impl Measure for Utilization<'_> {
    fn ratio(&self, samples: &Samples) -> Result<(f64, Option<i32>, i64), MetricError> {
        let known =
            samples.iter().filter_map(|(pod, one)| Some((one.value, *self.requests.get(pod)?)));
        let known: Vec<(i64, i64)> = known.collect();
        let used = sum(known.iter().map(|(used, _)| *used), self.fixes);
        let requested = sum(known.iter().map(|(_, requested)| *requested), self.fixes);
        if requested == 0 {
            return Err(MetricError::no_known_pods());
        }
        let utilization = percent(used, requested, self.fixes);
        let ratio = f64::from(utilization) / f64::from(self.target);
        Ok((ratio, Some(utilization), used / known.len() as i64))
    }

    fn fallback(&self, pod: &str) -> i64 {
        let request = self.requests.get(pod).copied().unwrap_or(0);
        let percent = i64::from(self.target.max(100));
        if self.fixes.has(Fix::ProposalsSaturate) {
            return request.saturating_mul(percent) / 100;
        }
        request.wrapping_mul(percent) / 100
    }
}

impl Measure for Average {
    fn ratio(&self, samples: &Samples) -> Result<(f64, Option<i32>, i64), MetricError> {
        let total = sum(samples.values().map(|sample| sample.value), self.fixes);
        let mean = total / samples.len() as i64;
        Ok((mean as f64 / self.target as f64, None, mean))
    }

    fn fallback(&self, _: &str) -> i64 {
        self.target
    }
}

impl Calculator<'_> {
    /// Utilization of requests, held to a target in percent.
    pub fn utilization(
        &self,
        mut samples: Samples,
        target: i32,
        rules: RequestRules<'_>,
    ) -> Result<Proposal, MetricError> {
        let groups = self.group(&mut samples, rules.resource == "cpu")?;
        let PodRequests { requests, left_out } = PodRequests::of(self.pods, rules)?;
        for (pod, names) in left_out {
            if let Some(sample) = samples.get_mut(&pod) {
                sample.containers.retain(|(name, _)| !names.contains(name));
                sample.value = sum(sample.containers.iter().map(|(_, milli)| *milli), self.fixes);
            }
        }
        self.propose(
            samples,
            groups,
            &Utilization { target, requests: &requests, fixes: self.fixes },
        )
    }

    /// An average over pods, held to a target in milli-units.
    pub fn average(
        &self,
        mut samples: Samples,
        target: i64,
        is_cpu: bool,
    ) -> Result<Proposal, MetricError> {
        let groups = self.group(&mut samples, is_cpu)?;
        self.propose(samples, groups, &Average { target, fixes: self.fixes })
    }

    /// Sorts pods, and takes away the samples of those that do not count.
    fn group(&self, samples: &mut Samples, is_cpu: bool) -> Result<PodGroups, MetricError> {
        if self.pods.is_empty() {
            return Err(MetricError::no_pods());
        }
        let groups = PodGroups::of(self.pods, samples, is_cpu, self.readiness, self.fixes);
        samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
        if samples.is_empty() {
            return Err(MetricError::no_ready_pods());
        }
        Ok(groups)
    }

    fn propose(
        &self,
        mut samples: Samples,
        groups: PodGroups,
        measure: &impl Measure,
    ) -> Result<Proposal, MetricError> {
        let current = self.replicas;
        let (ratio, utilization, value) = measure.ratio(&samples)?;
        let mut proposal = Proposal {
            replicas: current,
            ratio,
            padded_ratio: None,
            kept: None,
            utilization,
            value,
            groups: None,
        };
        let unready_count = !groups.unready.is_empty() && ratio > 1.0;
        if !unready_count && groups.missing.is_empty() {
            if self.tolerance.contains(ratio) {
                proposal.kept = Some(UnchangedReason::WithinTolerance);
            } else {
                proposal.replicas = to_replicas((ratio * groups.ready as f64).ceil(), self.fixes);
            }
            proposal.groups = Some(groups);
            return Ok(proposal);
        }
        for pod in &groups.missing {
            let value = match ratio {
                below if below < 1.0 => measure.fallback(pod),
                above if above > 1.0 => 0,
                _ => continue,
            };
            samples.insert(pod.clone(), Sample { value, ..Sample::default() });
        }
        if unready_count {
            for pod in &groups.unready {
                samples.insert(pod.clone(), Sample::default());
            }
        }
        let (padded, ..) = measure.ratio(&samples)?;
        proposal.padded_ratio = Some(padded);
        let replicas = to_replicas((padded * samples.len() as f64).ceil(), self.fixes);
        proposal.kept = if self.tolerance.contains(padded) {
            Some(UnchangedReason::PaddedWithinTolerance)
        } else if (ratio < 1.0 && padded > 1.0) || (ratio > 1.0 && padded < 1.0) {
            Some(UnchangedReason::PaddingTurnsDirection)
        } else if (padded < 1.0 && replicas > current) || (padded > 1.0 && replicas < current) {
            Some(UnchangedReason::PaddingTurnsNumber)
        } else {
            None
        };
        if proposal.kept.is_none() {
            proposal.replicas = replicas;
        }
        proposal.groups = Some(groups);
        Ok(proposal)
    }
}
