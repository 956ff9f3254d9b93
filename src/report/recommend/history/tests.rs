//! The numbers of a report are those of the recommender, and a failure gives no number.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
    time::Duration,
};

use plimsoll_core::{
    history::{Measurement, Resource, Sample, SampleBatch, Sink, Throttling},
    recommender::{HistoryBootstrap, Recommendation, Settings, VpaRegistry, VpaSettings},
    rightsizing::survey::Node,
    types::{ContainerKey, compat::Compat, units::Bytes},
};
use plimsoll_storage::prometheus::history::ThrottlingReport;

use super::{sink::RecommendationSink, *};

const MINUTE: Duration = Duration::from_mins(1);
const NOW: Time = Time::from_secs(1_790_000_000);

fn workload(kind: &str, name: &str, containers: &[&str]) -> HistoryWorkload {
    let containers = containers.iter().map(|name| HistoryContainer {
        name: (*name).into(),
        role: ContainerRole::Main,
        cpu_request: Some(MilliCpu(500)),
        is_java: false,
    });
    HistoryWorkload {
        key: ObjectKey::new("shop", format!("{kind}/{name}")),
        pods: vec![format!("{name}-0").into()],
        is_running: true,
        is_job: false,
        containers: containers.collect(),
    }
}

/// Two days of samples of a container of a pod, different for each pod.
fn feed(sink: &mut dyn Sink, key: &ObjectKey, container: &str, pod: &str, seed: u64) {
    let key = ContainerKey::new(key.clone(), container);
    let replica: Arc<str> = pod.into();
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as f64 / (1_u64 << 53) as f64
    };
    for hour in 0..48_u64 {
        let start = NOW.earlier(Duration::from_hours(48 - hour));
        let cpu: Vec<_> = (1..=60)
            .map(|minute| (start.later(MINUTE * minute), 0.2 + 1.3 * next() * next()))
            .collect();
        let memory: Vec<_> =
            (1..=12).map(|step| (start.later(5 * MINUTE * step), 3e8 + 2e8 * next())).collect();
        let batch =
            |gauge, covers, points| SampleBatch { replica: &replica, gauge, covers, points };
        sink.batch(&key, batch(Resource::Cpu, Some(MINUTE), &cpu));
        sink.batch(&key, batch(Resource::Memory, Some(5 * MINUTE), &memory));
        if hour == 40 && seed.is_multiple_of(2) {
            let measurement =
                Measurement::OutOfMemory { request_bytes: 1 << 28, limit_bytes: Some(1 << 29) };
            let at = start.later(Duration::from_hours(1));
            sink.sample(
                &key,
                Sample { replica: Arc::clone(&replica), at, covers: None, measurement },
            );
        }
    }
}

/// The sink of the recommender, for a VPA of the same workload: see `HistorySink` there.
struct RecommenderSink {
    registry: VpaRegistry,
    bootstrap: HistoryBootstrap,
}

impl Sink for RecommenderSink {
    fn snapshot(&mut self, _: ContainerKey, _: plimsoll_core::history::Snapshot) {}

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        self.bootstrap.add_sample(key, &sample, |vpa| self.registry.start_history(vpa));
    }

    fn batch(&mut self, key: &ContainerKey, batch: SampleBatch<'_>) {
        self.bootstrap.add_batch(key, batch, |vpa| self.registry.start_history(vpa));
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        if let Some(builder) = self.bootstrap.take_builder(vpa) {
            self.registry.merge_history(vpa, builder, NOW);
        }
        let generation = self.registry.load_generation(vpa).expect("it is tracked");
        self.registry.mark_loaded(vpa, generation);
    }
}

/// What the recommender would write: a VPA that sees its pods, loads their history and queries their throttling.
fn recommender(
    settings: &Settings,
    containers: &[&str],
    throttling: &[(&str, Throttling)],
    feed: impl Fn(&mut dyn Sink, &ObjectKey),
) -> Recommendation {
    let key = ObjectKey::new("shop", "web");
    let mut registry = VpaRegistry::new(settings.clone(), Compat::Plimsoll);
    registry.track(&key, VpaSettings::default(), NOW.earlier(MINUTE));
    registry.set_owner(&key, "apps/Deployment/web");
    for container in containers {
        registry.ingest().register_container(&key, container, NOW);
    }
    let bootstrap = HistoryBootstrap::new(settings, NOW);
    let mut sink = RecommenderSink { registry, bootstrap };
    feed(&mut sink, &key);
    sink.complete(&key);
    for (container, measured) in throttling {
        let key = ContainerKey::new(key.clone(), *container);
        sink.registry.ingest().set_throttling(&key, Some(*measured), NOW);
    }
    sink.registry.recommend(&key, NOW).expect("its history is loaded")
}

