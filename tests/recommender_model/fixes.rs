//! Each named fix: upstream's number, ours, and that disabling the fix restores upstream's.

use plimsoll_core::{
    history::{Measurement, Resource, Sample, SampleBatch},
    types::{ContainerKey, ObjectKey},
};
use plimsoll_core::{
    recommender::{
        HistoryBootstrap, OomKill, Overrides, RecommendationReason, SampleResult, VpaRegistry,
        VpaSettings, memory_window,
        registry::{OomResult, UsageSample},
    },
    types::{
        compat::{Compat, Fix},
        units::{Bytes, MAX_AMOUNT, MilliCpu},
    },
};
use std::time::Duration;

use super::{HOUR, MIB, MINUTE, START, VpaFixture, encoded_memory, minute};

/// Runs a scenario in upstream mode, in native mode, and in native mode without the fix.
fn compare<T: PartialEq + std::fmt::Debug>(fix: Fix, scenario: impl Fn(VpaFixture) -> T) -> (T, T) {
    let upstream = scenario(VpaFixture::new(Compat::Upstream));
    let fixed = scenario(VpaFixture::new(Compat::Plimsoll));
    let mut without = VpaFixture::new(Compat::Plimsoll);
    without.settings.fixes = without.settings.fixes.without(fix);
    assert_eq!(scenario(without), upstream, "--disable-fix {fix}");
    assert_ne!(fixed, upstream, "{fix} changes nothing here");
    (upstream, fixed)
}

fn oom(subject: &mut VpaFixture, time: plimsoll_core::types::Time, kill: OomKill) -> bool {
    let rules = subject.rules();
    let container = subject.history.container_mut("app", time, &rules);
    container.record_oom("pod-0", time, kill, &rules).is_ok()
}

fn restarted(mut subject: VpaFixture, now: plimsoll_core::types::Time) -> VpaFixture {
    let rules = subject.rules();
    let saved = subject.history.get("app").expect("known").to_snapshot(now, &rules);
    let container =
        plimsoll_core::recommender::ContainerHistory::from_snapshot(&saved, now, &rules);
    subject.history = plimsoll_core::recommender::History::default();
    subject.history.restore("app".into(), container.expect("valid"), now, &rules);
    subject
}

#[test]
fn memory_windows_survive_restart() {
    let (upstream, fixed) = compare(Fix::MemoryWindowsSurviveRestart, |mut subject| {
        subject.cpu(minute(0), 100);
        subject.memory(minute(0), 900 * MIB);
        restarted(subject, minute(1)).memory_numbers(minute(1))[0]
    });
    assert_eq!(upstream, 262_144_000, "the minimum: no history is left");
    assert!(fixed > 900 * MIB, "{fixed}");
}

#[test]
fn exact_weights_survive_restart() {
    let tail = |mut subject: VpaFixture| {
        for index in 0..30_000 {
            subject.cpu(minute(index), 100);
        }
        // One sample in 30,000 has less than a ten-thousandth of the largest weight.
        subject.settings.cpu.half_life = Duration::from_hours(24 * 365);
        let before = {
            let mut subject =
                VpaFixture { history: plimsoll_core::recommender::History::default(), ..subject };
            for index in 0..30_000 {
                subject.cpu(minute(index), if index == 15_000 { 4000 } else { 100 });
            }
            subject
        };
        let now = minute(30_000);
        let rules = before.rules();
        let back = restarted(before, now);
        let cpu = back.history.get("app").expect("known").to_snapshot(now, &rules).cpu;
        cpu.buckets.len()
    };
    let (upstream, fixed) = compare(Fix::ExactWeightsSurviveRestart, tail);
    assert_eq!((upstream, fixed), (1, 2));
}

#[test]
fn stale_containers_leave() {
    let (upstream, fixed) = compare(Fix::StaleContainersLeave, |mut subject| {
        subject.register_container("renamed-away", START);
        for index in 0..=61 {
            subject.cpu(minute(index), 1);
        }
        let recommendation = subject.recommend(minute(61));
        (recommendation.containers.len(), subject.cpu_numbers(minute(61))[0])
    });
    assert_eq!(
        upstream,
        (2, 12),
        "a removed container has a recommendation and halves the minimum"
    );
    assert_eq!(fixed, (1, 25));
}

