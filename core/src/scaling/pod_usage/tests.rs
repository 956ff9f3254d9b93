//! Usage computed from series by hand, and properties of any series.

use proptest::prelude::*;

use super::*;

const NOW: i64 = 10_000;

fn at(seconds_ago: f64) -> Time {
    Time::from_nanos(((NOW as f64 - seconds_ago) * 1e9) as i64)
}

/// Points by seconds ago.
fn points(points: &[(f64, f64)]) -> Vec<(Time, f64)> {
    points.iter().map(|&(ago, value)| (at(ago), value)).collect()
}

/// Milli-units of a container named `main`, the seconds since its newest sample, and the window in seconds. `None` if the
/// pod is missing, and no amount if the container is unknown.
fn usage(resource: Resource, series: &[&[(f64, f64)]]) -> Option<(Option<i64>, f64, f64)> {
    let mut all = UsageSeries::new(resource, Time::from_secs(NOW));
    for one in series {
        all.add("web", "main", points(one));
    }
    let usage = all.into_usage().remove("web")?;
    let amount = usage.containers["main"].map(Quantity::milli_value);
    let age = Time::from_secs(NOW).nanos_since(usage.at) as f64 / 1e9;
    Some((amount, age, usage.window.as_secs_f64()))
}

fn cpu(points: &[(f64, f64)]) -> Option<(Option<i64>, f64, f64)> {
    usage(Resource::Cpu, &[points])
}

/// Whole bytes.
fn memory(points: &[(f64, f64)]) -> Option<(Option<i64>, f64, f64)> {
    usage(Resource::Memory, &[points])
        .map(|(amount, age, window)| (amount.map(|milli| milli / 1000), age, window))
}

#[test]
fn cpu_is_the_rate_over_the_minute_before_the_newest_sample() {
    for (name, series, expected) in [
        // What was used before that minute does not count.
        (
            "each 15 s",
            &[
                (80.0, 0.0),
                (65.0, 100.0),
                (50.0, 103.0),
                (35.0, 106.0),
                (20.0, 110.0),
                (5.0, 115.0),
            ][..],
            Some((Some(250), 5.0, 60.0)),
        ),
        ("each minute", &[(125.0, 7.0), (65.0, 100.0), (5.0, 130.0)], Some((Some(500), 5.0, 60.0))),
        // A scrape that is late by some milliseconds, and a longer interval: the window is as long as the rate.
        ("late", &[(65.25, 0.0), (5.0, 60.25)], Some((Some(1000), 5.0, 60.25))),
        ("each two minutes", &[(125.0, 0.0), (5.0, 60.0)], Some((Some(500), 5.0, 120.0))),
        (
            "a gap",
            &[(95.0, 0.0), (35.0, 30.0), (20.0, 30.0), (5.0, 33.0)],
            Some((Some(100), 5.0, 60.0)),
        ),
        ("an old gap", &[(295.0, 0.0), (5.0, 29.0)], Some((Some(100), 5.0, 290.0))),
        ("a young container", &[(20.0, 1.0), (5.0, 4.0)], Some((Some(200), 5.0, 60.0))),
        ("idle", &[(65.0, 9.0), (35.0, 9.0), (5.0, 9.0)], Some((Some(0), 5.0, 60.0))),
        // Rounded to nanocores, and then up, as by a metrics server and its client.
        ("rounded", &[(60.0, 0.0), (0.0, 15.000_001)], Some((Some(251), 0.0, 60.0))),
        ("exact", &[(60.0, 123_456.1), (0.0, 123_471.1)], Some((Some(250), 0.0, 60.0))),
        ("one sample", &[(5.0, 4.0)], Some((None, 5.0, 60.0))),
        // Both may be the same measurement.
        ("too short", &[(15.0, 4.0), (5.0, 4.0)], Some((None, 5.0, 60.0))),
        ("too old", &[(361.0, 0.0), (330.0, 4.0), (300.0, 7.0)], None),
        ("from the future", &[(-30.0, 9.0), (-60.0, 10.0)], None),
        ("nothing", &[], None),
    ] {
        assert_eq!(cpu(series), expected, "{name}");
    }
}

#[test]
fn after_a_reset_a_counter_counts_from_its_next_sample() {
    for (name, series, expected) in [
        // What was used before the reset is unknown, so nothing that includes it counts.
        (
            "long ago",
            &[(65.0, 900.0), (50.0, 2.0), (35.0, 5.0), (20.0, 8.0), (5.0, 11.0)][..],
            Some(200),
        ),
        ("two", &[(65.0, 9.0), (50.0, 2.0), (35.0, 5.0), (20.0, 1.0), (5.0, 4.0)], Some(200)),
        (
            "just now",
            &[(65.0, 900.0), (50.0, 903.0), (35.0, 906.0), (20.0, 909.0), (5.0, 1.0)],
            None,
        ),
        ("each time", &[(65.0, 9.0), (50.0, 8.0), (35.0, 7.0), (20.0, 6.0), (5.0, 5.0)], None),
    ] {
        assert_eq!(cpu(series), Some((expected, 5.0, 60.0)), "{name}");
    }
}

