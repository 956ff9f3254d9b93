//! The contents of a checkpoint: upstream's format, plus the annotation, which is valid only for its own status.

use plimsoll_core::{
    history::{
        ReplicaState, SampleStats, Snapshot,
        checkpoint::{decode, encode},
    },
    types::Time,
};
use plimsoll_storage::checkpoint::annotation;
use serde_json::{Value, json};

use super::checkpoint_objects::{CheckpointFixture, annotation_of, save};

/// A checkpoint as written by upstream 1.8.1.
fn of_upstream(vpa: &str, container: &str, count: i64) -> Value {
    json!({
        "metadata": {"name": format!("{vpa}-{container}")},
        "spec": {"vpaObjectName": vpa, "containerName": container},
        "status": {
            "lastUpdateTime": "2026-09-21T10:00:00Z",
            "version": "v3",
            "cpuHistogram": {
                "referenceTimestamp": "2026-09-20T00:00:00Z",
                "bucketWeights": {"8": 10000, "49": 5},
                "totalWeight": 25_385.781_156_456_942,
            },
            "memoryHistogram": {"referenceTimestamp": "2026-09-21T00:00:00Z"},
            "firstSampleStart": "2026-09-13T10:00:00Z",
            "lastSampleStart": "2026-09-21T09:59:30Z",
            "totalSamplesCount": count,
        },
    })
}

#[tokio::test]
async fn checkpoints_of_upstream_are_readable_and_written_in_upstreams_format() {
    let Some(fixture) = CheckpointFixture::new("upstream").await else { return };
    fixture.create(of_upstream("web", "app", 4)).await;
    let storage = fixture.open();
    let loaded =
        super::checkpoint_objects::load(&storage, &plimsoll_storage::LoadRequest::All).await;
    assert_eq!(loaded.report.skipped, []);
    let snapshot = &loaded.snapshots[&fixture.key("web", "app")];
    let time =
        |text: &str| Some(Time::from(text.parse::<jiff::Timestamp>().expect("valid timestamp")));
    assert_eq!(
        snapshot.cpu_seen,
        SampleStats {
            count: 4,
            first: time("2026-09-13T10:00:00Z"),
            last: time("2026-09-21T09:59:30Z"),
        }
    );
    assert_eq!(snapshot.cpu.total, 25_385.781_156_456_942);
    assert_eq!(snapshot.cpu.span, Some((8, 49)));
    assert!(snapshot.memory.buckets.is_empty());

    let record = fixture.record("web", "app", 5);
    assert_eq!(save(&storage, std::slice::from_ref(&record)).await.written, 1);
    assert_eq!(fixture.names().await, ["web-app"]);
    let object = fixture.object("web-app").await;
    let status = serde_json::to_value(object.status.clone()).expect("JSON");
    let fields: Vec<&String> = status.as_object().expect("an object").keys().collect();
    assert_eq!(
        fields,
        [
            "cpuHistogram",
            "firstSampleStart",
            "lastSampleStart",
            "lastUpdateTime",
            "memoryHistogram",
            "totalSamplesCount",
            "version"
        ]
    );
    assert_eq!((&status["version"], &status["totalSamplesCount"]), (&json!("v3"), &json!(5)));
    let buckets = status["cpuHistogram"]["bucketWeights"].as_object().expect("buckets");
    assert!(!buckets.contains_key("8") && buckets["21"] == json!(10_000), "{buckets:?}");
    assert!(buckets.values().all(|weight| weight.as_u64().is_some()));
    assert_eq!(fixture.load().await.snapshots[&record.key], record.snapshot);
}

#[tokio::test]
async fn a_stale_or_unreadable_annotation_is_reported_and_the_status_counts() {
    let Some(fixture) = CheckpointFixture::new("stale").await else { return };
    let record = fixture.record("web", "app", 5);
    let storage = fixture.open();
    save(&storage, std::slice::from_ref(&record)).await;
    let valid = annotation_of(&fixture.object("web-app").await).expect("exists").to_owned();
    let status = &of_upstream("web", "app", 40)["status"];
    let newer = valid.replacen("\"v\":1", "\"v\":2", 1);
    for (text, why) in [
        ("{broken", "malformed"),
        ("{\"v\":1,\"of\":\"x\"}", "malformed"),
        (&newer, "unsupported version 2"),
        (&valid, "replaced since"),
    ] {
        fixture.annotate("web-app", text).await;
        if why.contains("replaced") {
            // A merge patch, so the previous buckets stay; it is still another status.
            fixture.change("web-app", json!({"status": status})).await;
        }
        let loaded = fixture.load().await;
        let [skipped] = &loaded.report.skipped[..] else { panic!("{:?}", loaded.report) };
        assert!(skipped.reason.contains(why), "{skipped:?}");
        assert!(skipped.record.contains(annotation::KEY), "{skipped:?}");
        let snapshot = &loaded.snapshots[&record.key];
        assert_eq!((snapshot.memory_seen.count, &snapshot.owner), (0, &None), "{why}");
    }
    // The next write is complete again.
    let next = fixture.record("web", "app", 50);
    assert_eq!(save(&storage, std::slice::from_ref(&next)).await.written, 1);
    let loaded = fixture.load().await;
    assert_eq!((loaded.report.skipped, &loaded.snapshots[&next.key]), (vec![], &next.snapshot));
}

