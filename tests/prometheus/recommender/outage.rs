//! While the server is away nothing is recommended, unless it is asked for, and nothing that came in part counts.

use super::fixture::{Fixture, cores, has_condition, recommendation, wait_for_history_state};
use crate::prometheus::proxy::Fault;
use crate::recommender::in_process::{wait_for_passes, wait_until_written};

const AWAY: Fault = Fault::Replaced(503, "text/plain", "no healthy upstream");

#[tokio::test]
async fn until_the_server_answers_a_vpa_says_that_its_history_is_read_and_nothing_else() {
    let Some(stage) = Fixture::new(3 * 24).await else { return };
    stage.proxy.fail_all(AWAY);
    let running = stage.start(&[]).await;
    stage.wait_for_readiness(&running, false).await;
    wait_for_passes(&running, 1).await;
    for _ in 0..2 {
        stage.step(&running).await;
    }
    let waiting = stage.vpa("web", "says so", |vpa| has_condition(vpa, "FetchingHistory")).await;
    assert!(
        recommendation(&waiting).is_none() && !has_condition(&waiting, "RecommendationProvided")
    );
    stage.wait_for_readiness(&running, false).await;
    wait_for_history_state(&running, "failed").await;

    // Then half an answer comes before all is well.
    stage.proxy.fail_next([
        Fault::None,
        Fault::None,
        Fault::None,
        Fault::Disconnected(20),
        Fault::None,
    ]);
    stage.proxy.fail_all(Fault::None);
    stage.wait_for_readiness(&running, true).await;
    stage.step(&running).await;
    let vpa = stage.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("it has"));
    assert!(bounds[0] > bounds[1] * 0.97, "three days make it sure: {bounds:?}");
    assert!(
        !has_condition(&vpa, "FetchingHistory") && has_condition(&vpa, "RecommendationProvided")
    );
    wait_for_history_state(&running, "loaded").await;
    running.stop().await;
}

#[tokio::test]
async fn with_an_optional_history_it_works_without_and_takes_it_in_when_it_comes() {
    let Some(stage) = Fixture::new(3 * 24).await else { return };
    stage.proxy.fail_all(AWAY);
    let running = stage.start(&["--history-optional"]).await;
    stage.wait_for_readiness(&running, true).await;
    wait_for_passes(&running, 1).await;
    for _ in 0..3 {
        stage.step(&running).await;
    }
    wait_until_written(&running).await;
    let vpa = stage.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("it has"));
    assert!(bounds[0] < bounds[1] * 0.7, "three minutes are unsure: {bounds:?}");
    assert!(has_condition(&vpa, "FetchingHistory"), "and it says that its history is missing");

    stage.proxy.fail_all(Fault::None);
    let sure = async {
        loop {
            stage.step(&running).await;
            wait_until_written(&running).await;
            let vpa = stage.vpa("web", "exists", |_| true).await;
            let bounds = recommendation(&vpa).map(cores).expect("it has a recommendation");
            if bounds[0] > bounds[1] * 0.97 {
                return vpa;
            }
        }
    };
    let vpa = tokio::time::timeout(crate::support::wait::PATIENCE, sure).await;
    assert!(!has_condition(&vpa.expect("in time"), "FetchingHistory"));
    running.stop().await;
}
