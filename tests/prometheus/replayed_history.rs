//! History loaded from a real Prometheus compared with live samples of the same eight days.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::recommender::{HistoryBootstrap, Settings, VpaRegistry, VpaSettings};
use plimsoll_core::types::compat::Compat;
use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey},
};
use plimsoll_storage::prometheus::history::{HistorySettings as Asked, PrometheusHistory};
use plimsoll_storage::prometheus::schema::{CPU_METRIC, MEMORY_METRIC};
use plimsoll_storage::prometheus::transport::WallClock;

use crate::prometheus::label_flavors::CHART;
use crate::prometheus::releases::releases;
use crate::prometheus::series_collector::{client, short_limits};
use crate::recommender_model::replayed_history::simulated_scrape::ScrapeSchedule;
use crate::recommender_model::replayed_history::simulated_workload::{
    ContainerRun, SPAN, SimulatedPod, SimulatedWorkload,
};
use crate::recommender_model::replayed_history::{
    BEHAVIOURS, ComparedEstimate, EstimateErrors, estimate_of, recommend_from_samples, time,
    workload_seeds,
};
use crate::support::prometheus_server::{History, PrometheusRelease, PrometheusServer};

const EVERY: i64 = 15;
/// Scrapes are spread over the interval and rarely at full minutes.
const OFFSET: i64 = 5;
const CONTAINER: &str = "app";

type Stories = BTreeMap<ObjectKey, Arc<SimulatedWorkload>>;

/// Adds single samples to histories, and those to a registry.
struct FleetSink {
    fleet: VpaRegistry,
    bootstrap: HistoryBootstrap,
}

impl Sink for FleetSink {
    fn snapshot(&mut self, key: ContainerKey, _: Snapshot) {
        panic!("a Prometheus has no snapshot of {key}");
    }

    fn sample(&mut self, key: &ContainerKey, sample: Sample) {
        let fleet = &self.fleet;
        self.bootstrap.add_sample(key, &sample, |vpa| fleet.start_history(vpa));
    }

    fn batch(&mut self, key: &ContainerKey, run: plimsoll_core::history::SampleBatch<'_>) {
        let fleet = &self.fleet;
        self.bootstrap.add_batch(key, run, |vpa| fleet.start_history(vpa));
    }

