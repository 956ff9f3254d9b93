//! Snapshots as checkpoints and back, and exactly what is lost on the way.
//!
//! A histogram keeps its total to the last bit and its weights as parts of ten thousand of the largest one;
//! times are whole seconds; of pods, open windows and bumps the format knows nothing.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use serde_json::Value;

use super::{HistogramCheckpoint, VerticalPodAutoscalerCheckpointStatus};
use crate::{Observed, Scheme, Snapshot, Time, Weights};

/// The only version of the format that is read or written.
pub const VERSION: &str = "v3";

/// What the heaviest bucket weighs in the format.
const HEAVIEST: f64 = 10_000.0;

/// Number of buckets of both histograms in [`Scheme::Standard`].
pub const STANDARD_BUCKETS: usize = 176;

/// A bucket lighter than this does not count as filled.
pub const STANDARD_EPSILON: f64 = 0.001 * 0.1;

/// Why a checkpoint cannot be read, or a histogram not be written as one.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FormatError {
    /// Another format.
    #[error(
        "its version is {0:?} and only \"v3\" can be read: it is left as it is, and history starts anew"
    )]
    Version(String),
    /// The name of a bucket is not one.
    #[error("bucket {0:?} is not a whole number")]
    BucketName(String),
    /// There is no such bucket.
    #[error("bucket {bucket} is outside of 0 to {last}")]
    NoSuchBucket {
        /// The one that was named.
        bucket: i64,
        /// The last one that there is.
        last: usize,
    },
    /// The weight of a bucket is not one.
    #[error("bucket {bucket} weighs {weight}, which is not a whole number from 0 to 4294967295")]
    BucketWeight {
        /// The bucket.
        bucket: i64,
        /// What it is said to weigh.
        weight: String,
    },
    /// The weights add up to something impossible.
    #[error("its total weight is {0}")]
    Total(f64),
    /// Weights that decay, and nothing to count their age from.
    #[error("it has weights but no referenceTimestamp")]
    NoReference,
    /// Samples below zero.
    #[error("totalSamplesCount is {0}")]
    Count(i64),
    /// The format knows one scheme of buckets only.
    #[error("the format has no fine buckets")]
    Scheme,
    /// One of the two histograms.
    #[error("{field}: {error}")]
    Histogram {
        /// Its field.
        field: &'static str,
        /// What is wrong with it.
        error: Box<FormatError>,
    },
}

impl FormatError {
    fn in_field(self, field: &'static str) -> Self {
        Self::Histogram { field, error: Box::new(self) }
    }
}

/// Writes weights in parts of the heaviest. What weighs less than half a part is lost, and so is what lies
/// outside of the filled span; the total keeps it.
pub fn encode(weights: &Weights) -> Result<HistogramCheckpoint, FormatError> {
    if weights.scheme != Scheme::Standard {
        return Err(FormatError::Scheme);
    }
    if !weights.total.is_finite() || weights.total < 0.0 {
        return Err(FormatError::Total(weights.total));
    }
    let filled = || {
        let (first, last) = weights.span.unwrap_or((1, 0));
        weights.buckets.iter().filter(move |(bucket, _)| (first..=last).contains(bucket))
    };
    let heaviest = filled().map(|&(_, weight)| weight).fold(0.0, f64::max);
    let ratio = HEAVIEST / heaviest;
    let parts = filled().map(|&(bucket, weight)| (bucket, (weight * ratio + 0.5).floor() as u32));
    Ok(HistogramCheckpoint {
        reference_timestamp: weights.reference.map(whole_seconds),
        bucket_weights: parts
            .filter(|&(_, parts)| parts > 0)
            .map(|(bucket, parts)| (bucket.to_string(), parts.into()))
            .collect(),
        total_weight: weights.total,
    })
}