#[test]
fn finished_pods_keep_no_container_alive() {
    let key = ObjectKey::new("shop", "web");
    let mut registry =
        VpaRegistry::new(VpaFixture::new(Compat::Plimsoll).settings, Compat::Plimsoll);
    registry.track(&key, VpaSettings::default(), START);
    let generation = registry.load_generation(&key).expect("container is tracked");
    registry.mark_loaded(&key, generation);
    registry.ingest().register_container(&key, "app", START);
    for index in 1..=61 {
        // `app` was renamed to `server`; pods that were evicted before that still exist.
        registry.ingest().register_container(&key, "server", minute(index));
        registry.ingest().register_finished_container(&key, "app", minute(index));
    }
    let recommendation = registry.recommend(&key, minute(61)).expect("the history is loaded");
    let names: Vec<&str> = recommendation.containers.iter().map(|one| &*one.container).collect();
    assert_eq!(names, ["server"]);
    assert_eq!(
        recommendation.containers[0].target.cpu.expect("has a recommendation").milli_value(),
        25
    );
    // A Job that started and completed between two passes still has a history.
    registry.ingest().register_finished_container(&key, "job", minute(61));
    assert!(registry.get(&key).expect("container is tracked").history.get("job").is_some());
}

#[test]
fn a_workload_without_pods_keeps_all_its_containers() {
    let mut subject = VpaFixture::new(Compat::Plimsoll);
    subject.register_container("app", START);
    subject.register_container("sidecar", START);
    let much_later = START.later(HOUR * 24 * 30);
    assert_eq!(subject.recommend(much_later).containers.len(), 2);
}

#[test]
fn memory_only_history_counts() {
    let (upstream, fixed) = compare(Fix::MemoryOnlyHistoryCounts, |mut subject| {
        for hour in 0..48 {
            subject.memory(START.later(HOUR * hour), 300 * MIB);
        }
        let now = START.later(HOUR * 24 * 9);
        let rules = subject.rules();
        let container = subject.history.get("app").expect("known");
        let is_kept = !container.is_expired(START.later(HOUR * 24 * 8), &rules);
        (is_kept, subject.memory_numbers(now)[2])
    });
    assert_eq!(upstream, (false, MAX_AMOUNT), "collected as empty, and an infinite upper bound");
    assert!(fixed.0 && fixed.1 < MAX_AMOUNT, "{fixed:?}");
}

#[test]
fn zero_sample_keeps_window_open() {
    let (upstream, fixed) = compare(Fix::ZeroSampleKeepsWindowOpen, |mut subject| {
        subject.memory(minute(0), 0);
        subject.memory(minute(1), 500 * MIB);
        encoded_memory(&subject, minute(1)).0
    });
    assert_eq!((upstream, fixed), (vec![(0, 10_000)], vec![(26, 10_000)]));
}

#[test]
fn removed_override_restores_default() {
    let (upstream, fixed) = compare(Fix::RemovedOverrideRestoresDefault, |mut subject| {
        subject.settings.per_vpa_config = true;
        let rules = subject.rules();
        let generous = Overrides { oom_ratio: Some(3.0), ..Overrides::default() };
        let container = subject.history.container_mut("app", START, &rules);
        container.apply_policy(Some(generous), &rules);
        container.apply_policy(None, &rules);
        let kill =
            OomKill { request: Bytes(1000 * MIB), limit: Some(Bytes(1000 * MIB)), usage: None };
        assert!(oom(&mut subject, START, kill));
        subject.history.get("app").expect("known").bump.expect("was bumped").counted
    });
    assert_eq!((upstream, fixed), (3000 * MIB, 1200 * MIB));
}

#[test]
fn oom_keeps_sample_order() {
    let (upstream, fixed) = compare(Fix::OomKeepsSampleOrder, |mut subject| {
        subject.memory(minute(60), 100 * MIB);
        let kill = OomKill { request: Bytes(100 * MIB), limit: None, usage: None };
        assert!(oom(&mut subject, minute(10), kill));
        // Older than the last usage sample, so it must be rejected.
        subject.memory(minute(20), 900 * MIB)
    });
    assert_eq!((upstream, fixed), (true, false));
}

#[test]
fn oom_bump_rests_on_observation() {
    // OOM-killed again and again on an overcommitted node, far below its request; each time the pod comes back with
    // the bumped amount as its request.
    let (upstream, fixed) = compare(Fix::OomBumpRestsOnObservation, |mut subject| {
        let mut request = 500 * MIB;
        for day in 0..6 {
            let now = START.later(HOUR * 24 * day);
            subject.memory(now, 200 * MIB);
            assert!(oom(
                &mut subject,
                now,
                OomKill { request: Bytes(request), limit: None, usage: None }
            ));
            request = subject.memory_numbers(now)[0];
        }
        request / MIB
    });
    assert!(upstream > 2000, "{upstream} Mi: each bump fed on the last");
    assert!(fixed < 800, "{fixed} Mi");
}