    fn complete(&mut self, vpa: &ObjectKey) {
        if let Some(folded) = self.bootstrap.take_builder(vpa) {
            self.fleet.merge_history(vpa, folded, time(SPAN));
        }
        let generation = self.fleet.load_generation(vpa).expect("container is tracked");
        self.fleet.mark_loaded(vpa, generation);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn history_read_from_a_real_server_gives_the_same_recommendation_as_live_samples() {
    for seeds in workload_seeds() {
        let seeds = seeds.flat_map(|seed| {
            (0..).zip(&BEHAVIOURS).map(move |(kind, behaviour)| (seed, kind, behaviour))
        });
        let workloads: Stories = seeds
            .map(|(seed, kind, behaviour)| {
                let workload = behaviour.simulate(seed * 100 + kind);
                (ObjectKey::new(format!("team-{seed}-{kind}"), "web"), Arc::new(workload))
            })
            .collect();
        let live_estimates: BTreeMap<_, _> = workloads
            .iter()
            .map(|(key, workload)| {
                let server = ScrapeSchedule { every: 15, offset: 5, fails: 200 };
                (key.clone(), estimate_of(&recommend_from_samples(workload, server, 23)))
            })
            .collect();
        for release in releases() {
            read_back(release, &workloads, &live_estimates).await;
        }
    }
}

/// Lets a server scrape the scripted workloads, loads its history, and compares the recommendations with those from
/// live samples.
async fn read_back(
    release: PrometheusRelease,
    workloads: &Stories,
    live_estimates: &BTreeMap<ObjectKey, ComparedEstimate>,
) {
    let at = |second: i64| Timestamp::from_nanosecond(i128::from(time(second).as_nanos()));
    let (from, to) = (at(0).expect("valid timestamp"), at(SPAN).expect("valid timestamp"));
    let first = from + SignedDuration::from_secs(OFFSET);
    let mut history = History::new(first, to, SignedDuration::from_secs(EVERY));
    for (key, workload) in workloads {
        history = scraped(history, &key.namespace, workload, from);
    }
    let Some(server) = PrometheusServer::with_history(release, history).await else { return };
    let mut fleet = VpaRegistry::new(Settings::default(), Compat::Plimsoll);
    for key in workloads.keys() {
        fleet.track(key, VpaSettings::default(), time(0));
    }
    let bootstrap = HistoryBootstrap::new(&fleet.settings, time(SPAN));
    let mut fill = FleetSink { fleet, bootstrap };
    let owner = |key: &ObjectKey| (key.clone(), Some("apps/Deployment/web".into()));
    let wanted: HashMap<ObjectKey, Option<Box<str>>> = workloads.keys().map(owner).collect();
    let settings = Asked { length: Duration::from_secs(SPAN.unsigned_abs()), ..Asked::default() };
    let now = WallClock::new(|| time(SPAN));
    let storage =
        PrometheusHistory::new(server.url(), client(&server.url(), short_limits()), settings, now);
    let (mut loading, skipped) =
        storage.start_load(&wanted, None, None).await.expect("schema detected");
    assert_eq!(skipped, []);
    loading.advance(&mut fill).await.expect("load succeeds");

    let mut figures = EstimateErrors::default();
    for (key, workload) in workloads {
        fill.fleet.ingest().register_container(key, CONTAINER, time(SPAN));
        let recommendation = fill.fleet.recommend(key, time(SPAN)).expect("is loaded");
        assert!(!recommendation.containers.is_empty(), "no history of {key}: {}", workload.name);
        figures.add_comparison(workload, &live_estimates[key], &estimate_of(&recommendation));
    }
    figures.assert_good_enough(workloads.len() as u32, &format!("{release:?}"));
}

/// Adds the scraped series of a scripted workload's pods and their kube-state-metrics series.
fn scraped(
    mut history: History,
    namespace: &str,
    workload: &Arc<SimulatedWorkload>,
    from: Timestamp,
) -> History {
    let second = move |at: Timestamp| at.as_second() - from.as_second();
    for (place, pod) in workload.pods.iter().enumerate() {
        let of_pod = {
            let workload = Arc::clone(workload);
            move || Arc::clone(&workload)
        };
        let names = [namespace, &*pod.name, CONTAINER];
        let time = |second: i64| from + SignedDuration::from_secs(second);
        let ends = pod.runs.last().map_or(0, ContainerRun::end) + 60;
        history = history.existing_between(time(pod.runs[0].start), time(ends));
        // Scrapes fail as often as those of the metrics server, but at other times.
        let scraper = ScrapeSchedule { every: EVERY, offset: OFFSET, fails: 200 };
        for (number, run) in scraper.scrape(pod, workload, 2).into_iter().enumerate() {
            let id = format!("/kubepods/{number}");
            let run = Arc::new(run);
            for (metric, is_cpu) in [(CPU_METRIC, true), (MEMORY_METRIC, false)] {
                let run = Arc::clone(&run);
                let value = move |at: Timestamp| {
                    let second = second(at);
                    let scrape = run.binary_search_by_key(&second, |scrape| scrape.at).ok()?;
                    Some(if is_cpu { run[scrape].counter } else { run[scrape].memory })
                };
                history = CHART.usage_with(history, metric, names, &[("id", &id)], value);
            }
        }
        let object = [("namespace", namespace), ("pod", &*pod.name), ("container", CONTAINER)];
        let request = workload.request as f64;
        let workload = of_pod();
        history =
            CHART.state(history, "kube_pod_container_status_restarts_total", &object, move |at| {
                restarts(&workload.pods[place], second(at)).map(|count| count as f64)
            });
        for (family, bytes) in [
            ("kube_pod_container_resource_requests", request),
            ("kube_pod_container_resource_limits", request * 2.0),
        ] {
            let workload = of_pod();
            let object: Vec<_> = object.iter().copied().chain([("resource", "memory")]).collect();
            history = CHART.state(history, family, &object, move |at| {
                restarts(&workload.pods[place], second(at)).map(|_| bytes)
            });
        }
        if pod.runs.iter().any(|run| run.killed) {
            let workload = of_pod();
            let object: Vec<_> = object.iter().copied().chain([("reason", "OOMKilled")]).collect();
            let family = "kube_pod_container_status_last_terminated_reason";
            history = CHART.state(history, family, &object, move |at| {
                let runs = &workload.pods[place].runs;
                let ended = runs.iter().rfind(|run| run.end() <= second(at))?;
                restarts(&workload.pods[place], second(at))?;
                ended.killed.then_some(1.0)
            });
        }
    }
    history
}

/// Restart count of a pod's container at this time; `None` if the pod does not exist.
fn restarts(pod: &SimulatedPod, second: i64) -> Option<usize> {
    let exists =
        pod.runs[0].start <= second && second <= pod.runs.last().map_or(0, ContainerRun::end) + 60;
    let ended = pod.runs.iter().filter(|run| run.end() <= second).count();
    exists.then_some(ended)
}
