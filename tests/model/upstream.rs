//! Our model beside upstream's own code, on the same random lives: every number, every sample taken or
//! refused, and the checkpoint that follows must be the same.

use std::{
    fmt::Write as _,
    io::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use plimsoll::{
    compat::Compat,
    recommend::{ContainerHistory, History, OomKill, Restored, Rules, Settings},
    units::{Bytes, MilliCpu},
};
use plimsoll_storage::{
    Time,
    checkpoint::{self, HistogramCheckpoint, VerticalPodAutoscalerCheckpointStatus},
};
use serde::Deserialize;

use super::{START, Subject, close, encoded_weights, mix::Noise};
use crate::support::not_run::not_run;

const CASES: u64 = 400;

#[derive(Deserialize)]
struct Numbers {
    accepted: Vec<bool>,
    cpu: [i64; 3],
    memory: [i64; 3],
    checkpoint: VerticalPodAutoscalerCheckpointStatus,
}

/// What happens to a container.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Cpu,
    Memory,
    Oom,
}

#[derive(Clone, Debug)]
struct Event {
    kind: Kind,
    pod: String,
    at: Time,
    amount: i64,
}

/// A life of up to twenty days: now and then out of order, with gaps, kills, zeros and absurd amounts.
fn life(seed: u64) -> Vec<Event> {
    let mut noise = Noise::new(seed + 1);
    let pods = 1 + noise.below(4);
    let stride = [1, 10, 60, 600, 3600][noise.below(5) as usize];
    let (cpu, memory) = (1 + noise.below(4000), 1 + noise.below(4_000_000_000));
    let mut now = START.later(Duration::from_secs(noise.below(86_400) as u64));
    (0..20 + noise.below(400))
        .map(|_| {
            let step = Duration::from_millis((noise.below(2 * stride * 1000) + 1) as u64);
            now = match noise.below(40) {
                0 => now.earlier(step * 40),
                1 => now.later(step * 300),
                _ => now.later(step),
            };
            let (kind, usual) = match noise.below(10) {
                0 if noise.below(3) == 0 => (Kind::Oom, memory),
                0..5 => (Kind::Cpu, cpu),
                _ => (Kind::Memory, memory),
            };
            let amount = match noise.below(60) {
                0 => 0,
                1 => usual * 20,
                2 => 100_000_000_000_000,
                3 => -1,
                _ => usual / 2 + noise.below(usual),
            };
            let amount = if matches!(kind, Kind::Oom) { amount.max(0) } else { amount };
            Event { kind, pod: format!("pod-{}", noise.below(pods)), at: now, amount }
        })
        .collect()
}

/// Flags of a case: every third has the defaults, the others anything, percentiles crosswise included.
/// The same for our model and, as JSON, for upstream's.
fn flags(case: u64) -> (Settings, serde_json::Value) {
    let mut settings = Settings::of(Compat::Upstream);
    if !case.is_multiple_of(3) {
        let mut noise = Noise::new(case + 77_777);
        let mut share = || noise.below(1001) as f64 / 1000.0;
        for percentiles in [&mut settings.cpu, &mut settings.memory] {
            (percentiles.lower, percentiles.target, percentiles.upper) =
                (share(), share(), share());
            percentiles.confidence_interval =
                Duration::from_secs((share() * 200_000.0) as u64 + 60);
        }
        settings.margin = share();
        settings.pod_floor_millicores = (share() * 3000.0).floor();
        settings.pod_floor_mebibytes = share() * 700.0;
    }
    let Settings { cpu, memory, .. } = &settings;
    let config = serde_json::json!({
        "SafetyMarginFraction": settings.margin,
        "PodMinCPUMillicores": settings.pod_floor_millicores,
        "PodMinMemoryMb": settings.pod_floor_mebibytes,
        "TargetCPUPercentile": cpu.target,
        "LowerBoundCPUPercentile": cpu.lower,
        "UpperBoundCPUPercentile": cpu.upper,
        "ConfidenceIntervalCPU": cpu.confidence_interval.as_nanos() as u64,
        "TargetMemoryPercentile": memory.target,
        "LowerBoundMemoryPercentile": memory.lower,
        "UpperBoundMemoryPercentile": memory.upper,
        "ConfidenceIntervalMemory": memory.confidence_interval.as_nanos() as u64,
    });
    (settings, config)
}

fn take(subject: &mut Subject, event: &Event, rules: &Rules) -> bool {
    let container = subject.history.container_mut("app", event.at, rules);
    match event.kind {
        Kind::Cpu => container.add_cpu(&event.pod, event.at, MilliCpu(event.amount), rules).is_ok(),
        Kind::Memory => {
            container.add_memory(&event.pod, event.at, Bytes(event.amount), rules).is_ok()
        }
        Kind::Oom => {
            let kill = OomKill { request: Bytes(event.amount), limit: None, usage: None };
            container.record_oom(&event.pod, event.at, kill, rules).is_ok()
        }
    }
}