fn histories(
    settings: &Settings,
    workloads: &[HistoryWorkload],
    node_groups: &NodeGroups<'_>,
    throttling: &ThrottlingReport,
    feed: impl Fn(&mut dyn Sink),
) -> HashMap<ObjectKey, WorkloadHistory> {
    let model = model(settings, &NOTHING_REPLACED);
    let mut progress = |_| {};
    let mut sink =
        RecommendationSink::new(workloads, model, node_groups, throttling, &mut progress);
    feed(&mut sink);
    sink.into_finished().0
}

static NOTHING_REPLACED: LazyLock<ReplacedContainers> = LazyLock::new(ReplacedContainers::new);

fn model<'a>(settings: &'a Settings, replaced: &'a ReplacedContainers) -> HistoryModel<'a> {
    let strategy = Strategy::Plimsoll;
    HistoryModel { settings, compat: Compat::Plimsoll, strategy, replaced, now: NOW }
}

#[test]
fn recommendations_that_are_replaced_are_not_kept() {
    let workloads = [workload("Deployment", "web", &["main", "proxy"])];
    let key = &workloads[0].key;
    let settings = Settings::default();
    let replaced = [(key.clone(), Box::from([Arc::from("main")]))].into();
    let (no_groups, throttling) = (NodeGroups::default(), ThrottlingReport::default());
    let mut progress = |_| {};
    let model = model(&settings, &replaced);
    let mut sink =
        RecommendationSink::new(&workloads, model, &no_groups, &throttling, &mut progress);
    for (seed, container) in ["main", "proxy"].into_iter().enumerate() {
        feed(&mut sink, key, container, "web-0", seed as u64 + 2);
    }
    sink.complete(key);
    let found = sink.into_finished().0;
    let found = found[key].containers.iter();
    let kept = found.map(|known| {
        assert!(known.usage.cpu_samples > 0 && known.memory_target > Some(Bytes(0)), "{known:?}");
        (&*known.name, known.recommendation.is_some(), known.is_replaced)
    });
    assert_eq!(kept.collect::<Vec<_>>(), [("main", false, true), ("proxy", true, false)]);
}

#[test]
fn numbers_equal_those_of_the_recommender_to_the_digit() {
    let throttled = Settings { cpu_throttling_target: Some(0.1), ..Settings::default() };
    let upstream = Settings::for_compat(Compat::Upstream);
    for (settings, share) in [(Settings::default(), 0.0), (throttled, 0.4), (upstream, 0.0)] {
        let measured = Throttling { throttled: 100.0 * share, periods: 100.0, at: NOW };
        // One container of the template has no samples, and one that left the template has old ones.
        let template = ["main", "proxy", "silent"];
        let feed_all = |sink: &mut dyn Sink, key: &ObjectKey| {
            for (seed, (container, pod)) in
                [("main", "web-0"), ("main", "web-1"), ("proxy", "web-0"), ("gone", "web-old")]
                    .into_iter()
                    .enumerate()
            {
                feed(sink, key, container, pod, seed as u64 + 2);
            }
        };
        let expected = recommender(&settings, &template, &[("main", measured)], feed_all);
        let workload = workload("Deployment", "web", &template);
        let key = workload.key.clone();
        let mut throttling = ThrottlingReport::default();
        throttling.measured.insert(ContainerKey::new(key.clone(), "main"), measured);
        let (workloads, no_groups) = ([workload], NodeGroups::default());
        let found = histories(&settings, &workloads, &no_groups, &throttling, |sink| {
            feed_all(sink, &key);
            sink.complete(&key);
        });
        let found = &found[&key].containers;
        for expected in &expected.containers {
            let name = &expected.container;
            let container = found.iter().find(|known| known.name == *name);
            if &**name == "silent" {
                assert!(container.is_none(), "no number without samples");
                continue;
            }
            let numbers = container.and_then(|known| known.recommendation.as_deref());
            assert_eq!(numbers, Some(expected), "{name}");
        }
        let names: Vec<&str> = expected.containers.iter().map(|known| &*known.container).collect();
        assert!(names.contains(&"main") && names.contains(&"proxy"), "{names:?}");
        let main = found.iter().find(|known| &*known.name == "main").expect("its samples");
        assert_eq!(main.usage.oom_kills, 1);
        assert_eq!(main.usage.oom_kill_limit, Some(Bytes(1 << 29)));
        assert!(main.usage.share_above_request().is_some_and(|share| share > 0.1));
    }
}

