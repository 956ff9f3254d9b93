//! Targets within their bounds: nodes, peaks, page cache and the heap.

use super::*;
use crate::{
    rightsizing::{
        evidence::MemoryPeak,
        page_cache::NeededMemory,
        runtime_bounds::JvmMemory,
        survey::{Node, RuntimeHint},
        testing::{MI, amounts, container, deployment, evidence},
    },
    types::Time,
};

const GI: i64 = 1024 * MI;

fn survey(nodes: &[(i64, i64)]) -> Survey {
    let node = |(index, (cpu, memory)): (usize, &(i64, i64))| {
        let allocatable = amounts(Some(*cpu), Some(*memory));
        (format!("node-{index}").into(), Node { allocatable, ..Node::default() })
    };
    Survey { nodes: nodes.iter().enumerate().map(node).collect(), ..Survey::default() }
}

fn targets(targets: &ContainerTargets) -> (i64, i64) {
    let target = |need: Result<Need, EvidenceGap>| need.expect("a number").target;
    (target(targets.cpu), target(targets.memory))
}

#[test]
fn a_pod_is_capped_to_a_node_and_its_init_containers_alone() {
    let mut init = container(Amounts::default(), Amounts::default());
    init.role = ContainerRole::Init;
    let main = container(Amounts::default(), Amounts::default());
    let mut sidecar = main.clone();
    sidecar.role = ContainerRole::Sidecar;
    let workload = deployment("web", 1, vec![init, main, sidecar]);
    let (large, small) =
        (evidence([1, 6000, 9000], [1, GI, 2 * GI]), evidence([1, 2000, 9000], [1, GI, 2 * GI]));
    let huge = evidence([1, 9000, 9000], [1, GI, 2 * GI]);
    let found = |cap_to_largest_node: bool, nodes: &[(i64, i64)]| {
        let options = ReportOptions { cap_to_largest_node, ..ReportOptions::default() };
        let sizes = NodeSizes::of(&survey(nodes), None);
        targets_of(&workload, &[Some(&huge), Some(&large), Some(&small)], &sizes, &options)
    };
    let nodes = [(4000, 64 * GI), (2000, 4 * GI)];
    let capped = found(true, &nodes);
    let pairs: Vec<_> = capped.iter().map(targets).collect();
    // 4 of 8 cores: half of each; the init container alone 4 of 9.
    assert_eq!(pairs, [(4000, GI), (3000, GI), (1000, GI)]);
    let remark = "cpu is capped to 3 of 6, so that the pod fits a node";
    assert_eq!(capped[1].remarks, [remark]);
    for uncapped in [found(false, &nodes), found(true, &[])] {
        let pairs: Vec<_> = uncapped.iter().map(targets).collect();
        assert_eq!(pairs, [(9000, GI), (6000, GI), (2000, GI)]);
        assert!(uncapped.iter().all(|targets| targets.remarks.is_empty()));
    }
}

#[test]
fn peaks_are_kept_if_asked_for() {
    let workload = deployment("web", 1, vec![container(Amounts::default(), Amounts::default())]);
    let mut evidence = evidence([1, 2, 3], [1, 500 * MI, 600 * MI]);
    let at = Time::from_secs(1_767_225_600);
    evidence.rare_memory_peak = Some(MemoryPeak { bytes: Bytes(700 * MI), at });
    let found = |keep_peaks: bool| {
        let options = ReportOptions { keep_peaks, ..ReportOptions::default() };
        targets_of(&workload, &[Some(&evidence)], &NodeSizes::default(), &options).remove(0)
    };
    assert_eq!(found(false).memory.map(|need| need.target), Ok(500 * MI));
    let kept = found(true);
    let expected = Need { target: 700 * MI, lower: Some(1), upper: Some(700 * MI) };
    assert_eq!(kept.memory, Ok(expected));
    assert_eq!(kept.remarks, ["memory covers the peak of 700Mi at 2026-01-01T00:00:00Z"]);
}

/// Evidence of eight days with this working set and this memory without page cache, in MiB.
fn cached(target: i64, working_set: i64, needed: i64) -> ContainerEvidence {
    let mut evidence = evidence([1, 2, 3], [1, target * MI, 9 * GI]);
    let mut memory = NeededMemory { active_file: Some(Bytes(0)), ..NeededMemory::default() };
    for day in 0..8 {
        let at = Time::from_secs(day * 86_400);
        let peak = |amount: i64| MemoryPeak { bytes: Bytes(amount * MI), at };
        evidence.daily_memory_peaks.add(peak(working_set));
        memory.needed.add(peak(needed));
    }
    evidence.needed_memory = Some(memory);
    evidence
}

#[test]
fn page_cache_counts_unless_it_is_left_out() {
    let workload = deployment("db", 1, vec![container(Amounts::default(), Amounts::default())]);
    let found = |evidence: &ContainerEvidence, memory_signal: MemorySignal| {
        let options = ReportOptions { memory_signal, margin: 0.15, ..ReportOptions::default() };
        let targets = targets_of(&workload, &[Some(evidence)], &NodeSizes::default(), &options);
        let ContainerTargets { memory, remarks, least_memory_limit, .. } = &targets[0];
        let target = memory.expect("a number").target / MI;
        (target, least_memory_limit.map(|limit| limit / MI), remarks.clone())
    };
    let large = cached(1150, 1000, 400);
    let (target, limit, remarks) = found(&large, MemorySignal::WorkingSet);
    assert_eq!((target, limit), (1150, None));
    assert_eq!(remarks, ["memory would be 460Mi without page cache (--memory-signal=need)"]);
    let (target, limit, remarks) = found(&large, MemorySignal::Need);
    assert_eq!((target, limit), (460, Some(520)));
    assert_eq!(remarks, ["memory is 460Mi without page cache, and 1.12Gi with it"]);
    let small = cached(1150, 1000, 900);
    let mut killed = large.clone();
    killed.oom_kills = 1;
    let mut unknown = large.clone();
    unknown.needed_memory = None;
    for (name, evidence) in [("small", small), ("killed", killed), ("unknown", unknown)] {
        for signal in [MemorySignal::WorkingSet, MemorySignal::Need] {
            assert_eq!(found(&evidence, signal), (1150, None, vec![]), "{name} {signal}");
        }
    }
}

