//! Properties of every history: samples commute, merging is a union, results are never NaN, a snapshot is lossless,
//! and a checkpoint loses only what its format specifies.

use plimsoll_core::history::checkpoint;
use plimsoll_core::{
    history::{BucketScheme, HistogramWeights, Snapshot},
    types::Time,
};
use plimsoll_core::{
    recommender::{
        ContainerHistory, History, ModelRules, OomKill, Settings,
        buckets::Buckets,
        histogram::{Histogram, HistogramConfig},
        recommend,
    },
    types::{
        compat::{Compat, Fix, Fixes},
        units::{Bytes, MAX_AMOUNT, MilliCpu},
    },
};
use proptest::prelude::*;
use strum::VariantArray as _;

use super::{HOUR, START, minute};
use crate::support::tier;

/// Samples of a day: value in cores, weight, minute.
fn samples() -> impl Strategy<Value = Vec<(f64, f64, u32)>> {
    prop::collection::vec((0.0..1200.0_f64, 0.01..2.0_f64, 0..30_000_u32), 1..60)
}

fn axis() -> HistogramConfig<'static> {
    HistogramConfig { buckets: Buckets::cpu(BucketScheme::Standard), half_life: Some(HOUR * 24) }
}

fn filled(samples: &[(f64, f64, u32)]) -> Histogram {
    let mut histogram = Histogram::new(axis().buckets);
    for (value, weight, minutes) in samples {
        histogram.add(axis(), *value, *weight, minute(*minutes));
    }
    histogram
}

/// Equal up to rounding, with the same reference time.
fn assert_alike(one: &Histogram, other: &Histogram) {
    alike_within(one, other, 1e-12);
}

/// Equal up to rounding and this share of the total.
fn alike_within(one: &Histogram, other: &Histogram, slack: f64) {
    let (mut one, mut other) = (one.clone(), other.clone());
    let empty_at = |target: &Histogram| {
        let mut empty = Histogram::new(axis().buckets);
        empty.merge(axis(), target);
        empty
    };
    // Move both to the later reference time by merging each with an emptied copy of the other.
    let (mut marker, mut marker_other) = (empty_at(&other), empty_at(&one));
    marker.scale(axis().buckets, 0.0);
    marker_other.scale(axis().buckets, 0.0);
    one.merge(axis(), &marker);
    other.merge(axis(), &marker_other);
    let (one, other) =
        (one.to_weights(BucketScheme::Standard), other.to_weights(BucketScheme::Standard));
    assert_eq!(one.reference, other.reference);
    let near = |one: f64, other: f64, slack: f64| (one - other).abs() <= 1e-9 * one.abs() + slack;
    assert!(near(one.total, other.total, slack), "{} {}", one.total, other.total);
    // A bucket below epsilon counts as empty; such a remainder may be left by a merge, or stay unscaled when the
    // others are scaled. This is the only tolerance.
    let of = |weights: &HistogramWeights, bucket| {
        weights
            .buckets
            .iter()
            .find(|(other, _)| *other == bucket)
            .map_or(0.0, |(_, weight)| *weight)
    };
    for bucket in 0..=axis().buckets.last() {
        let (one, other) = (of(&one, bucket), of(&other, bucket));
        assert!(near(one, other, axis().buckets.epsilon), "bucket {bucket}: {one} {other}");
    }
}

#[derive(Clone, Debug)]
enum HistoryEvent {
    Cpu(u8, u32, i64),
    Memory(u8, u32, i64),
    Oom(u8, u32, i64, Option<i64>),
    Gone(u8),
}

fn event() -> impl Strategy<Value = HistoryEvent> {
    let (replica, time) = (0..4_u8, 0..20_000_u32);
    let bytes = prop_oneof![0..3_000_000_000_i64, Just(0), Just(MAX_AMOUNT), Just(-5)];
    prop_oneof![
        (replica.clone(), time.clone(), prop_oneof![0..5_000_i64, Just(-1), Just(MAX_AMOUNT)])
            .prop_map(|(replica, time, millis)| HistoryEvent::Cpu(replica, time, millis)),
        (replica.clone(), time.clone(), bytes.clone())
            .prop_map(|(replica, time, bytes)| HistoryEvent::Memory(replica, time, bytes)),
        (replica.clone(), time, bytes.clone(), prop::option::of(bytes)).prop_map(
            |(replica, time, request, limit)| HistoryEvent::Oom(replica, time, request, limit)
        ),
        replica.prop_map(HistoryEvent::Gone),
    ]
}

