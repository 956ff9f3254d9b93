//! Evidence of containers from what was read: what is missing has no number.

use plimsoll_core::{
    recommender::{Explanation, ResourceAmounts},
    rightsizing::{
        owner_groups::group_of,
        survey::{Container, GroupMember},
    },
};
use plimsoll_storage::prometheus::history::PodValue;

use super::{
    runs::{CPU, END, MEMORY, START},
    *,
};
use crate::report::recommend::history::ContainerUsage;

fn workload() -> Workload {
    let container = |name: &str| Container { name: name.into(), ..Container::default() };
    Workload {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        containers: [container("main"), container("silent")].into(),
        ..Workload::default()
    }
}

fn result(hours: u64, samples: u64) -> ContainerResult {
    let peak = MemoryPeak { bytes: Bytes(100), at: Time::from_secs(5_000) };
    let amounts = ResourceAmounts::default();
    ContainerResult {
        name: "main".into(),
        recommendation: Some(Box::new(ContainerRecommendation {
            container: "main".into(),
            target: amounts,
            lower: amounts,
            upper: amounts,
            uncapped: amounts,
            explanation: Explanation::default(),
        })),
        memory_target: None,
        is_replaced: false,
        usage: ContainerUsage {
            cpu_samples: samples,
            memory_peak: Some(peak),
            first_sample: Some(Time::EPOCH),
            last_sample: Some(Time::EPOCH.later(Duration::from_hours(hours))),
            ..ContainerUsage::default()
        },
    }
}

fn evidence(mut histories: Histories, earlier_peaks: &EarlierPeaks) -> WorkloadEvidence {
    let key = ObjectKey::new("shop", "Deployment/web");
    let settings = Settings::default();
    let (runs, node_groups) = (JobRuns::default(), NodeGroups::default());
    let mut history = histories.workloads.remove(&key);
    let read = ReadEvidence {
        histories: &histories,
        earlier_peaks,
        runs: &runs,
        node_groups: &node_groups,
        settings: &settings,
        thresholds: &UnsaidThresholds::default(),
    };
    read.of(&key, &workload(), &mut |_| history.take())
}

fn with_result(result: ContainerResult) -> Histories {
    let key = ObjectKey::new("shop", "Deployment/web");
    let history = WorkloadHistory { containers: vec![result], node_groups: Vec::new() };
    Histories { workloads: HashMap::from([(key, history)]), ..Histories::default() }
}

#[test]
fn a_history_that_could_not_be_read_gives_no_number() {
    let found = evidence(Histories::default(), &EarlierPeaks::new());
    for name in ["main", "silent"] {
        let expected =
            ContainerEvidence { gap: Some(EvidenceGap::Unread), ..ContainerEvidence::default() };
        assert_eq!(found[name], expected);
    }
}

#[test]
fn numbers_without_an_explanation_need_a_day_and_a_hundred_samples() {
    for (hours, samples, gap) in [
        (24, 100, None),
        (23, 100, Some(EvidenceGap::TooYoung)),
        (24, 99, Some(EvidenceGap::TooFewSamples)),
    ] {
        let found = evidence(with_result(result(hours, samples)), &EarlierPeaks::new());
        assert_eq!(found["main"].gap, gap, "{hours} h, {samples} samples");
        assert_eq!(found["silent"].gap, Some(EvidenceGap::WithoutSeries));
        assert_eq!(found["main"].throttled_share, None, "unknown is not zero");
    }
}

#[test]
fn the_rare_peak_is_the_largest_of_the_longer_time() {
    let key = (ObjectKey::new("shop", "Deployment/web"), "main".into());
    for (earlier, largest) in [(None, 100), (Some(50), 100), (Some(200), 200)] {
        let mut peaks = EarlierPeaks::new();
        if let Some(bytes) = earlier {
            let peak = MemoryPeak { bytes: Bytes(bytes), at: Time::from_secs(1_000) };
            let largest = Some(peak);
            peaks.insert(key.clone(), EarlierPeak { largest, ..EarlierPeak::default() });
        }
        let found = evidence(with_result(result(48, 1_000)), &peaks);
        assert_eq!(found["main"].rare_memory_peak.map(|peak| peak.bytes.0), Some(largest));
        assert_eq!(found["main"].memory_peak.map(|peak| peak.bytes.0), Some(100));
    }
}