#[test]
fn kills_in_downtime_count() {
    let (upstream, fixed) = compare(Fix::KillsInDowntimeCount, |subject| {
        let mut registry = VpaRegistry::new(subject.settings, Compat::default());
        let key = ObjectKey::new("shop", "web");
        registry.track(&key, VpaSettings::default(), START);
        let generation = registry.load_generation(&key).expect("container is tracked");
        registry.mark_loaded(&key, generation);
        let memory = Some(Bytes(300 * MIB));
        let usage =
            UsageSample { pod: "web-0", container: "app", at: minute(0), cpu: None, memory };
        registry.ingest().add_usage(&key, usage, minute(0)).expect("container is tracked");
        // The pod was killed while no recommender ran, and its status still shows the kill.
        let kill = OomKill { request: Bytes(800 * MIB), limit: None, usage: None };
        let (replica, kill_at_time) = (("web-0", "app"), (minute(5), kill));
        let outcome =
            registry.ingest().add_oom_at_first_sight(&key, replica, kill_at_time, minute(9));
        let again =
            registry.ingest().add_oom_at_first_sight(&key, replica, kill_at_time, minute(10));
        let recommendation = registry.recommend(&key, minute(10)).expect("the history is loaded");
        let target =
            recommendation.containers[0].target.memory.expect("has a recommendation").value();
        (matches!(outcome, OomResult::Counted(_)), again, target > 800 * MIB)
    });
    assert_eq!(upstream, (false, OomResult::Ignored, false));
    assert_eq!(fixed, (true, OomResult::Known, true));
}

#[test]
fn future_samples_are_refused() {
    let tell = |subject: VpaFixture| {
        let fixes = subject.settings.fixes;
        let mut registry = VpaRegistry::new(subject.settings, Compat::default());
        let key = ObjectKey::new("shop", "web");
        registry.track(&key, VpaSettings::default(), START);
        let generation = registry.load_generation(&key).expect("container is tracked");
        registry.mark_loaded(&key, generation);
        let usage = |pod, millis, at| UsageSample {
            pod,
            container: "app",
            at,
            cpu: Some(MilliCpu(millis)),
            memory: Some(Bytes(300 * MIB)),
        };
        // The clock of one node is ten days ahead.
        let ahead = START.later(HOUR * 240);
        let refused = registry.ingest().add_usage(&key, usage("web-0", 4000, ahead), START);
        for index in 0..600 {
            let now = minute(index);
            registry
                .ingest()
                .add_usage(&key, usage("web-1", 100, now), now)
                .expect("container is tracked");
        }
        // A slightly fast clock is tolerated.
        let soon = minute(600).later(MINUTE * 2);
        let taken = registry.ingest().add_usage(&key, usage("web-2", 100, soon), minute(600));
        assert_eq!(taken.expect("container is tracked").memory, Some(Ok(())));
        let kill = OomKill { request: Bytes(400 * MIB), limit: None, usage: None };
        let mut killed =
            |at, now| registry.ingest().add_oom(&key, ("web-0", "app"), (at, kill), false, now);
        assert!(matches!(killed(ahead, minute(601)), OomResult::Counted(_)));
        // The clock is right again.
        let again = killed(minute(700), minute(700));
        if fixes.has(Fix::FutureSamplesAreRefused) {
            let first_sight = ((ahead, kill), minute(701));
            let (kill_at_time, now) = first_sight;
            let after_restart =
                registry.ingest().add_oom_at_first_sight(&key, ("web-0", "app"), kill_at_time, now);
            assert_eq!(after_restart, OomResult::Known, "counted at its time");
        }
        let recommendation = registry.recommend(&key, minute(701)).expect("the history is loaded");
        let target =
            recommendation.containers[0].target.cpu.expect("has a recommendation").milli_value();
        (
            refused.expect("container is tracked").cpu
                == Some(Err(memory_window::SampleRejected::InFuture)),
            again == OomResult::Known,
            target > 1000,
        )
    };
    let (upstream, fixed) = compare(Fix::FutureSamplesAreRefused, tell);
    assert_eq!(upstream, (false, true, true), "one sample outweighs ten hours of the others");
    assert_eq!(fixed, (true, false, false));
}

#[test]
fn future_samples_are_not_added_to_a_loaded_history() {
    let mut registry =
        VpaRegistry::new(VpaFixture::new(Compat::Plimsoll).settings, Compat::Plimsoll);
    let key = ObjectKey::new("shop", "web");
    registry.track(&key, VpaSettings::default(), START);
    let settings = registry.settings.clone();
    let mut bootstrap = HistoryBootstrap::new(&settings, minute(10));
    let points: Vec<_> = [1, 5, 10, 13, 20].map(|at| (minute(at), 0.1)).into();
    let container = ContainerKey::new(key.clone(), "app");
    for gauge in [Resource::Cpu, Resource::Memory] {
        let run = SampleBatch { replica: &"web-0".into(), gauge, covers: None, points: &points };
        bootstrap.add_batch(&container, run, |vpa| registry.start_history(vpa));
    }
    let measurement = Measurement::OutOfMemory { request_bytes: MIB, limit_bytes: None };
    let sample = Sample { replica: "web-0".into(), at: minute(20), covers: None, measurement };
    let folded = bootstrap.add_sample(&container, &sample, |vpa| registry.start_history(vpa));
    assert_eq!(folded, SampleResult::InFuture);
    assert_eq!((bootstrap.counts.accepted, bootstrap.counts.in_future), (6, 5));
}