#[test]
fn memory_is_the_mean_over_the_minute_before_the_newest_sample() {
    for (name, series, expected) in [
        (
            "each 15 s",
            &[(80.0, 9e9), (65.0, 9e9), (50.0, 100.0), (35.0, 200.0), (20.0, 300.0), (5.0, 400.0)]
                [..],
            Some((Some(250), 5.0, 60.0)),
        ),
        ("each minute", &[(65.0, 900.0), (5.0, 130.0)], Some((Some(130), 5.0, 60.0))),
        ("a gap", &[(50.0, 100.0), (5.0, 301.0)], Some((Some(201), 5.0, 60.0))),
        ("four minutes old", &[(290.0, 100.0), (240.0, 300.0)], Some((Some(200), 240.0, 60.0))),
        ("none", &[(5.0, 0.0)], Some((Some(0), 5.0, 60.0))),
        ("too old", &[(300.0, 100.0)], None),
        ("nothing", &[], None),
    ] {
        assert_eq!(memory(series), expected, "{name}");
    }
}

#[test]
fn invalid_values_and_disorder_change_nothing() {
    let valid = [(65.0, 100.0), (35.0, 106.0), (5.0, 115.0)];
    let nan = f64::NAN;
    // The value by which Prometheus marks the end of a series.
    let stale = f64::from_bits(0x7ff0_0000_0000_0002);
    for more in [
        &[(5.0, 115.0)][..],
        &[(35.0, 105.0)],
        &[(20.0, nan), (1.0, nan)],
        &[(1.0, stale)],
        &[(20.0, f64::INFINITY), (1.0, f64::NEG_INFINITY)],
        &[(20.0, -1.0), (1.0, -0.5)],
    ] {
        for series in [[&valid[..], more].concat(), [more, &valid[..]].concat()] {
            assert_eq!(cpu(&series), cpu(&valid), "{more:?}");
            let reversed: Vec<_> = series.iter().rev().copied().collect();
            assert_eq!(cpu(&reversed), cpu(&valid), "{more:?}");
        }
    }
    for only in [&[(5.0, nan)][..], &[(5.0, stale), (20.0, -1.0)]] {
        assert_eq!((cpu(only), memory(only)), (None, None), "{only:?}");
    }
}

#[test]
fn the_newest_of_several_series_of_a_container_counts() {
    let (before, after): (&[_], &[_]) = (&[(65.0, 90.0), (20.0, 99.0)], &[(17.0, 0.0), (2.0, 3.0)]);
    let (large, small): (&[_], &[_]) = (&[(62.0, 0.0), (2.0, 60.0)], &[(62.0, 0.0), (2.0, 6.0)]);
    for (name, series, expected) in [
        ("a restart", [before, after], Some((Some(200), 2.0, 60.0))),
        // Until the new container has two samples its usage is unknown.
        ("a restart just now", [before, &after[1..]], Some((None, 2.0, 60.0))),
        ("copies", [large, small], Some((Some(1000), 2.0, 60.0))),
        ("a copy with fewer samples", [&large[1..], small], Some((Some(100), 2.0, 60.0))),
    ] {
        assert_eq!(usage(Resource::Cpu, &series), expected, "{name}");
        let [one, other] = series;
        assert_eq!(usage(Resource::Cpu, &[other, one]), expected, "{name}");
    }
}

#[test]
fn the_window_of_a_pod_ends_with_the_newest_sample_of_its_containers() {
    let mut all = UsageSeries::new(Resource::Memory, Time::from_secs(NOW));
    all.add("web", "main", points(&[(70.0, 900.0), (62.0, 100.0), (40.0, 300.0), (10.0, 500.0)]));
    all.add("web", "side", points(&[(69.0, 7.0), (61.0, 10.0), (5.0, 30.0)]));
    all.add("web", "ended", points(&[(80.0, 1.0), (65.0, 1.0)]));
    all.add("web", "broken", points(&[(5.0, f64::NAN)]));
    all.add("db", "main", points(&[(200.0, 1.0)]));
    assert_eq!(all.containers(), 5);
    let usage = all.into_usage();
    let of = |pod: &str| {
        let usage = &usage[pod];
        let containers = usage.containers.iter();
        let containers = containers.map(|(name, amount)| (&**name, amount.map(Quantity::value)));
        (usage.at, containers.collect::<Vec<_>>())
    };
    let web = [("broken", None), ("main", Some(300)), ("side", Some(20))];
    assert_eq!(of("web"), (at(5.0), web.to_vec()));
    assert_eq!(of("db"), (at(200.0), vec![("main", Some(1))]));
    let mut none = UsageSeries::new(Resource::Cpu, Time::from_secs(NOW));
    none.add("web", "main", points(&[(5.0, 1.0)]));
    none.clear();
    assert!(none.into_usage().is_empty());
}

