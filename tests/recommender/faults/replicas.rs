//! Two replicas: the leader freezes, the leader cannot renew its Lease, and both are restarted at once.

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

async fn wait_until_leading(process: &RecommenderProcess<'_>, expected: bool) {
    process.metric_is(LEADER, &[], |leads| (leads == 1.0) == expected).await;
}

async fn is_ready(process: &RecommenderProcess<'_>) {
    wait_until_ready(&*process.address()).await;
}

/// Writes of a process: statuses and checkpoints, and Lease annotations.
async fn writes(process: &RecommenderProcess<'_>) -> (f64, f64) {
    let of = |kind| process.metric("plimsoll_writes_total", kind);
    let statuses = of(&["kind=\"status\"", "outcome=\"200\""]).await;
    let saved = process.metric("plimsoll_checkpoints_total", &["\"written\""]).await;
    (statuses + saved, of(&["kind=\"heartbeat\"", "outcome=\"200\""]).await)
}

async fn passes(process: &RecommenderProcess<'_>) -> f64 {
    process.metric("vpa_recommender_execution_latency_seconds_count", &["step=\"total\""]).await
}

async fn holder(fixture: &Fixture) -> String {
    let leases = Api::<Lease>::namespaced(fixture.client(), &fixture.namespace);
    let lease = leases.get(LEASE).await.expect("lease exists");
    lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

#[tokio::test]
async fn a_leader_that_froze_writes_nothing_after_it_resumes() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let processes =
        RecommenderProcesses::new(&fixture, wall_now() - SignedDuration::from_hours(72));
    let first = processes.start("first", LEASES);
    wait_until_leading(&first, true).await;
    let second = processes.start("second", LEASES);
    is_ready(&second).await;
    processes.advance(4).await;
    first.passes(2).await;
    first.metric_is("plimsoll_write_queue", &["kind=\"checkpoint\""], |left| left == 0.0).await;
    assert_eq!(second.metric(LEADER, &[]).await, 0.0, "a standby is ready and not leading");
    assert_eq!(writes(&second).await, (0.0, 0.0));
    let (was_holder, recommendations) = (holder(&fixture).await, fixture.recommendations().await);
    let (before, made) = (writes(&first).await, passes(&first).await);
    first.signal("STOP");
    wait::until("the process is stopped", || async { first.is_frozen().then_some(()) }).await;
    wait_until_leading(&second, true).await;
    assert_ne!(holder(&fixture).await, was_holder);
    // Usage rises from here on, and only the second replica can observe it.
    for name in NAMES {
        fixture.set_usage(name, UsageValue { cpu: 4.0, memory: 4 << 30 });
    }
    processes.advance(6).await;
    second.passes(2).await;
    let risen = fixture.recommendations().await;
    for (name, (cpu, memory)) in targets(&risen) {
        assert_ne!(targets(&recommendations)[name], (cpu, memory), "{name} rises");
    }
    assert!(writes(&second).await.0 > 0.0);
    let (samples, now_holder) = (fixture.samples().await, holder(&fixture).await);

    first.signal("CONT");
    wait_until_leading(&first, false).await;
    // Writes between the reading of the metrics and the freeze, plus the request in flight at that moment: there are a
    // few passes in between, and each may save every workload once and update the Lease annotation.
    let (thawed, passes_between) = (writes(&first).await, passes(&first).await + 1.0 - made);
    processes.advance(3).await;
    first.passes(3).await;
    second.passes(2).await;
    assert_eq!(writes(&first).await, thawed, "the thawed replica writes nothing");
    let saves = passes_between * NAMES.len() as f64 + 1.0;
    assert!(thawed.0 <= before.0 + saves, "before the freeze {before:?}, after {thawed:?}");
    assert!(
        thawed.1 <= before.1 + passes_between,
        "before the freeze {before:?}, after {thawed:?}"
    );
    first.assert_line(&["no longer leading"]);
    second.assert_line(&["leading"]);
    assert_eq!(holder(&fixture).await, now_holder, "the second replica keeps the Lease");
    assert_alive(first.address()).await;
    is_ready(&first).await;
    let after = fixture.samples().await;
    assert!(samples.iter().all(|(name, count)| after[name] >= *count), "{samples:?} {after:?}");

    // It is a standby: when the other replica stops, it takes over with the state of the other.
    processes.start_without_usage();
    second.passes(2).await;
    let last = fixture.recommendations().await;
    assert_eq!(second.end("TERM").await, 0);
    wait_until_leading(&first, true).await;
    first.passes(2).await;
    let taken = fixture.recommendations().await;
    assert_eq!(targets(&taken), targets(&last));
    first.end("TERM").await;
}