pub fn fixes() -> impl Strategy<Value = Fixes> {
    any::<u64>().prop_map(|bits| {
        let on = |index: usize| bits & (1 << index) != 0;
        Fix::VARIANTS
            .iter()
            .enumerate()
            .filter(|(index, _)| on(*index))
            .fold(Fixes::NONE, |fixes, (_, fix)| fixes.with(*fix))
    })
}

fn apply_events(container: &mut ContainerHistory, events: &[HistoryEvent], rules: &ModelRules) {
    for event in events {
        let name = |replica: u8| format!("pod-{replica}");
        // Every rejection has a reason, and the state stays usable.
        match *event {
            HistoryEvent::Cpu(replica, time, millis) => {
                let _ = container.add_cpu(&name(replica), minute(time), MilliCpu(millis), rules);
            }
            HistoryEvent::Memory(replica, time, bytes) => {
                let _ = container.add_memory(&name(replica), minute(time), Bytes(bytes), rules);
            }
            HistoryEvent::Oom(replica, time, request, limit) => {
                let kill =
                    OomKill { request: Bytes(request), limit: limit.map(Bytes), usage: None };
                let _ = container.record_oom(&name(replica), minute(time), kill, rules);
            }
            HistoryEvent::Gone(replica) => {
                container.retain_replicas(|known| known != name(replica));
            }
        }
    }
}

pub fn history(events: &[EventBox], settings: &Settings) -> History {
    let rules = settings.rules(None, &plimsoll_core::recommender::tuning_annotations::Tuning::NONE);
    let mut history = History::default();
    let events: Vec<HistoryEvent> = events.iter().map(|event| event.0.clone()).collect();
    apply_events(history.container_mut("app", START, &rules), &events, &rules);
    history
}

/// An event whose kind is private to this module.
#[derive(Clone, Debug)]
pub struct EventBox(HistoryEvent);

pub fn events() -> impl Strategy<Value = Vec<EventBox>> {
    prop::collection::vec(event().prop_map(EventBox), 0..120)
}

