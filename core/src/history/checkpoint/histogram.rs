//! Encodes and decodes one histogram of a checkpoint: the exact total, and bucket weights as ten-thousandths of
//! the largest one.

use serde_json::Value;

use super::{FormatError, truncate_to_seconds};
use crate::{
    api::checkpoint::HistogramCheckpoint,
    history::{BucketScheme, HistogramWeights},
    types::Time,
};

/// The encoded weight of the heaviest bucket.
const MAX_CHECKPOINT_WEIGHT: f64 = 10_000.0;

/// Number of buckets of both histograms with [`BucketScheme::Standard`].
pub const STANDARD_BUCKETS: usize = 176;

/// A bucket lighter than this counts as empty.
pub const STANDARD_EPSILON: f64 = 0.001 * 0.1;

/// Encodes weights relative to the heaviest. Weights below half a unit are lost, and so are buckets outside of
/// the filled span; the total still includes them.
pub fn encode(weights: &HistogramWeights) -> Result<HistogramCheckpoint, FormatError> {
    if weights.scheme != BucketScheme::Standard {
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
    let ratio = MAX_CHECKPOINT_WEIGHT / heaviest;
    let parts = filled().map(|&(bucket, weight)| (bucket, (weight * ratio + 0.5).floor() as u32));
    Ok(HistogramCheckpoint {
        reference_timestamp: weights.reference.map(truncate_to_seconds),
        bucket_weights: parts
            .filter(|&(_, parts)| parts > 0)
            .map(|(bucket, parts)| (bucket.to_string(), parts.into()))
            .collect(),
        total_weight: weights.total,
    })
}

/// Distributes the total over the encoded weights. A bucket counts as filled from `epsilon` on.
pub fn decode(
    checkpoint: &HistogramCheckpoint,
    buckets: usize,
    epsilon: f64,
) -> Result<HistogramWeights, FormatError> {
    let total = checkpoint.total_weight;
    if !total.is_finite() || total < 0.0 {
        return Err(FormatError::Total(total));
    }
    let parts = checkpoint_weights(checkpoint, buckets)?;
    let mut weights = HistogramWeights {
        reference: checkpoint.reference_timestamp.as_ref().map(|time| Time::from(time.0)),
        ..HistogramWeights::default()
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
    // Rounding can push a bucket just below the threshold, so compute the span again.
    let mut filled = weights.buckets.iter().filter(|&&(_, weight)| weight >= epsilon);
    weights.span = filled
        .next()
        .map(|&(first, _)| (first, filled.next_back().map_or(first, |&(last, _)| last)));
    Ok(weights)
}

/// The encoded weights by bucket, in ascending order.
pub fn checkpoint_weights(
    checkpoint: &HistogramCheckpoint,
    buckets: usize,
) -> Result<Vec<(u8, u64)>, FormatError> {
    let mut parts = checkpoint
        .bucket_weights
        .iter()
        .map(|(name, weight)| checkpoint_weight(name, weight, buckets))
        .collect::<Result<Vec<_>, _>>()?;
    parts.sort_unstable();
    // Merge different spellings of one bucket ("7" and "07").
    parts.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 += later.1;
        }
        same
    });
    Ok(parts)
}