#[tokio::test]
async fn without_annotations_an_existing_one_stays_and_is_ignored() {
    let Some(fixture) = CheckpointFixture::new("plain").await else { return };
    let batch = [fixture.record("web", "app", 5)];
    save(&fixture.open(), &batch).await;
    let before = fixture.object("web-app").await;
    let upstream = fixture.open_with(|options| options.write_annotations = false);
    super::checkpoint_objects::load(&upstream, &plimsoll_storage::LoadRequest::All).await;
    assert_eq!(save(&upstream, &batch).await.unchanged, 1, "the status is the same");
    assert_eq!(save(&upstream, &[fixture.record("web", "app", 6)]).await.written, 1);
    let after = fixture.object("web-app").await;
    assert_eq!(annotation_of(&after), annotation_of(&before));
    let loaded = fixture.load().await;
    assert_eq!(loaded.report.skipped.len(), 1, "{:?}", loaded.report);
    assert_eq!(loaded.snapshots[&batch[0].key].cpu_seen.count, 6);

    save(&upstream, &[fixture.record("db", "app", 6)]).await;
    assert_eq!(annotation_of(&fixture.object("db-app").await), None);
}

fn pod(number: i64) -> ReplicaState {
    let at = Some(Time::from_secs(1_790_000_000));
    ReplicaState {
        name: format!("web-6d4b9c7f5d-{number:05}").into(),
        last_cpu: at,
        last_memory: at,
        window_end: Some(Time::from_secs(1_790_086_400)),
        usage_peak: Some(1 << 20 | (number * 7919 % 1000)),
        bump_peak: None,
        last_kill: None,
    }
}

#[tokio::test]
async fn with_many_pods_only_the_largest_open_peaks_are_stored() {
    let Some(fixture) = CheckpointFixture::new("large").await else { return };
    let mut record = fixture.record("web", "app", 5);
    record.snapshot.replicas = (0..600).map(pod).collect();
    record.snapshot.memory_closed = Some(record.snapshot.cpu.clone());
    let storage = fixture.open();
    assert_eq!(save(&storage, std::slice::from_ref(&record)).await.written, 1);
    assert_eq!(save(&storage, std::slice::from_ref(&record)).await.unchanged, 1);
    let object = fixture.object("web-app").await;
    let text = annotation_of(&object).expect("exists");
    assert!(text.len() <= annotation::MAX_BYTES, "{} bytes", text.len());
    assert!(!text.contains("memoryClosed\":{"), "the status has it already");

    let stored = &fixture.load().await.snapshots[&record.key];
    assert!(stored.replicas.len() > 100, "{} pods are stored", stored.replicas.len());
    let smallest = stored.replicas.iter().filter_map(|pod| pod.usage_peak).min();
    let left_out = record.snapshot.replicas.iter().filter(|pod| !stored.replicas.contains(pod));
    assert!(left_out.filter_map(|pod| pod.usage_peak).max() <= smallest);
    let as_kept = encode(&record.snapshot.cpu).and_then(|saved| decode(&saved, 176, 0.0001));
    let expected = Snapshot {
        replicas: stored.replicas.clone(),
        memory_closed: Some(as_kept.expect("stored")),
        ..record.snapshot
    };
    assert_eq!(*stored, expected);
}

/// A service of three pods after some days.
#[tokio::test]
async fn a_typical_annotation_has_less_than_4_kilobytes() {
    let Some(fixture) = CheckpointFixture::new("typical").await else { return };
    let mut record = fixture.record("web", "app", 20_000);
    let weights = |first: u8, count: u8| plimsoll_core::history::HistogramWeights {
        reference: Some(Time::from_secs(1_790_000_000)),
        total: 25_385.781_156_456_942,
        buckets: (first..first + count).map(|b| (b, 1_234.567_891_234 / f64::from(b))).collect(),
        span: Some((first, first + count - 1)),
        ..Default::default()
    };
    record.snapshot = Snapshot {
        owner: Some("apps/Deployment/web".into()),
        cpu: weights(3, 30),
        memory: weights(20, 8),
        memory_closed: Some(weights(20, 8)),
        replicas: (0..3).map(pod).collect(),
        ..record.snapshot
    };
    save(&fixture.open(), &[record]).await;
    let object = fixture.object("web-app").await;
    let bytes = annotation_of(&object).expect("exists").len();
    assert!((1_000..4_000).contains(&bytes), "{bytes} bytes");
}
