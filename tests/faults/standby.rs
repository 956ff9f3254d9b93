//! Two replicas, and the leader crashes after the server has made its change: the other one, which has written nothing so far,
//! continues where it was.

use super::{
    FaultSubject, assert_done_once, holder, horizontal::HorizontalController, proxy,
    recommender::Recommender, start, updater::EvictingUpdater, wait_for_other_holder,
    watermark::WatermarkController,
};
use crate::support::{
    holding_proxy::HoldPoint,
    role_process::{LONG_LEASE_FLAGS, expire_lease},
};

async fn assert_standby_continues<S: FaultSubject>() {
    let Some(subject) = S::new("failover", false).await else { return };
    let (first_proxy, second_proxy) =
        (proxy(&subject, "first").await, proxy(&subject, "second").await);
    first_proxy.hold((S::ACTION, HoldPoint::Answer));
    let first = start(&subject, "first", &first_proxy, LONG_LEASE_FLAGS);
    first_proxy.wait_until_held().await;
    let leader = holder(&subject).await;
    let second = start(&subject, "second", &second_proxy, LONG_LEASE_FLAGS);
    second.wait_until_ready().await;
    assert_eq!(second_proxy.attempted_writes(), [""; 0], "a standby writes nothing");
    assert_eq!(first.end("KILL").await, 137);
    let lease = S::LEASE.expect("elects a leader");
    expire_lease(subject.bed(), subject.namespace(), lease).await;
    wait_for_other_holder(&subject, &leader).await;
    assert_done_once(&subject, &second, &[&first_proxy, &second_proxy], 0).await;
    assert_eq!(second.end("TERM").await, 0);
}

#[tokio::test]
async fn a_standby_continues_the_recommendations_of_a_crashed_recommender() {
    assert_standby_continues::<Recommender>().await;
}

#[tokio::test]
async fn a_standby_continues_the_rollout_of_a_crashed_updater() {
    assert_standby_continues::<EvictingUpdater>().await;
}

#[tokio::test]
async fn a_standby_knows_the_scale_of_a_crashed_horizontal_controller() {
    assert_standby_continues::<HorizontalController>().await;
}

#[tokio::test]
async fn a_standby_knows_the_scale_of_a_crashed_watermark_controller() {
    assert_standby_continues::<WatermarkController>().await;
}
