//! Options that change the recommendations of healthy workloads are off by default.

use plimsoll_core::history::{BucketScheme, Throttling};
use plimsoll_core::{
    recommender::{ContainerHistory, RecommendationReason},
    types::{
        compat::Compat,
        quantity::Quantity,
        units::{Bytes, MilliCpu},
    },
};

use super::{HOUR, MIB, START, VpaFixture, explanations::recompute, minute};

/// Nine replicas at 100Mi, one at 2000Mi.
fn uneven(mut subject: VpaFixture) -> VpaFixture {
    for day in 0..4 {
        for replica in 0..19 {
            let time = START.later(HOUR * 24 * day);
            let mebi = if replica == 18 { 2000 } else { 300 };
            subject.replica_memory(&format!("pod-{replica}"), time, mebi * MIB);
        }
    }
    subject
}

#[test]
fn per_replica_peaks_use_the_largest_replica_instead_of_the_aggregate() {
    let now = START.later(HOUR * 24 * 4);
    let pooled = uneven(VpaFixture::new(Compat::Plimsoll));
    assert!(pooled.memory_numbers(now)[0] < 500 * MIB);

    let mut subject = VpaFixture::new(Compat::Plimsoll);
    subject.settings.per_replica_peaks = true;
    let subject = uneven(subject);
    assert!(subject.memory_numbers(now)[0] > 2000 * MIB);
    let explanation = subject.app(now).explanation.memory.expect("has an explanation");
    assert_eq!(explanation.target.decided_by, RecommendationReason::LargestReplica);
}

#[test]
fn the_upper_bound_stays_within_a_multiple_of_the_target() {
    let young = |factor| {
        let mut subject = VpaFixture::new(Compat::Plimsoll);
        subject.settings.upper_bound_factor = factor;
        subject.cpu(minute(0), 1000);
        subject.memory(minute(0), 1024 * MIB);
        (subject.cpu_numbers(minute(0)), subject.memory_numbers(minute(0)))
    };
    let (cpu, memory) = young(None);
    assert_eq!((cpu[2], memory[2]), (100_000_000_000_000, 100_000_000_000_000));
    let (cpu, memory) = young(Some(3.0));
    assert_eq!((cpu[2], memory[2]), (3 * cpu[0], 3 * memory[0]));
    // A factor below 1 would put the upper bound below the target.
    let (cpu, _) = young(Some(0.5));
    assert_eq!(cpu[2], cpu[0]);
}

#[test]
fn fine_buckets_distinguish_small_containers() {
    let small = |scheme| {
        let mut subject = VpaFixture::new(Compat::Plimsoll);
        subject.settings.scheme = scheme;
        (subject.settings.pod_floor_millicores, subject.settings.pod_floor_mebibytes) = (0.0, 0.0);
        subject.cpu(minute(0), 2);
        subject.memory(minute(0), 3 * MIB);
        (subject.cpu_numbers(minute(0))[0], subject.memory_numbers(minute(0))[0])
    };
    assert_eq!(small(BucketScheme::Standard), (11, 11_500_000));
    let (cpu, memory) = small(BucketScheme::Fine);
    assert!(cpu <= 4 && memory < 5 * MIB, "{cpu} m, {memory} bytes");
}

#[test]
fn a_history_is_converted_when_the_bucket_scheme_changes() {
    let mut subject = VpaFixture::new(Compat::Plimsoll);
    for index in 0..600 {
        subject.cpu(minute(index), 700);
        subject.memory(minute(index), 700 * MIB);
    }
    let now = minute(600);
    let saved = subject.history.get("app").expect("known").to_snapshot(now, &subject.rules());
    let (cpu, memory) = (subject.cpu_numbers(now)[0], subject.memory_numbers(now)[0]);
    subject.settings.scheme = BucketScheme::Fine;
    let rules = subject.rules();
    let back = plimsoll_core::recommender::ContainerHistory::from_snapshot(&saved, now, &rules);
    subject.history = plimsoll_core::recommender::History::default();
    subject.history.restore("app".into(), back.expect("valid"), now, &rules);
    let near = |one: i64, other: i64| (one - other).abs() as f64 / (other as f64) < 0.08;
    assert!(near(subject.cpu_numbers(now)[0], cpu));
    assert!(near(subject.memory_numbers(now)[0], memory));
    assert!(subject.cpu(minute(601), 700), "continues");
}

