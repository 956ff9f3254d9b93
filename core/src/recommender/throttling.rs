//! Throttling: in which share of its time a container was kept from the CPU that it wanted, and what follows for what
//! it should request.

use crate::{history::Throttling, types::Time};
use serde::{Deserialize, Serialize};

use super::settings::{ModelRules, Settings};

/// CPU is never raised by more than this for throttling, however bad it is: what is used after the raise says more.
pub const MAX_FACTOR: f64 = 2.0;

/// What throttling does to CPU.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Throttled {
    /// The share of its periods in which it was throttled.
    pub share: f64,
    /// The largest share that is fine (`--cpu-throttling-target`); `None` where throttling is only told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// By what CPU is multiplied for it; 1 while all is fine.
    pub factor: f64,
}

impl Throttled {
    /// What is known of throttling means this much now. Usage cannot show what a container would have used, because its
    /// limit kept it from that; each tenth of its periods that is throttled beyond what is fine raises CPU by a tenth.
    /// `None` while nothing is known, or nothing that is still part of the history.
    pub fn new(
        known: &Throttling,
        settings: &Settings,
        rules: &ModelRules,
        now: Time,
    ) -> Option<Self> {
        if now >= known.at.later(rules.memory_span()) {
            return None;
        }
        let share = share(known)?;
        let target = settings.cpu_throttling_target;
        let factor = target.map_or(1.0, |target| (1.0 + share - target).clamp(1.0, MAX_FACTOR));
        Some(Self { share, target, factor })
    }
}

/// The share of periods that were throttled; `None` without any, and for what cannot be.
pub fn share(known: &Throttling) -> Option<f64> {
    let counts = known.throttled >= 0.0 && known.periods > 0.0;
    let share = known.throttled / known.periods;
    (counts && share.is_finite()).then(|| share.min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(throttled: f64, periods: f64) -> Throttling {
        Throttling { throttled, periods, at: Time::EPOCH }
    }

    #[test]
    fn cpu_is_raised_by_what_is_throttled_too_much_and_never_beyond_the_most() {
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
            let throttled = Throttled::new(&known(share, 1.0), &settings, &rules, Time::EPOCH);
            let found = throttled.expect("is known").factor;
            assert!((found - factor).abs() < 1e-12, "{share} {target:?}: {found}");
        }
    }

    #[test]
    fn what_is_not_known_raises_nothing() {
        let settings = Settings { cpu_throttling_target: Some(0.0), ..Settings::default() };
        let rules = ModelRules::default();
        let of = |throttled, periods, now| {
            Throttled::new(&known(throttled, periods), &settings, &rules, now)
        };
        for (throttled, periods) in [(0.0, 0.0), (f64::NAN, 1.0), (1.0, f64::NAN), (-1.0, 1.0)] {
            assert_eq!(of(throttled, periods, Time::EPOCH), None, "{throttled} of {periods}");
        }
        let span = rules.memory_span();
        assert!(of(1.0, 1.0, Time::EPOCH.later(span / 2)).is_some());
        assert_eq!(of(1.0, 1.0, Time::EPOCH.later(span)), None, "it is long ago");
    }
}