/// Spreads the total over the parts. A bucket counts as filled from `epsilon` on.
pub fn decode(
    checkpoint: &HistogramCheckpoint,
    buckets: usize,
    epsilon: f64,
) -> Result<Weights, FormatError> {
    let total = checkpoint.total_weight;
    if !total.is_finite() || total < 0.0 {
        return Err(FormatError::Total(total));
    }
    let parts = parts(checkpoint, buckets)?;
    let mut weights = Weights {
        reference: checkpoint.reference_timestamp.as_ref().map(|time| Time::from(time.0)),
        ..Weights::default()
    };
    let sum: u64 = parts.iter().map(|&(_, parts)| parts).sum();
    if sum > 0 {
        let ratio = total / sum as f64;
        weights.total = total;
        weights.buckets = parts
            .into_iter()
            .map(|(bucket, parts)| (bucket, parts as f64 * ratio))
            .filter(|&(_, weight)| weight > 0.0)
            .collect();
    }
    // Rounding can take a bucket just below the threshold, so the span is found anew.
    let mut filled = weights.buckets.iter().filter(|&&(_, weight)| weight >= epsilon);
    weights.span = filled
        .next()
        .map(|&(first, _)| (first, filled.next_back().map_or(first, |&(last, _)| last)));
    Ok(weights)
}

/// The parts by bucket, ascending.
pub(super) fn parts(
    checkpoint: &HistogramCheckpoint,
    buckets: usize,
) -> Result<Vec<(u8, u64)>, FormatError> {
    let mut parts = checkpoint
        .bucket_weights
        .iter()
        .map(|(name, weight)| parts_of_bucket(name, weight, buckets))
        .collect::<Result<Vec<_>, _>>()?;
    parts.sort_unstable();
    // Two names of one bucket ("7" and "07") are one bucket.
    parts.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 += later.1;
        }
        same
    });
    Ok(parts)
}

fn parts_of_bucket(name: &str, weight: &Value, buckets: usize) -> Result<(u8, u64), FormatError> {
    let bucket: i64 = name.parse().map_err(|_| FormatError::BucketName(name.to_owned()))?;
    let known = u8::try_from(bucket).ok().filter(|&bucket| usize::from(bucket) < buckets);
    let number =
        known.ok_or(FormatError::NoSuchBucket { bucket, last: buckets.saturating_sub(1) })?;
    let parts = weight.as_u64().filter(|&parts| u32::try_from(parts).is_ok());
    let parts =
        parts.ok_or_else(|| FormatError::BucketWeight { bucket, weight: weight.to_string() })?;
    Ok((number, parts))
}

fn whole_seconds(time: Time) -> MetaTime {
    MetaTime(Time::from_secs(time.as_secs()).into())
}

/// The status that says as much of a snapshot as the format can.
pub fn status_from_snapshot(
    snapshot: &Snapshot,
    now: Time,
) -> Result<VerticalPodAutoscalerCheckpointStatus, FormatError> {
    let cpu = snapshot.cpu_standard.as_ref().unwrap_or(&snapshot.cpu);
    // Readers would count the peak of an open window again when the window goes on.
    let memory = snapshot.memory_closed.as_ref().unwrap_or(&snapshot.memory);
    Ok(VerticalPodAutoscalerCheckpointStatus {
        last_update_time: Some(whole_seconds(now)),
        version: VERSION.to_owned(),
        cpu_histogram: encode(cpu).map_err(|error| error.in_field("cpuHistogram"))?,
        memory_histogram: encode(memory).map_err(|error| error.in_field("memoryHistogram"))?,
        first_sample_start: snapshot.cpu_seen.first.map(whole_seconds),
        last_sample_start: snapshot.cpu_seen.last.map(whole_seconds),
        total_samples_count: i64::try_from(snapshot.cpu_seen.count).unwrap_or(i64::MAX),
    })
}

