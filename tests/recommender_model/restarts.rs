//! Golden vectors V135 to V140: state that a restart loses in upstream and keeps here.

use plimsoll_core::{history::Snapshot, types::Time};
use plimsoll_core::{
    recommender::{ContainerHistory, History, OomKill, RestoreResult},
    types::{compat::Compat, units::Bytes},
};

use super::{
    BOTH_MODES, MIB, VpaFixture, assert_close, encoded_memory, encoded_weights, estimates::spiky,
    minute,
};

fn snapshot(subject: &VpaFixture, now: Time) -> Snapshot {
    subject.history.get("app").expect("known").to_snapshot(now, &subject.rules())
}

/// The subject, restored from its checkpoint at `now`.
fn restart_from_checkpoint(subject: &VpaFixture, now: Time) -> VpaFixture {
    let rules = subject.rules();
    let saved = snapshot(subject, now);
    let text = serde_json::to_string(&saved).expect("can be written");
    let loaded: Snapshot = serde_json::from_str(&text).expect("can be read");
    let container = ContainerHistory::from_snapshot(&loaded, now, &rules).expect("valid");
    let mut history = History::default();
    history.restore("app".into(), container, now, &rules);
    let (settings, directives) = (subject.settings.clone(), subject.directives.clone());
    VpaFixture { settings, directives, history }
}

fn oom(subject: &mut VpaFixture, time: Time, request: i64) {
    let rules = subject.rules();
    let kill = OomKill { request: Bytes(request), limit: Some(Bytes(request)), usage: None };
    let container = subject.history.container_mut("app", time, &rules);
    container.record_oom("pod-0", time, kill, &rules).expect("counts");
}

#[test]
fn v135_to_v137_a_mature_history_loses_its_open_window_upstream() {
    // The last sample was at minute 11519, and the window is open until minute 11520.
    let now = minute(11_519);
    let running = spiky(Compat::Upstream);
    assert_eq!(running.memory_numbers(now), [671_629_701, 671_461_810, 755_590_701]);

    let closed = snapshot(&running, now).memory_closed.expect("a window is open");
    let expected =
        [(14, 156), (17, 313), (19, 625), (21, 1250), (23, 2500), (24, 5000), (26, 10_000)];
    assert_eq!(encoded_weights(&closed), expected);
    assert_close(closed.total, 127.0);

    let mut upstream = restart_from_checkpoint(&running, now);
    assert_eq!(upstream.memory_numbers(now), [628_694_953, 628_537_795, 707_288_644]);
    let next = minute(11_520);
    upstream.cpu(next, 100);
    upstream.memory(next, 150 * MIB);
    assert_eq!(upstream.memory_numbers(next), [628_694_953, 262_144_000, 707_281_822]);
}

#[test]
fn v138_to_v140_upstream_loses_the_oom_bump_of_a_young_container_on_restart() {
    let young = |compat| {
        let mut subject = VpaFixture::new(compat);
        for index in 0..120 {
            subject.cpu(minute(index), 100);
            subject.memory(minute(index), 400 * MIB);
        }
        oom(&mut subject, minute(119), 512 * MIB);
        subject
    };
    let now = minute(119);
    for compat in BOTH_MODES {
        let numbers = young(compat).memory_numbers(now);
        assert_eq!(numbers, [764_046_746, 745_885_834, 10_009_654_428]);
    }
    let closed = snapshot(&young(Compat::Upstream), now).memory_closed.expect("a window is open");
    assert_eq!(encoded_weights(&closed), []);
    assert_close(closed.total, 0.0);
    let mut upstream = restart_from_checkpoint(&young(Compat::Upstream), now);
    upstream.memory(minute(120), 400 * MIB);
    assert_eq!(upstream.memory_numbers(now), [511_772_986, 499_608_463, 6_704_656_177]);

    let mut here = restart_from_checkpoint(&young(Compat::Plimsoll), now);
    here.memory(minute(120), 400 * MIB);
    let mut stayed = young(Compat::Plimsoll);
    stayed.memory(minute(120), 400 * MIB);
    assert_eq!(here.recommend(now), stayed.recommend(now));
    assert_eq!(here.memory_numbers(now)[0], 764_046_746);
}

