//! The annotation `plimsoll.dev/paused`: `up`, `down` or `all`, with replicas and an end.

use std::str::FromStr;

use serde::Serialize;

use crate::types::Time;

/// The directions in which replicas are not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PausedDirection {
    /// Replicas are not added.
    Up,
    /// Replicas are not removed.
    Down,
    /// Replicas are not changed.
    All,
}

/// A pause of scaling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pause {
    pub direction: PausedDirection,
    /// The replicas above or below which it is paused; `None` for the current ones.
    pub at: Option<i32>,
    /// When it ends; `None` if it does not.
    pub until: Option<Time>,
}

impl PausedDirection {
    /// The desired replicas without a change in a paused direction.
    pub fn hold(self, current: i32, desired: i32) -> i32 {
        match self {
            Self::Up => desired.min(current),
            Self::Down => desired.max(current),
            Self::All => current,
        }
    }
}

impl Pause {
    /// Whether it applies. It ends at its end, not after it.
    pub fn is_active(&self, now: Time) -> bool {
        self.until.is_none_or(|until| now < until)
    }

    /// The replicas in place of the desired ones; `None` if neither metrics nor the pause ask for any.
    pub fn apply(&self, current: i32, desired: Option<i32>) -> Option<i32> {
        match (self.direction, self.at) {
            (PausedDirection::All, Some(at)) => Some(at),
            // By itself, a pause in one direction changes nothing in the other.
            (PausedDirection::Up, Some(at)) => Some(desired?.min(at.max(current))),
            (PausedDirection::Down, Some(at)) => Some(desired?.max(at.min(current))),
            (direction, None) => Some(direction.hold(current, desired?)),
        }
    }
}

impl FromStr for Pause {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_whitespace();
        let direction = match words.next() {
            Some("up") => PausedDirection::Up,
            Some("down") => PausedDirection::Down,
            Some("all") => PausedDirection::All,
            _ => return Err(()),
        };
        let mut pause = Self { direction, at: None, until: None };
        while let Some(word) = words.next() {
            let value = words.next().ok_or(())?;
            match word {
                "at" if pause.at.is_none() && pause.until.is_none() => {
                    let at = value.parse().ok().filter(|at| *at >= 1);
                    pause.at = Some(at.ok_or(())?);
                }
                "until" if pause.until.is_none() => {
                    let until: jiff::Timestamp = value.parse().map_err(drop)?;
                    pause.until = Some(until.into());
                }
                _ => return Err(()),
            }
        }
        Ok(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_read_with_replicas_and_an_end() {
        use PausedDirection::{All, Down, Up};
        let end = Time::from_secs(1_893_456_000);
        for (text, direction, at, until) in [
            ("up", Up, None, None),
            ("down", Down, None, None),
            ("all", All, None, None),
            ("all at 3", All, Some(3), None),
            ("up until 2030-01-01T00:00:00Z", Up, None, Some(end)),
            ("down  at 5  until 2030-01-01T02:00:00+02:00", Down, Some(5), Some(end)),
        ] {
            assert_eq!(text.parse(), Ok(Pause { direction, at, until }), "{text}");
        }
        for text in [
            "",
            "true",
            "Up",
            "up down",
            "all at",
            "all at 0",
            "all at -1",
            "all at three",
            "all at 3 at 4",
            "all until",
            "all until tomorrow",
            "all until 2030-01-01",
            "all until 2030-01-01T00:00:00",
            "all until 2030-01-01T00:00:00Z at 3",
            "at 3",
            "all for 2h",
        ] {
            assert_eq!(text.parse::<Pause>(), Err(()), "{text}");
        }
    }

    #[test]
    fn a_pause_ends_at_its_end() {
        let pause: Pause = "all until 2030-01-01T00:00:00Z".parse().expect("a pause");
        let end = pause.until.expect("an end");
        assert!(pause.is_active(Time::from_nanos(end.as_nanos() - 1)));
        assert!(!pause.is_active(end));
        assert!("all".parse::<Pause>().is_ok_and(|pause| pause.is_active(end)));
    }

    #[test]
    fn a_pause_holds_its_direction_alone() {
        let apply = |text: &str, desired: Option<i32>| {
            text.parse::<Pause>().expect("a pause").apply(6, desired)
        };
        for (text, lower, higher) in [
            ("up", 3, 6),
            ("up at 8", 3, 8),
            // More than that number are not removed by the pause.
            ("up at 4", 3, 6),
            ("down", 6, 9),
            ("down at 4", 4, 9),
            // Fewer than that number are not added by the pause.
            ("down at 8", 6, 9),
            ("all", 6, 6),
            ("all at 4", 4, 4),
            ("all at 8", 8, 8),
        ] {
            assert_eq!(apply(text, Some(3)), Some(lower), "{text}");
            assert_eq!(apply(text, Some(9)), Some(higher), "{text}");
            let unknown = if text.starts_with("all at") { Some(lower) } else { None };
            assert_eq!(apply(text, None), unknown, "{text}");
        }
    }
}