fn compare(theirs: &HistogramCheckpoint, ours: &plimsoll_storage::Weights, case: u64) {
    let ours_encoded = checkpoint::encode(ours).expect("standard buckets");
    let (mut theirs_buckets, mut ours_buckets) =
        (theirs.bucket_weights.clone(), ours_encoded.bucket_weights.clone());
    theirs_buckets.retain(|_, weight| weight.as_u64() != Some(0));
    ours_buckets.retain(|_, weight| weight.as_u64() != Some(0));
    assert_eq!(theirs_buckets, ours_buckets, "case {case}: {:?}", encoded_weights(ours));
    close(ours.total, theirs.total_weight);
    if !ours.buckets.is_empty() {
        let reference = theirs.reference_timestamp.as_ref().map(|time| Time::from(time.0));
        assert_eq!(ours.reference, reference, "case {case}");
    }
}

/// Ends a process of ours and starts it anew: nothing is left but what a checkpoint says, which is answered as JSON.
fn restart(subject: &mut Subject, now: Time) -> String {
    let rules = subject.rules();
    let history = subject.history.get("app").expect("is known");
    let status = checkpoint::status_from_snapshot(&history.to_snapshot(now, &rules), now);
    let status = status.expect("standard buckets");
    let snapshot = checkpoint::snapshot_from_status(&status).expect("what was written is read");
    let remembered = ContainerHistory::from_snapshot(&snapshot, now, &rules).expect("is sound");
    subject.history = History::default();
    let restored = subject.history.restore("app".into(), remembered, now, &rules);
    assert_eq!(restored, Restored::Taken);
    serde_json::to_string(&status).expect("is plain data")
}

/// A life as ours lives it: which samples it took, and what is left in the end. Writes down for upstream's what happened.
fn live(case: u64, restarts: bool, lines: &mut String) -> (Subject, Vec<bool>, Time) {
    let mut subject = Subject::new(Compat::Upstream);
    let (settings, config) = flags(case);
    subject.settings = settings;
    let rules = subject.rules();
    let events = life(case);
    let half = events.len() / 2;
    let mut accepted = Vec::new();
    let mut now = START;
    for (index, event) in events.iter().enumerate() {
        now = now.max(event.at);
        // Nothing is kept of a container without a CPU sample, or one that was last seen long ago.
        let known = subject.history.get("app").filter(|app| !app.is_expired(now, &rules));
        if restarts && index == half && known.is_some_and(|app| app.cpu_seen().count > 0) {
            let found = restart(&mut subject, now);
            writeln!(lines, r#"{{"do":"return","checkpoint":{found}}}"#).expect("fits");
        }
        let Event { kind, pod, at, amount } = event;
        let (what, at) = (format!("{kind:?}").to_lowercase(), at.as_nanos());
        writeln!(lines, r#"{{"do":"{what}","pod":"{pod}","at":{at},"amount":{amount}}}"#)
            .expect("fits");
        accepted.push(take(&mut subject, event, &rules));
    }
    writeln!(lines, r#"{{"do":"end","config":{config}}}"#).expect("fits");
    (subject, accepted, events.last().expect("has events").at)
}

fn compare_lives(restarts: bool) {
    let program = match xtask::parts::autoscaler_model() {
        Ok(program) => program,
        Err(reason) => return not_run(format!("{reason:#}")),
    };
    let mut lines = String::new();
    let ours: Vec<_> = (0..CASES).map(|case| live(case, restarts, &mut lines)).collect();
    let returned = lines.matches(r#""do":"return""#).count();
    assert!(if restarts { returned > 300 } else { returned == 0 }, "{returned} restarts");
    let mut child = Command::new(program)
        .arg("replay")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("upstream's model starts");
    let mut input = child.stdin.take().expect("has an input");
    let writer = std::thread::spawn(move || input.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("upstream's model ends");
    writer.join().expect("writes").expect("everything is read");
    assert!(output.status.success(), "{}", output.status);

    let answers = String::from_utf8(output.stdout).expect("is text");
    let mut compared = 0;
    for ((case, answer), (subject, accepted, now)) in (0..CASES).zip(answers.lines()).zip(ours) {
        let theirs: Numbers = serde_json::from_str(answer).expect("numbers");
        assert_eq!(accepted, theirs.accepted, "case {case}");
        assert_eq!(subject.cpu_numbers(now), theirs.cpu, "case {case}");
        assert_eq!(subject.memory_numbers(now), theirs.memory, "case {case}");
        let history = subject.history.get("app").expect("is known");
        let snapshot = history.to_snapshot(now, &subject.rules());
        compare(&theirs.checkpoint.cpu_histogram, &snapshot.cpu, case);
        compare(&theirs.checkpoint.memory_histogram, &snapshot.memory, case);
        let count = u64::try_from(theirs.checkpoint.total_samples_count).expect("is a count");
        assert_eq!(snapshot.cpu_seen.count, count, "case {case}");
        compared += 1;
    }
    assert_eq!(compared, CASES);
}

#[test]
fn random_lives_end_in_the_same_numbers_as_with_upstreams_own_code() {
    compare_lives(false);
}

#[test]
fn lives_go_on_after_a_restart_as_with_upstreams_own_code() {
    compare_lives(true);
}