/// What a status still says of the container.
pub fn snapshot_from_status(
    status: &VerticalPodAutoscalerCheckpointStatus,
) -> Result<Snapshot, FormatError> {
    if status.version != VERSION {
        return Err(FormatError::Version(status.version.clone()));
    }
    let histogram = |checkpoint: &HistogramCheckpoint, field| {
        decode(checkpoint, STANDARD_BUCKETS, STANDARD_EPSILON)
            .and_then(|weights| match weights.reference {
                None if !weights.buckets.is_empty() => Err(FormatError::NoReference),
                _ => Ok(weights),
            })
            .map_err(|error| error.in_field(field))
    };
    let time = |time: &Option<MetaTime>| time.as_ref().map(|time| Time::from(time.0));
    Ok(Snapshot {
        cpu: histogram(&status.cpu_histogram, "cpuHistogram")?,
        memory: histogram(&status.memory_histogram, "memoryHistogram")?,
        cpu_seen: Observed {
            count: u64::try_from(status.total_samples_count)
                .map_err(|_| FormatError::Count(status.total_samples_count))?,
            first: time(&status.first_sample_start),
            last: time(&status.last_sample_start),
        },
        ..Snapshot::default()
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The golden vectors use a small linear histogram: 11 buckets, and everything counts.
    const BUCKETS: usize = 11;
    const EPSILON: f64 = 1e-15;

    fn weights(buckets: &[(u8, f64)]) -> Weights {
        let mut weights = Weights {
            reference: Some(Time::from_secs(1_767_225_600)),
            total: buckets.iter().map(|(_, weight)| weight).sum(),
            buckets: buckets.to_vec(),
            ..Weights::default()
        };
        weights.span = buckets.first().zip(buckets.last()).map(|(first, last)| (first.0, last.0));
        weights
    }

    fn checkpoint(total: f64, buckets: &Value) -> HistogramCheckpoint {
        serde_json::from_value(json!({ "totalWeight": total, "bucketWeights": buckets }))
            .expect("a histogram")
    }

    fn in_json(checkpoint: &HistogramCheckpoint) -> Value {
        json!(checkpoint.bucket_weights)
    }

    /// Golden vectors V63 to V65.
    #[test]
    fn weights_are_written_in_parts_of_the_heaviest() {
        for (buckets, expected, total) in [
            (vec![(3, 1.0)], json!({"3": 10000}), 1.0),
            (vec![(0, 1.0), (1, 100_000.0)], json!({"1": 10000}), 100_001.0),
            (
                vec![(0, 1.0), (1, 10_000.0), (2, 50.0)],
                json!({"0": 1, "1": 10000, "2": 50}),
                10_051.0,
            ),
        ] {
            let written = encode(&weights(&buckets)).expect("encodes");
            assert_eq!(in_json(&written), expected);
            assert!((written.total_weight - total).abs() < 1e-9, "{}", written.total_weight);
        }
    }

    /// Golden vector V66.
    #[test]
    fn the_total_is_spread_over_the_parts() {
        let read =
            decode(&checkpoint(6.0, &json!({"0": 1, "1": 2})), BUCKETS, EPSILON).expect("decodes");
        assert_eq!(read.buckets, [(0, 2.0), (1, 4.0)]);
        assert_eq!((read.total, read.span), (6.0, Some((0, 1))));
    }

    /// Golden vector V67, but for the absent histogram, which the types leave no room for.
    #[test]
    fn what_cannot_be_read_is_refused_with_the_reason() {
        for (total, buckets, why) in [
            (1.0, json!({"-1": 1}), "bucket -1 is outside of 0 to 10"),
            (1.0, json!({"99": 1}), "bucket 99 is outside of 0 to 10"),
            (1.0, json!({"11": 1}), "bucket 11 is outside of 0 to 10"),
            (1.0, json!({"300": 1}), "bucket 300 is outside of 0 to 10"),
            (-1.0, json!({"0": 1}), "its total weight is -1"),
            (1.0, json!({"a": 1}), "bucket \"a\" is not a whole number"),
            (1.0, json!({"1.5": 1}), "bucket \"1.5\" is not a whole number"),
            (
                1.0,
                json!({"1": 0.5}),
                "bucket 1 weighs 0.5, which is not a whole number from 0 to 4294967295",
            ),
            (
                1.0,
                json!({"1": -1}),
                "bucket 1 weighs -1, which is not a whole number from 0 to 4294967295",
            ),
            (
                1.0,
                json!({"1": 5_000_000_000_u64}),
                "bucket 1 weighs 5000000000, which is not a whole number from 0 to 4294967295",
            ),
        ] {
            let error = decode(&checkpoint(total, &buckets), BUCKETS, EPSILON).expect_err(why);
            assert_eq!(error.to_string(), why);
        }
        let mut infinite =
            HistogramCheckpoint { total_weight: f64::INFINITY, ..Default::default() };
        assert_eq!(decode(&infinite, BUCKETS, EPSILON), Err(FormatError::Total(f64::INFINITY)));
        infinite.total_weight = f64::NAN;
        assert!(decode(&infinite, BUCKETS, EPSILON).is_err(), "NaN must not get in");
    }

    /// Golden vector V68: the light bucket comes back below the threshold, and the histogram is not empty for it.
    #[test]
    fn a_bucket_at_the_threshold_does_not_empty_the_histogram() {
        for epsilon in [EPSILON, STANDARD_EPSILON] {
            let saved = encode(&weights(&[(1, epsilon), (2, 9999.0 * epsilon)])).expect("encodes");
            let loaded = decode(&saved, BUCKETS, epsilon).expect("decodes");
            assert_eq!(loaded.span, Some((2, 2)));
            assert_eq!(loaded.buckets.len(), 2, "the light bucket keeps its weight");
        }
    }

    /// Golden vector V69.
    #[test]
    fn only_the_known_version_is_read() {
        for version in ["foo", "", "v2"] {
            let status = VerticalPodAutoscalerCheckpointStatus {
                version: version.into(),
                ..Default::default()
            };
            assert_eq!(snapshot_from_status(&status), Err(FormatError::Version(version.into())));
        }
    }

    #[test]
    fn a_histogram_of_no_weight_still_takes_its_reference() {
        let mut empty = checkpoint(5.0, &json!({"3": 0}));
        empty.reference_timestamp = Some(whole_seconds(Time::from_secs(7)));
        let read = decode(&empty, BUCKETS, EPSILON).expect("decodes");
        assert_eq!((read.total, read.span, read.buckets.len()), (0.0, None, 0));
        assert_eq!(read.reference, Some(Time::from_secs(7)));
    }

    #[test]
    fn weights_without_a_reference_are_refused_by_field() {
        let status = VerticalPodAutoscalerCheckpointStatus {
            version: VERSION.into(),
            memory_histogram: checkpoint(1.0, &json!({"3": 10000})),
            ..Default::default()
        };
        let error = snapshot_from_status(&status).expect_err("no reference").to_string();
        assert_eq!(error, "memoryHistogram: it has weights but no referenceTimestamp");
    }

    #[test]
    fn an_empty_status_prints_zero_times_as_null_and_nothing_else() {
        let text = serde_json::to_string(&VerticalPodAutoscalerCheckpointStatus::default());
        assert_eq!(
            text.expect("serialises"),
            r#"{"lastUpdateTime":null,"cpuHistogram":{"referenceTimestamp":null},"memoryHistogram":{"referenceTimestamp":null},"firstSampleStart":null,"lastSampleStart":null}"#
        );
    }

    #[test]
    fn a_snapshot_survives_as_far_as_the_format_goes() {
        let second = |at: i64| Some(Time::from_secs(at));
        let snapshot = Snapshot {
            cpu: weights(&[(8, 52_988.5)]),
            memory: weights(&[(14, 256.0), (19, 255.0)]),
            memory_closed: Some(weights(&[(14, 256.0)])),
            cpu_seen: Observed {
                count: 11_521,
                first: second(1),
                last: Some(Time::from_nanos(2_999_999_999)),
            },
            ..Snapshot::default()
        };
        let status =
            status_from_snapshot(&snapshot, Time::from_nanos(3_500_000_000)).expect("encodes");
        let expected = json!({
            "lastUpdateTime": "1970-01-01T00:00:03Z",
            "version": "v3",
            "cpuHistogram": {
                "referenceTimestamp": "2026-01-01T00:00:00Z",
                "bucketWeights": {"8": 10000},
                "totalWeight": 52988.5,
            },
            "memoryHistogram": {
                "referenceTimestamp": "2026-01-01T00:00:00Z",
                "bucketWeights": {"14": 10000},
                "totalWeight": 256.0,
            },
            "firstSampleStart": "1970-01-01T00:00:01Z",
            "lastSampleStart": "1970-01-01T00:00:02Z",
            "totalSamplesCount": 11521,
        });
        assert_eq!(serde_json::to_value(&status).expect("serialises"), expected);
        let read = snapshot_from_status(&serde_json::from_value(expected).expect("parses"));
        let read = read.expect("a snapshot");
        assert_eq!((&read.cpu, &read.memory), (&snapshot.cpu, &weights(&[(14, 256.0)])));
        assert_eq!(read.cpu_seen, Observed { last: second(2), ..snapshot.cpu_seen });
    }

    #[test]
    fn fine_buckets_are_refused_instead_of_being_misread() {
        let fine = Weights { scheme: Scheme::Fine, ..weights(&[(1, 1.0)]) };
        assert_eq!(encode(&fine), Err(FormatError::Scheme));
    }

    fn any_weights() -> impl Strategy<Value = Weights> {
        proptest::collection::btree_map(
            0..176_u8,
            (STANDARD_EPSILON.ln()..60.0).prop_map(f64::exp),
            1..40,
        )
        .prop_map(|buckets| weights(&buckets.into_iter().collect::<Vec<_>>()))
    }

    proptest! {
        #[test]
        fn reading_back_loses_less_than_a_part_of_each_bucket(original in any_weights()) {
            let saved = encode(&original).expect("encodes");
            let loaded = decode(&saved, STANDARD_BUCKETS, STANDARD_EPSILON).expect("decodes");
            prop_assert_eq!(loaded.total.to_bits(), original.total.to_bits());
            prop_assert_eq!(loaded.reference, original.reference);
            let heaviest = original.buckets.iter().map(|&(_, weight)| weight).fold(0.0, f64::max);
            // Half a part by rounding its own number, and as much again for each other bucket by the total.
            let most = heaviest / HEAVIEST * (0.5 + 0.5 * original.buckets.len() as f64);
            for &(bucket, weight) in &original.buckets {
                let read = loaded.buckets.iter().find(|&&(known, _)| known == bucket);
                let read = read.map_or(0.0, |&(_, weight)| weight);
                prop_assert!((read - weight).abs() <= most * 1.000_001, "bucket {}: {} became {}", bucket, weight, read);
            }
        }

        #[test]
        fn saving_what_was_loaded_writes_the_same_parts(original in any_weights()) {
            let saved = encode(&original).expect("encodes");
            let loaded = decode(&saved, STANDARD_BUCKETS, STANDARD_EPSILON).expect("decodes");
            let again = encode(&loaded).expect("encodes");
            let (first, last) = loaded.span.expect("something is left");
            let inside = saved.bucket_weights.into_iter().filter(|(bucket, _)| {
                (first..=last).contains(&bucket.parse().expect("a bucket"))
            });
            prop_assert_eq!(again.bucket_weights, inside.collect());
            prop_assert_eq!(again.total_weight.to_bits(), saved.total_weight.to_bits());
        }
    }
}
