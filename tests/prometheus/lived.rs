//! A history out of a real Prometheus against one that was lived, through the same eight days.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use plimsoll_core::recommender::{Bootstrap, Directives, Fleet, Settings};
use plimsoll_core::types::compat::Compat;
use plimsoll_core::{
    history::{Sample, Sink, Snapshot},
    types::{Key, VpaKey},
};
use plimsoll_storage::prometheus::door::Wall;
use plimsoll_storage::prometheus::history::{PrometheusHistory, Settings as Asked};
use plimsoll_storage::prometheus::schema::{CPU, MEMORY};

use crate::model::lived::scraped::Scraper;
use crate::model::lived::world::{Pod, Run, SPAN, Story};
use crate::model::lived::{Figures, MANNERS, Read, live, read, story_seeds, time};
use crate::prometheus::flavors::CHART;
use crate::prometheus::gather::{client, hasty};
use crate::prometheus::releases::releases;
use crate::support::prometheus::{History, Prometheus, Release};

const EVERY: i64 = 15;
/// Scrapes are spread over their interval, and seldom at full minutes.
const OFFSET: i64 = 5;
const CONTAINER: &str = "app";

type Stories = BTreeMap<VpaKey, Arc<Story>>;

/// Single samples into histories, and those into a fleet.
struct Fill {
    fleet: Fleet,
    bootstrap: Bootstrap,
}

impl Sink for Fill {
    fn snapshot(&mut self, key: Key, _: Snapshot) {
        panic!("a Prometheus has no snapshot of {key}");
    }

    fn sample(&mut self, key: &Key, sample: Sample) {
        let fleet = &self.fleet;
        self.bootstrap.take(key, &sample, |vpa| fleet.begin_folding(vpa));
    }

    fn run(&mut self, key: &Key, run: plimsoll_core::history::Run<'_>) {
        let fleet = &self.fleet;
        self.bootstrap.take_run(key, run, |vpa| fleet.begin_folding(vpa));
    }

