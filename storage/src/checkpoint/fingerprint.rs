//! A fingerprint of a status that does not depend on how an API server formats its JSON.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;
use twox_hash::XxHash3_64;

use plimsoll_core::{
    api::checkpoint::{HistogramCheckpoint, VerticalPodAutoscalerCheckpointStatus},
    history::checkpoint::{FormatError, STANDARD_BUCKETS, checkpoint_weights},
};

/// A hash of the parsed fields except the update time. Annotations refer to their status by it, so it is part of their
/// format: numbers by value, times in whole seconds, buckets in order, without absent fields and empty buckets.
pub fn fingerprint(status: &VerticalPodAutoscalerCheckpointStatus) -> Result<u64, FormatError> {
    let mut bytes = Vec::with_capacity(512);
    put(&mut bytes, status.version.len() as u64);
    bytes.extend_from_slice(status.version.as_bytes());
    histogram(&mut bytes, &status.cpu_histogram)?;
    histogram(&mut bytes, &status.memory_histogram)?;
    time(&mut bytes, status.first_sample_start.as_ref());
    time(&mut bytes, status.last_sample_start.as_ref());
    put(&mut bytes, status.total_samples_count as u64);
    Ok(XxHash3_64::oneshot(&bytes))
}

fn histogram(bytes: &mut Vec<u8>, histogram: &HistogramCheckpoint) -> Result<(), FormatError> {
    time(bytes, histogram.reference_timestamp.as_ref());
    // Adding zero turns negative zero into positive zero.
    put(bytes, (histogram.total_weight + 0.0).to_bits());
    let mut parts = checkpoint_weights(histogram, STANDARD_BUCKETS)?;
    parts.retain(|&(_, parts)| parts > 0);
    put(bytes, parts.len() as u64);
    for (bucket, parts) in parts {
        put(bytes, u64::from(bucket));
        put(bytes, parts);
    }
    Ok(())
}

fn time(bytes: &mut Vec<u8>, time: Option<&MetaTime>) {
    put(bytes, u64::from(time.is_some()));
    put(bytes, time.map_or(0, |time| plimsoll_core::types::Time::from(time.0).as_secs()) as u64);
}

fn put(bytes: &mut Vec<u8>, value: u64) {
    bytes.extend_from_slice(&value.to_le_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn status() -> Value {
        json!({
            "lastUpdateTime": "2026-01-01T00:00:00Z",
            "version": "v3",
            "cpuHistogram": {"referenceTimestamp": "2026-01-01T00:00:00Z", "bucketWeights": {"8": 10000, "12": 3}, "totalWeight": 256.0},
            "memoryHistogram": {"referenceTimestamp": null},
            "firstSampleStart": "2025-12-24T00:00:00Z",
            "lastSampleStart": "2026-01-01T00:00:00Z",
            "totalSamplesCount": 11_521,
        })
    }

    fn of(status: Value) -> u64 {
        fingerprint(&serde_json::from_value(status).expect("a status")).expect("a valid status")
    }

    fn with(pointer: &str, value: Value) -> Value {
        let mut status = status();
        *status.pointer_mut(pointer).expect(pointer) = value;
        status
    }

    #[test]
    fn changes_that_an_api_server_may_make_keep_the_fingerprint() {
        for (place, value) in [
            ("/lastUpdateTime", json!("2026-01-02T00:00:00Z")),
            ("/lastUpdateTime", json!(null)),
            ("/cpuHistogram/totalWeight", json!(256)),
            ("/cpuHistogram/bucketWeights", json!({"12": 3, "8": 10000, "9": 0})),
            ("/memoryHistogram", json!({})),
            ("/memoryHistogram", json!({"bucketWeights": {}, "totalWeight": 0})),
            ("/firstSampleStart", json!("2025-12-24T00:00:00.5Z")),
            ("/firstSampleStart", json!("2025-12-24T01:00:00+01:00")),
        ] {
            assert_eq!(of(with(place, value.clone())), of(status()), "{place} {value}");
        }
    }

    #[test]
    fn any_other_content_has_another_fingerprint() {
        for (place, value) in [
            ("/cpuHistogram/totalWeight", json!(256.000_000_1)),
            ("/cpuHistogram/bucketWeights/12", json!(4)),
            ("/cpuHistogram/bucketWeights", json!({"8": 10000, "13": 3})),
            ("/cpuHistogram/referenceTimestamp", json!("2026-01-01T00:00:01Z")),
            ("/memoryHistogram/referenceTimestamp", json!("1970-01-01T00:00:00Z")),
            ("/firstSampleStart", json!(null)),
            ("/lastSampleStart", json!("2026-01-01T00:01:00Z")),
            ("/totalSamplesCount", json!(11_522)),
        ] {
            assert_ne!(of(with(place, value.clone())), of(status()), "{place} {value}");
        }
    }

    #[test]
    fn the_fingerprint_format_is_stable() {
        assert_eq!(format!("{:016x}", of(status())), "b8f6936f33c8ebe5");
    }
}