#[test]
fn a_history_is_dropped_when_it_is_complete_and_counts_only_then() {
    let workloads: Vec<HistoryWorkload> =
        (0..50).map(|index| workload("Deployment", &format!("web-{index}"), &["main"])).collect();
    let settings = Settings::default();
    let model = model(&settings, &NOTHING_REPLACED);
    let (no_groups, throttling) = (NodeGroups::default(), ThrottlingReport::default());
    let mut done = Vec::new();
    let mut progress = |count| done.push(count);
    let mut sink =
        RecommendationSink::new(&workloads, model, &no_groups, &throttling, &mut progress);
    for (index, workload) in workloads.iter().enumerate() {
        feed(&mut sink, &workload.key, "main", "web-0", index as u64 + 1);
        // The last one is interrupted.
        if index < 49 {
            sink.complete(&workload.key);
            assert_eq!(sink.histories_in_memory(), 0);
        }
    }
    let (finished, last_sample) = sink.into_finished();
    assert_eq!(finished.len(), 49);
    assert!(!finished.contains_key(&workloads[49].key), "half a history gives no number");
    assert_eq!(last_sample, Some(NOW));
    assert_eq!(done, (1..50).collect::<Vec<usize>>());
}

#[test]
fn what_is_left_of_a_history_takes_less_than_two_kilobytes() {
    const COUNT: usize = 100;
    let workloads: Vec<HistoryWorkload> = (0..COUNT)
        .map(|index| workload("Deployment", &format!("web-{index}"), &["main"]))
        .collect();
    let settings = Settings::default();
    let (no_groups, throttling) = (NodeGroups::default(), ThrottlingReport::default());
    let mut finished = HashMap::new();
    let used = allocation_counter::measure(|| {
        finished = histories(&settings, &workloads, &no_groups, &throttling, |sink| {
            for workload in &workloads {
                feed(sink, &workload.key, "main", "web-0", 3);
                sink.complete(&workload.key);
            }
        });
    });
    assert_eq!(finished.len(), COUNT);
    let each = used.bytes_current / COUNT as i64;
    assert!((500..2_048).contains(&each), "{each} bytes");
}

#[test]
fn pods_of_each_group_of_nodes_have_a_recommendation_of_their_own() {
    let label = |value: &str| Node {
        labels: BTreeMap::from([("pool".into(), value.into())]),
        ..Node::default()
    };
    let nodes = BTreeMap::from([("a".into(), label("small")), ("b".into(), label("large"))]);
    let surveyed = Workload {
        namespace: "shop".into(),
        kind: "DaemonSet".into(),
        name: "logs".into(),
        nodes: vec!["a".into(), "b".into()],
        ..Workload::default()
    };
    let mut groups = NodeGroups::new(&[&surveyed], &nodes, Some("pool"));
    let workload = workload("DaemonSet", "logs", &["agent"]);
    let key = workload.key.clone();
    groups.add_pod(&key, "logs-a", "a");
    groups.add_pod(&key, "logs-b", "b");
    let settings = Settings::default();
    let throttling = ThrottlingReport::default();
    let found = histories(&settings, &[workload], &groups, &throttling, |sink| {
        feed(sink, &key, "agent", "logs-a", 3);
        feed(sink, &key, "agent", "logs-b", 5);
        sink.complete(&key);
    });
    for (pod, seed) in [("logs-a", 3), ("logs-b", 5)] {
        let group = groups.index_of(&key, pod).expect("its node is known");
        let alone = recommender(&settings, &["agent"], &[], |sink, key| {
            feed(sink, key, "agent", pod, seed);
        });
        let history =
            found[&key].node_groups.iter().find(|known| known.group == group).expect("it");
        assert_eq!(history.recommendations, alone.containers, "{pod}");
    }
    assert_eq!(found[&key].containers.len(), 1);
}

#[test]
fn messages_name_some_namespaces_only() {
    let keys: Vec<ObjectKey> =
        (0..9).map(|index| ObjectKey::new(format!("ns-{}", index % 8), "Deployment/web")).collect();
    assert_eq!(
        describe(keys.iter()),
        "9 workloads in namespaces ns-0, ns-1, ns-2, ns-3, ns-4 and 3 others"
    );
    assert_eq!(describe(keys[..1].iter()), "1 workload in namespace ns-0");
}
