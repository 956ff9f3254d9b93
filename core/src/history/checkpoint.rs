//! Converts snapshots to checkpoints and back, and defines what is lost on the way.
//!
//! A checkpoint has the exact total of each histogram, and bucket weights as ten-thousandths of the largest one.
//! Times are whole seconds. Pods, open windows and bumps are not part of the format.

mod histogram;

use crate::{
    api::checkpoint::{HistogramCheckpoint, VerticalPodAutoscalerCheckpointStatus},
    history::{SampleStats, Snapshot},
    types::Time,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time as MetaTime;

pub use self::histogram::{STANDARD_BUCKETS, STANDARD_EPSILON, checkpoint_weights, decode, encode};

/// The only supported version of the format.
pub const VERSION: &str = "v3";

/// Why a checkpoint cannot be decoded or a histogram cannot be encoded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FormatError {
    #[error(
        "unsupported checkpoint version {0:?} (want \"v3\"): the checkpoint is left as it is, and history starts empty"
    )]
    Version(String),
    /// The name of a bucket is not an integer.
    #[error("bucket {0:?} is not a whole number")]
    BucketName(String),
    /// The bucket is out of range.
    #[error("bucket {bucket} is out of range: {last} is the last one")]
    NoSuchBucket { bucket: i64, last: usize },
    /// The weight of a bucket is not a valid integer.
    #[error("weight {weight} of bucket {bucket} is not a whole number from 0 to 4294967295")]
    BucketWeight { bucket: i64, weight: String },
    /// The total weight is negative or not finite.
    #[error("invalid total weight {0}")]
    Total(f64),
    /// There are decaying weights, but no reference time.
    #[error("it has weights but no referenceTimestamp")]
    NoReference,
    /// The sample count is negative.
    #[error("totalSamplesCount is {0}")]
    Count(i64),
    /// The format only has standard buckets.
    #[error("the checkpoint format has no fine buckets")]
    Scheme,
    #[error("{field}: {error}")]
    Histogram { field: &'static str, error: Box<FormatError> },
}

impl FormatError {
    fn in_field(self, field: &'static str) -> Self {
        Self::Histogram { field, error: Box::new(self) }
    }
}

/// Encodes a snapshot, as far as the format can represent it.
pub fn status_from_snapshot(
    snapshot: &Snapshot,
    now: Time,
) -> Result<VerticalPodAutoscalerCheckpointStatus, FormatError> {
    let cpu = snapshot.cpu_standard.as_ref().unwrap_or(&snapshot.cpu);
    // After a restart, readers would count the peak of an open window again.
    let memory = snapshot.memory_closed.as_ref().unwrap_or(&snapshot.memory);
    Ok(VerticalPodAutoscalerCheckpointStatus {
        last_update_time: Some(truncate_to_seconds(now)),
        version: VERSION.to_owned(),
        cpu_histogram: encode(cpu).map_err(|error| error.in_field("cpuHistogram"))?,
        memory_histogram: encode(memory).map_err(|error| error.in_field("memoryHistogram"))?,
        first_sample_start: snapshot.cpu_seen.first.map(truncate_to_seconds),
        last_sample_start: snapshot.cpu_seen.last.map(truncate_to_seconds),
        total_samples_count: i64::try_from(snapshot.cpu_seen.count).unwrap_or(i64::MAX),
    })
}

/// Decodes a checkpoint status into a snapshot.
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
        cpu_seen: SampleStats {
            count: u64::try_from(status.total_samples_count)
                .map_err(|_| FormatError::Count(status.total_samples_count))?,
            first: time(&status.first_sample_start),
            last: time(&status.last_sample_start),
        },
        ..Snapshot::default()
    })
}

fn truncate_to_seconds(time: Time) -> MetaTime {
    MetaTime(Time::from_secs(time.as_secs()).into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{histogram::tests::weights, *};

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
    fn weights_without_a_reference_time_are_rejected_by_field() {
        let status = serde_json::from_value(json!({
            "version": VERSION,
            "memoryHistogram": {"totalWeight": 1.0, "bucketWeights": {"3": 10000}},
        }));
        let status = status.expect("a status");
        let error = snapshot_from_status(&status).expect_err("no reference").to_string();
        assert_eq!(error, "memoryHistogram: it has weights but no referenceTimestamp");
    }

    #[test]
    fn an_empty_status_has_only_zero_times_as_null() {
        let text = serde_json::to_string(&VerticalPodAutoscalerCheckpointStatus::default());
        assert_eq!(
            text.expect("serialises"),
            r#"{"lastUpdateTime":null,"cpuHistogram":{"referenceTimestamp":null},"memoryHistogram":{"referenceTimestamp":null},"firstSampleStart":null,"lastSampleStart":null}"#
        );
    }

    #[test]
    fn a_snapshot_survives_as_far_as_the_format_allows() {
        let second = |at: i64| Some(Time::from_secs(at));
        let snapshot = Snapshot {
            cpu: weights(&[(8, 52_988.5)]),
            memory: weights(&[(14, 256.0), (19, 255.0)]),
            memory_closed: Some(weights(&[(14, 256.0)])),
            cpu_seen: SampleStats {
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
        assert_eq!(read.cpu_seen, SampleStats { last: second(2), ..snapshot.cpu_seen });
    }
}