/// The evidence of a group of Jobs with these names, of which those in `read` have a history and a run each.
fn evidence_of_group(names: &[&str], read: &[&str]) -> WorkloadEvidence {
    let (mut histories, mut runs) = (Histories::default(), JobRuns::default());
    for (index, name) in read.iter().enumerate() {
        let key = ObjectKey::new("shop", format!("Job/{name}"));
        let mut of_job = result(1, 10);
        of_job.usage.oom_kills = 1;
        of_job.usage.last_oom_kill = Some(Time::from_secs(index as i64));
        let history = WorkloadHistory { containers: vec![of_job], node_groups: Vec::new() };
        histories.workloads.insert(key.clone(), history);
        let (start, pod) = (1_000.0 * (index + 1) as f64, format!("{name}-x2x4z"));
        for (query, container, value) in [
            (START, "", start),
            (END, "", start + 100.0),
            (MEMORY, "main", 4e8),
            (CPU, "main", 20.0),
        ] {
            let (vpa, pod, at) = (&key, &*pod, Time::EPOCH);
            runs.add(&PodValue { query, vpa, pod, container, value, at, label: "" });
        }
    }
    let member = |name: &&str| GroupMember {
        kind: "Job".into(),
        name: (*name).into(),
        ..GroupMember::default()
    };
    let workload = Workload {
        kind: "Job".into(),
        name: "app=load".into(),
        group: Some(group_of("label app", names.iter().map(member).collect())),
        ..workload()
    };
    let mut of_members = std::mem::take(&mut histories.workloads);
    let read = ReadEvidence {
        histories: &histories,
        earlier_peaks: &EarlierPeaks::new(),
        runs: &runs,
        node_groups: &NodeGroups::default(),
        settings: &Settings::default(),
        thresholds: &UnsaidThresholds::default(),
    };
    let key = ObjectKey::new("shop", "Job/app=load");
    read.of(&key, &workload, &mut |member| of_members.remove(member))
}

#[test]
fn each_member_of_a_group_is_a_run() {
    let found = evidence_of_group(&["a", "b", "c"], &["a", "b", "c"]);
    let main = &found["main"];
    assert_eq!((main.gap, main.oom_kills), (None, 3));
    assert_eq!(main.last_oom_kill, Some(Time::from_secs(2)));
    assert_eq!(main.recommendation, None, "those of single runs do not hold");
    let runs = main.runs.expect("runs");
    assert_eq!((runs.total, runs.seen, runs.mean_seconds), (3, 3, Some(100)));
    // 20 seconds of CPU in 100 seconds.
    let targets = main.run_targets.expect("targets");
    assert!(targets.cpu.is_some_and(|cpu| (200..=250).contains(&cpu.0)), "{targets:?}");
    assert!(targets.memory.is_some_and(|memory| memory.0 >= 400_000_000), "{targets:?}");
    let two = evidence_of_group(&["a", "b"], &["a", "b"]);
    assert_eq!(two["main"].gap, Some(EvidenceGap::TooFewRuns));
    assert_eq!(two["main"].run_targets, None);
}

#[test]
fn a_group_with_a_member_that_could_not_be_read_has_no_number() {
    let found = evidence_of_group(&["a", "b", "c", "d"], &["a", "b", "c"]);
    assert_eq!(found["main"].gap, Some(EvidenceGap::Unread));
    let none = evidence_of_group(&[], &[]);
    assert_eq!(none["main"].gap, Some(EvidenceGap::WithoutSeries));
}

#[test]
fn evidence_replaces_the_history_and_needs_hardly_more_memory() {
    const COUNT: usize = 200;
    let key = ObjectKey::new("shop", "Deployment/web");
    let mut workload = workload();
    workload.containers = workload.containers[..1].into();
    let with_one =
        || WorkloadHistory { containers: vec![result(48, 1_000)], ..WorkloadHistory::default() };
    let read: Vec<WorkloadHistory> = (0..COUNT).map(|_| with_one()).collect();
    let mut all = Vec::with_capacity(COUNT);
    let (histories, peaks, settings) =
        (Histories::default(), EarlierPeaks::new(), Settings::default());
    let (runs, node_groups) = (JobRuns::default(), NodeGroups::default());
    let of = ReadEvidence {
        histories: &histories,
        earlier_peaks: &peaks,
        runs: &runs,
        node_groups: &node_groups,
        settings: &settings,
        thresholds: &UnsaidThresholds::default(),
    };
    let used = allocation_counter::measure(|| {
        all.extend(read.into_iter().map(|history| {
            let mut history = Some(history);
            of.of(&key, &workload, &mut |_| history.take())
        }));
    });
    assert_eq!(all.len(), COUNT);
    let each = used.bytes_max / COUNT as u64;
    assert!(each < 512, "{each} bytes");
    let kept: usize = all.iter().map(WorkloadEvidence::allocated_bytes).sum();
    assert!(kept / COUNT < 2_048, "{} bytes", kept / COUNT);
}
