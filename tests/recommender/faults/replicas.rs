//! Two replicas: one that freezes while it leads, one that cannot renew its Lease, and both restarted at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use http::Method;
use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Client;
use kube::api::Api;
use plimsoll::cluster::clock::Clock;
use plimsoll::controllers::recommender::RecommenderHandle;

use super::fixture::{
    Fixture, HOUR, assert_alive, metric, targets, wait_for_metric, wait_until_ready,
};
use super::recommender_process::{RecommenderProcess, RecommenderProcesses};
use crate::recommender::in_process::wait_for_passes;
use crate::recommender::recorded_writes::start_with;
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::clock::wall_now;
use crate::support::metrics_server::UsageValue;
use crate::support::{captured_log, wait};

const NAMES: &[&str] = &["front", "worker"];
const LEASES: &[&str] = &[
    "--leader-elect-lease-duration=9s",
    "--leader-elect-renew-deadline=6s",
    "--leader-elect-retry-period=1s",
];
const LEASE: &str = "vpa-recommender-lease";
const LEADER: &str = "plimsoll_leader";

async fn leads(process: &RecommenderProcess<'_>, yes: bool) {
    process.metric_is(LEADER, &[], |leads| (leads == 1.0) == yes).await;
}

async fn is_ready(process: &RecommenderProcess<'_>) {
    wait_until_ready(&*process.address()).await;
}

/// What a process has written: statuses and histories, and its beats.
async fn writes(process: &RecommenderProcess<'_>) -> (f64, f64) {
    let of = |kind| process.metric("plimsoll_writes_total", kind);
    let said = of(&["kind=\"status\"", "outcome=\"200\""]).await;
    let saved = process.metric("plimsoll_checkpoints_total", &["\"written\""]).await;
    (said + saved, of(&["kind=\"heartbeat\"", "outcome=\"200\""]).await)
}

async fn passes(process: &RecommenderProcess<'_>) -> f64 {
    process.metric("vpa_recommender_execution_latency_seconds_count", &["step=\"total\""]).await
}

