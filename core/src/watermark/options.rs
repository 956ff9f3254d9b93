//! Options of an object that are set with annotations, because upstream's CRD prunes unknown fields.

use std::{collections::BTreeMap, time::Duration};

pub use crate::scaling::Fallback;

use crate::api::annotations::{
    DELAYS, FALLBACK, InvalidAnnotation, MODULO, PARTIAL_METRICS, PENDING_COUNTS_FOR,
    SCALE_TO_ZERO, STARTING_IGNORED_FOR, UNKNOWN_GATE,
};

/// The options of an object. The defaults behave as upstream does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of its own")]
pub struct WpaOptions {
    /// Available metrics may add replicas while others are not available.
    pub partial_metrics: bool,
    /// The fallback while metrics are not available.
    pub fallback: Option<Fallback>,
    /// Delays are tracked for each metric separately.
    pub delay_per_metric: bool,
    pub scale_to_zero: bool,
    /// The result is rounded to a multiple of the modulo, not only the proposal.
    pub modulo_of_result: bool,
    /// How long a pending pod counts as ready.
    pub pending_counts_for: Option<Duration>,
    /// How long the CPU usage of a starting pod is ignored.
    pub starting_ignored_for: Option<Duration>,
    /// Scaling continues while the state of a gate is unknown.
    pub unknown_gate_is_open: bool,
}

const MAX_DELAY: Duration = Duration::from_hours(1);

impl WpaOptions {
    /// Reads the annotations of an object, and returns the invalid ones. `period` is the reconcile period.
    pub fn from_annotations(
        annotations: &BTreeMap<String, String>,
        period: Duration,
    ) -> (Self, Vec<InvalidAnnotation>) {
        let mut invalid = Vec::new();
        let mut read_flag = |key: &crate::api::annotations::AnnotationKey, values: [&str; 2]| {
            let parse = |text: &str| values.iter().position(|value| *value == text);
            let read = key.read(annotations, parse);
            read.unwrap_or_else(|why| {
                invalid.push(why);
                None
            }) == Some(1)
        };
        let mut options = Self {
            partial_metrics: read_flag(&PARTIAL_METRICS, ["hold", "upscale"]),
            delay_per_metric: read_flag(&DELAYS, ["joint", "each"]),
            scale_to_zero: read_flag(&SCALE_TO_ZERO, ["false", "true"]),
            modulo_of_result: read_flag(&MODULO, ["proposal", "result"]),
            unknown_gate_is_open: read_flag(&UNKNOWN_GATE, ["hold", "follow"]),
            ..Self::default()
        };
        let mut or_none = |result: Result<_, InvalidAnnotation>| match result {
            Ok(found) => found,
            Err(why) => {
                invalid.push(why);
                None
            }
        };
        options.pending_counts_for = or_none(PENDING_COUNTS_FOR.read(annotations, parse_delay));
        options.starting_ignored_for = or_none(STARTING_IGNORED_FOR.read(annotations, parse_delay));
        match FALLBACK.read(annotations, |text| Fallback::parse(text, period)) {
            Ok(found) => options.fallback = found,
            Err(why) => invalid.push(why),
        }
        (options, invalid)
    }
}

fn parse_delay(text: &str) -> Option<Duration> {
    let delay: jiff::SignedDuration = text.parse().ok()?;
    Duration::try_from(delay).ok().filter(|delay| *delay <= MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::annotations::WPA_KEYS;

    const PERIOD: Duration = Duration::from_secs(15);

    fn read(pairs: &[(&str, &str)]) -> (WpaOptions, Vec<InvalidAnnotation>) {
        let annotations = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        WpaOptions::from_annotations(&annotations.collect(), PERIOD)
    }

    #[test]
    fn unset_options_have_upstreams_defaults() {
        assert_eq!(read(&[]), (WpaOptions::default(), Vec::new()));
        let defaults = [
            ("plimsoll.dev/partial-metrics", "hold"),
            ("plimsoll.dev/delays", "joint"),
            ("plimsoll.dev/scale-to-zero", "false"),
            ("plimsoll.dev/modulo", "proposal"),
            ("plimsoll.dev/unknown-gate", "hold"),
        ];
        assert_eq!(read(&defaults), (WpaOptions::default(), Vec::new()));
    }

    #[test]
    fn all_options_are_read() {
        let pairs = [
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
        assert_eq!(read(&pairs), (expected, Vec::new()));
    }

    #[test]
    fn invalid_options_are_reported_and_the_others_apply() {
        for key in WPA_KEYS {
            // These are read where Prometheus or a monitor is queried.
            let read_elsewhere =
                ["query.plimsoll.dev/<metric>", "plimsoll.dev/hold-while", "plimsoll.dev/monitor"];
            if read_elsewhere.contains(&key.name) {
                continue;
            }
            let (options, invalid) = read(&[(key.name, "(nonsense)")]);
            assert_eq!(options, WpaOptions::default());
            assert_eq!(invalid.iter().map(|invalid| invalid.key).collect::<Vec<_>>(), [key.name]);
        }
        for text in
            ["8", "0 after 3", "8 after 0", "-1 after 3", "8 after 4294967295000", "after 2"]
        {
            let (options, invalid) =
                read(&[("plimsoll.dev/fallback-replicas", text), ("plimsoll.dev/delays", "each")]);
            assert!(options.fallback.is_none() && options.delay_per_metric, "{text}");
            assert_eq!(invalid.len(), 1, "{text}");
        }
        let (_, invalid) = read(&[("plimsoll.dev/pending-counts-for", "2h")]);
        assert_eq!(
            invalid[0].to_string(),
            "annotation plimsoll.dev/pending-counts-for: `2h` is not a duration from 0s to 1h; it is ignored"
        );
    }
}
