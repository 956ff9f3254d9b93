//! Golden vectors V1 to V34 and V73 to V80, and the table of bucket boundaries.

use std::time::Duration;

use plimsoll_core::{history::BucketScheme, types::Time};
use plimsoll_core::{
    recommender::{
        buckets::Buckets,
        estimate::Resource,
        histogram::{Histogram, HistogramConfig},
    },
    types::units::{Bytes, MilliCpu},
};

use super::{HOUR, START, assert_close, at, encoded};

fn plain(buckets: &Buckets) -> HistogramConfig<'_> {
    HistogramConfig { buckets, half_life: None }
}

fn hourly(buckets: &Buckets) -> HistogramConfig<'_> {
    HistogramConfig { buckets, half_life: Some(HOUR) }
}

fn linear(size: f64, max: f64) -> Buckets {
    Buckets::linear(max, size, 1e-15).expect("sound boundaries")
}

fn reads(histogram: &Histogram, buckets: &Buckets, expected: &[(f64, f64)]) {
    for (share, value) in expected {
        assert_close(histogram.percentile(buckets, *share), *value);
    }
}

#[test]
fn every_bucket_starts_where_the_table_says() {
    let table = include_str!("../golden/buckets.csv");
    let (cpu, memory) =
        (Buckets::cpu(BucketScheme::Standard), Buckets::memory(BucketScheme::Standard));
    let mut rows = 0;
    for line in table.lines().skip(1) {
        let row: Vec<i64> = line.split(',').map(|cell| cell.parse().expect("a number")).collect();
        let bucket = u8::try_from(row[0]).expect("a bucket");
        assert_eq!(MilliCpu::from_cores(cpu.start(bucket)).0, row[1], "CPU bucket {bucket}");
        assert_eq!(Bytes::from_f64(memory.start(bucket)).0, row[2], "memory bucket {bucket}");
        rows += 1;
    }
    assert_eq!(rows, 176);
}

#[test]
fn v1_percentiles_are_upper_edges_by_weight() {
    let buckets = linear(1.0, 10.0);
    let mut histogram = Histogram::new(&buckets);
    for value in 1..=4 {
        histogram.add(plain(&buckets), f64::from(value), f64::from(value), START);
    }
    let expected = [
        (0.0, 2.0),
        (0.1, 2.0),
        (0.2, 3.0),
        (0.3, 3.0),
        (0.4, 4.0),
        (0.5, 4.0),
        (0.6, 4.0),
        (0.7, 5.0),
        (0.8, 5.0),
        (0.9, 5.0),
        (1.0, 5.0),
    ];
    reads(&histogram, &buckets, &expected);
}

#[test]
fn v2_percentiles_of_an_empty_histogram_are_zero() {
    let buckets = linear(1.0, 10.0);
    let histogram = Histogram::new(&buckets);
    reads(&histogram, &buckets, &[(-0.1, 0.0), (0.0, 0.0), (0.5, 0.0), (1.0, 0.0)]);
}

#[test]
fn v3_percentiles_outside_zero_to_one_are_clamped() {
    let buckets = linear(0.1, 1.0);
    let mut histogram = Histogram::new(&buckets);
    histogram.add(plain(&buckets), 0.1, 0.1, START);
    histogram.add(plain(&buckets), 0.2, 0.2, START);
    reads(&histogram, &buckets, &[(-0.1, 0.2), (1.1, 0.3)]);
    histogram.add(plain(&buckets), 0.0, 0.1, START);
    histogram.add(plain(&buckets), 1.0, 0.2, START);
    reads(&histogram, &buckets, &[(-0.1, 0.1), (1.1, 1.0)]);
}

#[test]
fn v4_v5_weights_below_epsilon_count_as_empty() {
    let buckets = linear(0.1, 1.0);
    let (axis, epsilon) = (plain(&buckets), buckets.epsilon);
    let mut histogram = Histogram::new(&buckets);
    assert!(histogram.is_empty(&buckets));
    histogram.add(axis, 0.1, 2.5 * epsilon, START);
    assert!(!histogram.is_empty(&buckets));
    histogram.subtract(axis, 0.1, epsilon, START);
    assert!(!histogram.is_empty(&buckets));
    histogram.subtract(axis, 0.1, epsilon, START);
    assert!(histogram.is_empty(&buckets));

    let mut histogram = Histogram::new(&buckets);
    for (value, times) in [(9.9, 3.0), (0.1, 0.3), (999.9, 0.3)] {
        histogram.add(axis, value, times * epsilon, START);
        assert!(!histogram.is_empty(&buckets), "after {value}");
    }
}

