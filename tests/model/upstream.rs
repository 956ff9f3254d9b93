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
    recommend::{OomKill, Rules, Settings},
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

#[test]
fn random_lives_end_in_the_same_numbers_as_with_upstreams_own_code() {
    let program = match xtask::parts::autoscaler_model() {
        Ok(program) => program,
        Err(reason) => return not_run(format!("{reason:#}")),
    };
    let mut lines = String::new();
    for case in 0..CASES {
        for Event { kind, pod, at, amount } in life(case) {
            let (what, at) = (format!("{kind:?}").to_lowercase(), at.as_nanos());
            writeln!(lines, r#"{{"do":"{what}","pod":"{pod}","at":{at},"amount":{amount}}}"#)
                .expect("fits");
        }
        let (_, config) = flags(case);
        writeln!(lines, r#"{{"do":"end","config":{config}}}"#).expect("fits");
    }
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
    for (case, answer) in (0..CASES).zip(answers.lines()) {
        let theirs: Numbers = serde_json::from_str(answer).expect("numbers");
        let mut subject = Subject::new(Compat::Upstream);
        subject.settings = flags(case).0;
        let rules = subject.rules();
        let events = life(case);
        let accepted: Vec<bool> =
            events.iter().map(|event| take(&mut subject, event, &rules)).collect();
        assert_eq!(accepted, theirs.accepted, "case {case}");
        let now = events.last().expect("has events").at;
        assert_eq!(subject.cpu_numbers(now), theirs.cpu, "case {case}");
        assert_eq!(subject.memory_numbers(now), theirs.memory, "case {case}");
        let history = subject.history.get("app").expect("is known");
        let snapshot = history.to_snapshot(now, &rules);
        compare(&theirs.checkpoint.cpu_histogram, &snapshot.cpu, case);
        compare(&theirs.checkpoint.memory_histogram, &snapshot.memory, case);
        let count = u64::try_from(theirs.checkpoint.total_samples_count).expect("is a count");
        assert_eq!(snapshot.cpu_seen.count, count, "case {case}");
        compared += 1;
    }
    assert_eq!(compared, CASES);
}
