//! All objects need more replicas at once: the time until the last scale is written, by each controller.

use std::{
    collections::HashSet,
    fmt,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::{
    ResourceExt as _,
    api::{Api, ListParams, WatchEvent, WatchParams},
};

use super::{
    PATIENCE, PERIOD,
    cluster::{self, Object, PODS, Source},
    controllers::{Controllers, UpstreamLimits},
    metrics_api::MetricsApi,
    process::Process,
    support::Testbed,
    wait_for_all,
};

/// The result of one controller.
#[derive(Clone, Copy, Debug)]
pub struct ScaleUps {
    /// Seconds until half of the objects, and until all of them, had more replicas.
    pub half: f64,
    pub all: f64,
    /// CPU seconds of the process in this time.
    pub cpu: f64,
}

/// The results of both, each for its own objects.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    pub objects: usize,
    pub ours: ScaleUps,
    pub upstream: ScaleUps,
}

/// Measures one controller after the other, each with this many objects of its own, while both run and decide about all of
/// them. Returns `None` after reporting what is missing.
pub async fn measure(count: usize, limits: UpstreamLimits, flags: &[String]) -> Option<Figures> {
    let bed = Testbed::private().await.filter(Testbed::has_controllers)?;
    let begun = Instant::now();
    let objects =
        cluster::create_each(&bed, 2 * count, |index| (Source::Memory, index % 2 == 1)).await;
    let api = MetricsApi::serve(&bed, &objects).await;
    println!("{count} HPAs of each controller: made in {:.0?}", begun.elapsed());
    let mut controllers = Controllers::new(&bed);
    controllers.start_upstream(PERIOD, limits);
    wait_for_all(&objects, || cluster::decided(&bed)).await;
    let own = [
        "--mode=adopted".to_owned(),
        format!("--kube-api-qps={}", limits.qps),
        format!("--kube-api-burst={}", 2 * limits.qps),
    ];
    controllers.start_ours(PERIOD, &[&own, flags].concat());
    wait_for_all(&objects, || async {
        controllers.scrape().await.map_or(0, |scrape| scrape.ages.len())
    })
    .await;
    let mut results = Vec::new();
    for is_driven in [false, true] {
        let process = |controllers: &Controllers<'_>| -> Process {
            let both = controllers.stats();
            if is_driven { both.ours } else { both.upstream }
        };
        let before = process(&controllers);
        let mut waiting: HashSet<_> =
            objects.iter().filter(|object| object.is_driven == is_driven).map(key).collect();
        let times = scale_times(&bed, &mut waiting, || api.double(is_driven)).await;
        assert!(waiting.is_empty(), "{} of {count} objects have no scale", waiting.len());
        results.push(ScaleUps {
            half: times[times.len() / 2],
            all: times.last().copied().unwrap_or(f64::NAN),
            cpu: process(&controllers).cpu - before.cpu,
        });
    }
    controllers.stop();
    Some(Figures { objects: count, upstream: results[0], ours: results[1] })
}

fn key(object: &Object) -> (String, String) {
    (object.namespace.clone(), object.name.clone())
}

/// The seconds from `start` until each of these Deployments had more replicas, in order. Those that were seen are removed.
async fn scale_times(
    bed: &Testbed,
    waiting: &mut HashSet<(String, String)>,
    start: impl FnOnce(),
) -> Vec<f64> {
    let api = Api::<Deployment>::all(bed.client());
    let list = api.list_metadata(&ListParams::default().limit(1)).await.expect("a list");
    let version = list.metadata.resource_version.expect("a version");
    let parameters = WatchParams::default().timeout(290);
    let events = api.watch(&parameters, &version).await.expect("a watch");
    let mut events = std::pin::pin!(events);
    let begun = Instant::now();
    start();
    let mut times = Vec::new();
    while !waiting.is_empty() && begun.elapsed() < PATIENCE {
        let next = tokio::time::timeout(Duration::from_mins(1), events.next()).await;
        let Ok(Some(event)) = next else { break };
        if let WatchEvent::Modified(object) = event.expect("an event")
            && object.spec.as_ref().and_then(|spec| spec.replicas) > Some(PODS as i32)
            && waiting.remove(&(object.namespace().unwrap_or_default(), object.name_any()))
        {
            times.push(begun.elapsed().as_secs_f64());
        }
    }
    times
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { objects, ours, upstream } = self;
        let row = |what: &str, ours: f64, upstream: f64| {
            format!("| {what} | {ours:.1} | {upstream:.1} | {:.3} | | |\n", ours / upstream)
        };
        let what =
            format!("{objects} HPAs need more replicas at once: s until the last scale is written");
        let last = row(&what, ours.all, upstream.all);
        let half = row("s until half of them are written", ours.half, upstream.half);
        let cpu = row("CPU seconds until then", ours.cpu, upstream.cpu);
        write!(f, "{last}{half}{cpu}")
    }
}
