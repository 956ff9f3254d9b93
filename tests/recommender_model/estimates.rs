//! Golden vectors V35 to V62: estimators, and the whole chain on short and long histories.

use plimsoll_core::history::{BucketScheme, SampleStats};
use plimsoll_core::{
    recommender::{
        buckets::Buckets,
        estimate::{Resource, confidence_evidence, confidence_multiplier},
        explanation::ConfidenceFactor,
        histogram::{Histogram, HistogramConfig},
    },
    types::units::MAX_AMOUNT,
};
use std::time::Duration;

use super::{BOTH_MODES, GIB, HOUR, MIB, MINUTE, START, VpaFixture, minute};

#[test]
fn v35_percentiles_are_within_a_bucket_of_the_samples() {
    let of = |buckets: &'static Buckets, values: [f64; 3]| {
        let mut histogram = Histogram::new(buckets);
        for value in values {
            histogram.add(
                HistogramConfig { buckets, half_life: Some(HOUR * 24) },
                value,
                1.0,
                START,
            );
        }
        histogram
    };
    let (cpu, memory) =
        (Buckets::cpu(BucketScheme::Standard), Buckets::memory(BucketScheme::Standard));
    let cores = of(cpu, [1.0, 2.0, 3.0]).percentile(cpu, 0.2);
    let bytes = of(memory, [1e9, 2e9, 3e9]).percentile(memory, 0.5);
    assert!((cores - 1.0).abs() < 0.05, "{cores}");
    assert!((bytes - 2e9).abs() < 0.05 * 2e9, "{bytes}");
}

#[test]
fn a_cpu_sample_counts_once_and_only_in_order() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        let taken = [5, 5, 4, 6, 6].map(|at| subject.cpu(minute(at), 100));
        assert_eq!(taken, [true, false, false, true, false], "{compat:?}");
    }
}

#[test]
fn v36_to_v40_confidence_widens_bounds_and_zero_confidence_removes_them() {
    let empty = confidence_evidence(Resource::Cpu, SampleStats::default(), HOUR * 24);
    assert_eq!(empty.confidence.to_bits(), 0.0_f64.to_bits());
    let stretch = |weight, exponent| ConfidenceFactor { weight, exponent };
    let apply = |resource: Resource, amount, stretch, confidence| {
        resource.scale(amount, confidence_multiplier(stretch, confidence))
    };
    for (resource, amount) in [(Resource::Cpu, 3140), (Resource::Memory, 3_140_000_000)] {
        assert_eq!(apply(resource, amount, stretch(1.0, 1), 0.0), MAX_AMOUNT);
        assert_eq!(apply(resource, amount, stretch(1.0, -1), 0.0), 0);
        assert_eq!(apply(resource, amount, stretch(0.1, 2), 0.0), MAX_AMOUNT);
    }
    let nine = SampleStats { count: 9, first: Some(minute(0)), last: Some(minute(16)) };
    let day = confidence_evidence(Resource::Cpu, nine, HOUR * 24).confidence;
    super::assert_close(day, 0.00625);
    assert_eq!(apply(Resource::Cpu, 3140, stretch(0.1, 2), day), 907_460);
    let bytes = apply(Resource::Memory, 3_140_000_000, stretch(0.1, 2), day);
    assert!((bytes - 907_460_000_000).abs() <= 1, "{bytes}");
    let short = confidence_evidence(Resource::Cpu, nine, MINUTE * 18).confidence;
    super::assert_close(short, 0.5);
    assert_eq!(apply(Resource::Cpu, 3140, stretch(0.1, 2), short), 4521);
    assert_eq!(apply(Resource::Memory, 3_140_000_000, stretch(0.1, 2), short), 4_521_600_000);
}

#[test]
fn v41_a_margin_is_added_to_the_truncated_amount() {
    assert_eq!(3140 + Resource::Cpu.scale(3140, 0.1), 3454);
    assert_eq!(3_140_000_000 + Resource::Memory.scale(3_140_000_000, 0.1), 3_454_000_000);
}

#[test]
fn v42_to_v44_minimums_are_divided_by_the_number_of_containers() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        subject.cpu(minute(0), 1);
        subject.memory(minute(0), 1_000_000);
        assert_eq!(subject.cpu_numbers(minute(1))[0], 25);
        assert_eq!(subject.memory_numbers(minute(1))[0], 262_144_000);
        subject.register_container("second", minute(0));
        assert_eq!(subject.cpu_numbers(minute(1))[0], 12);
        assert_eq!(subject.memory_numbers(minute(1))[0], 131_072_000);
        // Values above the minimum are unchanged.
        subject.cpu(minute(1), 3140);
        subject.memory(minute(1), 400_000_000);
        assert!(subject.cpu_numbers(minute(1))[0] > 3140);
        assert!(subject.memory_numbers(minute(1))[0] > 400_000_000);
    }
}

