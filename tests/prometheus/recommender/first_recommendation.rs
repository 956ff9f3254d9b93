//! The first recommendation includes all history, and no checkpoints are written if Prometheus has it.

use kube::ResourceExt as _;

use super::fixture::{
    CORES, Fixture, cores, has_condition, recommendation, wait_for_history_state,
};
use crate::recommender::in_process::wait_until_written;

#[tokio::test]
async fn the_first_recommendation_has_days_of_history_and_nothing_is_saved() {
    let Some(fixture) = Fixture::new(4 * 24).await else { return };
    let running = fixture.start(&["--bounds-dead-band=0"]).await;
    fixture.wait_for_history(&running).await;
    let vpa = fixture.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("is present"));
    let [lower, target, upper] = bounds;
    assert!((CORES..CORES * 1.3).contains(&target), "{bounds:?}");
    assert!(lower > target * 0.98, "four days narrow the lower bound: {bounds:?}");
    assert!(upper < target * 1.6, "four days narrow the upper bound: {bounds:?}");
    assert!(!has_condition(&vpa, "FetchingHistory"));
    fixture.wait_for_readiness(&running, true).await;
    wait_for_history_state(&running, "loaded").await;

    for _ in 0..3 {
        fixture.step(&running).await;
    }
    wait_until_written(&running).await;
    assert_eq!(fixture.checkpoints().await.len(), 0, "no checkpoints");
    let explained = |vpa: &plimsoll_core::api::VerticalPodAutoscaler| {
        vpa.annotations().keys().any(|key| key == "plimsoll.dev/explanation")
    };
    fixture.vpa("web", "says itself why", explained).await;

    // A workload that is created later gets its history too.
    fixture.deploy("later").await;
    fixture.create_vpa("later").await;
    let later = fixture.vpa("later", "exists", |_| true).await;
    assert!(recommendation(&later).is_none());
    for _ in 0..2 {
        fixture.step(&running).await;
    }
    let recommended =
        |vpa: &plimsoll_core::api::VerticalPodAutoscaler| recommendation(vpa).is_some();
    let recommend = async {
        loop {
            let vpa = fixture.vpa("later", "exists", |_| true).await;
            if recommended(&vpa) {
                return vpa;
            }
            fixture.step(&running).await;
            wait_until_written(&running).await;
        }
    };
    let later = tokio::time::timeout(crate::support::wait::PATIENCE, recommend);
    let later = later.await.expect("a recommendation in time");
    let bounds = cores(recommendation(&later).expect("is present"));
    assert!(bounds[0] > bounds[1] * 0.98, "as narrow as the first: {bounds:?}");
    running.stop().await;
}
