//! A process that is killed at a write, before the server gets it or before it gets the response: the next process neither
//! loses nor repeats it.

use super::{
    FaultSubject,
    admission::AdmissionController,
    assert_done_once,
    horizontal::HorizontalController,
    proxy,
    recommender::Recommender,
    start,
    updater::{EvictingUpdater, ResizingUpdater},
    watermark::WatermarkController,
};
use crate::support::holding_proxy::HoldPoint;

async fn assert_crashes_lose_and_repeat_nothing<S: FaultSubject>() {
    let Some(subject) = S::new("crashes", false).await else { return };
    let proxy = proxy(&subject, "only").await;
    for moment in S::CRASHES {
        subject.add_work();
        proxy.hold(*moment);
        let process = start(&subject, "only", &proxy, S::WITHOUT_LEASE);
        proxy.wait_until_held().await;
        assert_eq!(process.end("KILL").await, 137);
    }
    proxy.open();
    let process = start(&subject, "only", &proxy, S::WITHOUT_LEASE);
    assert_done_once(&subject, &process, &[&proxy], S::UNMADE_AFTER_CRASHES).await;
    if let Some(actions) = S::ACTIONS {
        let mut attempts = proxy.attempted_paths(S::ACTION);
        let lost = S::CRASHES.iter().filter(|crash| **crash == (S::ACTION, HoldPoint::Request));
        let expected = actions - S::UNMADE_AFTER_CRASHES + lost.count();
        assert_eq!(attempts.len(), expected, "one was never forwarded: {attempts:?}");
        if S::UNMADE_AFTER_CRASHES > 0 {
            attempts.sort_unstable();
            attempts.dedup();
            assert_eq!(attempts.len(), expected, "what may have been made is not tried again");
        }
    }
    assert_eq!(process.end("TERM").await, 0);
}

#[tokio::test]
async fn a_recommender_that_crashes_at_any_write_loses_no_history_and_counts_nothing_twice() {
    assert_crashes_lose_and_repeat_nothing::<Recommender>().await;
}

#[tokio::test]
async fn an_updater_that_crashes_at_any_step_of_an_eviction_evicts_no_pod_twice() {
    assert_crashes_lose_and_repeat_nothing::<EvictingUpdater>().await;
}

#[tokio::test]
async fn an_updater_that_crashes_at_any_step_of_a_resize_resizes_no_pod_twice_and_evicts_none() {
    assert_crashes_lose_and_repeat_nothing::<ResizingUpdater>().await;
}

#[tokio::test]
async fn a_watermark_controller_that_crashes_at_any_step_of_a_scale_neither_loses_nor_repeats_it() {
    assert_crashes_lose_and_repeat_nothing::<WatermarkController>().await;
}

#[tokio::test]
async fn a_horizontal_controller_that_crashes_at_any_step_of_a_scale_neither_loses_nor_repeats_it()
{
    assert_crashes_lose_and_repeat_nothing::<HorizontalController>().await;
}

#[tokio::test]
async fn an_admission_controller_that_crashes_at_any_write_registers_one_webhook_and_one_certificate()
 {
    assert_crashes_lose_and_repeat_nothing::<AdmissionController>().await;
}
