//! What the series tell of throttling is told with the recommendation, and raises CPU where that is asked for.

use kube::ResourceExt as _;
use plimsoll_core::api::VerticalPodAutoscaler;

use super::fixture::{CORES, Fixture, cores, recommendation};
use crate::recommender::in_process::{wait_for_passes, wait_until_written};
use crate::support::wait;

/// Steps until the VPA is as wanted.
async fn stepped(
    stage: &Fixture,
    running: &plimsoll::controllers::recommender::RecommenderHandle,
    what: &str,
    is: impl Fn(&VerticalPodAutoscaler) -> bool,
) -> VerticalPodAutoscaler {
    let stepped = async {
        loop {
            let vpa = stage.vpa("web", "exists", |_| true).await;
            if is(&vpa) {
                return vpa;
            }
            stage.step(running).await;
            wait_until_written(running).await;
        }
    };
    tokio::time::timeout(wait::PATIENCE, stepped).await.unwrap_or_else(|_| panic!("never {what}"))
}

#[tokio::test]
async fn a_container_that_is_held_back_is_recommended_more_cpu_where_that_is_asked_for() {
    let Some(stage) = Fixture::new(24).await else { return };
    let target = |vpa: &VerticalPodAutoscaler| recommendation(vpa).map(|said| cores(said)[1]);
    let running = stage.start(&[]).await;
    wait_for_passes(&running, 1).await;
    let explained = |vpa: &VerticalPodAutoscaler| {
        let why = vpa.annotations().get("plimsoll.dev/explanation");
        why.is_some_and(|why| why.contains("throttled"))
    };
    let vpa = stepped(&stage, &running, "told", explained).await;
    let usual = target(&vpa).expect("it has");
    assert!((CORES..CORES * 1.3).contains(&usual), "it is told, and raises nothing: {usual}");
    running.stop().await;

    let running = stage.start(&["--cpu-throttling-target=0.1"]).await;
    wait_for_passes(&running, 1).await;
    let raised = |vpa: &VerticalPodAutoscaler| target(vpa).is_some_and(|now| now > usual * 1.1);
    let vpa = stepped(&stage, &running, "raised", raised).await;
    let factor = target(&vpa).expect("it has") / usual;
    assert!((factor - 1.4).abs() < 0.02, "by what is more than a tenth of all periods: {factor}");
    running.stop().await;
}
