//! Golden vectors V70 to V72: the checkpoint of a long history.

use plimsoll_core::history::BucketScheme;
use plimsoll_core::history::checkpoint;
use plimsoll_core::recommender::{
    buckets::Buckets,
    histogram::{Histogram, HistogramConfig},
};

use super::{
    BOTH_MODES, HOUR, MINUTE, START, assert_close, at, encoded, encoded_memory, encoded_weights,
    estimates::{spiky, steady},
    minute,
};

#[test]
fn v70_v71_a_checkpoint_of_eight_days() {
    for compat in BOTH_MODES {
        let subject = steady(compat, 11_521);
        let history = subject.history.get("app").expect("known");
        let snapshot = history.to_snapshot(minute(11_520), &subject.rules());
        assert_eq!(encoded_weights(&snapshot.cpu), [(8, 10_000)]);
        assert_close(snapshot.cpu.total, 52_988.612_924_315_93);
        assert_eq!(snapshot.cpu.reference, Some(START));
        let (memory, total, reference) = encoded_memory(&subject, minute(11_520));
        assert_eq!(memory, [(14, 10_000)]);
        assert_close(total, 511.0);
        assert_eq!(reference, Some(at("2026-01-02T00:00:00Z")));

        let subject = spiky(compat);
        let history = subject.history.get("app").expect("known");
        let snapshot = history.to_snapshot(minute(11_520), &subject.rules());
        assert_eq!(encoded_weights(&snapshot.cpu), [(8, 10_000), (36, 1108)]);
        assert_close(snapshot.cpu.total, 52_963.012_924_315_93);
        let (memory, total, _) = encoded_memory(&subject, minute(11_520));
        let expected = [
            (14, 78),
            (17, 156),
            (19, 313),
            (21, 625),
            (23, 1250),
            (24, 2500),
            (26, 5000),
            (27, 10_000),
        ];
        assert_eq!(memory, expected);
        assert_close(total, 255.0);
    }
}

#[test]
fn v72_a_decayed_sample_is_lost_and_a_loaded_checkpoint_is_saved_unchanged() {
    let buckets = Buckets::cpu(BucketScheme::Standard);
    let axis = HistogramConfig { buckets, half_life: Some(HOUR * 24) };
    let mut histogram = Histogram::new(buckets);
    for index in 0..10_000 {
        histogram.add(axis, 0.1, 0.1, START.later(MINUTE * index));
    }
    histogram.add(axis, 1.0, 0.1, START);
    histogram.add(axis, 2.0, 0.1, minute(10_000));
    assert_eq!(encoded(&histogram), [(8, 10_000), (49, 5)]);
    assert_close(histogram.total, 25_385.781_156_456_942);

    let saved =
        checkpoint::encode(&histogram.to_weights(BucketScheme::Standard)).expect("standard");
    let weights =
        checkpoint::decode(&saved, buckets.count(), buckets.epsilon).expect("can be read");
    let loaded = Histogram::from_weights(buckets, &weights).expect("valid");
    let again = checkpoint::encode(&loaded.to_weights(BucketScheme::Standard)).expect("standard");
    assert_eq!(again, saved);
}
