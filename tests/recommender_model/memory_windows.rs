//! Golden vectors V81 to V105: memory windows and successive OOM bumps.

use plimsoll_core::{history::ReplicaState, types::Time};
use plimsoll_core::{
    recommender::{OomKill, Overrides, memory_window},
    types::{compat::Compat, units::Bytes},
};
use std::time::Duration;

use super::{BOTH_MODES, GIB, HOUR, MIB, START, VpaFixture, at, encoded_memory, minute};

fn hours(hours: f64) -> Time {
    START.later(Duration::from_secs_f64(hours * 3600.0))
}

fn replica(subject: &VpaFixture) -> ReplicaState {
    let history = subject.history.get("app").expect("known");
    let snapshot = history.to_snapshot(START, &subject.rules());
    snapshot.replicas.first().expect("has a pod").clone()
}

fn peak(subject: &VpaFixture) -> i64 {
    memory_window::open_peak(&replica(subject)).expect("has a peak")
}

fn oom(subject: &mut VpaFixture, time: Time, request: i64) -> bool {
    let rules = subject.rules();
    let container = subject.history.container_mut("app", time, &rules);
    // A container is OOM-killed at its limit, which here equals the request.
    let kill = OomKill { request: Bytes(request), limit: Some(Bytes(request)), usage: None };
    container.record_oom("pod-0", time, kill, &rules).is_ok()
}

#[test]
fn v81_to_v89_each_window_has_one_peak_and_windows_start_at_the_first_sample() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        for (time, mebi, accepted, end, expected) in [
            (0.0, 100, true, 24.0, 100),
            (12.0, 200, true, 24.0, 200),
            (23.999, 150, true, 24.0, 200),
            (24.0, 50, true, 48.0, 50),
            (24.5, 300, true, 48.0, 300),
            (100.0, 80, true, 120.0, 80),
            (99.0, 90, false, 120.0, 80),
            (100.0, 85, true, 120.0, 85),
            (100.1, 79, true, 120.0, 85),
        ] {
            assert_eq!(subject.memory(hours(time), mebi * MIB), accepted, "at {time} h");
            let replica = replica(&subject);
            assert_eq!(replica.window_end, Some(hours(end)), "after {time} h");
            assert_eq!(memory_window::open_peak(&replica), Some(expected * MIB), "after {time} h");
        }
        let (buckets, total, reference) = encoded_memory(&subject, START);
        assert_eq!(buckets, [(7, 10_000), (14, 625), (19, 1250)]);
        super::assert_close(total, 19.0);
        assert_eq!(reference, Some(at("2026-01-02T00:00:00Z")));
    }
}

#[test]
fn v90_to_v93_an_oom_kill_adds_a_fifth_or_100_mebibytes() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        assert!(oom(&mut subject, START, 1000 * MIB));
        assert_eq!(peak(&subject), 1200 * MIB);
        for _ in 0..2 {
            assert!(oom(&mut subject, START, 999 * MIB));
            assert_eq!(peak(&subject), 1200 * MIB);
        }
        assert!(oom(&mut subject, START, 2000 * MIB));
        assert_eq!(peak(&subject), 2400 * MIB);
        // The old peak was replaced: the weight of one sample is left.
        let mut fresh = VpaFixture::new(compat);
        assert!(oom(&mut fresh, START, 2000 * MIB));
        assert_eq!(encoded_memory(&subject, START), encoded_memory(&fresh, START));

        let mut small = VpaFixture::new(compat);
        assert!(oom(&mut small, START, MIB));
        assert_eq!(peak(&small), 101 * MIB);
    }
}

#[test]
fn v94_v95_usage_above_the_request_is_the_base_and_old_oom_kills_are_rejected() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        subject.memory(START, 3000 * MIB);
        assert!(oom(&mut subject, START, 1000 * MIB));
        assert_eq!(peak(&subject), 3600 * MIB);

        let mut subject = VpaFixture::new(compat);
        subject.memory(hours(30.0), 1000 * MIB);
        let before = replica(&subject);
        assert!(!oom(&mut subject, START, 1000 * MIB));
        assert_eq!(replica(&subject), before);
    }
}

#[test]
fn v96_to_v101_repeated_oom_kills_climb_with_the_request_and_with_usage() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        subject.memory(START, 200 * MIB);
        for (request, expected) in [
            (256 * MIB, 373_293_056),
            (256 * MIB, 373_293_056),
            (356 * MIB, 478_150_656),
            (GIB, 1_288_490_188),
        ] {
            assert!(oom(&mut subject, minute(1), request));
            assert_eq!(peak(&subject), expected, "request {request}");
        }
        assert!(subject.memory(minute(2), 1500 * MIB));
        assert_eq!(peak(&subject), 1_572_864_000);
        assert!(oom(&mut subject, minute(3), GIB));
        assert_eq!(peak(&subject), 1_887_436_800);
    }
}

#[test]
fn v102_an_oom_kill_exactly_one_window_before_the_last_sample_counts() {
    for compat in BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        subject.memory(START.later(HOUR * 24), 200 * MIB);
        assert!(oom(&mut subject, START, 4 * GIB));
        assert_eq!(peak(&subject), 5_153_960_755);
    }
}

#[test]
fn v103_v105_a_policy_can_set_the_ratio_and_minimum_bump() {
    for compat in BOTH_MODES {
        for (ratio, least, request, usage, expected) in [
            (1.5, 100.0, 50, 0, 150),
            (1.5, 100.0, 1024, 0, 1536),
            (1.0, 0.0, 700, 300, 700),
            (1.0, 0.0, 300, 700, 700),
        ] {
            let mut subject = VpaFixture::new(compat);
            subject.settings.per_vpa_config = true;
            let rules = subject.rules();
            let overrides = Overrides {
                oom_ratio: Some(ratio),
                oom_min_bump: Some(least * 1_048_576.0),
                ..Overrides::default()
            };
            let container = subject.history.container_mut("app", START, &rules);
            container.apply_policy(Some(overrides), &rules);
            if usage > 0 {
                subject.memory(START, usage * MIB);
            }
            assert!(oom(&mut subject, START, request * MIB));
            assert_eq!(peak(&subject), expected * MIB, "{request} Mi");
        }
    }
}

#[test]
fn v104_a_first_sample_of_zero_closes_the_window_only_upstream() {
    let run = |compat| {
        let mut subject = VpaFixture::new(compat);
        subject.memory(START, 0);
        for index in 1..1440 {
            subject.memory(minute(index), 500 * MIB);
        }
        subject
    };
    let mut upstream = run(Compat::Upstream);
    assert_eq!(peak(&upstream), 0);
    assert_eq!(encoded_memory(&upstream, START).0, [(0, 10_000)]);
    upstream.memory(minute(1440), 500 * MIB);
    assert_eq!(peak(&upstream), 500 * MIB);

    let fixed = run(Compat::Plimsoll);
    assert_eq!(peak(&fixed), 500 * MIB);
    assert_eq!(encoded_memory(&fixed, START).0, [(26, 10_000)]);
}
