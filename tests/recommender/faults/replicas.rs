//! Two replicas: one that freezes while it leads, and both restarted at once.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::Api;

use super::process::{Process, Processes};
use super::stage::{Stage, assert_alive, targets};
use crate::support::clock::wall_now;
use crate::support::fetch::fetch;
use crate::support::usage::Use;
use crate::support::{Bed, wait};

const NAMES: &[&str] = &["front", "worker"];
const LEASES: &[&str] = &[
    "--leader-elect-lease-duration=3s",
    "--leader-elect-renew-deadline=2s",
    "--leader-elect-retry-period=500ms",
];
const LEADER: &str = "plimsoll_leader";

async fn leads(process: &Process<'_>, yes: bool) {
    process.metric_is(LEADER, &[], |leads| (leads == 1.0) == yes).await;
}

async fn is_ready(process: &Process<'_>) {
    wait::until("it is ready", || async {
        let answer = fetch(&format!("http://{}/readyz", process.address())).await?;
        (&*answer == b"ok\n").then_some(())
    })
    .await;
}

/// Everything that a process has written: statuses, heartbeats and histories.
async fn writes(process: &Process<'_>) -> f64 {
    let mut sum = process.metric("plimsoll_checkpoints_total", &["\"written\""]).await;
    for kind in ["kind=\"status\"", "kind=\"heartbeat\""] {
        sum += process.metric("plimsoll_writes_total", &[kind, "outcome=\"200\""]).await;
    }
    sum
}

async fn holder(bed: &Bed) -> String {
    let leases = Api::<Lease>::namespaced(bed.client(), "kube-system");
    let lease = leases.get("vpa-recommender-lease").await.expect("there is a lease");
    lease.spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
}

#[tokio::test]
async fn a_leader_that_freezes_and_thaws_writes_nothing_afterwards() {
    let Some(stage) = Stage::set(NAMES).await else { return };
    let processes = Processes::on(&stage, wall_now() - SignedDuration::from_hours(72));
    let first = processes.start("first", LEASES);
    leads(&first, true).await;
    let second = processes.start("second", LEASES);
    is_ready(&second).await;
    processes.live(4).await;
    first.passes(2).await;
    assert_eq!(second.metric(LEADER, &[]).await, 0.0, "a standby is ready, and does not lead");
    assert_eq!(writes(&second).await, 0.0);
    let (was_holder, before) = (holder(&stage.bed).await, writes(&first).await);
    let said = stage.said().await;

    first.signal("STOP");
    leads(&second, true).await;
    assert_ne!(holder(&stage.bed).await, was_holder);
    // More is used from now on, and only the second one can know.
    for name in NAMES {
        stage.use_from(name, Use { cpu: 4.0, memory: 4 << 30 });
    }
    processes.live(6).await;
    second.passes(2).await;
    let risen = stage.said().await;
    for (name, (cpu, memory)) in targets(&risen) {
        assert_ne!(targets(&said)[name], (cpu, memory), "{name} rises");
    }
    assert!(writes(&second).await > 0.0);
    let (samples, now_holder) = (stage.samples().await, holder(&stage.bed).await);

    first.signal("CONT");
    leads(&first, false).await;
    // The one request that was under way when it froze, or none. Beats between the look and the freeze are its own.
    let thawed = writes(&first).await;
    processes.live(3).await;
    first.passes(3).await;
    second.passes(2).await;
    assert_eq!(writes(&first).await, thawed, "who was frozen writes nothing");
    assert!(thawed <= before + 6.0, "before it froze {before}, after {thawed}");
    first.assert_line(&["no longer leading"]);
    second.assert_line(&["leading"]);
    assert_eq!(holder(&stage.bed).await, now_holder, "the second one keeps the lease");
    assert_alive(first.address()).await;
    is_ready(&first).await;
    let after = stage.samples().await;
    assert!(samples.iter().all(|(name, count)| after[name] >= *count), "{samples:?} {after:?}");

    // It is a standby: when the other one goes, it takes over, with what the other one knew.
    processes.blind();
    second.passes(2).await;
    let last = stage.said().await;
    assert_eq!(second.end("TERM").await, 0);
    leads(&first, true).await;
    first.passes(2).await;
    let taken = stage.said().await;
    assert_eq!(targets(&taken), targets(&last));
    first.end("TERM").await;
}

#[tokio::test]
async fn both_replicas_restarted_at_once_say_the_same_and_store_nothing_poorer() {
    let Some(stage) = Stage::set(NAMES).await else { return };
    let processes = Processes::on(&stage, wall_now() - SignedDuration::from_hours(72));
    let start = || (processes.start("first", LEASES), processes.start("second", LEASES));
    let (first, second) = start();
    let leader = either_leads(&first, &second).await;
    is_ready(&first).await;
    is_ready(&second).await;
    processes.live(8).await;
    leader.passes(2).await;
    processes.blind();
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
    let (said, samples) = (stage.said().await, stage.samples().await);
    assert_eq!(targets(&said).len(), NAMES.len());
    first.signal("KILL");
    second.signal("KILL");
    assert_eq!((first.end("KILL").await, second.end("KILL").await), (137, 137));

    let (first, second) = start();
    let leader = either_leads(&first, &second).await;
    is_ready(&first).await;
    is_ready(&second).await;
    leader.passes(3).await;
    stage.says("as before", &said).await;
    assert_eq!(stage.samples().await, samples, "nothing was lost, and nothing written over");
    for process in [&first, &second] {
        process.assert_line(&["history loaded", "vpas=2"]);
        // It may be told more than once, and counted never again.
        let known = process.metric("plimsoll_oom_kills_total", &["outcome=\"known\""]).await;
        let counted = process.metric("plimsoll_oom_kills_total", &["\"counted\""]).await;
        assert!(known >= 1.0 && counted == 0.0, "{known} known, {counted} counted");
    }
    // They go on, and what is stored grows.
    processes.see();
    processes.live(4).await;
    leader.passes(2).await;
    assert_eq!((first.end("TERM").await, second.end("TERM").await), (0, 0));
    let after = stage.samples().await;
    assert!(samples.iter().all(|(name, count)| after[name] > *count), "{samples:?} {after:?}");
}

async fn either_leads<'a, 'b>(one: &'a Process<'b>, other: &'a Process<'b>) -> &'a Process<'b> {
    wait::until("one of them leads", || async {
        for process in [one, other] {
            if super::stage::look(&*process.address(), LEADER, &[]).await == Some(1.0) {
                return Some(process);
            }
        }
        None
    })
    .await
}
