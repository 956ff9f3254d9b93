//! How dangerous a request or limit is, and how much of it is wasted: two axes, because too little and too
//! much are different troubles.

use super::{
    evidence::{ContainerEvidence, EvidenceGap},
    need::Need,
    report::{Level, ResourceReport, RiskReason},
    survey::Resource,
    thresholds::{CpuRiskThresholds, MemoryRiskThresholds, RiskThresholds, WasteThresholds},
};

/// The level of a risk, and what it is.
#[derive(Clone, Debug, PartialEq)]
pub struct Risk {
    /// The highest level of all reasons.
    pub level: Level,
    /// The reasons, the most severe first.
    pub reasons: Vec<RiskReason>,
}

/// The resource of a container as it is configured, in millicores or bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Configured {
    /// What its pods request.
    pub request: Option<i64>,
    pub limit: Option<i64>,
    /// Whether both could not be read.
    pub is_unknown: bool,
}

/// Collects reasons with their levels.
#[derive(Default)]
struct Reasons(Vec<(Level, RiskReason)>);

impl Reasons {
    fn add_if(&mut self, applies: bool, level: Level, reason: RiskReason) {
        if applies {
            self.0.push((level, reason));
        }
    }

    /// The risk. If nothing is known to be wrong, it has the level `otherwise`.
    fn into_risk(mut self, otherwise: Level) -> Risk {
        // Stable: reasons of one level stay in the order of their rules.
        self.0.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let level = self.0.first().map_or(otherwise, |(level, _)| *level);
        Risk { level, reasons: self.0.into_iter().map(|(_, reason)| reason).collect() }
    }
}

pub fn cpu_risk(
    configured: Configured,
    need: &Need,
    evidence: &ContainerEvidence,
    thresholds: &CpuRiskThresholds,
) -> Risk {
    let mut reasons = Reasons::default();
    // Throttling under a limit that was removed since then is over.
    let has_limit = configured.limit.is_some() || configured.is_unknown;
    if let Some(share) = evidence.throttled_share.filter(|_| has_limit) {
        let level = match share {
            _ if share >= thresholds.critical_throttled_share => Level::Critical,
            _ if share >= thresholds.high_throttled_share => Level::High,
            _ => Level::Ok,
        };
        reasons.add_if(level > Level::Ok, level, RiskReason::Throttled { share });
    }
    if let Some(request) = configured.request {
        if let Some(share) = evidence.cpu_above_request {
            let is_often = share >= thresholds.high_above_request_share;
            reasons.add_if(is_often, Level::High, RiskReason::UsageAboveRequest { share });
        }
        let far = thresholds.high_below_target.milli_value();
        below_need(&mut reasons, request, need, far, thresholds.medium_share_of_target);
    } else if !configured.is_unknown {
        let matters = need.target >= thresholds.medium_target_without_request.milli_value();
        reasons.add_if(matters, Level::Medium, RiskReason::NoRequest);
    }
    reasons.into_risk(nothing_found(configured))
}

pub fn memory_risk(
    configured: Configured,
    need: &Need,
    evidence: &ContainerEvidence,
    thresholds: &MemoryRiskThresholds,
) -> Risk {
    let mut reasons = Reasons::default();
    oom_killed(&mut reasons, configured, evidence);
    let peak = evidence.memory_peak.map(|peak| peak.bytes.0);
    if let (Some(peak), Some(limit)) = (peak, configured.limit) {
        let share = peak as f64 / limit as f64;
        let is_near = share >= thresholds.high_peak_share_of_limit;
        reasons.add_if(is_near, Level::High, RiskReason::PeakNearLimit { share });
    }
    if let Some(request) = configured.request {
        let far = thresholds.high_below_target.value();
        below_need(&mut reasons, request, need, far, thresholds.medium_share_of_target);
    } else if !configured.is_unknown {
        let large = thresholds.high_peak_without_request.value();
        let matters = peak.is_some_and(|peak| peak >= large);
        reasons.add_if(matters, Level::High, RiskReason::NoRequest);
    }
    reasons.into_risk(nothing_found(configured))
}

