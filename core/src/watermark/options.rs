//! What an object asks for beyond its fields: annotations, because upstream's definition drops fields that it does not know.

use std::{collections::BTreeMap, time::Duration};

use crate::api::annotations::{
    DELAYS, FALLBACK, InvalidAnnotation, MODULO, PARTIAL_METRICS, PENDING_COUNTS_FOR,
    SCALE_TO_ZERO, STARTING_IGNORED_FOR, UNKNOWN_GATE,
};

/// What an object asks for. Without any of them it is followed as upstream follows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct WpaOptions {
    /// Metrics that say something may add replicas while others say nothing.
    pub partial_metrics: bool,
    /// Where to go when metrics say nothing.
    pub fallback: Option<Fallback>,
    /// Each metric has to wait for its own delay.
    pub delay_per_metric: bool,
    /// The last replica may go.
    pub scale_to_zero: bool,
    /// What is written is a multiple too.
    pub modulo_of_result: bool,
    /// How long a pending pod counts.
    pub pending_counts_for: Option<Duration>,
    /// How long the CPU of a starting pod does not count.
    pub starting_ignored_for: Option<Duration>,
    /// A gate of which nobody knows how it stands is open.
    pub unknown_gate_is_open: bool,
}

/// Where to go when metrics say nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// So many replicas.
    pub replicas: i32,
    /// When they have said nothing for so long.
    pub after: Duration,
}

const MAX_DELAY: Duration = Duration::from_hours(1);

impl WpaOptions {
    /// What the annotations of an object say, and those that make no sense. `period` is how often it is looked at.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
        period: Duration,
    ) -> (Self, Vec<InvalidAnnotation>) {
        let mut bad = Vec::new();
        let mut flag = |key: &crate::api::annotations::AnnotationKey, words: [&str; 2]| {
            let parse = |text: &str| words.iter().position(|word| *word == text);
            let read = key.read(annotations, parse);
            read.unwrap_or_else(|why| {
                bad.push(why);
                None
            }) == Some(1)
        };
        let mut options = Self {
            partial_metrics: flag(&PARTIAL_METRICS, ["hold", "upscale"]),
            delay_per_metric: flag(&DELAYS, ["joint", "each"]),
            scale_to_zero: flag(&SCALE_TO_ZERO, ["false", "true"]),
            modulo_of_result: flag(&MODULO, ["proposal", "result"]),
            unknown_gate_is_open: flag(&UNKNOWN_GATE, ["hold", "follow"]),
            ..Self::default()
        };
        let mut take = |result: Result<_, InvalidAnnotation>| match result {
            Ok(found) => found,
            Err(why) => {
                bad.push(why);
                None
            }
        };
        options.pending_counts_for = take(PENDING_COUNTS_FOR.read(annotations, parse_delay));
        options.starting_ignored_for = take(STARTING_IGNORED_FOR.read(annotations, parse_delay));
        match FALLBACK.read(annotations, |text| parse_fallback(text, period)) {
            Ok(found) => options.fallback = found,
            Err(why) => bad.push(why),
        }
        (options, bad)
    }
}

fn parse_delay(text: &str) -> Option<Duration> {
    let delay: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(delay).ok().filter(|delay| *delay <= MAX_DELAY)
}

fn parse_fallback(text: &str, period: Duration) -> Option<Fallback> {
    let (replicas, periods) = text.split_once(" after ")?;
    let replicas: i32 = replicas.trim().parse().ok().filter(|replicas| *replicas >= 1)?;
    let periods: u32 = periods.trim().parse().ok().filter(|periods| *periods >= 1)?;
    Some(Fallback { replicas, after: period.checked_mul(periods)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::annotations::WPA_KEYS;

    const PERIOD: Duration = Duration::from_secs(15);

    fn read(pairs: &[(&str, &str)]) -> (WpaOptions, Vec<InvalidAnnotation>) {
        let said = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        WpaOptions::from_annotations(&said.collect(), PERIOD)
    }

    #[test]
    fn what_is_not_said_is_as_upstream_has_it() {
        assert_eq!(read(&[]), (WpaOptions::default(), Vec::new()));
        let said = [
            ("plimsoll.dev/partial-metrics", "hold"),
            ("plimsoll.dev/delays", "joint"),
            ("plimsoll.dev/scale-to-zero", "false"),
            ("plimsoll.dev/modulo", "proposal"),
            ("plimsoll.dev/unknown-gate", "hold"),
        ];
        assert_eq!(read(&said), (WpaOptions::default(), Vec::new()));
    }

    #[test]
    fn all_that_can_be_said_is_read() {
        let said = [
            ("plimsoll.dev/partial-metrics", "upscale"),
            ("plimsoll.dev/fallback-replicas", "8 after 20"),
            ("plimsoll.dev/delays", "each"),
            ("plimsoll.dev/scale-to-zero", "true"),
            ("plimsoll.dev/modulo", "result"),
            ("plimsoll.dev/pending-counts-for", "0s"),
            ("plimsoll.dev/starting-ignored-for", "1m30s"),
            ("plimsoll.dev/unknown-gate", "follow"),
        ];
        let expected = WpaOptions {
            partial_metrics: true,
            fallback: Some(Fallback { replicas: 8, after: Duration::from_mins(5) }),
            delay_per_metric: true,
            scale_to_zero: true,
            modulo_of_result: true,
            pending_counts_for: Some(Duration::ZERO),
            starting_ignored_for: Some(Duration::from_secs(90)),
            unknown_gate_is_open: true,
        };
        assert_eq!(read(&said), (expected, Vec::new()));
    }

    #[test]
    fn nonsense_is_named_and_the_rest_holds() {
        for key in WPA_KEYS {
            // Who asks a Prometheus or a monitor reads these.
            let elsewhere =
                ["query.plimsoll.dev/<metric>", "plimsoll.dev/hold-while", "plimsoll.dev/monitor"];
            if elsewhere.contains(&key.name) {
                continue;
            }
            let (options, bad) = read(&[(key.name, "(nonsense)")]);
            assert_eq!(options, WpaOptions::default());
            assert_eq!(bad.iter().map(|bad| bad.key).collect::<Vec<_>>(), [key.name]);
        }
        for text in
            ["8", "0 after 3", "8 after 0", "-1 after 3", "8 after 4294967295000", "after 2"]
        {
            let (options, bad) =
                read(&[("plimsoll.dev/fallback-replicas", text), ("plimsoll.dev/delays", "each")]);
            assert!(options.fallback.is_none() && options.delay_per_metric, "{text}");
            assert_eq!(bad.len(), 1, "{text}");
        }
        let (_, bad) = read(&[("plimsoll.dev/pending-counts-for", "2h")]);
        assert_eq!(
            bad[0].to_string(),
            "annotation plimsoll.dev/pending-counts-for: `2h` is not a duration from 0s to 1h; it is ignored"
        );
    }
}