prop_compose! {
    /// Points of some minutes in any order, some of them invalid.
    fn any_points()(
        points in prop::collection::vec((-100.0..500.0_f64, prop_oneof![
            8 => 0.0..1e6_f64,
            1 => Just(f64::NAN),
            1 => -10.0..0.0_f64,
            1 => Just(f64::INFINITY),
        ]), 0..40),
    ) -> Vec<(f64, f64)> {
        points
    }
}

proptest! {
    #[test]
    fn order_and_repetition_do_not_matter(
        (series, shuffled) in any_points().prop_flat_map(|series| (Just(series.clone()), Just(series).prop_shuffle())),
    ) {
        prop_assert_eq!(cpu(&series), cpu(&shuffled));
        prop_assert_eq!(memory(&series), memory(&shuffled));
        let twice = [&series[..], &shuffled[..]].concat();
        prop_assert_eq!(cpu(&series), cpu(&twice));
        prop_assert_eq!(memory(&series), memory(&twice));
    }

    #[test]
    fn a_sample_is_recent_and_no_amount_is_outside_of_its_values(series in any_points()) {
        let valid = series.iter().filter(|(ago, value)| (0.0..300.0).contains(ago) && value.is_finite() && *value >= 0.0);
        let newest = valid.clone().map(|(ago, _)| *ago).min_by(f64::total_cmp);
        let in_window = valid.clone().filter(|(ago, _)| newest.is_some_and(|newest| *ago < newest + 60.0)).map(|(_, value)| *value);
        let found = memory(&series);
        prop_assert_eq!(found.is_some(), newest.is_some());
        if let (Some((amount, age, _)), Some(newest)) = (found, newest) {
            prop_assert!((age - newest).abs() < 1e-6);
            let amount = amount.expect("a mean of one value or more") as f64;
            let (min, max) = in_window.fold((f64::MAX, 0.0_f64), |(min, max), value| (min.min(value), max.max(value)));
            prop_assert!(min - 1.0 <= amount && amount <= max + 1.0, "{amount} of {min} to {max}");
        }
        if let Some((amount, age, window)) = cpu(&series) {
            prop_assert!((0.0..300.0).contains(&age) && (60.0..=300.0).contains(&window));
            prop_assert!(amount.is_none_or(|amount| amount >= 0));
        }
    }

    /// However a steady load is scraped, its usage is the load.
    #[test]
    fn a_steady_load_has_the_same_usage_with_any_scrapes(
        cores in 0.0..8.0_f64,
        first in 0.0..1e7_f64,
        gaps in prop::collection::vec(5.0..61.0_f64, 4..60),
        age in 0.0..200.0_f64,
    ) {
        let mut ago = age;
        let mut scrapes = vec![ago];
        for gap in gaps {
            ago += gap;
            scrapes.push(ago);
        }
        let total = ago;
        let counter: Vec<_> = scrapes.iter().map(|&ago| (ago, first + (total - ago) * cores)).collect();
        let (amount, found_age, _) = cpu(&counter).expect("a sample");
        let expected = (cores * 1000.0).ceil();
        // Counters are floats: those of several months have a precision of some nanoseconds.
        prop_assert!(amount.is_some_and(|milli| (milli as f64 - expected).abs() <= 1.0), "{amount:?} of {expected}");
        prop_assert!((found_age - age).abs() < 1e-6);
        let gauge: Vec<_> = scrapes.iter().map(|&ago| (ago, 1e6)).collect();
        prop_assert_eq!(memory(&gauge).map(|(amount, ..)| amount), Some(Some(1_000_000)));
    }

    /// A container that restarts is never taken for one that uses less than it does.
    #[test]
    fn a_reset_never_lowers_a_steady_usage(
        before in 1..20_usize,
        after in 1..20_usize,
        downtime in 0.0..15.0_f64,
        cores in 0.1..4.0_f64,
    ) {
        let counter = |count: usize, from: f64| (0..count).map(move |index| 15.0 * (index as f64) * cores + from).collect::<Vec<_>>();
        let values = [counter(before, 1e5), counter(after, (15.0 - downtime) * cores)].concat();
        let count = values.len();
        let series: Vec<_> = values.into_iter().enumerate().map(|(index, value)| (15.0 * (count - 1 - index) as f64, value)).collect();
        if let Some((Some(milli), ..)) = cpu(&series) {
            prop_assert!(milli as f64 >= (cores * 1000.0).floor(), "{milli} of {cores}");
        }
    }
}
