//! The first recommendation rests on all of the past, and nothing is written where the past is kept already.

use kube::ResourceExt as _;

use super::fixture::{
    CORES, Fixture, cores, has_condition, recommendation, wait_for_history_state,
};
use crate::recommender::in_process::wait_until_written;

#[tokio::test]
async fn days_of_history_are_in_the_first_recommendation_and_nothing_is_saved_beside_them() {
    let Some(stage) = Fixture::new(4 * 24).await else { return };
    let running = stage.start(&["--bounds-dead-band=0"]).await;
    stage.wait_for_history(&running).await;
    let vpa = stage.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("it has"));
    let [lower, target, upper] = bounds;
    assert!((CORES..CORES * 1.3).contains(&target), "{bounds:?}");
    assert!(lower > target * 0.98, "four days make the lower bound sure: {bounds:?}");
    assert!(upper < target * 1.6, "and the upper one: {bounds:?}");
    assert!(!has_condition(&vpa, "FetchingHistory"));
    stage.wait_for_readiness(&running, true).await;
    wait_for_history_state(&running, "loaded").await;

    for _ in 0..3 {
        stage.step(&running).await;
    }
    wait_until_written(&running).await;
    assert_eq!(stage.checkpoints().await.len(), 0, "the past is where it was");
    let explained = |vpa: &plimsoll_core::api::VerticalPodAutoscaler| {
        vpa.annotations().keys().any(|key| key == "plimsoll.dev/explanation")
    };
    stage.vpa("web", "says itself why", explained).await;

    // What comes later gets its past too.
    stage.deploy("later").await;
    stage.create_vpa("later").await;
    let later = stage.vpa("later", "exists", |_| true).await;
    assert!(recommendation(&later).is_none());
    for _ in 0..2 {
        stage.step(&running).await;
    }
    let recommended =
        |vpa: &plimsoll_core::api::VerticalPodAutoscaler| recommendation(vpa).is_some();
    let recommend = async {
        loop {
            let vpa = stage.vpa("later", "exists", |_| true).await;
            if recommended(&vpa) {
                return vpa;
            }
            stage.step(&running).await;
            wait_until_written(&running).await;
        }
    };
    let later = tokio::time::timeout(crate::support::wait::PATIENCE, recommend);
    let later = later.await.expect("a recommendation in time");
    let bounds = cores(recommendation(&later).expect("it has"));
    assert!(bounds[0] > bounds[1] * 0.98, "as sure as the first: {bounds:?}");
    running.stop().await;
}
