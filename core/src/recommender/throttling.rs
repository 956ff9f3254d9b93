//! CPU throttling: the fraction of periods in which a container was throttled, and the resulting factor of its CPU
//! recommendation.

use crate::{history::Throttling, types::Time};
use serde::{Deserialize, Serialize};

use super::model_settings::{ModelRules, Settings};

/// The maximum factor, however much the container is throttled: usage after the raise is better evidence.
pub const MAX_FACTOR: f64 = 2.0;

/// The throttling of a container, and its effect on the CPU recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttled {
    /// The fraction of throttled periods.
    pub share: f64,
    /// The acceptable fraction (`--cpu-throttling-target`); `None` if throttling is only reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// The factor that CPU is multiplied by; 1 if throttling is acceptable.
    pub factor: f64,
}

impl Throttled {
    /// Computes the effect of measured throttling. Usage does not show what a container would have used without its
    /// limit, so each tenth of throttled periods above the target raises CPU by a tenth. `None` if throttling is
    /// unknown or was measured too long ago.
    pub fn new(
        measured: &Throttling,
        settings: &Settings,
        rules: &ModelRules,
        now: Time,
    ) -> Option<Self> {
        if now >= measured.at.later(rules.memory_span()) {
            return None;
        }
        let share = share(measured)?;
        let target = settings.cpu_throttling_target;
        let factor = target.map_or(1.0, |target| (1.0 + share - target).clamp(1.0, MAX_FACTOR));
        Some(Self { share, target, factor })
    }
}

/// Returns the fraction of throttled periods; `None` without any periods, and for invalid values.
pub fn share(measured: &Throttling) -> Option<f64> {
    let is_valid = measured.throttled >= 0.0 && measured.periods > 0.0;
    let share = measured.throttled / measured.periods;
    (is_valid && share.is_finite()).then(|| share.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(throttled: f64, periods: f64) -> Throttling {
        Throttling { throttled, periods, at: Time::EPOCH }
    }

    #[test]
    fn throttling_above_the_target_raises_cpu_up_to_a_maximum() {
        let rules = ModelRules::default();
        for (share, target, factor) in [
            (0.5, None, 1.0),
            (0.05, Some(0.1), 1.0),
            (0.1, Some(0.1), 1.0),
            (0.35, Some(0.1), 1.25),
            (1.0, Some(0.0), MAX_FACTOR),
            (7.0, Some(0.0), MAX_FACTOR),
        ] {
            let settings = Settings { cpu_throttling_target: target, ..Settings::default() };
            let throttled = Throttled::new(&measured(share, 1.0), &settings, &rules, Time::EPOCH);
            let actual = throttled.expect("is measured").factor;
            assert!((actual - factor).abs() < 1e-12, "{share} {target:?}: {actual}");
        }
    }

    #[test]
    fn unknown_throttling_raises_nothing() {
        let settings = Settings { cpu_throttling_target: Some(0.0), ..Settings::default() };
        let rules = ModelRules::default();
        let at = |throttled, periods, now| {
            Throttled::new(&measured(throttled, periods), &settings, &rules, now)
        };
        for (throttled, periods) in [(0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::NAN), (-1.0, 1.0)] {
            assert_eq!(at(throttled, periods, Time::EPOCH), None, "{throttled} of {periods}");
        }
        let span = rules.memory_span();
        assert!(at(1.0, 1.0, Time::EPOCH.later(span / 2)).is_some());
        assert_eq!(at(1.0, 1.0, Time::EPOCH.later(span)), None, "it is long ago");
    }
}
