//! Two replicas, and the leader loses its Lease in the middle of a change, because it is frozen or cannot renew it: the other
//! one continues, and the former leader starts nothing, also after the fault has ended.

use super::{
    FaultSubject, assert_done_once, assert_probes_succeed, holder,
    horizontal::HorizontalController, proxy, recommender::Recommender, start,
    updater::EvictingUpdater, wait_for_other_holder, watermark::WatermarkController,
};
use crate::support::{
    holding_proxy::HoldPoint,
    role_process::{LONG_LEASE_FLAGS, RoleProcess, SHORT_LEASE_FLAGS, expire_lease},
    wait,
};

/// Why a leader loses its Lease.
#[derive(Clone, Copy)]
enum Loss {
    /// The process does not run.
    Frozen,
    /// It can write no Lease; all of its other requests succeed.
    Isolated,
}

async fn wait_for_leader_metrics<S: FaultSubject>(process: &RoleProcess, wanted: bool) {
    for name in S::LEADER_METRICS {
        wait::until("only the leader exports what it observes", || async {
            ((process.metric(name, &[]).await? > 0.0) == wanted).then_some(())
        })
        .await;
    }
}

async fn assert_former_leader_is_fenced<S: FaultSubject>(loss: Loss) {
    let Some(subject) = S::new("former-leader", false).await else { return };
    let (first_proxy, second_proxy) =
        (proxy(&subject, "first").await, proxy(&subject, "second").await);
    let point = match loss {
        Loss::Frozen => HoldPoint::Request,
        Loss::Isolated => HoldPoint::Answer,
    };
    first_proxy.hold((S::ACTION, point));
    let first = start(&subject, "first", &first_proxy, SHORT_LEASE_FLAGS);
    first_proxy.wait_until_held().await;
    let leader = holder(&subject).await;
    // It stays the leader until the end, even if the machine stalls.
    let second = start(&subject, "second", &second_proxy, LONG_LEASE_FLAGS);
    second.wait_until_ready().await;
    let writes = second_proxy.attempted_writes();
    // If the machine stalled for longer than the Lease, the second replica leads already, which is correct.
    if holder(&subject).await == leader {
        assert_eq!(writes, [""; 0], "a standby writes nothing");
    }
    let (writes, next) = match loss {
        Loss::Frozen => {
            first.freeze().await;
            let next = wait_for_other_holder(&subject, &leader).await;
            subject.add_work();
            wait::until("the next leader acts", || async {
                (!second_proxy.completed_paths(S::ACTION).is_empty()).then_some(())
            })
            .await;
            let writes = first_proxy.attempted_writes();
            // The request in flight arrives late.
            first_proxy.release();
            wait::until("it gets its response", || async {
                (first_proxy.response_count(S::ACTION) == 1).then_some(())
            })
            .await;
            first.signal("CONT");
            (writes, next)
        }
        Loss::Isolated => {
            first_proxy.refuse_leases(true);
            first.wait_until_leading(false).await;
            let writes = first_proxy.attempted_writes();
            // The response in flight arrives, and the next step does not start.
            first_proxy.release();
            let lease = S::LEASE.expect("elects a leader");
            expire_lease(subject.bed(), subject.namespace(), lease).await;
            let next = wait_for_other_holder(&subject, &leader).await;
            first_proxy.refuse_leases(false);
            (writes, next)
        }
    };
    first.wait_for_log(&["new leader elected", &next]).await;
    first.wait_until_leading(false).await;
    let proxies = [&first_proxy, &second_proxy];
    assert_done_once(&subject, &second, &proxies, 0).await;
    wait_for_leader_metrics::<S>(&first, false).await;
    wait_for_leader_metrics::<S>(&second, true).await;
    assert_eq!(first_proxy.attempted_writes(), writes, "the former leader starts nothing");
    assert_eq!(holder(&subject).await, next);
    assert_probes_succeed(&first).await;

    // It is a standby, and takes over when the other one stops.
    assert_eq!(second.end("TERM").await, 0);
    assert_eq!(wait_for_other_holder(&subject, &next).await, leader, "the released holder name");
    first.wait_until_leading(true).await;
    assert_done_once(&subject, &first, &proxies, 0).await;
}

#[tokio::test]
async fn a_recommender_that_froze_as_leader_writes_nothing_after_it_resumes() {
    assert_former_leader_is_fenced::<Recommender>(Loss::Frozen).await;
}

#[tokio::test]
async fn an_updater_that_froze_as_leader_starts_nothing_after_it_resumes() {
    assert_former_leader_is_fenced::<EvictingUpdater>(Loss::Frozen).await;
}

#[tokio::test]
async fn a_watermark_controller_that_froze_as_leader_starts_nothing_after_it_resumes() {
    assert_former_leader_is_fenced::<WatermarkController>(Loss::Frozen).await;
}

#[tokio::test]
async fn a_horizontal_controller_that_froze_as_leader_starts_nothing_after_it_resumes() {
    assert_former_leader_is_fenced::<HorizontalController>(Loss::Frozen).await;
}

#[tokio::test]
async fn a_recommender_that_cannot_renew_its_lease_stops_writing_and_becomes_standby() {
    assert_former_leader_is_fenced::<Recommender>(Loss::Isolated).await;
}

#[tokio::test]
async fn an_updater_that_cannot_renew_its_lease_stops_writing_and_becomes_standby() {
    assert_former_leader_is_fenced::<EvictingUpdater>(Loss::Isolated).await;
}

#[tokio::test]
async fn a_watermark_controller_that_cannot_renew_its_lease_stops_writing_and_becomes_standby() {
    assert_former_leader_is_fenced::<WatermarkController>(Loss::Isolated).await;
}
