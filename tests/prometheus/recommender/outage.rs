//! While the server is unavailable nothing is recommended unless configured, and partial responses do not count.

use super::fixture::{Fixture, cores, has_condition, recommendation, wait_for_history_state};
use crate::prometheus::proxy::Fault;
use crate::recommender::in_process::{wait_for_passes, wait_until_written};

const AWAY: Fault = Fault::Replaced(503, "text/plain", "no healthy upstream");

#[tokio::test]
async fn until_the_server_responds_the_vpa_only_has_the_condition_fetching_history() {
    let Some(fixture) = Fixture::new(3 * 24).await else { return };
    fixture.proxy.fail_all(AWAY);
    let running = fixture.start(&[]).await;
    fixture.wait_for_readiness(&running, false).await;
    wait_for_passes(&running, 1).await;
    for _ in 0..2 {
        fixture.step(&running).await;
    }
    let waiting = fixture.vpa("web", "says so", |vpa| has_condition(vpa, "FetchingHistory")).await;
    assert!(
        recommendation(&waiting).is_none() && !has_condition(&waiting, "RecommendationProvided")
    );
    fixture.wait_for_readiness(&running, false).await;
    wait_for_history_state(&running, "failed").await;

    // A partial response comes before the server recovers.
    fixture.proxy.fail_next([
        Fault::None,
        Fault::None,
        Fault::None,
        Fault::Disconnected(20),
        Fault::None,
    ]);
    fixture.proxy.fail_all(Fault::None);
    fixture.wait_for_readiness(&running, true).await;
    fixture.step(&running).await;
    let vpa = fixture.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("is present"));
    assert!(bounds[0] > bounds[1] * 0.97, "three days narrow the bounds: {bounds:?}");
    assert!(
        !has_condition(&vpa, "FetchingHistory") && has_condition(&vpa, "RecommendationProvided")
    );
    wait_for_history_state(&running, "loaded").await;
    running.stop().await;
}

#[tokio::test]
async fn with_optional_history_recommendations_start_without_it_and_add_it_later() {
    let Some(fixture) = Fixture::new(3 * 24).await else { return };
    fixture.proxy.fail_all(AWAY);
    let running = fixture.start(&["--history-optional"]).await;
    fixture.wait_for_readiness(&running, true).await;
    wait_for_passes(&running, 1).await;
    for _ in 0..3 {
        fixture.step(&running).await;
    }
    wait_until_written(&running).await;
    let vpa = fixture.vpa("web", "has a recommendation", |vpa| recommendation(vpa).is_some()).await;
    let bounds = cores(recommendation(&vpa).expect("is present"));
    assert!(bounds[0] < bounds[1] * 0.7, "three minutes give wide bounds: {bounds:?}");
    assert!(has_condition(&vpa, "FetchingHistory"), "a condition reports the missing history");

    fixture.proxy.fail_all(Fault::None);
    let sure = async {
        loop {
            fixture.step(&running).await;
            wait_until_written(&running).await;
            let vpa = fixture.vpa("web", "exists", |_| true).await;
            let bounds = recommendation(&vpa).map(cores).expect("has a recommendation");
            if bounds[0] > bounds[1] * 0.97 {
                return vpa;
            }
        }
    };
    let vpa = tokio::time::timeout(crate::support::wait::PATIENCE, sure).await;
    assert!(!has_condition(&vpa.expect("finished in time"), "FetchingHistory"));
    running.stop().await;
}