#[test]
fn weekly_peaks_are_remarked_on_unless_they_are_kept() {
    let workload = deployment("web", 1, vec![container(Amounts::default(), Amounts::default())]);
    let mut evidence = evidence([1, 2, 3], [1, 500 * MI, 600 * MI]);
    for week in 0..4 {
        // Thursdays.
        let at = Time::from_secs(week * 7 * 86_400);
        evidence.daily_memory_peaks.add(MemoryPeak { bytes: Bytes(700 * MI), at });
    }
    let remarks = |keep_peaks: bool| {
        let options = ReportOptions { keep_peaks, ..ReportOptions::default() };
        let sizes = NodeSizes::default();
        targets_of(&workload, &[Some(&evidence)], &sizes, &options).remove(0).remarks
    };
    let expected = "memory peaked above the target on 4 Thursdays: --memory-histogram-decay-half-life=168h remembers weekly \
                    peaks";
    assert_eq!(remarks(false), [expected]);
    assert_eq!(remarks(true), [""; 0]);
}

#[test]
fn a_heap_that_follows_the_limit_needs_what_stays_in_it() {
    let mut main = container(Amounts::default(), Amounts::default());
    main.runtime = Some(Box::new(RuntimeHint::Jvm {
        known_by: "-XX:MaxRAMPercentage=75".to_owned(),
        max_heap: None,
        max_heap_percent: Some(75),
    }));
    let workload = deployment("web", 1, vec![main]);
    let mut evidence = evidence([1, 2, 3], [1, 3 * GI, 9 * GI]);
    let live_data = Some(Bytes(300 * MI));
    let non_heap = Bytes(200 * MI);
    evidence.jvm_memory = Some(Box::new(JvmMemory { non_heap, live_data, ..JvmMemory::default() }));
    let found = |evidence: &ContainerEvidence| {
        let options = ReportOptions::default();
        let targets = targets_of(&workload, &[Some(evidence)], &NodeSizes::default(), &options);
        (targets[0].memory.expect("a number").target, targets[0].remarks.len())
    };
    assert_eq!(found(&evidence), (575 * MI, 1));
    evidence.oom_kills = 1;
    assert_eq!(found(&evidence), (3 * GI, 0), "an OOM kill says that it is too little");
}

#[test]
fn a_smaller_heap_is_possible_and_changes_no_number() {
    let mut main = container(Amounts::default(), Amounts::default());
    main.runtime = Some(Box::new(RuntimeHint::Jvm {
        known_by: "-Xmx2g".to_owned(),
        max_heap: Some(Bytes(2 * GI)),
        max_heap_percent: None,
    }));
    let workload = deployment("web", 1, vec![main]);
    let mut evidence = evidence([1, 2, 3], [1, 3 * GI, 9 * GI]);
    let jvm = JvmMemory {
        non_heap: Bytes(100 * MI),
        threads: 50,
        direct_buffers: Some(Bytes(0)),
        live_data: Some(Bytes(200 * MI)),
        collection_share: Some(0.01),
        ..JvmMemory::default()
    };
    evidence.jvm_memory = Some(Box::new(jvm));
    let options = ReportOptions::default();
    let found = targets_of(&workload, &[Some(&evidence)], &NodeSizes::default(), &options);
    assert_eq!(found[0].memory.map(|need| need.target), Ok(3 * GI));
    let [remark] = &found[0].remarks[..] else { panic!("{:?}", found[0].remarks) };
    assert!(remark.starts_with("possible: memory 715Mi with -Xmx500m"), "{remark}");
}

#[test]
fn memory_is_never_below_the_heap() {
    let mut main = container(Amounts::default(), Amounts::default());
    main.runtime = Some(Box::new(RuntimeHint::Jvm {
        known_by: "-Xmx1g".to_owned(),
        max_heap: Some(Bytes(GI)),
        max_heap_percent: None,
    }));
    let workload = deployment("web", 1, vec![main]);
    for (target, expected, remarks) in [(500 * MI, 1280 * MI, 1), (2 * GI, 2 * GI, 0)] {
        let evidence = evidence([1, 2, 3], [1, target, 9 * GI]);
        let options = ReportOptions::default();
        let found = targets_of(&workload, &[Some(&evidence)], &NodeSizes::default(), &options);
        assert_eq!(found[0].memory.map(|need| need.target), Ok(expected));
        assert_eq!(found[0].remarks.len(), remarks);
    }
    let missing = targets_of(&workload, &[None], &NodeSizes::default(), &ReportOptions::default());
    assert_eq!(missing[0].memory, Err(EvidenceGap::WithoutSeries), "a heap alone is no history");
}

#[test]
fn nodes_of_an_unknown_size_do_not_count() {
    let mut survey = survey(&[(4000, GI)]);
    let half = Node { allocatable: amounts(Some(9000), None), ..Node::default() };
    survey.nodes.insert("half".into(), half);
    let sizes = NodeSizes::of(&survey, None);
    assert_eq!(sizes.largest(Resource::Cpu), Some(4000));
    assert_eq!(NodeSizes::default().largest(Resource::Cpu), None);
}