#[test]
fn v6_a_merge_is_the_union_of_the_samples() {
    let buckets = linear(1.0, 10.0);
    let of = |values: &[f64]| {
        let mut histogram = Histogram::new(&buckets);
        for value in values {
            histogram.add(plain(&buckets), *value, 1.0, START);
        }
        histogram
    };
    let mut merged = of(&[1.0, 2.0]);
    merged.merge(plain(&buckets), &of(&[2.0, 3.0]));
    assert_eq!(merged, of(&[1.0, 2.0, 2.0, 3.0]));
}

#[test]
fn v7_to_v9_weights_of_old_samples_decay_to_nothing() {
    let buckets = linear(1.0, 10.0);
    let later = |hours: u32| START.later(HOUR * hours);
    let mut histogram = Histogram::new(&buckets);
    for value in 1..=4_u32 {
        let sample = f64::from(value);
        histogram.add(hourly(&buckets), sample, sample, later(value - 1));
    }
    let expected = [
        (0.0, 2.0),
        (0.02, 2.0),
        (0.03, 3.0),
        (0.10, 3.0),
        (0.11, 4.0),
        (0.34, 4.0),
        (0.35, 5.0),
        (1.0, 5.0),
    ];
    reads(&histogram, &buckets, &expected);

    let mut histogram = Histogram::new(&buckets);
    histogram.add(hourly(&buckets), 2.0, 1000.0, START);
    histogram.add(hourly(&buckets), 1.0, 1.0, later(20));
    reads(&histogram, &buckets, &[(0.999, 2.0), (1.0, 3.0)]);

    let mut histogram = Histogram::new(&buckets);
    histogram.add(hourly(&buckets), 2.0, 1.0, START);
    histogram.add(hourly(&buckets), 1.0, 1.0, later(101));
    reads(&histogram, &buckets, &[(1.0, 2.0)]);
}

fn merged_after(hours: u32) -> Histogram {
    let buckets = Buckets::cpu(BucketScheme::Standard);
    let axis = HistogramConfig { buckets, half_life: Some(HOUR * 24) };
    let (mut one, mut other) = (Histogram::new(buckets), Histogram::new(buckets));
    one.add(axis, 0.1, 0.1, START);
    other.add(axis, 1.0, 0.1, START.later(HOUR * hours));
    one.merge(axis, &other);
    one
}

#[test]
fn v10_v11_a_merge_decays_the_older_histogram_to_the_newer_reference_time() {
    let buckets = Buckets::cpu(BucketScheme::Standard);
    let merged = merged_after(72);
    assert_eq!(merged.reference, Some(at("2026-01-04T00:00:00Z")));
    assert_close(merged.total, 0.1125);
    assert_eq!(encoded(&merged), [(8, 1250), (36, 10_000)]);
    assert_eq!(merged.percentile(buckets, 0.10).to_bits(), 0.110_265_643_195_703_06_f64.to_bits());
    assert_eq!(merged.percentile(buckets, 0.12).to_bits(), 1.016_281_388_554_090_4_f64.to_bits());

    let merged = merged_after(240);
    assert_eq!(merged.reference, Some(at("2026-01-11T00:00:00Z")));
    assert_close(merged.total, 0.100_097_656_25);
    assert_eq!(encoded(&merged), [(36, 10_000)]);
    for share in [0.0, 0.0001, 0.5, 1.0] {
        assert_close(merged.percentile(buckets, share), 1.016_281_388_554_090_4);
    }
}

fn one_sample_reads(resource: Resource, value: f64) -> (u8, i64, i64) {
    let buckets = match resource {
        Resource::Cpu => Buckets::cpu(BucketScheme::Standard),
        Resource::Memory => Buckets::memory(BucketScheme::Standard),
    };
    let mut histogram = Histogram::new(buckets);
    histogram.add(HistogramConfig { buckets, half_life: Some(HOUR * 24) }, value, 1.0, START);
    let estimate = resource.amount(histogram.percentile(buckets, 0.9));
    (buckets.find(value), estimate, estimate + resource.scale(estimate, 0.15))
}

