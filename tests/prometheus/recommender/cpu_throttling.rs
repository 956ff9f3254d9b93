//! Throttling is reported with the recommendation, and raises CPU if configured.

use kube::ResourceExt as _;
use plimsoll_core::api::VerticalPodAutoscaler;

use super::fixture::{CORES, Fixture, cores, recommendation};
use crate::recommender::in_process::{wait_for_passes, wait_until_written};
use crate::support::wait;

/// Runs passes until the VPA satisfies a condition.
async fn stepped(
    fixture: &Fixture,
    running: &plimsoll::controllers::recommender::RecommenderHandle,
    what: &str,
    is: impl Fn(&VerticalPodAutoscaler) -> bool,
) -> VerticalPodAutoscaler {
    let stepped = async {
        loop {
            let vpa = fixture.vpa("web", "exists", |_| true).await;
            if is(&vpa) {
                return vpa;
            }
            fixture.step(running).await;
            wait_until_written(running).await;
        }
    };
    tokio::time::timeout(wait::PATIENCE, stepped).await.unwrap_or_else(|_| panic!("never {what}"))
}

#[tokio::test]
async fn a_throttled_container_gets_more_cpu_only_if_enabled() {
    let Some(fixture) = Fixture::new(24).await else { return };
    let target =
        |vpa: &VerticalPodAutoscaler| recommendation(vpa).map(|recommended| cores(recommended)[1]);
    let running = fixture.start(&[]).await;
    wait_for_passes(&running, 1).await;
    let explained = |vpa: &VerticalPodAutoscaler| {
        let why = vpa.annotations().get("plimsoll.dev/explanation");
        why.is_some_and(|why| why.contains("throttled"))
    };
    let vpa = stepped(&fixture, &running, "reported", explained).await;
    let usual = target(&vpa).expect("is present");
    assert!((CORES..CORES * 1.3).contains(&usual), "reported, without raising the target: {usual}");
    running.stop().await;

    let running = fixture.start(&["--cpu-throttling-target=0.1"]).await;
    wait_for_passes(&running, 1).await;
    let raised = |vpa: &VerticalPodAutoscaler| target(vpa).is_some_and(|now| now > usual * 1.1);
    let vpa = stepped(&fixture, &running, "raised", raised).await;
    let factor = target(&vpa).expect("is present") / usual;
    assert!((factor - 1.4).abs() < 0.02, "by the share above a tenth of all periods: {factor}");
    running.stop().await;
}
