//! Lists that come late: before all that is needed is read, no history is asked for and nothing is written (W5).

use http::Method;
use tokio::sync::watch;

use super::fixture::{Fixture, MINUTE, targets, wait_until_ready};
use crate::recommender::recorded_writes::start_with;
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::http_get::http_get;
use crate::support::wait;

const NAMES: &[&str] = &["front", "worker"];
const CHECKPOINTS: &str = "/verticalpodautoscalercheckpoints";

/// Whether it asks for a stored history, or writes anything.
fn is_early(method: &Method, path: &str) -> bool {
    *method != Method::GET && *method != Method::POST || path.contains(CHECKPOINTS)
}

#[tokio::test]
async fn no_history_is_asked_for_and_nothing_is_written_before_each_list_is_complete() {
    let Some(stage) = Fixture::new(NAMES).await else { return };
    let clock = stage.clock();
    let running = stage.start(&clock, &[]).await;
    stage.advance(&running, &clock, 5, MINUTE).await;
    running.stop().await;
    let (said, stored) = (stage.recommendations().await, stage.samples().await);
    assert_eq!(targets(&said).len(), NAMES.len());

    for late in ["/pods", "/deployments", "/verticalpodautoscalers"] {
        let (release, held) = watch::channel(false);
        let proxy = ApiProxy::start(stage.client(), move |method, path| {
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
        let flags = stage.flags(&["--leader-elect=false", "--checkpoint-interval=0s"]);
        let running = start_with(proxy.client.clone(), &clock, &flags).await;
        let address = running.address();
        // All other lists are read, and it is only this one that is waited for.
        let kind = late.trim_start_matches('/');
        wait::until(&format!("only {kind} are waited for"), || async {
            let answer = http_get(&format!("http://{address}/readyz")).await?;
            let text = String::from_utf8_lossy(&answer).into_owned();
            let others = ["pods", "deployments", "statefulsets", "verticalpodautoscalers"];
            let others = others.into_iter().filter(|other| *other != kind);
            (text.contains(kind) && others.into_iter().all(|other| !text.contains(other)))
                .then_some(())
        })
        .await;
        // Another one that began later and waits for nothing has asked and written by now, and had a pass as time went by.
        let other = start_with(stage.client(), &clock, &flags).await;
        wait_until_ready(other.address()).await;
        stage.advance(&other, &clock, 1, MINUTE).await;
        wait::until("all is saved", || async { (other.unsaved() == 0).then_some(()) }).await;
        other.stop().await;
        let mut early = proxy.requests();
        early.retain(|(method, path)| is_early(method, path));
        assert!(early.is_empty(), "{late}: {early:?}");
        assert_eq!(running.passes().borrow().0, 0, "{late}: no pass");

        release.send_replace(true);
        wait_until_ready(address).await;
        stage.advance(&running, &clock, 1, MINUTE).await;
        running.stop().await;
        let after = stage.samples().await;
        assert!(stored.iter().all(|(name, count)| after[name] > *count), "{late}: {after:?}");
        let asked = proxy.requests();
        assert!(asked.iter().any(|(_, path)| path.contains(CHECKPOINTS)), "{late}");
    }
    let (remembered, _) = stage.expected_from_checkpoints(clock.now()).await;
    assert_eq!(targets(&remembered), targets(&stage.recommendations().await));
}
