//! Proposals of one metric: utilization of requests and averages of pods, and values of objects and external metrics.

use std::{cmp::Ordering, collections::BTreeSet};

use serde::Serialize;

use super::{
    config::Tolerance,
    error::MetricError,
    fixes::{Fix, Fixes},
    numbers::{percent, sum, to_milli, to_replicas},
    pod::Pod,
    pod_groups::{PodGroups, ReadinessRules, ready_pods},
    requests::{PodRequests, RequestRules, Requests},
    samples::{Sample, Samples},
};

/// Why a metric proposes the current replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UnchangedReason {
    /// The ratio is within tolerance.
    WithinTolerance,
    /// With missing and unready pods filled in, the ratio is within tolerance.
    PaddedWithinTolerance,
    /// With missing and unready pods filled in, the direction of the ratio reverses.
    PaddingTurnsDirection,
    /// With missing and unready pods filled in, the replicas change against the direction of the ratio.
    PaddingTurnsNumber,
    /// No pod is ready, so a `Value` target has nothing to multiply.
    NoPodReady,
}

/// A proposed number of replicas, with its intermediate results.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Proposal {
    /// The proposed replicas.
    pub replicas: i32,
    /// The measured value relative to the target.
    pub ratio: f64,
    /// The ratio with missing and unready pods filled in, if there are any.
    pub padded_ratio: Option<f64>,
    /// Why the current replicas are proposed; `None` if they are not.
    pub kept: Option<UnchangedReason>,
    /// Utilization in percent of the requests.
    pub utilization: Option<i32>,
    /// The value or average, in milli-units.
    pub value: i64,
    /// The pods by how they counted, for per-pod metrics.
    pub groups: Option<PodGroups>,
}

/// Inputs shared by all proposals of one object.
#[derive(Clone, Copy, Debug)]
pub struct Calculator<'a> {
    /// `scale.spec.replicas`.
    pub replicas: i32,
    /// `scale.status.replicas`.
    pub status_replicas: i32,
    /// The pods that match the scale's selector, without those that are excluded.
    pub pods: &'a [&'a Pod],
    /// The tolerance within which replicas are not changed.
    pub tolerance: Tolerance,
    /// Percentage of the pods up to which those without a sample count like the average.
    pub missing_pods_percent: u8,
    /// The rules that decide whether a pod is ready.
    pub readiness: ReadinessRules,
    pub fixes: Fixes,
}

/// The source of a value. Upstream handles overflow of the two differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Object,
    /// An external metric.
    External,
}

/// How a kind of target computes a ratio, and how it fills in missing pods.
trait Measure {
    /// Returns the ratio to the target, the utilization in percent, and the value in milli-units.
    fn ratio(&self, samples: &Samples) -> Result<(f64, Option<i32>, i64), MetricError>;

    /// The value that is assumed for a missing pod when scaling down.
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
        let known = samples
            .iter()
            .filter_map(|(pod, sample)| Some((sample.value, *self.requests.get(pod)?)));
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

/// The replicas for a ratio of what these pods use to the target; `None` within tolerance.
pub fn replicas_of_ratio(
    ratio: f64,
    pods: usize,
    tolerance: Tolerance,
    fixes: Fixes,
) -> Option<i32> {
    (!tolerance.contains(ratio)).then(|| to_replicas((ratio * pods as f64).ceil(), fixes))
}

/// Why a ratio that missing and unready pods were filled into changes nothing.
pub fn kept_by_padding(
    ratio: f64,
    padded: f64,
    tolerance: Tolerance,
    change: Ordering,
) -> Option<UnchangedReason> {
    if tolerance.contains(padded) {
        Some(UnchangedReason::PaddedWithinTolerance)
    } else if (ratio < 1.0 && padded > 1.0) || (ratio > 1.0 && padded < 1.0) {
        Some(UnchangedReason::PaddingTurnsDirection)
    } else if (padded < 1.0 && change.is_gt()) || (padded > 1.0 && change.is_lt()) {
        Some(UnchangedReason::PaddingTurnsNumber)
    } else {
        None
    }
}

impl Calculator<'_> {
    /// The proposal for utilization of requests, with a target in percent.
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

    /// The proposal for an average over pods, with a target in milli-units.
    pub fn average(
        &self,
        mut samples: Samples,
        target: i64,
        is_cpu: bool,
    ) -> Result<Proposal, MetricError> {
        let groups = self.group(&mut samples, is_cpu)?;
        self.propose(samples, groups, &Average { target, fixes: self.fixes })
    }