proptest! {
    #![proptest_config(tier::properties(48, 4_000))]

    #[test]
    fn the_order_of_samples_does_not_matter(
        (samples, shuffled) in samples().prop_flat_map(|samples| {
            (Just(samples.clone()), Just(samples).prop_shuffle())
        })
    ) {
        assert_alike(&filled(&samples), &filled(&shuffled));
    }

    #[test]
    fn a_merge_equals_the_union_of_the_samples(one in samples(), other in samples()) {
        let mut merged = filled(&one);
        merged.merge(axis(), &filled(&other));
        let union: Vec<_> = one.iter().chain(&other).copied().collect();
        assert_alike(&merged, &filled(&union));
    }

    #[test]
    fn percentiles_are_monotonic_and_lie_on_bucket_edges(
        samples in samples(), mut shares in prop::array::uniform4(-0.5..1.5_f64)
    ) {
        shares.sort_by(f64::total_cmp);
        let histogram = filled(&samples);
        let buckets = axis().buckets;
        let read = shares.map(|share| histogram.percentile(buckets, share));
        prop_assert!(read.is_sorted(), "{read:?}");
        prop_assert_eq!(histogram.percentiles(buckets, shares), read);
        let largest = samples.iter().map(|(value, ..)| *value).fold(0.0, f64::max);
        prop_assert!(read[3] <= buckets.upper_edge(buckets.find(largest)));
    }

    #[test]
    fn subtracting_an_added_sample_restores_the_histogram(
        samples in samples(), value in 0.0..1000.0_f64, time in 0..30_000_u32
    ) {
        let before = filled(&samples);
        let mut after = before.clone();
        after.add(axis(), value, 1.0, minute(time));
        after.subtract(axis(), value, 1.0, minute(time));
        alike_within(&before, &after, axis().buckets.epsilon);
    }

    #[test]
    fn recommendations_are_never_negative_or_undefined(
        events in events(), fixes in fixes(), later in 0..40_000_u32, per_replica in any::<bool>()
    ) {
        let settings = Settings { fixes, per_replica_peaks: per_replica, ..Settings::default() };
        let history = history(&events, &settings);
        let now = minute(later);
        let vpa_settings = plimsoll_core::recommender::VpaSettings::default();
        for container in recommend(&vpa_settings, &history, &settings, now).containers {
            let all = [container.target, container.lower, container.upper, container.uncapped];
            for amounts in all {
                for quantity in [amounts.cpu, amounts.memory] {
                    let quantity = quantity.expect("has a recommendation");
                    prop_assert!(!quantity.is_negative());
                }
            }
            prop_assert!(container.lower.cpu <= container.target.cpu);
            prop_assert!(container.target.cpu <= container.upper.cpu);
            prop_assert!(container.lower.memory <= container.target.memory);
            prop_assert!(container.target.memory <= container.upper.memory);
        }
        let rules = settings.rules(None, &plimsoll_core::recommender::tuning_annotations::Tuning::NONE);
        let snapshot = history.get("app").expect("known").to_snapshot(now, &rules);
        for weights in [&snapshot.cpu, &snapshot.memory] {
            prop_assert!(weights.total.is_finite() && weights.total >= 0.0);
            let sound = |weight: f64| weight.is_finite() && weight >= 0.0;
            prop_assert!(weights.buckets.iter().all(|(_, weight)| sound(*weight)));
        }
    }

    #[test]
    fn a_snapshot_is_lossless(
        events in events(), more in events(), now in 0..30_000_u32,
        (fine, per_replica_peaks) in any::<(bool, bool)>(),
    ) {
        let scheme = if fine { BucketScheme::Fine } else { BucketScheme::Standard };
        let settings = Settings { scheme, per_replica_peaks, ..Settings::for_compat(Compat::Plimsoll) };
        let rules = settings.rules(None, &plimsoll_core::recommender::tuning_annotations::Tuning::NONE);
        let mut stayed = history(&events, &settings);
        let snapshot = stayed.get("app").expect("known").to_snapshot(minute(now), &rules);
        let text = serde_json::to_string(&snapshot).expect("can be written");
        let read: Snapshot = serde_json::from_str(&text).expect("can be read");
        prop_assert_eq!(&read, &snapshot);
        // Time does not run backwards: a snapshot is not restored earlier than its last sample.
        let mut back =
            ContainerHistory::from_snapshot(&read, minute(30_000), &rules).expect("valid");
        let more: Vec<HistoryEvent> = more.into_iter().map(|event| event.0).collect();
        apply_events(&mut back, &more, &rules);
        let container = stayed.container_mut("app", START, &rules);
        apply_events(container, &more, &rules);
        let at: Time = minute(30_000);
        prop_assert_eq!(back.to_snapshot(at, &rules), container.to_snapshot(at, &rules));
    }

    #[test]
    fn a_checkpoint_rounds_weights_by_at_most_half_a_ten_thousandth_of_the_largest(samples in samples()) {
        let histogram = filled(&samples);
        let weights = histogram.to_weights(BucketScheme::Standard);
        let encoded = checkpoint::encode(&weights).expect("standard buckets");
        let buckets = axis().buckets;
        let decoded = checkpoint::decode(&encoded, buckets.count(), buckets.epsilon)
            .expect("encoded record decodes");
        prop_assert!((decoded.total - weights.total).abs() <= 1e-9 * weights.total.max(1.0));
        prop_assert_eq!(decoded.reference, weights.reference);
        let largest = weights.buckets.iter().map(|(_, weight)| *weight).fold(0.0, f64::max);
        // The total is distributed over the rounded integers, so a weight also changes by the sum of all roundings and
        // lost remainders.
        let lost = largest / 10_000.0 * 0.5 * (weights.buckets.len() as f64 + 1.0) + 1e-3;
        for (bucket, weight) in &weights.buckets {
            let found = decoded.buckets.iter().find(|(other, _)| other == bucket);
            let found = found.map_or(0.0, |(_, weight)| *weight);
            prop_assert!((found - weight).abs() <= lost, "bucket {bucket}: {weight} became {found}");
        }
    }
}