#[test]
fn annotations_tune_a_vpa_only_if_enabled() {
    let annotations = [
        ("plimsoll.dev/profile", "batch"),
        ("plimsoll.dev/margin", "0"),
        ("plimsoll.dev/cpu-floor", "1m"),
        ("plimsoll.dev/memory-floor", "16Mi"),
    ];
    let run = |on| {
        let mut subject = VpaFixture::annotated(Compat::Plimsoll, &annotations);
        subject.settings.per_vpa_tuning = on;
        for index in 0..1000 {
            subject.cpu(minute(index), if index % 4 == 0 { 2000 } else { 100 });
            subject.memory(minute(index), 20 * MIB);
        }
        (subject.cpu_numbers(minute(1000))[0], subject.memory_numbers(minute(1000))[0])
    };
    assert_eq!(run(false), (2406, 262_144_000));
    // The median without margin; 20Mi reads as 31,524,999 bytes, above the minimum of 16Mi.
    assert_eq!(run(true), (110, 31_524_999));
}

#[test]
fn a_shorter_half_life_adapts_faster() {
    let run = |half_life: &str| {
        let annotations = [("plimsoll.dev/half-life", half_life)];
        let mut subject = VpaFixture::annotated(Compat::Plimsoll, &annotations);
        subject.settings.per_vpa_tuning = true;
        for index in 0..2880 {
            subject.cpu(minute(index), if index < 1440 { 2000 } else { 100 });
        }
        subject.cpu_numbers(minute(2880))[0]
    };
    assert_eq!(run("240h"), 2406);
    assert_eq!(run("2h"), 126);
}

#[test]
fn changing_the_half_life_keeps_the_history_and_counts_new_samples() {
    for (first, second) in [("2h", "240h"), ("240h", "2h")] {
        for restart in [false, true] {
            let mut subject = VpaFixture::new(Compat::Plimsoll);
            subject.settings.per_vpa_tuning = true;
            let tune = |subject: &mut VpaFixture, half_life: &str| {
                let annotations = [("plimsoll.dev/half-life", half_life)];
                subject.directives =
                    VpaFixture::annotated(Compat::Plimsoll, &annotations).directives;
            };
            tune(&mut subject, first);
            for index in 0..8 * 1440 {
                subject.cpu(minute(index), 1000);
                subject.memory(minute(index), 1000 * MIB);
            }
            let now = minute(8 * 1440);
            let before = (subject.cpu_numbers(now)[0], subject.memory_numbers(now)[0]);
            tune(&mut subject, second);
            if restart {
                let old = subject.history.get("app").expect("known");
                let rules = subject.rules();
                let saved = old.to_snapshot(now, &rules);
                let back = plimsoll_core::recommender::ContainerHistory::from_snapshot(
                    &saved, now, &rules,
                );
                subject.history = plimsoll_core::recommender::History::default();
                subject.history.restore("app".into(), back.expect("valid"), now, &rules);
            }
            // One more sample does not outweigh eight days,
            subject.cpu(now, 100);
            subject.memory(now, 3000 * MIB);
            assert_eq!(subject.cpu_numbers(now)[0], before.0, "{first} {second} {restart}");
            // and the peak that it replaces is restored: one peak a day, nine days.
            let saved =
                subject.history.get("app").expect("known").to_snapshot(now, &subject.rules());
            let sum: f64 = saved.memory.buckets.iter().map(|(_, weight)| weight).sum();
            assert!((sum - saved.memory.total).abs() <= 1e-6 * saved.memory.total);
            // Days of new usage have an effect.
            for index in 8 * 1440..48 * 1440 {
                subject.cpu(minute(index), 100);
            }
            assert_eq!(
                subject.cpu_numbers(minute(48 * 1440))[0],
                126,
                "{first} {second} {restart}"
            );
        }
    }
}