async fn holder(stage: &Fixture) -> String {
    let leases = Api::<Lease>::namespaced(stage.client(), &stage.namespace);
    let lease = leases.get(LEASE).await.expect("there is a lease");
    lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

#[tokio::test]
async fn a_leader_that_freezes_and_thaws_writes_nothing_afterwards() {
    let Some(stage) = Fixture::new(NAMES).await else { return };
    let processes = RecommenderProcesses::new(&stage, wall_now() - SignedDuration::from_hours(72));
    let first = processes.start("first", LEASES);
    leads(&first, true).await;
    let second = processes.start("second", LEASES);
    is_ready(&second).await;
    processes.advance(4).await;
    first.passes(2).await;
    first.metric_is("plimsoll_write_queue", &["kind=\"checkpoint\""], |left| left == 0.0).await;
    assert_eq!(second.metric(LEADER, &[]).await, 0.0, "a standby is ready, and does not lead");
    assert_eq!(writes(&second).await, (0.0, 0.0));
    let (was_holder, said) = (holder(&stage).await, stage.recommendations().await);
    let (before, made) = (writes(&first).await, passes(&first).await);
    first.signal("STOP");
    wait::until("it is frozen", || async { first.is_frozen().then_some(()) }).await;
    leads(&second, true).await;
    assert_ne!(holder(&stage).await, was_holder);
    // More is used from now on, and only the second one can know.
    for name in NAMES {
        stage.set_usage(name, UsageValue { cpu: 4.0, memory: 4 << 30 });
    }
    processes.advance(6).await;
    second.passes(2).await;
    let risen = stage.recommendations().await;
    for (name, (cpu, memory)) in targets(&risen) {
        assert_ne!(targets(&said)[name], (cpu, memory), "{name} rises");
    }
    assert!(writes(&second).await.0 > 0.0);
    let (samples, now_holder) = (stage.samples().await, holder(&stage).await);

    first.signal("CONT");
    leads(&first, false).await;
    // What was written between the look and the freeze, and the one request that was under way then: some passes lie between,
    // and each has a beat and may save each workload once.
    let (thawed, passes_between) = (writes(&first).await, passes(&first).await + 1.0 - made);
    processes.advance(3).await;
    first.passes(3).await;
    second.passes(2).await;
    assert_eq!(writes(&first).await, thawed, "who was frozen writes nothing");
    let saves = passes_between * NAMES.len() as f64 + 1.0;
    assert!(thawed.0 <= before.0 + saves, "before it froze {before:?}, after {thawed:?}");
    assert!(thawed.1 <= before.1 + passes_between, "before it froze {before:?}, after {thawed:?}");
    first.assert_line(&["no longer leading"]);
    second.assert_line(&["leading"]);
    assert_eq!(holder(&stage).await, now_holder, "the second one keeps the lease");
    assert_alive(first.address()).await;
    is_ready(&first).await;
    let after = stage.samples().await;
    assert!(samples.iter().all(|(name, count)| after[name] >= *count), "{samples:?} {after:?}");

    // It is a standby: when the other one goes, it takes over, with what the other one knew.
    processes.start_without_usage();
    second.passes(2).await;
    let last = stage.recommendations().await;
    assert_eq!(second.end("TERM").await, 0);
    leads(&first, true).await;
    first.passes(2).await;
    let taken = stage.recommendations().await;
    assert_eq!(targets(&taken), targets(&last));
    first.end("TERM").await;
}

#[tokio::test]
async fn both_replicas_restarted_at_once_say_the_same_and_store_nothing_poorer() {
    let Some(stage) = Fixture::new(NAMES).await else { return };
    let processes = RecommenderProcesses::new(&stage, wall_now() - SignedDuration::from_hours(72));
    let start = || (processes.start("first", LEASES), processes.start("second", LEASES));
    let (first, second) = start();
    let leader = wait_until_either_leads(&first, &second).await;
    is_ready(&first).await;
    is_ready(&second).await;
    processes.advance(8).await;
    leader.passes(2).await;
    processes.start_without_usage();
    leader.passes(2).await;
    stage.oom_kill("front").await;
    leader.metric_is("plimsoll_oom_kills_total", &["\"counted\""], |kills| kills == 1.0).await;
    leader.passes(2).await;
    // Every half second all that changed is saved.
    wait::within(Duration::from_mins(1), "all is saved", || async {
        let left = leader.metric("plimsoll_write_queue", &["kind=\"checkpoint\""]).await;
        (left == 0.0).then_some(())
    })
    .await;
    let (said, samples) = (stage.recommendations().await, stage.samples().await);
    assert_eq!(targets(&said).len(), NAMES.len());
    first.signal("KILL");
    second.signal("KILL");
    assert_eq!((first.end("KILL").await, second.end("KILL").await), (137, 137));

    let (first, second) = start();
    let leader = wait_until_either_leads(&first, &second).await;
    is_ready(&first).await;
    is_ready(&second).await;
    leader.passes(3).await;
    stage.wait_for_recommendations("as before", &said).await;
    assert_eq!(stage.samples().await, samples, "nothing was lost, and nothing written over");
    for process in [&first, &second] {
        process.assert_line(&["history loaded", "vpas=2"]);
        // It may be told more than once, and counted never again.
        let known = process.metric("plimsoll_oom_kills_total", &["outcome=\"known\""]).await;
        let counted = process.metric("plimsoll_oom_kills_total", &["\"counted\""]).await;
        assert!(known >= 1.0 && counted == 0.0, "{known} known, {counted} counted");
    }
    // They go on, and what is stored grows.
    processes.serve_usage();
    processes.advance(4).await;
    leader.passes(2).await;
    assert_eq!((first.end("TERM").await, second.end("TERM").await), (0, 0));
    let after = stage.samples().await;
    assert!(samples.iter().all(|(name, count)| after[name] > *count), "{samples:?} {after:?}");
}

async fn wait_until_either_leads<'a, 'b>(
    one: &'a RecommenderProcess<'b>,
    other: &'a RecommenderProcess<'b>,
) -> &'a RecommenderProcess<'b> {
    wait::until("one of them leads", || async {
        for process in [one, other] {
            if super::fixture::read_metric(&*process.address(), LEADER, &[]).await == Some(1.0) {
                return Some(process);
            }
        }
        None
    })
    .await
}

/// One of two that run in this process, on real time.
async fn start(stage: &Fixture, client: Client) -> RecommenderHandle {
    let mut flags = stage.flags(LEASES);
    flags.extend(["--recommender-interval=500ms", "--checkpoint-interval=500ms"]);
    flags.push("--bounds-dead-band=0");
    start_with(client, &Clock::wall(), &flags).await
}

#[tokio::test]
async fn a_leader_that_cannot_renew_its_lease_for_long_writes_nothing_more_and_stands_by() {
    let (log, _guard) = captured_log::capture();
    let Some(stage) = Fixture::new(NAMES).await else { return };
    let mut hour = wall_now() - SignedDuration::from_hours(72);
    stage.usage.at(hour);
    let is_deaf = Arc::new(AtomicBool::new(false));
    let proxy = ApiProxy::start(stage.client(), {
        let is_deaf = Arc::clone(&is_deaf);
        move |method, path| {
            let renews = *method != Method::GET && path.ends_with(&format!("/leases/{LEASE}"));
            let refuses = renews && is_deaf.load(Ordering::Relaxed);
            if refuses { api_proxy::respond_with(503, None) } else { api_proxy::pass_through() }
        }
    })
    .await;
    let vpas = "/apis/autoscaling.k8s.io/v1/";
    let first = start(&stage, proxy.client.clone()).await;
    wait_for_metric(first.address(), LEADER, &[], |leads| leads == 1.0).await;
    let second = start(&stage, stage.client()).await;
    let mut live = async |hours: usize| {
        for _ in 0..hours {
            hour += HOUR;
            stage.usage.at(hour);
            two_passes(&first).await;
            two_passes(&second).await;
        }
    };
    live(4).await;
    let said = stage.recommendations().await;
    assert_eq!(targets(&said).len(), NAMES.len());
    assert!(!proxy.written_objects(vpas).is_empty(), "the first one writes");
    assert_eq!(metric(second.address(), LEADER, &[]).await, 0.0);

    // It hears of everything, and only the Lease cannot be written.
    is_deaf.store(true, Ordering::Relaxed);
    wait_for_metric(first.address(), LEADER, &[], |leads| leads == 0.0).await;
    log.assert_line(&["no longer leading"]);
    let changes = || {
        let requests = proxy.requests().into_iter();
        requests.filter(|(method, path)| *method != Method::GET && path.starts_with(vpas)).count()
    };
    let until_then = changes();
    wait_for_metric(second.address(), LEADER, &[], |leads| leads == 1.0).await;
    for name in NAMES {
        stage.set_usage(name, UsageValue { cpu: 4.0, memory: 4 << 30 });
    }
    live(6).await;
    for (name, target) in targets(&stage.recommendations().await) {
        assert_ne!(targets(&said)[name], target, "{name} rises: the second one says so");
    }
    is_deaf.store(false, Ordering::Relaxed);
    live(6).await;
    assert_eq!(changes(), until_then, "who does not lead writes nothing");
    assert_eq!(metric(first.address(), LEADER, &[]).await, 0.0, "it stands by");
    assert_alive(first.address()).await;

    // It has seen the samples that the other one saw.
    let last = stage.recommendations().await;
    second.stop().await;
    wait_for_metric(first.address(), LEADER, &[], |leads| leads == 1.0).await;
    two_passes(&first).await;
    assert_eq!(targets(&stage.recommendations().await), targets(&last));
    first.stop().await;
}

async fn two_passes(running: &RecommenderHandle) {
    let from = running.passes().borrow().0;
    wait_for_passes(running, from + 2).await;
}
