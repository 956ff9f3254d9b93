//! Histories made of single samples: the weight of a sample in either mode, samples that are known already, and memory
//! use.

use std::{sync::Arc, time::Duration};

use plimsoll_core::{
    history::{Measurement, Resource, Sample, SampleBatch, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_core::{
    recommender::{
        ContainerHistory, HistoryBootstrap, HistoryWeighting, OomKill, SampleResult, Settings,
        VpaRegistry, VpaSettings, registry::UsageSample,
    },
    types::{
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};

use super::{HOUR, MIB, MINUTE, START, minute};

const WEIGHTINGS: [HistoryWeighting; 2] = [HistoryWeighting::Duration, HistoryWeighting::Upstream];

fn vpa() -> ObjectKey {
    ObjectKey::new("team", "web")
}

fn app() -> ContainerKey {
    ContainerKey::new(vpa(), "app")
}

fn cpu(pod: &str, at: Time, covers: Option<Duration>, cores: f64) -> Sample {
    Sample { replica: pod.into(), at, covers, measurement: Measurement::CpuCores(cores) }
}

fn memory(pod: &str, at: Time, covers: Option<Duration>, mebibytes: i64) -> Sample {
    let measurement = Measurement::MemoryBytes((mebibytes * MIB) as f64);
    Sample { replica: pod.into(), at, covers, measurement }
}

fn out_of_memory(pod: &str, at: Time, request: i64) -> Sample {
    let measurement = Measurement::OutOfMemory { request_bytes: request * MIB, limit_bytes: None };
    Sample { replica: pod.into(), at, covers: None, measurement }
}

/// A registry with one VPA that waits for its history.
fn pending_samples(weighting: HistoryWeighting) -> VpaRegistry {
    let settings = Settings { history_weighting: weighting, ..Settings::default() };
    let mut registry = VpaRegistry::new(settings, Compat::Plimsoll);
    registry.track(&vpa(), VpaSettings::default(), START);
    registry
}

fn live(registry: &mut VpaRegistry, pod: &str, at: Time, cores: f64, mebibytes: i64) {
    let (cpu, memory) = (Some(MilliCpu::from_cores(cores)), Some(Bytes(mebibytes * MIB)));
    registry.ingest().add_usage(&vpa(), UsageSample { pod, container: "app", at, cpu, memory }, at);
}

/// Loads these samples into the registry and returns the outcome of each.
fn load(registry: &mut VpaRegistry, samples: &[Sample], now: Time) -> Vec<SampleResult> {
    let mut bootstrap = HistoryBootstrap::new(&registry.settings, now);
    let take = |sample| bootstrap.add_sample(&app(), sample, |vpa| registry.start_history(vpa));
    let folded = samples.iter().map(take).collect();
    for (key, builder) in bootstrap.finish() {
        registry.merge_history(&key, builder, now);
    }
    let generation = registry.load_generation(&vpa()).expect("container is tracked");
    registry.mark_loaded(&vpa(), generation);
    folded
}

fn history(registry: &VpaRegistry) -> &ContainerHistory {
    registry.get(&vpa()).and_then(|it| it.history.get("app")).expect("has a history")
}

fn snapshot(registry: &VpaRegistry, now: Time) -> Snapshot {
    let rules = registry.rules(&vpa(), "app").expect("container is tracked");
    history(registry).to_snapshot(now, &rules)
}

#[test]
fn a_time_span_counts_like_its_live_samples() {
    let (mut live_run, mut read) = (pending_samples(WEIGHTINGS[0]), pending_samples(WEIGHTINGS[0]));
    let mut samples = Vec::new();
    for span in 1..=24_u32 {
        let cores = f64::from(span) / 10.0;
        for sample in (span - 1) * 5 + 1..=span * 5 {
            live(&mut live_run, "pod-0", minute(sample), cores, 100);
        }
        samples.push(cpu("pod-0", minute(span * 5), Some(MINUTE * 5), cores));
    }
    assert!(load(&mut read, &samples, minute(120)).iter().all(|it| *it == SampleResult::Accepted));
    let (live_run, read) = (snapshot(&live_run, minute(120)), snapshot(&read, minute(120)));
    assert_eq!(read.cpu, live_run.cpu);
    assert_eq!(read.cpu_seen, live_run.cpu_seen);
    assert_eq!(read.sample_rank() >> 32, live_run.sample_rank() >> 32);
}

#[test]
fn with_upstreams_weighting_each_sample_counts_exactly_once() {
    let mut registry = pending_samples(HistoryWeighting::Upstream);
    let hour = |hours: u32| START.later(HOUR * hours);
    let mut samples = vec![out_of_memory("pod-0", hour(1), 500)];
    let rules = registry
        .settings
        .rules(None, &plimsoll_core::recommender::tuning_annotations::Tuning::NONE);
    let mut fed = ContainerHistory::new(START, &rules);
    for hours in 2..=192 {
        let (cores, mebibytes) = (f64::from(hours % 7) / 7.0, i64::from(hours % 11) * 50);
        samples.push(cpu("pod-0", hour(hours), Some(HOUR), cores));
        samples.push(memory("pod-0", hour(hours), Some(HOUR), mebibytes));
        let (millis, bytes) = (MilliCpu::from_cores(cores), Bytes(mebibytes * MIB));
        fed.add_cpu("pod-0", hour(hours), millis, &rules).expect("in order");
        fed.add_memory("pod-0", hour(hours), bytes, &rules).expect("in order");
    }
    let folded = load(&mut registry, &samples, hour(192));
    assert_eq!(folded[0], SampleResult::Ignored);
    let (read, fed) = (snapshot(&registry, hour(192)), fed.to_snapshot(hour(192), &rules));
    assert_eq!((read.cpu, read.memory, read.cpu_seen), (fed.cpu, fed.memory, fed.cpu_seen));
    assert_eq!(read.cpu_seen.count, 191);
}

#[test]
fn eight_days_of_hourly_samples_give_eight_days_of_confidence() {
    let of = |weighting| {
        let mut registry = pending_samples(weighting);
        let hour = |hours: u32| START.later(HOUR * hours);
        let samples: Vec<_> =
            (1..=192).map(|hours| cpu("pod-0", hour(hours), Some(HOUR), 0.5)).collect();
        load(&mut registry, &samples, hour(192));
        registry.ingest().register_container(&vpa(), "app", hour(192));
        let recommendation = registry.recommend(&vpa(), hour(192)).expect("is loaded");
        let cpu = recommendation.containers[0].explanation.cpu.clone().expect("has an explanation");
        cpu.evidence.confidence
    };
    let [duration, upstream] = WEIGHTINGS.map(of);
    assert!((duration - 8.0).abs() < 0.01, "{duration}");
    assert!((upstream - 192.0 / 1440.0).abs() < 0.01, "{upstream}");
}

#[test]
fn loaded_history_expires_in_both_modes() {
    for compat in [Compat::Plimsoll, Compat::Upstream] {
        let mut registry = VpaRegistry::new(Settings::for_compat(compat), compat);
        registry.track(&vpa(), VpaSettings::default(), START);
        load(&mut registry, &[cpu("pod-0", minute(1), None, 0.5)], minute(2));
        assert!(registry.forget_expired(minute(1).later(HOUR * 191)).is_empty(), "{compat:?}");
        assert_eq!(registry.forget_expired(minute(1).later(HOUR * 192)), [app()], "{compat:?}");
    }
}

#[test]
fn invalid_samples_are_skipped() {
    for weighting in WEIGHTINGS {
        let mut registry = pending_samples(weighting);
        let samples = [
            cpu("pod-0", minute(1), Some(MINUTE), f64::NAN),
            memory("pod-0", minute(1), Some(MINUTE), 100),
            Sample {
                measurement: Measurement::MemoryBytes(f64::NAN),
                ..memory("pod-0", minute(2), None, 0)
            },
            cpu("pod-0", minute(2), None, 0.1),
        ];
        let folded = load(&mut registry, &samples, minute(3));
        let (bad, good) = (SampleResult::Invalid, SampleResult::Accepted);
        assert_eq!(folded, [bad, good, bad, good], "{weighting}");
    }
}

#[test]
fn a_gap_is_filled_only_with_samples_within_it() {
    for weighting in WEIGHTINGS {
        let mut registry = pending_samples(weighting);
        let mut bootstrap = HistoryBootstrap::new(&registry.settings, minute(30));
        let points: Vec<_> = (9..=21).map(|at| (minute(at), 0.2)).collect();
        let pod = Arc::from("pod-0");
        let run =
            SampleBatch { replica: &pod, gauge: Resource::Cpu, covers: None, points: &points };
        let within =
            |vpa: &ObjectKey| Some(registry.start_history(vpa)?.for_gap(minute(10), minute(20)));
        bootstrap.add_batch(&app(), run, within);
        for (key, builder) in bootstrap.finish() {
            registry.merge_history(&key, builder, minute(30));
        }
        let seen = snapshot(&registry, minute(30)).cpu_seen;
        let times = (seen.count, seen.first, seen.last);
        assert_eq!(times, (9, Some(minute(11)), Some(minute(19))), "{weighting}");
    }
}

#[test]
fn repeated_samples_count_once() {
    let mut registry = pending_samples(WEIGHTINGS[0]);
    let samples: Vec<_> = (1..=60_u32)
        .flat_map(|at| {
            [
                cpu("pod-0", minute(at), Some(MINUTE), 0.2),
                memory("pod-0", minute(at), Some(MINUTE), i64::from(at)),
            ]
        })
        .chain([out_of_memory("pod-0", minute(61), 300)])
        .collect();
    let twice: Vec<_> = samples.iter().chain(&samples).cloned().collect();
    load(&mut registry, &twice, minute(62));
    let mut once = pending_samples(WEIGHTINGS[0]);
    load(&mut once, &samples, minute(62));
    assert_eq!(snapshot(&registry, minute(62)), snapshot(&once, minute(62)));
    // The span that contains the kill is the only one that could count in part.
    assert_eq!(snapshot(&once, minute(62)).cpu_seen.count, 60);
}

#[test]
fn an_oom_kill_in_the_history_counts_like_a_live_one() {
    let samples = [
        memory("pod-0", minute(1), Some(MINUTE), 700),
        out_of_memory("pod-0", minute(2), 400),
        memory("pod-0", minute(3), Some(MINUTE), 100),
    ];
    let mut read = pending_samples(WEIGHTINGS[0]);
    load(&mut read, &samples, minute(4));
    let mut live_run = pending_samples(WEIGHTINGS[0]);
    load(&mut live_run, &[], minute(0));
    let usage = |at, mebibytes: i64| UsageSample {
        pod: "pod-0",
        container: "app",
        at,
        cpu: None,
        memory: Some(Bytes(mebibytes * MIB)),
    };
    let kill = OomKill { request: Bytes(400 * MIB), limit: None, usage: None };
    live_run.ingest().add_usage(&vpa(), usage(minute(1), 700), minute(1));
    live_run.ingest().add_oom(&vpa(), ("pod-0", "app"), (minute(2), kill), false, minute(2));
    live_run.ingest().add_usage(&vpa(), usage(minute(3), 100), minute(3));
    let (read_as, lived_as) = (snapshot(&read, minute(4)), snapshot(&live_run, minute(4)));
    assert_eq!((read_as.memory, read_as.bump), (lived_as.memory, lived_as.bump));
    assert_eq!(read_as.replicas, lived_as.replicas);
    // The pod's status shows the same kill.
    let known = read.ingest().add_oom_at_first_sight(
        &vpa(),
        ("pod-0", "app"),
        (minute(2), kill),
        minute(5),
    );
    assert_eq!(known, plimsoll_core::recommender::registry::OomResult::Known);
}

#[test]
fn live_samples_continue_where_the_history_ends() {
    // Half an hour of history is loaded, and live samples begin at minute 20.
    let mut registry = pending_samples(WEIGHTINGS[0]);
    for at in 20..=32 {
        live(&mut registry, "pod-0", minute(at), 0.5, 200);
    }
    let of = |pod: &'static str| {
        (1..=30_u32).flat_map(move |at| {
            [cpu(pod, minute(at), Some(MINUTE), 0.5), memory(pod, minute(at), Some(MINUTE), 200)]
        })
    };
    let samples: Vec<_> = of("pod-0").chain(of("pod-1")).collect();
    load(&mut registry, &samples, minute(32));
    // The metrics API still reports the other pod's last sample from the history.
    live(&mut registry, "pod-1", minute(30), 0.5, 200);
    for at in 33..=40 {
        live(&mut registry, "pod-0", minute(at), 0.5, 200);
        live(&mut registry, "pod-1", minute(at), 0.5, 200);
    }
    let mut live_run = pending_samples(WEIGHTINGS[0]);
    load(&mut live_run, &[], START);
    for at in 1..=40 {
        live(&mut live_run, "pod-0", minute(at), 0.5, 200);
        if !(31..=32).contains(&at) {
            live(&mut live_run, "pod-1", minute(at), 0.5, 200);
        }
        if at == 30 {
            // The live run received it twice too.
            live(&mut live_run, "pod-1", minute(at), 0.5, 200);
        }
    }
    let (read, live_run) = (snapshot(&registry, minute(40)), snapshot(&live_run, minute(40)));
    assert_eq!(read.cpu_seen, live_run.cpu_seen);
    assert_eq!(read.memory_seen, live_run.memory_seen);
    assert_eq!(read.memory.buckets, live_run.memory.buckets, "a peak for each pod");
    let total = (read.cpu.total, live_run.cpu.total);
    assert!((total.0 / total.1 - 1.0).abs() < 1e-9, "{total:?}");
}

#[test]
fn complete_histories_count_while_others_are_still_loading() {
    let other = ContainerKey::new(ObjectKey::new("team", "other"), "app");
    let mut registry = pending_samples(WEIGHTINGS[0]);
    registry.track(&other.vpa, VpaSettings::default(), START);
    let mut bootstrap = HistoryBootstrap::new(&registry.settings, minute(9));
    let take = |bootstrap: &mut HistoryBootstrap, key: &ContainerKey, at| {
        let sample = cpu("pod-0", minute(at), Some(MINUTE), 0.5);
        bootstrap.add_sample(key, &sample, |vpa| registry.start_history(vpa))
    };
    for at in 1..=4 {
        take(&mut bootstrap, &app(), at);
        take(&mut bootstrap, &other, at);
    }
    let whole = bootstrap.take_builder(&other.vpa).expect("received");
    assert!(bootstrap.take_builder(&other.vpa).is_none(), "once");
    assert_eq!(take(&mut bootstrap, &other, 5), SampleResult::Ignored);
    assert_eq!(take(&mut bootstrap, &app(), 5), SampleResult::Accepted);
    for (key, builder) in [(other.vpa, whole)].into_iter().chain(bootstrap.finish()) {
        assert_eq!(registry.merge_history(&key, builder, minute(9)), 1);
    }
    assert_eq!(snapshot(&registry, minute(9)).cpu_seen.count, 5);
}

#[test]
fn samples_of_another_workload_do_not_count() {
    let mut registry = pending_samples(WEIGHTINGS[0]);
    let sample = cpu("pod-0", minute(3), Some(MINUTE), 0.5);
    let mut bootstrap = HistoryBootstrap::new(&registry.settings, minute(9));
    bootstrap.add_sample(&app(), &sample, |vpa| registry.start_history(vpa));
    registry.set_owner(&vpa(), "apps/Deployment/web");
    registry.set_owner(&vpa(), "apps/Deployment/other");
    let taken: usize = bootstrap
        .finish()
        .map(|(key, builder)| registry.merge_history(&key, builder, minute(9)))
        .sum();
    assert_eq!((taken, registry.get(&vpa()).map(|it| it.history.iter().len())), (0, Some(0)));
}

#[test]
fn samples_continue_a_stored_history_without_counting_twice() {
    let mut live_run = pending_samples(WEIGHTINGS[0]);
    load(&mut live_run, &[], START);
    for at in 1..=60 {
        live(&mut live_run, "pod-0", minute(at), 0.5, 200);
    }
    let stored = snapshot(&live_run, minute(60));
    let mut registry = pending_samples(WEIGHTINGS[0]);
    let mut bootstrap = HistoryBootstrap::new(&registry.settings, minute(120));
    let history = registry.read_snapshot(&app(), &stored, minute(120)).expect("valid");
    let history = history.expect("belongs to this VPA");
    bootstrap.resume_from(&app(), history, |vpa| registry.start_history(vpa));
    for (pod, at) in [("pod-0", 50), ("pod-0", 62), ("pod-1", 50), ("pod-1", 62)] {
        let sample = cpu(pod, minute(at), Some(MINUTE * 10), 0.5);
        bootstrap.add_sample(&app(), &sample, |vpa| registry.start_history(vpa));
    }
    for (key, builder) in bootstrap.finish() {
        registry.merge_history(&key, builder, minute(120));
    }
    let both = snapshot(&registry, minute(120));
    assert_eq!(both.cpu_seen.count, 60 + 2 + 2);
    assert!(both.sample_rank() > stored.sample_rank(), "the stored history is superseded");
}

#[test]
fn loading_a_history_keeps_no_samples_in_memory() {
    let registry = pending_samples(WEIGHTINGS[0]);
    let mut bootstrap = HistoryBootstrap::new(&registry.settings, minute(20_000));
    let name: Arc<str> = "app".into();
    let used = allocation_counter::measure(|| {
        let key = ContainerKey { vpa: vpa(), container: Arc::clone(&name) };
        for at in 1..=11_520_u32 {
            let cores = f64::from(at % 100) / 100.0;
            let sample = cpu("web-0", minute(at), Some(MINUTE), cores);
            bootstrap.add_sample(&key, &sample, |vpa| registry.start_history(vpa));
        }
    });
    assert!(used.bytes_current < 5120, "{} bytes of 11,520 samples", used.bytes_current);
    // One pod per minute, each for one minute: old pods are dropped while others appear.
    let used = allocation_counter::measure(|| {
        let key = ContainerKey { vpa: vpa(), container: Arc::clone(&name) };
        for at in 11_521..=30_000_u32 {
            let pod = format!("web-{at}");
            let sample = memory(&pod, minute(at), Some(MINUTE), i64::from(at % 100));
            bootstrap.add_sample(&key, &sample, |vpa| registry.start_history(vpa));
        }
    });
    assert!(used.bytes_current < 2 << 20, "{} bytes of 18,480 pods", used.bytes_current);
}