#[test]
fn with_finer_buckets_a_larger_sample_replaces_the_restored_open_peak() {
    for mebi in [200, 300, 700, 800, 1024] {
        let mut subject = VpaFixture::new(Compat::Plimsoll);
        subject.memory(minute(0), mebi * MIB);
        let now = minute(1);
        let saved = subject.history.get("app").expect("known").to_snapshot(now, &subject.rules());
        subject.settings.scheme = BucketScheme::Fine;
        let rules = subject.rules();
        let back = plimsoll_core::recommender::ContainerHistory::from_snapshot(&saved, now, &rules);
        subject.history = plimsoll_core::recommender::History::default();
        subject.history.restore("app".into(), back.expect("valid"), now, &rules);
        subject.memory(now, 2 * mebi * MIB);
        let saved = subject.history.get("app").expect("known").to_snapshot(now, &rules);
        let filled = saved.memory.buckets.iter().filter(|(_, weight)| *weight > 1e-4).count();
        assert_eq!(filled, 1, "{mebi} Mi: {:?}", saved.memory.buckets);
    }
}

#[test]
fn with_fine_buckets_the_checkpoint_is_still_readable_by_upstream() {
    let run = |scheme| {
        let mut subject = VpaFixture::new(Compat::Plimsoll);
        subject.settings.scheme = scheme;
        for index in 0..3000 {
            subject.cpu(minute(index), 700);
            subject.memory(minute(index), 700 * MIB);
        }
        let now = minute(3000);
        let saved = subject.history.get("app").expect("known").to_snapshot(now, &subject.rules());
        plimsoll_core::history::checkpoint::status_from_snapshot(&saved, now)
            .expect("can be written")
    };
    let (standard, fine) = (run(BucketScheme::Standard), run(BucketScheme::Fine));
    assert_eq!(standard.cpu_histogram.bucket_weights, fine.cpu_histogram.bucket_weights);
    assert_eq!(standard.memory_histogram.bucket_weights, fine.memory_histogram.bucket_weights);
}

#[test]
fn bounds_enclose_a_target_percentile_set_by_annotation() {
    let numbers = |percentile: &str| {
        let annotations = [("plimsoll.dev/cpu-percentile", percentile)];
        let mut subject = VpaFixture::annotated(Compat::Plimsoll, &annotations);
        subject.settings.per_vpa_tuning = true;
        for index in 0..11_520 {
            // Of every thousand minutes, 20 have the highest usage and 400 the lowest.
            let used = match index % 1000 {
                ..20 => 1000,
                20..600 => 300,
                _ => 100,
            };
            subject.cpu(minute(index), used);
        }
        subject.cpu_numbers(minute(11_520))
    };
    let [target, lower, upper] = numbers("0.99");
    assert!(lower < target && target > 1000 && upper >= target, "{lower} {target} {upper}");
    let [target, lower, upper] = numbers("0.01");
    assert!(lower <= target && target < 200 && upper > target, "{lower} {target} {upper}");
}

#[test]
fn percentiles_set_by_flags_may_cross() {
    let mut subject = VpaFixture::new(Compat::Upstream);
    subject.settings.cpu.target = 0.99;
    for index in 0..11_520 {
        subject.cpu(minute(index), if index % 33 == 0 { 1000 } else { 100 });
    }
    let [target, _, upper] = subject.cpu_numbers(minute(11_520));
    assert_eq!((target, upper), (1168, 141), "as upstream: the upper bound lies below the target");
}