/// The risk of a resource without a number. OOM kills are facts even then, unless it is not clear whose they
/// are.
pub fn risk_without_need(
    resource: Resource,
    configured: Configured,
    evidence: Option<&ContainerEvidence>,
    gap: EvidenceGap,
) -> Risk {
    let mut reasons = Reasons::default();
    if let (Resource::Memory, Some(evidence)) = (resource, evidence)
        && gap != EvidenceGap::AmbiguousOwner
    {
        oom_killed(&mut reasons, configured, evidence);
    }
    reasons.into_risk(Level::Unsaid)
}

/// How much of a request is wasted. `pods` is the number of pods, and `saving` what the target would save a
/// month, if they are known.
pub fn waste(
    resource: Resource,
    configured: Configured,
    need: &Need,
    pods: Option<f64>,
    saving: Option<f64>,
    thresholds: &WasteThresholds,
) -> Level {
    let Some(request) = configured.request else {
        return nothing_found(configured);
    };
    let excess = request.saturating_sub(need.target);
    if excess <= 0 {
        return Level::Ok;
    }
    let share = excess as f64 / request as f64;
    for (level, of) in [(Level::High, thresholds.high), (Level::Medium, thresholds.medium)] {
        let is_large = pods.is_some_and(|pods| excess as f64 * pods >= of.amount(resource) as f64);
        let is_dear = saving.is_some_and(|saving| saving >= of.monthly_cost);
        if share >= of.share && (is_large || is_dear) {
            return level;
        }
    }
    let is_above = need.upper.is_some_and(|upper| request > upper);
    if is_above || share >= thresholds.low_share { Level::Low } else { Level::Ok }
}

fn oom_killed(reasons: &mut Reasons, configured: Configured, evidence: &ContainerEvidence) {
    let Some(limit) = configured.limit else { return };
    let still_stands = evidence.oom_kill_limit.is_none_or(|at_kill| limit <= at_kill.0);
    let reason = RiskReason::OomKilled { kills: evidence.oom_kills, last: evidence.last_oom_kill };
    reasons.add_if(evidence.oom_kills > 0 && still_stands, Level::Critical, reason);
}

fn below_need(reasons: &mut Reasons, request: i64, need: &Need, far: i64, share: f64) {
    let Need { target, lower, .. } = *need;
    let level = if is_far_below_need(request, target, lower, far) {
        Level::High
    } else if (request as f64) < share * target as f64 {
        Level::Medium
    } else {
        Level::Ok
    };
    reasons.add_if(level > Level::Ok, level, RiskReason::BelowNeed);
}

fn is_far_below_need(request: i64, target: i64, lower: Option<i64>, far: i64) -> bool {
    lower.is_some_and(|lower| request < lower) && target.saturating_sub(request) >= far
}

/// The level of each reason of a row, which has only the highest. A report does not have its thresholds: with
/// other ones than the default, a request below the need may get the level next to its own.
pub fn reason_levels(row: &ResourceReport) -> impl Iterator<Item = (&RiskReason, Level)> {
    let thresholds = RiskThresholds::default();
    let level = move |reason: &RiskReason| match (reason, row.resource) {
        (RiskReason::OomKilled { .. }, _) => Level::Critical,
        (RiskReason::Throttled { share }, _)
            if *share >= thresholds.cpu.critical_throttled_share =>
        {
            Level::Critical
        }
        (RiskReason::NoRequest, Resource::Cpu) => Level::Medium,
        (RiskReason::BelowNeed, resource) => {
            let far = match resource {
                Resource::Cpu => thresholds.cpu.high_below_target.milli_value(),
                Resource::Memory => thresholds.memory.high_below_target.value(),
            };
            let amounts = row.request.zip(row.target);
            let is_far = amounts.is_some_and(|(request, target)| {
                is_far_below_need(request, target, row.lower, far)
            });
            if is_far { Level::High } else { Level::Medium }
        }
        _ => Level::High,
    };
    // The most severe one comes first, and the level of the row is its own.
    row.risk_reasons.iter().enumerate().map(move |(index, reason)| {
        let own = if index == 0 { row.risk } else { level(reason).min(row.risk) };
        (reason, own)
    })
}

/// The level if no rule applies: requests that could not be read are not fine.
fn nothing_found(configured: Configured) -> Level {
    if configured.is_unknown { Level::Unsaid } else { Level::Ok }
}

#[cfg(test)]
mod tests;