    /// Groups pods, and removes the samples of those that do not count.
    fn group(&self, samples: &mut Samples, is_cpu: bool) -> Result<PodGroups, MetricError> {
        if self.pods.is_empty() {
            return Err(MetricError::no_pods());
        }
        if self.fixes.has(Fix::OnlyOwnPodsCount) {
            self.keep_known(samples);
        }
        let groups = PodGroups::of(self.pods, samples, is_cpu, self.readiness, self.fixes);
        samples.retain(|pod, _| !groups.ignored.contains(pod) && !groups.unready.contains(pod));
        if samples.is_empty() {
            return Err(MetricError::no_ready_pods());
        }
        Ok(groups)
    }

    /// Removes samples of other pods, such as those that do not exist any more.
    fn keep_known(&self, samples: &mut Samples) {
        let known = self.pods.iter().filter(|pod| samples.contains_key(&pod.name));
        if known.count() < samples.len() {
            let known: BTreeSet<&str> = self.pods.iter().map(|pod| pod.name.as_str()).collect();
            samples.retain(|pod, _| known.contains(pod.as_str()));
        }
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
        let tolerated = self.tolerated_missing(&groups);
        if !unready_count && groups.missing.len() == tolerated {
            let pods = groups.ready + tolerated;
            match replicas_of_ratio(ratio, pods, self.tolerance, self.fixes) {
                Some(replicas) => proposal.replicas = replicas,
                None => proposal.kept = Some(UnchangedReason::WithinTolerance),
            }
            proposal.groups = Some(groups);
            return Ok(proposal);
        }
        for pod in groups.missing.iter().skip(tolerated) {
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
        let pods = samples.len() + tolerated;
        let replicas = to_replicas((padded * pods as f64).ceil(), self.fixes);
        proposal.kept = kept_by_padding(ratio, padded, self.tolerance, replicas.cmp(&current));

        if proposal.kept.is_none() {
            proposal.replicas = replicas;
        }
        proposal.groups = Some(groups);
        Ok(proposal)
    }

    /// How many pods without a sample count like the average of the others: all or none.
    fn tolerated_missing(&self, groups: &PodGroups) -> usize {
        let missing = groups.missing.len();
        let pods = groups.ready + groups.unready.len() + missing;
        let allowed = pods * usize::from(self.missing_pods_percent);
        if missing * 100 <= allowed { missing } else { 0 }
    }

    /// The proposal for a value with a target in milli-units: ready pods times the ratio.
    pub fn value(&self, value: i64, target: i64) -> Result<Proposal, MetricError> {
        let ratio = value as f64 / target as f64;
        let mut proposal = Proposal {
            replicas: self.replicas,
            ratio,
            padded_ratio: None,
            kept: None,
            utilization: None,
            value,
            groups: None,
        };
        if self.replicas == 0 {
            // There is no pod to multiply, so any value above zero proposes at least one replica.
            proposal.replicas = to_replicas(ratio.ceil(), self.fixes);
            return Ok(proposal);
        }
        if self.tolerance.contains(ratio) {
            proposal.kept = Some(UnchangedReason::WithinTolerance);
            return Ok(proposal);
        }
        if self.pods.is_empty() {
            return Err(MetricError::no_pods()
                .within(|cause| format!("unable to calculate ready pods: {cause}")));
        }
        let ready = ready_pods(self.pods, self.fixes);
        if ready == 0 && self.fixes.has(Fix::UnreadyWorkloadHolds) {
            proposal.kept = Some(UnchangedReason::NoPodReady);
            return Ok(proposal);
        }
        proposal.replicas = self.capped((ratio * ready as f64).ceil());
        Ok(proposal)
    }

    /// The proposal for a value with a target per pod in milli-units.
    pub fn value_per_pod(&self, value: i64, target: i64, origin: Origin) -> Proposal {
        let pods = self.status_replicas;
        let ratio = value as f64 / (target as f64 * f64::from(pods));
        let wanted = (value as f64 / target as f64).ceil();
        let is_within = self.tolerance.contains(ratio);
        let unchanged = if self.fixes.has(Fix::SurgePodsDoNotCount) { self.replicas } else { pods };
        let average = (value as f64 / f64::from(pods)).ceil();
        Proposal {
            replicas: match origin {
                _ if is_within => unchanged,
                Origin::External => self.capped(wanted),
                Origin::Object => to_replicas(wanted, self.fixes),
            },
            ratio,
            padded_ratio: None,
            kept: is_within.then_some(UnchangedReason::WithinTolerance),
            utilization: None,
            value: match origin {
                Origin::External if value == i64::MAX => value,
                // Without pods the average is undefined.
                _ if pods == 0 && self.fixes.has(Fix::ProposalsSaturate) => 0,
                _ => to_milli(average, self.fixes),
            },
            groups: None,
        }
    }

    /// Converts to replicas, saturating at the largest number.
    fn capped(&self, replicas: f64) -> i32 {
        if replicas > f64::from(i32::MAX) { i32::MAX } else { to_replicas(replicas, self.fixes) }
    }
}