    fn whole(&mut self, vpa: &VpaKey) {
        if let Some(folded) = self.bootstrap.release(vpa) {
            self.fleet.take_folded(vpa, folded, time(SPAN));
        }
        let sighting = self.fleet.sighting(vpa).expect("is tracked");
        self.fleet.loaded(vpa, sighting);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_real_server_has_recommends_what_was_lived() {
    for seeds in story_seeds() {
        let seeds = seeds
            .flat_map(|seed| (0..).zip(&MANNERS).map(move |(kind, manner)| (seed, kind, manner)));
        let stories: Stories = seeds
            .map(|(seed, kind, manner)| {
                let story = manner.live(seed * 100 + kind);
                (VpaKey::new(format!("team-{seed}-{kind}"), "web"), Arc::new(story))
            })
            .collect();
        let lived: BTreeMap<_, _> = stories
            .iter()
            .map(|(key, story)| {
                let server = Scraper { every: 15, offset: 5, fails: 200 };
                (key.clone(), read(&live(story, server, 23)))
            })
            .collect();
        for release in releases() {
            read_back(release, &stories, &lived).await;
        }
    }
}

/// Has a server scrape the stories, reads its history, and compares what it recommends with what was lived.
async fn read_back(release: Release, stories: &Stories, lived: &BTreeMap<VpaKey, Read>) {
    let at = |second: i64| Timestamp::from_nanosecond(i128::from(time(second).as_nanos()));
    let (from, to) = (at(0).expect("a time"), at(SPAN).expect("a time"));
    let first = from + SignedDuration::from_secs(OFFSET);
    let mut past = History::new(first, to, SignedDuration::from_secs(EVERY));
    for (key, story) in stories {
        past = scraped(past, &key.namespace, story, from);
    }
    let Some(server) = Prometheus::with_history(release, past).await else { return };
    let mut fleet = Fleet::new(Settings::default(), Compat::Plimsoll);
    for key in stories.keys() {
        fleet.track(key, Directives::default(), time(0));
    }
    let bootstrap = Bootstrap::new(fleet.settings(), time(SPAN));
    let mut fill = Fill { fleet, bootstrap };
    let owner = |key: &VpaKey| (key.clone(), Some("apps/Deployment/web".into()));
    let wanted: HashMap<VpaKey, Option<Box<str>>> = stories.keys().map(owner).collect();
    let settings = Asked { length: Duration::from_secs(SPAN.unsigned_abs()), ..Asked::default() };
    let now = Wall::new(|| time(SPAN));
    let storage =
        PrometheusHistory::new(server.url(), client(&server.url(), hasty()), settings, now);
    let (mut loading, skipped) = storage.begin(&wanted, None, None).await.expect("a schema");
    assert_eq!(skipped, []);
    loading.advance(&mut fill).await.expect("all of it");

    let mut figures = Figures::default();
    for (key, story) in stories {
        fill.fleet.see_container(key, CONTAINER, time(SPAN));
        let said = fill.fleet.recommend(key, time(SPAN)).expect("is loaded");
        assert!(!said.containers.is_empty(), "nothing of {key}: {}", story.name);
        figures.take(story, &lived[key], &read(&said));
    }
    figures.are_good_enough(stories.len() as u32, &format!("{release:?}"));
}

/// Adds what a server scrapes from the pods of a story, and from kube-state-metrics about them.
fn scraped(mut past: History, namespace: &str, story: &Arc<Story>, from: Timestamp) -> History {
    let second = move |at: Timestamp| at.as_second() - from.as_second();
    for (place, pod) in story.pods.iter().enumerate() {
        let of_pod = {
            let story = Arc::clone(story);
            move || Arc::clone(&story)
        };
        let names = [namespace, &*pod.name, CONTAINER];
        let time = |second: i64| from + SignedDuration::from_secs(second);
        let ends = pod.runs.last().map_or(0, Run::end) + 60;
        past = past.within(time(pod.runs[0].start), time(ends));
        // Scrapes fail as often as those of the metrics server, and others.
        let scraper = Scraper { every: EVERY, offset: OFFSET, fails: 200 };
        for (number, run) in scraper.scrape(pod, story, 2).into_iter().enumerate() {
            let id = format!("/kubepods/{number}");
            let run = Arc::new(run);
            for (metric, is_cpu) in [(CPU, true), (MEMORY, false)] {
                let run = Arc::clone(&run);
                let value = move |at: Timestamp| {
                    let second = second(at);
                    let scrape = run.binary_search_by_key(&second, |scrape| scrape.at).ok()?;
                    Some(if is_cpu { run[scrape].counter } else { run[scrape].memory })
                };
                past = CHART.usage_with(past, metric, names, &[("id", &id)], value);
            }
        }
        let object = [("namespace", namespace), ("pod", &*pod.name), ("container", CONTAINER)];
        let request = story.request as f64;
        let story = of_pod();
        past = CHART.state(past, "kube_pod_container_status_restarts_total", &object, move |at| {
            restarts(&story.pods[place], second(at)).map(|count| count as f64)
        });
        for (family, bytes) in [
            ("kube_pod_container_resource_requests", request),
            ("kube_pod_container_resource_limits", request * 2.0),
        ] {
            let story = of_pod();
            let object: Vec<_> = object.iter().copied().chain([("resource", "memory")]).collect();
            past = CHART.state(past, family, &object, move |at| {
                restarts(&story.pods[place], second(at)).map(|_| bytes)
            });
        }
        if pod.runs.iter().any(|run| run.killed) {
            let story = of_pod();
            let object: Vec<_> = object.iter().copied().chain([("reason", "OOMKilled")]).collect();
            let family = "kube_pod_container_status_last_terminated_reason";
            past = CHART.state(past, family, &object, move |at| {
                let runs = &story.pods[place].runs;
                let ended = runs.iter().rfind(|run| run.end() <= second(at))?;
                restarts(&story.pods[place], second(at))?;
                ended.killed.then_some(1.0)
            });
        }
    }
    past
}

/// How often a pod's container was started again by this time; `None` while there is no such pod.
fn restarts(pod: &Pod, second: i64) -> Option<usize> {
    let lives = pod.runs[0].start <= second && second <= pod.runs.last().map_or(0, Run::end) + 60;
    let ended = pod.runs.iter().filter(|run| run.end() <= second).count();
    lives.then_some(ended)
}
