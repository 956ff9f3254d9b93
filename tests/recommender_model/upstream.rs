//! Our model compared with upstream's code on the same random event sequences: every number, every accepted or
//! rejected sample, and the resulting checkpoint must be the same.
//!
//! The gate compares with recorded results of upstream's code; the deep tier runs upstream's code on many more
//! sequences.

mod deep;

use std::{ops::Range, time::Duration};

use plimsoll_core::history::checkpoint;
use plimsoll_core::{
    api::checkpoint::{HistogramCheckpoint, VerticalPodAutoscalerCheckpointStatus},
    types::Time,
};
use plimsoll_core::{
    recommender::{ContainerHistory, History, ModelRules, OomKill, RestoreResult, Settings},
    types::{
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{START, VpaFixture, encoded_weights, workload_mix::Random};
use crate::support::upstream_recording::UpstreamRecording;

/// The recorded cases, without and with restarts.
const RECORDED: Range<u64> = 0..60;

/// Upstream's results for the recorded cases.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Recording {
    without_restarts: Vec<Recorded>,
    with_restarts: Vec<Recorded>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Recorded {
    /// The checkpoint written by our model, from which upstream's code continued.
    checkpoint: Option<String>,
    /// As upstream's code printed it, so that no digit is lost.
    answer: String,
}

/// A case as our model ran it.
struct Life {
    case: u64,
    subject: VpaFixture,
    accepted: Vec<bool>,
    end: Time,
    /// The events as upstream's code reads them, one line of JSON each, without the checkpoint at a restart.
    events: Vec<String>,
    checkpoint: Option<String>,
}

#[derive(Deserialize)]
struct Numbers {
    accepted: Vec<bool>,
    cpu: [i64; 3],
    memory: [i64; 3],
    checkpoint: VerticalPodAutoscalerCheckpointStatus,
}

/// The event that represents a restart.
const CONTAINER_RETURNS: &str = r#"{"do":"return"}"#;

/// Kinds of events of a container.
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

/// Events of up to twenty days, some out of order, with gaps, kills, zeros and absurd amounts.
fn random_case(seed: u64) -> Vec<Event> {
    let mut noise = Random::new(seed + 1);
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

/// Flags of a case: every third case has the defaults, the others arbitrary values, including reversed percentiles.
/// Returns the same flags for our model and, as JSON, for upstream's.
fn flags(case: u64) -> (Settings, serde_json::Value) {
    let mut settings = Settings::for_compat(Compat::Upstream);
    if !case.is_multiple_of(3) {
        let mut noise = Random::new(case + 77_777);
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

fn take(subject: &mut VpaFixture, event: &Event, rules: &ModelRules) -> bool {
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

/// Returns an error with the difference between two values that must be equal.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what}: ours {ours:?}, upstream {theirs:?}")) }
}

fn compare_histograms(
    what: &str,
    ours: &plimsoll_core::history::HistogramWeights,
    theirs: &HistogramCheckpoint,
) -> Result<(), String> {
    let encoded = checkpoint::encode(ours).expect("standard buckets");
    let (mut theirs_buckets, mut ours_buckets) =
        (theirs.bucket_weights.clone(), encoded.bucket_weights);
    theirs_buckets.retain(|_, weight| weight.as_u64() != Some(0));
    ours_buckets.retain(|_, weight| weight.as_u64() != Some(0));
    same(what, &ours_buckets, &theirs_buckets)
        .map_err(|error| format!("{error}\n{:?}", encoded_weights(ours)))?;
    let (total, expected) = (ours.total, theirs.total_weight);
    if (total - expected).abs() > 1e-9 * expected.abs().max(1.0) {
        return Err(format!("{what}: the total is {total}, upstream's {expected}"));
    }
    if !ours.buckets.is_empty() {
        let reference = theirs.reference_timestamp.as_ref().map(|time| Time::from(time.0));
        same(what, &ours.reference, &reference)?;
    }
    Ok(())
}

/// Compares our run of a case with upstream's result for it.
fn compare(life: &Life, answer: &str) -> Result<(), String> {
    let Life { subject, end, .. } = life;
    let theirs: Numbers = serde_json::from_str(answer).expect("numbers");
    same("accepted samples", &life.accepted, &theirs.accepted)?;
    same("CPU", &subject.cpu_numbers(*end), &theirs.cpu)?;
    same("memory", &subject.memory_numbers(*end), &theirs.memory)?;
    let history = subject.history.get("app").expect("known");
    let snapshot = history.to_snapshot(*end, &subject.rules());
    compare_histograms("CPU histogram", &snapshot.cpu, &theirs.checkpoint.cpu_histogram)?;
    compare_histograms("memory histogram", &snapshot.memory, &theirs.checkpoint.memory_histogram)?;
    let count = u64::try_from(theirs.checkpoint.total_samples_count).expect("is a count");
    same("samples", &snapshot.cpu_seen.count, &count)
}

/// Restarts our model with nothing but a checkpoint, which is returned as JSON.
fn restart(subject: &mut VpaFixture, now: Time) -> String {
    let rules = subject.rules();
    let history = subject.history.get("app").expect("known");
    let status = checkpoint::status_from_snapshot(&history.to_snapshot(now, &rules), now);
    let status = status.expect("standard buckets");
    let snapshot = checkpoint::snapshot_from_status(&status).expect("written bytes decode");
    let remembered = ContainerHistory::from_snapshot(&snapshot, now, &rules).expect("valid");
    subject.history = History::default();
    let restored = subject.history.restore("app".into(), remembered, now, &rules);
    assert_eq!(restored, RestoreResult::Merged);
    serde_json::to_string(&status).expect("is plain data")
}

/// Runs a case with our model and returns the accepted samples and the final state.
fn live(case: u64, restarts: bool) -> Life {
    let mut subject = VpaFixture::new(Compat::Upstream);
    let (settings, config) = flags(case);
    subject.settings = settings;
    let rules = subject.rules();
    let events = random_case(case);
    let half = events.len() / 2;
    let (mut accepted, mut lines, mut written) = (Vec::new(), Vec::new(), None);
    let mut now = START;
    for (index, event) in events.iter().enumerate() {
        now = now.max(event.at);
        // A container without a CPU sample, or one that has expired, is not kept.
        let known = subject.history.get("app").filter(|app| !app.is_expired(now, &rules));
        if restarts && index == half && known.is_some_and(|app| app.cpu_samples.count > 0) {
            written = Some(restart(&mut subject, now));
            lines.push(CONTAINER_RETURNS.to_owned());
        }
        let Event { kind, pod, at, amount } = event;
        let (what, at) = (format!("{kind:?}").to_lowercase(), at.as_nanos());
        lines.push(format!(r#"{{"do":"{what}","pod":"{pod}","at":{at},"amount":{amount}}}"#));
        accepted.push(take(&mut subject, event, &rules));
    }
    lines.push(format!(r#"{{"do":"end","config":{config}}}"#));
    let end = events.last().expect("has events").at;
    Life { case, subject, accepted, end, events: lines, checkpoint: written }
}

/// Runs these cases. Almost all of them are restarted if `restarts` is set.
fn random_cases(cases: Range<u64>, restarts: bool) -> Vec<Life> {
    let count = cases.end - cases.start;
    let lives: Vec<_> = cases.map(|case| live(case, restarts)).collect();
    let restarted = lives.iter().filter(|life| life.checkpoint.is_some()).count() as u64;
    let is_enough = if restarts { restarted * 4 > count * 3 } else { restarted == 0 };
    assert!(is_enough, "{restarted} of {count} cases were restarted");
    lives
}

/// The recorded cases and the recording.
fn recorded() -> ([Vec<Life>; 2], UpstreamRecording) {
    let both = [false, true].map(|restarts| random_cases(RECORDED, restarts));
    let inputs = both.each_ref().map(|lives| {
        let events = lives.iter().map(|life| &life.events);
        events.collect::<Vec<_>>()
    });
    let golden = UpstreamRecording::new("model", 0, &inputs);
    (both, golden)
}

/// Compares cases with their recorded results.
fn replay(lives: &[Life], recorded: &[Recorded]) -> Result<(), String> {
    same("lives", &lives.len(), &recorded.len())?;
    for (life, Recorded { checkpoint, answer }) in lives.iter().zip(recorded) {
        same("the checkpoint before the restart", &life.checkpoint, checkpoint)
            .and_then(|()| compare(life, answer))
            .map_err(|error| format!("case {}: {error}", life.case))?;
    }
    Ok(())
}

#[test]
fn random_histories_give_the_numbers_recorded_from_upstream() {
    let ([without, with], golden) = recorded();
    let recording: Recording = golden.read();
    assert_eq!(replay(&without, &recording.without_restarts), Ok(()));
    assert_eq!(replay(&with, &recording.with_restarts), Ok(()));
}

#[test]
fn a_different_number_in_the_recording_is_a_difference() {
    let ([without, _], golden) = recorded();
    let recording: Recording = golden.read();
    let [life, ..] = &without[..] else { panic!("no cases") };
    let recorded = &recording.without_restarts[0];
    for (field, other) in
        [("cpu", json!([1, 2, 3])), ("memory", json!([1, 2, 3])), ("accepted", json!([true]))]
    {
        let mut answer: serde_json::Value = serde_json::from_str(&recorded.answer).expect("JSON");
        answer[field] = other;
        let (checkpoint, answer) = (recorded.checkpoint.clone(), answer.to_string());
        let altered = Recorded { checkpoint, answer };
        let found = replay(std::slice::from_ref(life), &[altered]);
        assert!(
            found.as_ref().is_err_and(|error| error.contains("upstream [")),
            "{field}: {found:?}"
        );
    }
}
