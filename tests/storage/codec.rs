//! Encoding of records: it is lossless, and decoding arbitrary bytes is safe.

use plimsoll_core::{
    history::{
        BucketScheme, EncodedPlan, HalfLives, HistogramWeights, OomBump, ReplicaState, SampleStats,
        Snapshot, Throttling,
    },
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::codec::{
    CodecError, FORMAT, decode_key, decode_snapshot, encode_key, encode_snapshot,
};
use proptest::{collection::vec, option, prelude::*};

use crate::support::tier;

fn time() -> impl Strategy<Value = Time> {
    any::<i64>().prop_map(Time::from_nanos)
}

fn float() -> impl Strategy<Value = f64> {
    // Every bit pattern: subnormal numbers, infinities and each of the NaNs too.
    any::<u64>().prop_map(f64::from_bits)
}

prop_compose! {
    fn weights()(
        fine in any::<bool>(),
        reference in option::of(time()),
        total in float(),
        buckets in vec((any::<u8>(), float()), 0..40),
        span in any::<Option<(u8, u8)>>(),
    ) -> HistogramWeights {
        let scheme = if fine { BucketScheme::Fine } else { BucketScheme::Standard };
        HistogramWeights { scheme, reference, total, buckets, span }
    }
}

prop_compose! {
    fn observed()(
        count in any::<u64>(), first in option::of(time()), last in option::of(time()),
    ) -> SampleStats {
        SampleStats { count, first, last }
    }
}

prop_compose! {
    fn replica()(
        name in any::<String>(),
        times in [option::of(time()), option::of(time()), option::of(time()), option::of(time())],
        usage_peak in any::<Option<i64>>(),
        bump_peak in any::<Option<i64>>(),
    ) -> ReplicaState {
        let [last_cpu, last_memory, window_end, last_kill] = times;
        let name = name.into();
        ReplicaState { name, last_cpu, last_memory, window_end, usage_peak, bump_peak, last_kill }
    }
}

prop_compose! {
    fn throttling()(throttled in float(), periods in float(), at in time()) -> Throttling {
        Throttling { throttled, periods, at }
    }
}

prop_compose! {
    fn snapshot()(
        owner in any::<Option<String>>(),
        (cpu, memory) in (weights(), weights()),
        (memory_closed, fleet) in (option::of(weights()), option::of(weights())),
        fleet_window in option::of(replica()),
        (cpu_seen, memory_seen) in (observed(), observed()),
        cpu_standard in option::of(weights()),
        half_lives in option::of((any::<u32>(), any::<u32>())),
        (created, last_alive) in (option::of(time()), option::of(time())),
        replicas in vec(replica(), 0..4),
        bump in option::of((time(), any::<i64>(), any::<i64>())),
        throttling in option::of(throttling()),
        (bootstrapped, plan) in (any::<bool>(), option::of(vec(any::<u8>(), 0..200))),
    ) -> Snapshot {
        let owner = owner.map(Into::into);
        let bump = bump.map(|(at, base, counted)| OomBump { at, base, counted });
        let half_lives = half_lives.map(|(cpu, memory)| HalfLives { cpu, memory });
        Snapshot {
            owner, cpu, memory, cpu_standard, half_lives, created, memory_closed, fleet, fleet_window, cpu_seen, memory_seen,
            last_alive, replicas, bump, throttling, bootstrapped, plan: plan.map(EncodedPlan::from_bytes),
        }
    }
}

/// Every float of a snapshot as its bits: unlike `==`, this distinguishes NaNs and zeros.
fn bits(snapshot: &Snapshot) -> Vec<u64> {
    let throttling = snapshot.throttling.map(|known| [known.throttled, known.periods]);
    [Some(&snapshot.cpu), Some(&snapshot.memory)]
        .into_iter()
        .chain(
            [&snapshot.cpu_standard, &snapshot.memory_closed, &snapshot.fleet].map(Option::as_ref),
        )
        .flatten()
        .flat_map(|w| std::iter::once(w.total).chain(w.buckets.iter().map(|(_, weight)| *weight)))
        .chain(throttling.into_iter().flatten())
        .map(f64::to_bits)
        .collect()
}

/// The snapshot without its floats, to compare the rest.
fn without_floats(mut snapshot: Snapshot) -> Snapshot {
    let all = [Some(&mut snapshot.cpu), Some(&mut snapshot.memory)];
    let others = [&mut snapshot.cpu_standard, &mut snapshot.memory_closed, &mut snapshot.fleet];
    for weights in all.into_iter().chain(others.map(Option::as_mut)) {
        let Some(weights) = weights else { continue };
        weights.total = 0.0;
        weights.buckets.iter_mut().for_each(|(_, weight)| *weight = 0.0);
    }
    if let Some(throttling) = &mut snapshot.throttling {
        (throttling.throttled, throttling.periods) = (0.0, 0.0);
    }
    snapshot
}

proptest! {
    #![proptest_config(tier::properties(48, 4_000))]

    #[test]
    fn an_encoded_snapshot_decodes_bit_by_bit(snapshot in snapshot()) {
        let bytes = encode_snapshot(&snapshot);
        let back = decode_snapshot(FORMAT, &bytes).expect("encoded record decodes");
        prop_assert_eq!(bits(&back), bits(&snapshot));
        prop_assert_eq!(encode_snapshot(&back), bytes);
        prop_assert_eq!(without_floats(back), without_floats(snapshot));
    }

    #[test]
    fn an_encoded_key_decodes_to_the_same_key(namespace in any::<String>(), name in any::<String>(), container in any::<String>()) {
        let key = ContainerKey::new(ObjectKey::new(namespace, name), container);
        prop_assert_eq!(decode_key(&encode_key(&key)), Ok(key));
    }

    #[test]
    fn any_bytes_decode_or_are_rejected_in_one_line(bytes in vec(any::<u8>(), 0..300)) {
        if let Err(malformed) = decode_snapshot(FORMAT, &bytes) {
            prop_assert!(!malformed.to_string().contains('\n'));
        }
        let _ = decode_key(&bytes);
    }

    #[test]
    fn a_damaged_encoding_decodes_or_is_rejected_without_a_panic(
        snapshot in snapshot(), cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(), bit in 0..8_u8,
    ) {
        let bytes = encode_snapshot(&snapshot);
        prop_assert!(decode_snapshot(FORMAT, &bytes[..cut.index(bytes.len())]).is_err(), "truncation is detected");
        let mut flipped = bytes;
        let place = flip.index(flipped.len());
        flipped[place] ^= 1 << bit;
        let _ = decode_snapshot(FORMAT, &flipped);
    }
}

#[test]
fn trailing_bytes_after_a_record_are_rejected() {
    let mut bytes = encode_snapshot(&Snapshot::default());
    bytes.push(0);
    let refused = decode_snapshot(FORMAT, &bytes).expect_err("a byte too many");
    assert_eq!(refused.to_string(), "malformed content: 1 unexpected bytes at the end");
}

#[test]
fn an_unsupported_format_is_named_in_the_error() {
    assert_eq!(decode_snapshot(7, &[]), Err(CodecError::UnsupportedFormat(7)));
    let line = CodecError::UnsupportedFormat(7).to_string();
    assert_eq!(line, "unsupported record format 7, expected 1");
}