fn checkpoint_weight(name: &str, weight: &Value, buckets: usize) -> Result<(u8, u64), FormatError> {
    let bucket: i64 = name.parse().map_err(|_| FormatError::BucketName(name.to_owned()))?;
    let known = u8::try_from(bucket).ok().filter(|&bucket| usize::from(bucket) < buckets);
    let number =
        known.ok_or(FormatError::NoSuchBucket { bucket, last: buckets.saturating_sub(1) })?;
    let parts = weight.as_u64().filter(|&parts| u32::try_from(parts).is_ok());
    let parts =
        parts.ok_or_else(|| FormatError::BucketWeight { bucket, weight: weight.to_string() })?;
    Ok((number, parts))
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The golden vectors use a small linear histogram: 11 buckets, and practically no threshold.
    const BUCKETS: usize = 11;
    const EPSILON: f64 = 1e-15;

    pub fn weights(buckets: &[(u8, f64)]) -> HistogramWeights {
        let mut weights = HistogramWeights {
            reference: Some(Time::from_secs(1_767_225_600)),
            total: buckets.iter().map(|(_, weight)| weight).sum(),
            buckets: buckets.to_vec(),
            ..HistogramWeights::default()
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
    fn weights_are_written_as_fractions_of_the_heaviest() {
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
    fn the_total_weight_is_distributed_over_the_buckets() {
        let read =
            decode(&checkpoint(6.0, &json!({"0": 1, "1": 2})), BUCKETS, EPSILON).expect("decodes");
        assert_eq!(read.buckets, [(0, 2.0), (1, 4.0)]);
        assert_eq!((read.total, read.span), (6.0, Some((0, 1))));
    }

    /// Golden vector V67, except for the missing histogram, which the types cannot express.
    #[test]
    fn an_invalid_histogram_is_rejected_with_the_reason() {
        for (total, buckets, message) in [
            (1.0, json!({"-1": 1}), "bucket -1 is out of range: 10 is the last one"),
            (1.0, json!({"99": 1}), "bucket 99 is out of range: 10 is the last one"),
            (1.0, json!({"11": 1}), "bucket 11 is out of range: 10 is the last one"),
            (1.0, json!({"300": 1}), "bucket 300 is out of range: 10 is the last one"),
            (-1.0, json!({"0": 1}), "invalid total weight -1"),
            (1.0, json!({"a": 1}), "bucket \"a\" is not a whole number"),
            (1.0, json!({"1.5": 1}), "bucket \"1.5\" is not a whole number"),
            (
                1.0,
                json!({"1": 0.5}),
                "weight 0.5 of bucket 1 is not a whole number from 0 to 4294967295",
            ),
            (
                1.0,
                json!({"1": -1}),
                "weight -1 of bucket 1 is not a whole number from 0 to 4294967295",
            ),
            (
                1.0,
                json!({"1": 5_000_000_000_u64}),
                "weight 5000000000 of bucket 1 is not a whole number from 0 to 4294967295",
            ),
        ] {
            let error = decode(&checkpoint(total, &buckets), BUCKETS, EPSILON).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
        let mut infinite =
            HistogramCheckpoint { total_weight: f64::INFINITY, ..Default::default() };
        assert_eq!(decode(&infinite, BUCKETS, EPSILON), Err(FormatError::Total(f64::INFINITY)));
        infinite.total_weight = f64::NAN;
        assert!(decode(&infinite, BUCKETS, EPSILON).is_err(), "NaN must not get in");
    }

    /// Golden vector V68: the light bucket decodes to below the threshold, but the histogram is not empty.
    #[test]
    fn a_bucket_at_the_threshold_does_not_empty_the_histogram() {
        for epsilon in [EPSILON, STANDARD_EPSILON] {
            let saved = encode(&weights(&[(1, epsilon), (2, 9999.0 * epsilon)])).expect("encodes");
            let loaded = decode(&saved, BUCKETS, epsilon).expect("decodes");
            assert_eq!(loaded.span, Some((2, 2)));
            assert_eq!(loaded.buckets.len(), 2, "the light bucket keeps its weight");
        }
    }

    #[test]
    fn a_histogram_without_weight_keeps_its_reference_time() {
        let mut empty = checkpoint(5.0, &json!({"3": 0}));
        empty.reference_timestamp = Some(truncate_to_seconds(Time::from_secs(7)));
        let read = decode(&empty, BUCKETS, EPSILON).expect("decodes");
        assert_eq!((read.total, read.span, read.buckets.len()), (0.0, None, 0));
        assert_eq!(read.reference, Some(Time::from_secs(7)));
    }

    #[test]
    fn fine_buckets_are_rejected_instead_of_misread() {
        let fine = HistogramWeights { scheme: BucketScheme::Fine, ..weights(&[(1, 1.0)]) };
        assert_eq!(encode(&fine), Err(FormatError::Scheme));
    }

    fn any_weights() -> impl Strategy<Value = HistogramWeights> {
        proptest::collection::btree_map(
            0..176_u8,
            (STANDARD_EPSILON.ln()..60.0).prop_map(f64::exp),
            1..40,
        )
        .prop_map(|buckets| weights(&buckets.into_iter().collect::<Vec<_>>()))
    }

    proptest! {
        #[test]
        fn a_saved_histogram_loses_less_than_one_unit_per_bucket(original in any_weights()) {
            let saved = encode(&original).expect("encodes");
            let loaded = decode(&saved, STANDARD_BUCKETS, STANDARD_EPSILON).expect("decodes");
            prop_assert_eq!(loaded.total.to_bits(), original.total.to_bits());
            prop_assert_eq!(loaded.reference, original.reference);
            let heaviest = original.buckets.iter().map(|&(_, weight)| weight).fold(0.0, f64::max);
            // Half a unit by rounding its own weight, and as much again per other bucket through the total.
            let most = heaviest / MAX_CHECKPOINT_WEIGHT * (0.5 + 0.5 * original.buckets.len() as f64);
            for &(bucket, weight) in &original.buckets {
                let read = loaded.buckets.iter().find(|&&(known, _)| known == bucket);
                let read = read.map_or(0.0, |&(_, weight)| weight);
                prop_assert!((read - weight).abs() <= most * 1.000_001, "bucket {}: {} became {}", bucket, weight, read);
            }
        }

        #[test]
        fn saving_a_loaded_histogram_writes_the_same_weights(original in any_weights()) {
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
