//! While the server is away nothing is recommended, unless it is asked for, and nothing that came in part counts.

use super::stage::{Stage, cores, has, history_is, said};
use crate::prometheus::way::Fault;
use crate::recommender::start::{passed, written};

const AWAY: Fault = Fault::Instead(503, "text/plain", "no healthy upstream");

#[tokio::test]
async fn until_the_server_answers_a_vpa_says_that_its_history_is_read_and_nothing_else() {
    let Some(stage) = Stage::new(3 * 24).await else { return };
    stage.way.always(AWAY);
    let running = stage.start(&[]).await;
    stage.is_ready(&running, false).await;
    passed(&running, 1).await;
    for _ in 0..2 {
        stage.step(&running).await;
    }
    let waiting = stage.vpa("web", "says so", |vpa| has(vpa, "FetchingHistory")).await;
    assert!(said(&waiting).is_none() && !has(&waiting, "RecommendationProvided"));
    stage.is_ready(&running, false).await;
    history_is(&running, "failed").await;

    // Then half an answer comes before all is well.
    stage.way.then([Fault::None, Fault::None, Fault::None, Fault::Cut(20), Fault::None]);
    stage.way.always(Fault::None);
    stage.is_ready(&running, true).await;
    stage.step(&running).await;
    let vpa = stage.vpa("web", "has a recommendation", |vpa| said(vpa).is_some()).await;
    let bounds = cores(said(&vpa).expect("it has"));
    assert!(bounds[0] > bounds[1] * 0.97, "three days make it sure: {bounds:?}");
    assert!(!has(&vpa, "FetchingHistory") && has(&vpa, "RecommendationProvided"));
    history_is(&running, "loaded").await;
    running.stop().await;
}

#[tokio::test]
async fn with_an_optional_history_it_works_without_and_takes_it_in_when_it_comes() {
    let Some(stage) = Stage::new(3 * 24).await else { return };
    stage.way.always(AWAY);
    let running = stage.start(&["--history-optional"]).await;
    stage.is_ready(&running, true).await;
    passed(&running, 1).await;
    for _ in 0..3 {
        stage.step(&running).await;
    }
    written(&running).await;
    let vpa = stage.vpa("web", "has a recommendation", |vpa| said(vpa).is_some()).await;
    let bounds = cores(said(&vpa).expect("it has"));
    assert!(bounds[0] < bounds[1] * 0.7, "three minutes are unsure: {bounds:?}");
    assert!(has(&vpa, "FetchingHistory"), "and it says that its history is missing");

    stage.way.always(Fault::None);
    let sure = async {
        loop {
            stage.step(&running).await;
            written(&running).await;
            let vpa = stage.vpa("web", "exists", |_| true).await;
            let bounds = said(&vpa).map(cores).expect("it has a recommendation");
            if bounds[0] > bounds[1] * 0.97 {
                return vpa;
            }
        }
    };
    let vpa = tokio::time::timeout(crate::support::wait::PATIENCE, sure).await;
    assert!(!has(&vpa.expect("in time"), "FetchingHistory"));
    running.stop().await;
}
