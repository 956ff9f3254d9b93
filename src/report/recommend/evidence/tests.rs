//! Evidence of containers from what was read: what is missing has no number.

use plimsoll_core::{
    recommender::{Explanation, ResourceAmounts},
    rightsizing::survey::Container,
};

use super::*;
use crate::report::recommend::history::ContainerUsage;

fn workload() -> Workload {
    let container = |name: &str| Container { name: name.into(), ..Container::default() };
    Workload {
        namespace: "shop".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        containers: vec![container("main"), container("silent")],
        ..Workload::default()
    }
}

fn result(hours: u64, samples: u64) -> ContainerResult {
    let peak = MemoryPeak { bytes: Bytes(100), at: Time::from_secs(5_000) };
    let amounts = ResourceAmounts::default();
    ContainerResult {
        name: "main".into(),
        recommendation: Some(ContainerRecommendation {
            container: "main".into(),
            target: amounts,
            lower: amounts,
            upper: amounts,
            uncapped: amounts,
            explanation: Explanation::default(),
        }),
        usage: ContainerUsage {
            cpu_samples: samples,
            memory_peak: Some(peak),
            first_sample: Some(Time::EPOCH),
            last_sample: Some(Time::EPOCH.later(Duration::from_hours(hours))),
            ..ContainerUsage::default()
        },
    }
}

fn evidence(histories: &Histories, earlier_peaks: &EarlierPeaks) -> WorkloadEvidence {
    let key = ObjectKey::new("shop", "Deployment/web");
    let settings = Settings::default();
    let (runs, node_groups) = (JobRuns::default(), NodeGroups::default());
    let read = ReadEvidence {
        histories,
        earlier_peaks,
        runs: &runs,
        node_groups: &node_groups,
        settings: &settings,
        thresholds: &UnsaidThresholds::default(),
    };
    read.of(&key, &workload())
}

fn with_result(result: ContainerResult) -> Histories {
    let key = ObjectKey::new("shop", "Deployment/web");
    let history = WorkloadHistory { containers: vec![result], node_groups: Vec::new() };
    Histories { workloads: HashMap::from([(key, history)]), ..Histories::default() }
}

#[test]
fn a_history_that_could_not_be_read_gives_no_number() {
    let found = evidence(&Histories::default(), &EarlierPeaks::new());
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
        let found = evidence(&with_result(result(hours, samples)), &EarlierPeaks::new());
        assert_eq!(found["main"].gap, gap, "{hours} h, {samples} samples");
        assert_eq!(found["silent"].gap, Some(EvidenceGap::WithoutSeries));
        assert_eq!(found["main"].throttled_share, None, "unknown is not zero");
    }
}

#[test]
fn the_rare_peak_is_the_largest_of_the_longer_time() {
    let histories = with_result(result(48, 1_000));
    let key = (ObjectKey::new("shop", "Deployment/web"), "main".into());
    for (earlier, largest) in [(None, 100), (Some(50), 100), (Some(200), 200)] {
        let mut peaks = EarlierPeaks::new();
        if let Some(bytes) = earlier {
            let peak = MemoryPeak { bytes: Bytes(bytes), at: Time::from_secs(1_000) };
            let largest = Some(peak);
            peaks.insert(key.clone(), EarlierPeak { largest, ..EarlierPeak::default() });
        }
        let found = evidence(&histories, &peaks);
        assert_eq!(found["main"].rare_memory_peak.map(|peak| peak.bytes.0), Some(largest));
        assert_eq!(found["main"].memory_peak.map(|peak| peak.bytes.0), Some(100));
    }
}
