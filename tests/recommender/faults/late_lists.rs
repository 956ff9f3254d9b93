//! Slow lists: until all of them are read, no history is loaded and nothing is written (W5).

use http::Method;
use tokio::sync::watch;

use super::fixture::{Fixture, MINUTE, targets, wait_until_ready};
use crate::recommender::recorded_writes::start_with;
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::http_get::http_get;
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];
const CHECKPOINTS: &str = "/verticalpodautoscalercheckpoints";

/// Whether the request loads a checkpoint or writes anything.
fn is_early(method: &Method, path: &str) -> bool {
    *method != Method::GET && *method != Method::POST || path.contains(CHECKPOINTS)
}

#[tokio::test]
async fn history_is_loaded_and_statuses_are_written_only_after_all_lists_are_complete() {
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let clock = fixture.clock();
    let running = fixture.start(&clock, &[]).await;
    fixture.advance(&running, &clock, 5, MINUTE).await;
    running.stop().await;
    let (recommendations, stored) = (fixture.recommendations().await, fixture.samples().await);
    assert_eq!(targets(&recommendations).len(), NAMES.len());

    for late in ["/pods", "/deployments", "/verticalpodautoscalers"] {
        let (release, held) = watch::channel(false);
        let proxy = ApiProxy::start(fixture.client(), move |method, path| {
            if *method != Method::GET || !path.ends_with(late) {
                return api_proxy::pass_through();
            }
            let mut held = held.clone();
            Box::pin(async move {
                held.wait_for(|is_released| *is_released).await.ok();
                None
            })
        })
        .await;
        let flags = fixture.flags(&["--leader-elect=false", "--checkpoint-interval=0s"]);
        let running = start_with(proxy.client.clone(), &clock, &flags).await;
        let address = running.address();
        // All other lists are complete; only this one is missing.
        let kind = late.trim_start_matches('/');
        wait::until(&format!("only {kind} are not listed yet"), || async {
            let answer = http_get(&format!("http://{address}/readyz")).await?;
            let text = String::from_utf8_lossy(&answer).into_owned();
            let others = ["pods", "deployments", "statefulsets", "verticalpodautoscalers"];
            let others = others.into_iter().filter(|other| *other != kind);
            (text.contains(kind) && others.into_iter().all(|other| !text.contains(other)))
                .then_some(())
        })
        .await;
        // A second recommender, started later without the slow list, has loaded history, written and run a pass by
        // now.
        let other = start_with(fixture.client(), &clock, &flags).await;
        wait_until_ready(other.address()).await;
        fixture.advance(&other, &clock, 1, MINUTE).await;
        wait::until("everything is saved", || async { (other.unsaved() == 0).then_some(()) }).await;
        other.stop().await;
        let mut early = proxy.requests();
        early.retain(|(method, path)| is_early(method, path));
        assert!(early.is_empty(), "{late}: {early:?}");
        assert_eq!(running.passes().borrow().0, 0, "{late}: no pass");

        release.send_replace(true);
        wait_until_ready(address).await;
        fixture.advance(&running, &clock, 1, MINUTE).await;
        running.stop().await;
        let after = fixture.samples().await;
        assert!(stored.iter().all(|(name, count)| after[name] > *count), "{late}: {after:?}");
        let requests = proxy.requests();
        assert!(requests.iter().any(|(_, path)| path.contains(CHECKPOINTS)), "{late}");
    }
    let (remembered, _) = fixture.expected_from_checkpoints(clock.now()).await;
    assert_eq!(targets(&remembered), targets(&fixture.recommendations().await));
}