#[test]
fn a_restart_at_any_minute_changes_no_recommendation() {
    for restart in [0, 1, 700, 1439, 1440, 1441, 5000] {
        let feed = |subject: &mut VpaFixture, from: u32, to: u32| {
            for index in from..to {
                subject.cpu(minute(index), i64::from(50 + index * 7 % 900));
                subject.memory(minute(index), i64::from(100 + index * 13 % 400) * MIB);
                if index % 997 == 500 {
                    oom(subject, minute(index), 450 * MIB);
                }
            }
        };
        let mut stayed = VpaFixture::new(Compat::Plimsoll);
        feed(&mut stayed, 0, restart + 1);
        let mut back = restart_from_checkpoint(&stayed, minute(restart));
        let now = minute(restart);
        assert_eq!(back.recommend(now), stayed.recommend(now), "restart at {restart}");
        feed(&mut stayed, restart + 1, restart + 3000);
        feed(&mut back, restart + 1, restart + 3000);
        let now = minute(restart + 3000);
        assert_eq!(back.recommend(now), stayed.recommend(now), "later than {restart}");
        assert_eq!(snapshot(&back, now), snapshot(&stayed, now));
    }
}

#[test]
fn samples_before_the_history_is_loaded_count_as_if_it_had_been_there() {
    for per_replica_peaks in [false, true] {
        let feed = |subject: &mut VpaFixture, from: u32, to: u32| {
            for index in from..to {
                subject.cpu(minute(index), i64::from(50 + index * 7 % 900));
                // A new peak every few minutes of the day; each replaces the one before.
                subject.memory(minute(index), i64::from(200 + index % 1440) * MIB);
            }
        };
        let fresh = || {
            let mut subject = VpaFixture::new(Compat::Plimsoll);
            subject.settings.per_replica_peaks = per_replica_peaks;
            subject
        };
        let mut stayed = fresh();
        feed(&mut stayed, 0, 2000);
        let rules = stayed.rules();
        let saved = snapshot(&stayed, minute(2000));
        feed(&mut stayed, 2000, 2050);

        let mut late = fresh();
        feed(&mut late, 2000, 2050);
        let now = minute(2050);
        for expected in [RestoreResult::Merged, RestoreResult::AlreadyLoaded] {
            // A load that is retried delivers everything twice.
            let remembered = ContainerHistory::from_snapshot(&saved, now, &rules).expect("valid");
            let restored = late.history.restore("app".into(), remembered, now, &rules);
            assert_eq!(restored, expected);
        }
        assert_eq!(late.recommend(now), stayed.recommend(now));
        assert_eq!(encoded_memory(&late, now).0, encoded_memory(&stayed, now).0);
        feed(&mut stayed, 2050, 6000);
        feed(&mut late, 2050, 6000);
        assert_eq!(late.recommend(minute(6000)), stayed.recommend(minute(6000)));
    }
}

#[test]
fn expired_and_damaged_records_are_superseded() {
    let mut old = VpaFixture::new(Compat::Plimsoll);
    for index in 0..3000 {
        old.cpu(minute(index), 100);
    }
    let (rules, saved) = (old.rules(), snapshot(&old, minute(3000)));
    let months_later = minute(3000 + 60 * 1440);
    let mut fresh = VpaFixture::new(Compat::Plimsoll);
    let expired = ContainerHistory::from_snapshot(&saved, months_later, &rules).expect("valid");
    let restored = fresh.history.restore("app".into(), expired, months_later, &rules);
    assert_eq!(restored, RestoreResult::Expired);
    fresh.cpu(months_later, 100);
    assert_eq!(fresh.history.get("app").expect("known").cpu_samples.count, 1);
    assert!(fresh.history.supersedes("app"), "an expired richer record does not win");
    fresh.history.mark_saved("app");
    assert!(!fresh.history.supersedes("app"));

    let gone = old.history.forget_expired(months_later, &old.directives, &old.settings);
    assert_eq!(gone, ["app".into()]);
    assert!(old.history.get("app").is_none() && old.history.supersedes("app"));

    let mut damaged = saved.clone();
    damaged.cpu.reference = Some(months_later.later(super::HOUR * 24 * 400));
    let error =
        ContainerHistory::from_snapshot(&damaged, months_later, &rules).expect_err("invalid");
    assert!(error.to_string().contains("cpu: reference time 2027"), "{error}");
    let mut damaged = saved;
    damaged.memory.buckets = vec![(3, 1e300)];
    ContainerHistory::from_snapshot(&damaged, months_later, &rules).expect_err("invalid");
}