#[test]
fn rounding_and_global_maximums_follow_upstreams_flags() {
    let mut subject = VpaFixture::new(Compat::Upstream);
    subject.settings.round_millicores = 100;
    subject.settings.round_bytes = 64 * MIB;
    subject.cpu(minute(0), 1000);
    subject.memory(minute(0), 1024 * MIB);
    assert_eq!(subject.cpu_numbers(minute(0))[0], 1200);
    assert_eq!(subject.memory_numbers(minute(0))[0], 19 * 64 * MIB);
    subject.settings.max_cpu = Some(Quantity::cpu(MilliCpu(500)));
    subject.settings.max_memory = Some(Quantity::memory(Bytes(512 * MIB)));
    let app = subject.app(minute(0));
    assert_eq!(app.target.cpu.expect("has a recommendation").to_string(), "500m");
    assert_eq!(app.target.memory.expect("has a recommendation").to_string(), "512Mi");
    assert_eq!(app.uncapped.cpu.expect("has a recommendation").to_string(), "1200m");
    let decided = app.explanation.cpu.expect("has an explanation").target.decided_by;
    assert_eq!(decided, RecommendationReason::GlobalMaxAllowed);
}

/// A day at 500 millicores, throttled in this share of its CFS periods.
fn throttled(share: f64, target: Option<f64>) -> VpaFixture {
    let mut subject = VpaFixture::new(Compat::Plimsoll);
    subject.settings.cpu_throttling_target = target;
    for at in 1..=1440 {
        subject.cpu(minute(at), 500);
        subject.memory(minute(at), 500 * MIB);
    }
    let rules = subject.rules();
    let container = subject.history.container_mut("app", minute(1440), &rules);
    let at = minute(1440);
    container.set_throttling(Some(Throttling { throttled: share * 600.0, periods: 600.0, at }));
    subject
}

#[test]
fn throttling_is_reported_and_raises_cpu_only_if_enabled() {
    let now = minute(1440);
    let of = |share, target| {
        let subject = throttled(share, target);
        let explanation = subject.app(now).explanation;
        let (cpu, memory) = (explanation.cpu.expect("CPU"), explanation.memory.expect("memory"));
        assert!(memory.throttled.is_none(), "{memory:?}");
        let throttling = cpu.throttled.expect("known");
        assert!(
            (throttling.share - share).abs() < 1e-9 && throttling.target == target,
            "{throttling:?}"
        );
        let numbers = subject.cpu_numbers(now);
        let again = recompute(&cpu, true);
        assert_eq!([again.target, again.lower, again.upper].map(Quantity::milli_value), numbers);
        (numbers, cpu.target.decided_by)
    };
    let (usual, reason) = of(0.4, None);
    assert_eq!(reason, RecommendationReason::Usage);
    assert_eq!(of(0.4, Some(0.5)), (usual, RecommendationReason::Usage), "below the threshold");
    let (raised, reason) = of(0.4, Some(0.1));
    assert_eq!(reason, RecommendationReason::Throttling);
    for (raised, usual) in raised.into_iter().zip(usual) {
        let factor = raised as f64 / usual as f64;
        assert!((factor - 1.3).abs() < 0.01, "{usual} became {raised}");
    }
    // At most twice, however high the share is.
    let (most, _) = of(1.0, Some(0.0));
    assert!(most.into_iter().zip(usual).all(|(most, usual)| (most - 2 * usual).abs() <= 2));
}

#[test]
fn throttling_survives_a_restart_and_decays_with_the_history() {
    let now = minute(1440);
    let subject = throttled(0.4, Some(0.1));
    let rules = subject.rules();
    let stored = subject.history.get("app").expect("known").to_snapshot(now, &rules);
    let text = serde_json::to_string(&stored).expect("can be written");
    let stored = serde_json::from_str(&text).expect("can be read");
    let container = ContainerHistory::from_snapshot(&stored, now, &rules).expect("valid");
    let mut restarted = VpaFixture::new(Compat::Plimsoll);
    restarted.settings.cpu_throttling_target = Some(0.1);
    restarted.history.restore("app".into(), container, now, &rules);
    assert_eq!(restarted.cpu_numbers(now), subject.cpu_numbers(now));
    let later = now.later(rules.memory_span());
    assert!(restarted.app(later).explanation.cpu.expect("CPU").throttled.is_none());
}