#[test]
fn v13_to_v23_a_cpu_sample_gives_the_upper_edge_of_its_bucket() {
    for (millis, expected) in [
        (0, (0, 10, 11)),
        (9, (0, 10, 11)),
        (10, (1, 20, 23)),
        (20, (1, 20, 23)),
        (25, (2, 31, 35)),
        (50, (4, 55, 63)),
        (100, (8, 110, 126)),
        (250, (16, 258, 296)),
        (500, (25, 511, 587)),
        (1000, (36, 1016, 1168)),
        (2000, (49, 2093, 2406)),
        (4000, (62, 4124, 4742)),
        (1_100_000, (175, 1_021_109, 1_174_275)),
    ] {
        let cores = MilliCpu(millis).as_cores();
        assert_eq!(one_sample_reads(Resource::Cpu, cores), expected, "{millis} m");
    }
}

#[test]
fn v24_to_v34_a_memory_sample_gives_the_upper_edge_of_its_bucket() {
    let mebi = |count: i64| count * super::MIB;
    for (bytes, expected) in [
        (0, (0, 10_000_000, 11_500_000)),
        (9_999_999, (0, 10_000_000, 11_500_000)),
        (mebi(16), (1, 20_499_999, 23_574_998)),
        (20_499_999, (1, 20_499_999, 23_574_998)),
        (20_500_000, (1, 20_499_999, 23_574_998)),
        (mebi(32), (3, 43_101_249, 49_566_436)),
        (mebi(64), (5, 68_019_128, 78_221_997)),
        (mebi(100), (8, 110_265_643, 126_805_489)),
        (mebi(128), (10, 142_067_871, 163_378_051)),
        (mebi(250), (17, 281_323_846, 323_522_422)),
        (mebi(256), (17, 281_323_846, 323_522_422)),
        (mebi(500), (26, 546_691_264, 628_694_953)),
        (mebi(512), (26, 546_691_264, 628_694_953)),
        (mebi(1024), (37, 1_077_095_457, 1_238_659_775)),
        (mebi(4096), (63, 4_340_933_439, 4_992_073_454)),
        (2_000_000_000_000, (175, 1_021_109_408_904, 1_174_275_820_239)),
    ] {
        let read = one_sample_reads(Resource::Memory, Bytes(bytes).as_f64());
        assert_eq!(read, expected, "{bytes} bytes");
    }
}

#[test]
fn v73_to_v79_reference_times_are_multiples_of_the_half_life_since_year_one() {
    let hours = |hours: u64| Duration::from_secs(hours * 3600);
    let odd = "2026-03-05T13:37:05Z";
    for (half_life, sample, reference, total) in [
        (hours(24), "2026-03-05T11:59:59Z", "2026-03-05T00:00:00Z", 0.141_420_221_683_824_1),
        (hours(24), "2026-03-05T12:00:00Z", "2026-03-06T00:00:00Z", 0.070_710_678_118_654_75),
        (hours(24), odd, "2026-03-06T00:00:00Z", 0.074_093_504_703_603_55),
        (hours(168), odd, "2026-03-09T00:00:00Z", 0.071_184_314_516_431_13),
        (hours(36), odd, "2026-03-06T00:00:00Z", 0.081_881_682_620_864_32),
        (hours(5), odd, "2026-03-05T14:00:00Z", 0.094_842_862_488_091_73),
        (Duration::from_mins(90), odd, "2026-03-05T13:30:00Z", 0.105_606_871_091_520_84),
    ] {
        let buckets = Buckets::cpu(BucketScheme::Standard);
        let mut histogram = Histogram::new(buckets);
        histogram.add(
            HistogramConfig { buckets, half_life: Some(half_life) },
            0.1,
            0.1,
            at(sample),
        );
        assert_eq!(histogram.reference, Some(at(reference)), "{half_life:?}");
        assert_close(histogram.total, total);
    }
}

#[test]
fn v80_a_memory_peak_has_the_time_of_the_end_of_its_window() {
    let mut subject = super::VpaFixture::new(plimsoll_core::types::compat::Compat::Upstream);
    let sample: Time = at("2026-03-05T13:37:05Z");
    assert!(subject.memory(sample, 200 * super::MIB));
    let snapshot = subject.history.get("app").expect("known").to_snapshot(sample, &subject.rules());
    assert_eq!(snapshot.replicas[0].window_end, Some(at("2026-03-06T13:37:05Z")));
    assert_eq!(snapshot.memory.reference, Some(at("2026-03-07T00:00:00Z")));
    assert_close(snapshot.memory.total, 0.740_935_047_036_035_5);
}