#[test]
fn an_externally_raised_request_is_used_unchanged() {
    let after_a_bump = |kill: OomKill| {
        let mut subject = VpaFixture::new(Compat::Plimsoll);
        let first = OomKill { request: Bytes(500 * MIB), limit: None, usage: None };
        assert!(oom(&mut subject, START, first));
        let later = START.later(HOUR * 24);
        assert!(oom(&mut subject, later, kill));
        subject.history.get("app").expect("known").bump.expect("was bumped").base / MIB
    };
    let kill = |request, usage: Option<i64>| OomKill {
        request: Bytes(request * MIB),
        limit: None,
        usage: usage.map(|usage| Bytes(usage * MIB)),
    };
    // Far more than the bump could have caused: the template was edited, or usage rose.
    assert_eq!(after_a_bump(kill(3000, None)), 3000);
    // An eviction includes the usage.
    assert_eq!(after_a_bump(kill(690, Some(1900))), 1900);
}

#[test]
fn a_smaller_oom_kill_does_not_hide_the_largest_bump() {
    let mut subject = VpaFixture::new(Compat::Plimsoll);
    let rules = subject.rules();
    for (replica, request) in [("pod-0", 2048), ("pod-1", 100), ("pod-0", 50)] {
        let container = subject.history.container_mut("app", START, &rules);
        let kill = OomKill { request: Bytes(request * MIB), limit: None, usage: None };
        container.record_oom(replica, START, kill, &rules).expect("counts");
    }
    assert_eq!(
        subject.history.get("app").expect("known").bump.expect("is present").base,
        2048 * MIB
    );
}

#[test]
fn a_single_cpu_sample_does_not_discard_the_memory_history() {
    let mut subject = VpaFixture::new(Compat::Plimsoll);
    for hour in 0..48 {
        subject.memory(START.later(HOUR * hour), 300 * MIB);
    }
    subject.cpu(START, 100);
    assert!(subject.memory_numbers(START.later(HOUR * 48))[2] < MAX_AMOUNT);
    // A kill long after the only CPU sample keeps the history.
    let late = START.later(HOUR * 24 * 7);
    let kill = OomKill { request: Bytes(300 * MIB), limit: None, usage: None };
    assert!(oom(&mut subject, late, kill));
    let rules = subject.rules();
    let app = subject.history.get("app").expect("known");
    assert!(!app.is_expired(START.later(HOUR * 24 * 9), &rules));
    assert!(app.is_expired(START.later(HOUR * 24 * 16), &rules));
}

#[test]
fn a_container_oom_killed_at_its_limit_climbs_as_upstream_allows() {
    let climb = |compat| {
        let mut subject = VpaFixture::new(compat);
        let mut request = 500 * MIB;
        for day in 0..6 {
            let now = START.later(HOUR * 24 * day);
            let kill =
                OomKill { request: Bytes(request), limit: Some(Bytes(request)), usage: None };
            assert!(oom(&mut subject, now, kill));
            request = subject.memory_numbers(now)[0];
        }
        request
    };
    assert_eq!(climb(Compat::Upstream), climb(Compat::Plimsoll));
}

#[test]
fn a_maximum_below_the_true_peak_keeps_the_uncapped_target_bounded() {
    for compat in super::BOTH_MODES {
        let mut subject = VpaFixture::new(compat);
        let max = 1000 * MIB;
        let mut uncapped = Vec::new();
        for minutes in 0..600 {
            let now = minute(minutes * 30);
            assert!(oom(
                &mut subject,
                now,
                OomKill { request: Bytes(max), limit: Some(Bytes(max)), usage: None }
            ));
            let app = subject.app(now);
            uncapped.push(app.uncapped.memory.expect("has a recommendation").value());
            assert_eq!(
                app.explanation.memory.expect("explained").target.decided_by,
                RecommendationReason::OomBump
            );
        }
        uncapped.dedup();
        assert_eq!(uncapped.len(), 1, "{uncapped:?}");
        assert!(uncapped[0] < 1500 * MIB, "{} bytes", uncapped[0]);
    }
}
