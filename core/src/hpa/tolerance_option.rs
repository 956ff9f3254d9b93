//! The annotation `plimsoll.dev/tolerance`: a share of the target or a number of pods, for each direction.

use std::str::FromStr;

use serde::Serialize;

use super::config::Tolerance;

/// The most pods that a tolerance may have.
const MAX_PODS: f64 = 1000.0;

/// How far a metric may be from its target in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToleranceAmount {
    /// A share of the target.
    Share(f64),
    /// As far as so many pods more or less would bring it.
    Pods(f64),
}

/// The tolerances that an object sets by annotation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ToleranceOption {
    /// For adding replicas.
    pub up: Option<ToleranceAmount>,
    /// For removing replicas.
    pub down: Option<ToleranceAmount>,
}

impl ToleranceAmount {
    fn ratio(self, replicas: i32) -> f64 {
        match self {
            Self::Share(share) => share,
            Self::Pods(pods) => pods / f64::from(replicas.max(1)),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (number, is_pods) = match text.split_once(char::is_whitespace) {
            Some((number, unit)) if matches!(unit.trim(), "pod" | "pods") => (number, true),
            Some(_) => return None,
            None => (text, false),
        };
        // `parse` also accepts `inf`, `NaN` and exponents.
        let is_plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number: f64 = number.parse().ok().filter(|_| is_plain)?;
        if is_pods {
            (number <= MAX_PODS).then_some(Self::Pods(number))
        } else {
            (number <= 1.0).then_some(Self::Share(number))
        }
    }
}

impl ToleranceOption {
    /// The tolerance of an object with so many replicas, given that without the annotation.
    pub fn apply(self, without: Tolerance, replicas: i32) -> Tolerance {
        let ratio = |amount: ToleranceAmount| amount.ratio(replicas);
        Tolerance {
            down: self.down.map_or(without.down, ratio),
            up: self.up.map_or(without.up, ratio),
        }
    }
}

impl FromStr for ToleranceOption {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(both) = ToleranceAmount::parse(text.trim()) {
            return Ok(Self { up: Some(both), down: Some(both) });
        }
        let mut option = Self::default();
        for part in text.split(',') {
            let (direction, amount) = part.trim().split_once(char::is_whitespace).ok_or(())?;
            let slot = match direction {
                "up" => &mut option.up,
                "down" => &mut option.down,
                _ => return Err(()),
            };
            let amount = ToleranceAmount::parse(amount.trim()).ok_or(())?;
            if slot.replace(amount).is_some() {
                return Err(());
            }
        }
        Ok(option)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_read_for_both_directions_or_for_each() {
        use ToleranceAmount::{Pods, Share};
        for (text, up, down) in [
            ("0.05", Some(Share(0.05)), Some(Share(0.05))),
            ("0", Some(Share(0.0)), Some(Share(0.0))),
            ("1", Some(Share(1.0)), Some(Share(1.0))),
            ("1 pod", Some(Pods(1.0)), Some(Pods(1.0))),
            ("0.5 pods", Some(Pods(0.5)), Some(Pods(0.5))),
            ("up 0", Some(Share(0.0)), None),
            ("down 2 pods", None, Some(Pods(2.0))),
            ("down 0.2 , up 1 pod", Some(Pods(1.0)), Some(Share(0.2))),
        ] {
            assert_eq!(text.parse(), Ok(ToleranceOption { up, down }), "{text}");
        }
        for text in [
            "",
            "some",
            "-0.1",
            "1.1",
            "5%",
            "NaN",
            "inf",
            "1e-1",
            "pod",
            "-1 pod",
            "1001 pods",
            "1 node",
            "up",
            "up 0.1, up 0.2",
            "left 0.1",
            "0.1, 0.2",
            "up 0.1; down 0.2",
            ".",
        ] {
            assert_eq!(text.parse::<ToleranceOption>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_number_of_pods_is_relative_to_the_replicas() {
        let without = Tolerance { down: 0.1, up: 0.1 };
        let option: ToleranceOption = "up 1 pod".parse().expect("a tolerance");
        for (replicas, up) in [(0, 1.0), (1, 1.0), (4, 0.25), (10, 0.1), (100, 0.01)] {
            assert_eq!(option.apply(without, replicas), Tolerance { down: 0.1, up }, "{replicas}");
        }
        assert_eq!(ToleranceOption::default().apply(without, 5), without);
    }
}