#[tokio::test]
async fn after_a_restart_of_both_replicas_recommendations_are_the_same() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let processes =
        RecommenderProcesses::new(&fixture, wall_now() - SignedDuration::from_hours(72));
    let start = || (processes.start("first", LEASES), processes.start("second", LEASES));
    let (first, second) = start();
    let leader = wait_until_either_leads(&first, &second).await;
    is_ready(&first).await;
    is_ready(&second).await;
    processes.advance(8).await;
    leader.passes(2).await;
    processes.start_without_usage();
    leader.passes(2).await;
    fixture.oom_kill("front").await;
    leader.metric_is("plimsoll_oom_kills_total", &["\"counted\""], |kills| kills == 1.0).await;
    leader.passes(2).await;
    // Changes are saved every half second.
    wait::within(Duration::from_mins(1), "everything is saved", || async {
        let left = leader.metric("plimsoll_write_queue", &["kind=\"checkpoint\""]).await;
        (left == 0.0).then_some(())
    })
    .await;
    let (recommendations, samples) = (fixture.recommendations().await, fixture.samples().await);
    assert_eq!(targets(&recommendations).len(), NAMES.len());
    first.signal("KILL");
    second.signal("KILL");
    assert_eq!((first.end("KILL").await, second.end("KILL").await), (137, 137));

    let (first, second) = start();
    let leader = wait_until_either_leads(&first, &second).await;
    is_ready(&first).await;
    is_ready(&second).await;
    leader.passes(3).await;
    fixture.wait_for_recommendations("as before", &recommendations).await;
    assert_eq!(fixture.samples().await, samples, "nothing was lost or overwritten");
    for process in [&first, &second] {
        process.assert_line(&["loaded history", "vpas=2"]);
        // A kill may be observed more than once, but must not count again.
        let known = process.metric("plimsoll_oom_kills_total", &["outcome=\"known\""]).await;
        let counted = process.metric("plimsoll_oom_kills_total", &["\"counted\""]).await;
        assert!(known >= 1.0 && counted == 0.0, "{known} known, {counted} counted");
    }
    // They continue, and the stored history grows.
    processes.serve_usage();
    processes.advance(4).await;
    leader.passes(2).await;
    assert_eq!((first.end("TERM").await, second.end("TERM").await), (0, 0));
    let after = fixture.samples().await;
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

/// Starts one of two replicas in this process, in real time.
async fn start(fixture: &Fixture, client: Client) -> RecommenderHandle {
    let mut flags = fixture.flags(LEASES);
    flags.extend(["--recommender-interval=500ms", "--checkpoint-interval=500ms"]);
    flags.push("--bounds-dead-band=0");
    start_with(client, &Clock::wall(), &flags).await
}

#[tokio::test]
async fn a_leader_that_cannot_renew_its_lease_stops_writing_and_becomes_standby() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let mut hour = wall_now() - SignedDuration::from_hours(72);
    fixture.usage.at(hour);
    let is_deaf = Arc::new(AtomicBool::new(false));
    let proxy = ApiProxy::start(fixture.client(), {
        let is_deaf = Arc::clone(&is_deaf);
        move |method, path| {
            let renews = *method != Method::GET && path.ends_with(&format!("/leases/{LEASE}"));
            let refuses = renews && is_deaf.load(Ordering::Relaxed);
            if refuses { api_proxy::respond_with(503, None) } else { api_proxy::pass_through() }
        }
    })
    .await;
    let vpas = "/apis/autoscaling.k8s.io/v1/";
    let first = start(&fixture, proxy.client.clone()).await;
    wait_for_metric(first.address(), LEADER, &[], |leads| leads == 1.0).await;
    let second = start(&fixture, fixture.client()).await;
    let mut live = async |hours: usize| {
        for _ in 0..hours {
            hour += HOUR;
            fixture.usage.at(hour);
            two_passes(&first).await;
            two_passes(&second).await;
        }
    };
    live(4).await;
    let recommendations = fixture.recommendations().await;
    assert_eq!(targets(&recommendations).len(), NAMES.len());
    assert!(!proxy.written_objects(vpas).is_empty(), "the first replica writes");
    assert_eq!(metric(second.address(), LEADER, &[]).await, 0.0);

    // It receives all watch events; only the Lease cannot be written.
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
        fixture.set_usage(name, UsageValue { cpu: 4.0, memory: 4 << 30 });
    }
    live(6).await;
    for (name, target) in targets(&fixture.recommendations().await) {
        assert_ne!(
            targets(&recommendations)[name],
            target,
            "{name} rises, published by the second replica"
        );
    }
    is_deaf.store(false, Ordering::Relaxed);
    live(6).await;
    assert_eq!(changes(), until_then, "the standby writes nothing");
    assert_eq!(metric(first.address(), LEADER, &[]).await, 0.0, "standby");
    assert_alive(first.address()).await;

    // It has read the same samples as the other replica.
    let last = fixture.recommendations().await;
    second.stop().await;
    wait_for_metric(first.address(), LEADER, &[], |leads| leads == 1.0).await;
    two_passes(&first).await;
    assert_eq!(targets(&fixture.recommendations().await), targets(&last));
    first.stop().await;
}

async fn two_passes(running: &RecommenderHandle) {
    let from = running.passes().borrow().0;
    wait_for_passes(running, from + 2).await;
}
