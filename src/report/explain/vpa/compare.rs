//! Compares the numbers in a status with recomputed numbers, allowing for the time in between.

use plimsoll_core::{
    recommender::{
        ResourceExplanation,
        estimate::{Resource, confidence_multiplier},
        explanation::EstimateStep,
    },
    types::{Time, quantity::Quantity},
};

use super::report::{Agreement, RecommendedNumbers};

/// The tolerated relative difference: a histogram bucket is 5 % wide, and bounds that moved by less than 5 % are not
/// written.
const TOLERANCE: f64 = 0.06;

/// Compares the numbers of a status with the recomputed ones.
pub fn agreement(
    resource: Resource,
    chain: &ResourceExplanation,
    status: Option<&RecommendedNumbers>,
    now: &RecommendedNumbers,
    at: Time,
) -> Agreement {
    let Some(status) = status else { return Agreement::Unwritten };
    if status == now {
        return Agreement::Same;
    }
    // The recommender may have ingested more samples since its last save, at most until now.
    let (then, later) = (chain.evidence.confidence, later_confidence(chain, at));
    // The factor by which a bound moves from the confidence of the chain to the later one.
    let ratio = |factor| confidence_multiplier(factor, later) / confidence_multiplier(factor, then);
    let near = |written: Option<Quantity>, recomputed: Option<Quantity>, step: &EstimateStep| match (
        written, recomputed,
    ) {
        (None, None) => true,
        (Some(written), Some(recomputed)) => {
            let (written, recomputed) = (written.as_f64(), recomputed.as_f64());
            let moved = step.stretch.map_or(1.0, ratio);
            within(resource, written, recomputed, recomputed * moved)
        }
        _ => false,
    };
    let drifted = near(status.target, now.target, &chain.target)
        && near(status.uncapped, now.uncapped, &chain.target)
        && near(status.lower, now.lower, &chain.lower)
        && near(status.upper, now.upper, &chain.upper);
    if drifted { Agreement::Drift } else { Agreement::Differs }
}

fn within(resource: Resource, written: f64, one: f64, other: f64) -> bool {
    // The first buckets, of 10 m and 10 MB, are wider than the tolerated relative difference.
    let first = match resource {
        Resource::Cpu => 0.012,
        Resource::Memory => 12e6,
    };
    // Without any confidence a bound is unlimited.
    if !other.is_finite() {
        return true;
    }
    let (min, max) = (one.min(other), one.max(other));
    written >= min * (1.0 - TOLERANCE) - first && written <= max * (1.0 + TOLERANCE) + first
}

fn later_confidence(chain: &ResourceExplanation, at: Time) -> f64 {
    let evidence = &chain.evidence;
    let passed = evidence.last.map_or(0, |last| at.nanos_since(last).max(0)) as f64 / 1e9;
    let more = if evidence.interval > 0.0 { passed / evidence.interval } else { 0.0 };
    evidence.confidence + more
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn numbers(target: &str, lower: &str, upper: &str) -> RecommendedNumbers {
        let amount = |text: &str| text.parse().ok();
        RecommendedNumbers {
            target: amount(target),
            lower: amount(lower),
            upper: amount(upper),
            uncapped: amount(target),
        }
    }

    /// Two days of samples, the last of them a minute before the hundredth hour.
    fn chain() -> ResourceExplanation {
        let step = |stretch| json!({"percentile": 0.9, "read": 0.3, "stretch": stretch, "decidedBy": "usage"});
        serde_json::from_value(json!({
            "evidence": {"of": "cpu", "samples": 2880, "first": "1970-01-03T03:59:00Z",
                "last": "1970-01-05T03:59:00Z", "interval": 86400.0, "confidence": 2.0},
            "margin": 0.15,
            "floor": {"amount": 25},
            "rounding": {"multiple": 1, "humanized": false, "wholeCores": false},
            "cap": {"maxIsGlobal": false},
            "lower": {"percentile": 0.5, "read": 0.3, "stretch": {"weight": 0.001, "exponent": -2}, "decidedBy": "usage"},
            "target": step(None::<()>),
            "upper": {"percentile": 0.95, "read": 0.3, "stretch": {"weight": 1.0, "exponent": 1}, "decidedBy": "usage"},
        }))
        .expect("a chain")
    }

    #[test]
    fn a_difference_within_a_bucket_or_the_dead_band_is_drift() {
        let now = numbers("1000m", "900m", "1500m");
        let at = Time::from_secs(100 * 3600);
        for (status, expected) in [
            (Some(numbers("1", "900m", "1500m")), Agreement::Same),
            (Some(numbers("1050m", "900m", "1500m")), Agreement::Drift),
            (Some(numbers("1", "870m", "1570m")), Agreement::Drift),
            (Some(numbers("1200m", "900m", "1500m")), Agreement::Differs),
            (Some(numbers("1", "900m", "3")), Agreement::Differs),
            (Some(RecommendedNumbers { upper: None, ..now }), Agreement::Differs),
            (None, Agreement::Unwritten),
        ] {
            let found = agreement(Resource::Cpu, &chain(), status.as_ref(), &now, at);
            assert_eq!(found, expected, "{status:?}");
        }
    }

    #[test]
    fn the_upper_bound_of_a_young_history_may_drift_further() {
        let mut young = chain();
        young.evidence.confidence = 0.001;
        young.evidence.last = Some(Time::from_secs(0));
        let (now, written) = (numbers("1", "900m", "1000"), numbers("1", "900m", "400"));
        let agreement_after = |seconds| {
            agreement(Resource::Cpu, &young, Some(&written), &now, Time::from_secs(seconds))
        };
        assert_eq!(
            (agreement_after(0), agreement_after(300)),
            (Agreement::Differs, Agreement::Drift)
        );
    }
}
