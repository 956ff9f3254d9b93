//! The API server goes away in the middle of a change and comes back: the process stays alive and ready, starts nothing
//! without its Lease, and then finishes its work.

use super::{
    FaultSubject, admission::AdmissionController, assert_done_once, assert_probes_succeed, proxy,
    recommender::Recommender, start, updater::ResizingUpdater, watermark::WatermarkController,
};
use crate::support::role_process::SHORT_LEASE_FLAGS;

async fn assert_outage_loses_and_repeats_nothing<S: FaultSubject>() {
    let Some(subject) = S::new("outage", true).await else { return };
    let proxy = proxy(&subject, "only").await;
    let (skipped, moment) = S::OUTAGE;
    proxy.hold_after(skipped, moment);
    let lease = if S::OUTAGE_OUTLASTS_LEASE { SHORT_LEASE_FLAGS } else { S::WITHOUT_LEASE };
    let process = start(&subject, "only", &proxy, lease);
    proxy.wait_until_held().await;
    process.wait_until_ready().await;
    subject.bed().control_plane().kill_api_server().await;
    proxy.release();
    if S::OUTAGE_OUTLASTS_LEASE {
        process.wait_until_leading(false).await;
        process.wait_for_log(&["leader Lease"]).await;
    }
    let attempts = proxy.attempted_paths(S::ACTION);
    subject.wait_during_outage(&process).await;
    if S::OUTAGE_OUTLASTS_LEASE {
        let now = proxy.attempted_paths(S::ACTION);
        assert_eq!(now, attempts, "no attempts without the Lease");
    }
    for words in S::OUTAGE_LOG {
        process.wait_for_log(words).await;
    }
    assert_probes_succeed(&process).await;

    subject.bed().control_plane().restart_api_server().await;
    if S::OUTAGE_OUTLASTS_LEASE {
        process.wait_until_leading(true).await;
    }
    assert_done_once(&subject, &process, &[&proxy], 0).await;
    assert_eq!(process.end("TERM").await, 0);
}

#[tokio::test]
async fn a_recommender_survives_an_api_server_outage_and_loses_no_history() {
    assert_outage_loses_and_repeats_nothing::<Recommender>().await;
}

#[tokio::test]
async fn an_updater_survives_an_api_server_outage_and_repeats_no_resize() {
    assert_outage_loses_and_repeats_nothing::<ResizingUpdater>().await;
}

#[tokio::test]
async fn a_watermark_controller_survives_an_api_server_outage_and_neither_loses_nor_repeats_a_scale()
 {
    assert_outage_loses_and_repeats_nothing::<WatermarkController>().await;
}

#[tokio::test]
async fn an_admission_controller_survives_an_api_server_outage_and_registers_its_webhook() {
    assert_outage_loses_and_repeats_nothing::<AdmissionController>().await;
}