#[test]
fn v45_v46_without_samples_all_numbers_are_the_minimum() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        subject.register_container("app", minute(0));
        assert_eq!(subject.cpu_numbers(minute(0)), [25; 3]);
        assert_eq!(subject.memory_numbers(minute(0)), [262_144_000; 3]);
        subject.register_container("second", minute(0));
        subject.register_container("third", minute(0));
        assert_eq!(subject.cpu_numbers(minute(0)), [8; 3]);
        assert_eq!(subject.memory_numbers(minute(0)), [87_381_333; 3]);
    }
}

#[test]
fn v47_to_v55_bounds_narrow_as_samples_arrive() {
    let quarter = Duration::from_secs(15);
    for (samples, step, lower, upper) in [
        (1, MINUTE, (25, 262_144_000), (MAX_AMOUNT, MAX_AMOUNT)),
        (2, MINUTE, (196, 262_144_000), (1_683_088, 1_784_908_735_775)),
        (6, MINUTE, (704, 746_655_568), (337_552, 357_972_674_975)),
        (9, MINUTE * 2, (868, 920_525_992), (188_048, 199_424_223_775)),
        (31, MINUTE, (1063, 1_127_793_192), (57_232, 60_694_328_975)),
        (61, MINUTE, (1113, 1_181_278_014), (29_200, 30_966_494_375)),
        (721, MINUTE, (1163, 1_233_719_960), (3504, 3_715_979_325)),
        (1441, MINUTE, (1165, 1_236_186_166), (2336, 2_477_319_550)),
        (5764, quarter, (1165, 1_236_187_452), (2335, 2_476_674_750)),
    ] {
        for compat in BOTH_MODES {
            let mut subject = VpaFixture::new(compat);
            subject.memory(START, GIB);
            for index in 0..samples {
                assert!(subject.cpu(START.later(step * index), 1000));
            }
            let now = START.later(step * samples);
            assert_eq!(subject.cpu_numbers(now), [1168, lower.0, upper.0], "{samples} samples");
            let memory = subject.memory_numbers(now);
            assert_eq!(memory, [1_238_659_775, lower.1, upper.1], "{samples} samples");
        }
    }
}

#[test]
fn v56_to_v60_a_steady_container_over_eight_days() {
    for (samples, cpu, memory) in [
        (1, [126, 25, MAX_AMOUNT], [262_144_000, 262_144_000, MAX_AMOUNT]),
        (6, [126, 75, 36_414], [262_144_000, 262_144_000, 71_716_355_720]),
        (1441, [126, 125, 252], [262_144_000, 262_144_000, 496_306_960]),
        (10_081, [126, 125, 144], [262_144_000, 262_144_000, 283_603_977]),
        (11_521, [126, 125, 141], [262_144_000, 262_144_000, 279_172_665]),
    ] {
        for compat in BOTH_MODES {
            let subject = steady(compat, samples);
            assert_eq!(subject.cpu_numbers(minute(samples)), cpu, "{samples} samples");
            assert_eq!(subject.memory_numbers(minute(samples)), memory, "{samples} samples");
        }
    }
}

#[test]
fn v61_v62_spikes_and_bursts_over_eight_days() {
    for compat in BOTH_MODES {
        let subject = spiky(compat);
        let now = minute(11_520);
        assert_eq!(subject.cpu_numbers(now), [126, 125, 1314]);
        assert_eq!(subject.memory_numbers(now), [671_629_701, 671_461_810, 755_590_701]);

        let mut subject = VpaFixture::new(compat);
        for index in 0..11_520 {
            let busy = index % 19 < 2;
            subject.cpu(minute(index), if busy { 1000 } else { 100 });
            subject.memory(minute(index), 150 * MIB);
        }
        assert_eq!(subject.cpu_numbers(now), [1168, 125, 1314]);
        assert_eq!(subject.memory_numbers(now), [262_144_000; 3]);
    }
}

/// The scenario of V56 to V60: 100 m and 200Mi every minute.
pub fn steady(compat: plimsoll_core::types::compat::Compat, samples: u32) -> VpaFixture {
    let mut subject = VpaFixture::new(compat);
    for index in 0..samples {
        assert!(subject.cpu(minute(index), 100));
        assert!(subject.memory(minute(index), 200 * MIB));
    }
    subject
}

/// The scenario of V61: a CPU spike every ten minutes, a growing memory spike every day.
pub fn spiky(compat: plimsoll_core::types::compat::Compat) -> VpaFixture {
    let mut subject = VpaFixture::new(compat);
    for index in 0..11_520 {
        let (day, of_day) = (i64::from(index / 1440), index % 1440);
        subject.cpu(minute(index), if index % 10 == 0 { 1000 } else { 100 });
        let spike = 200 + 50 * day;
        subject.memory(minute(index), if of_day == 700 { spike * MIB } else { 150 * MIB });
    }
    subject
}
