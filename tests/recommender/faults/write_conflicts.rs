//! Another client writes to our objects whenever we do.

use std::collections::HashMap;
use std::sync::Mutex;

use http::Method;
use kube::Client;
use kube::api::{Api, Patch, PatchParams};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint;
use serde_json::json;

use super::fixture::{Fixture, MINUTE, metric, targets};
use crate::support::api_proxy::{self, ApiProxy};
use crate::support::captured_log;

const NAMES: &[&str] = &["api", "front", "worker"];

/// Changes the object at a path, if it is a VPA or a checkpoint.
async fn write_first(client: Client, path: String, number: usize) {
    let words: Vec<&str> = path.split('/').collect();
    let plain = PatchParams::default();
    let note =
        json!({ "metadata": { "annotations": { "example.com/touched": number.to_string() } } });
    match words[..] {
        [.., "namespaces", namespace, "verticalpodautoscalers", name, "status"] => {
            let api = Api::<VerticalPodAutoscaler>::namespaced(client, namespace);
            api.patch(name, &plain, &Patch::Merge(note)).await.expect("exists");
        }
        [.., "namespaces", namespace, "verticalpodautoscalercheckpoints", name] => {
            let api = Api::<Checkpoint>::namespaced(client, namespace);
            api.patch(name, &plain, &Patch::Merge(note)).await.expect("exists");
        }
        _ => {}
    }
}

#[tokio::test]
async fn conflicts_on_every_second_write_lose_no_write_and_no_foreign_field() {
    let (log, _guard) = captured_log::capture();
    let Some(fixture) = Fixture::new(NAMES).await else { return };
    let vpas = Api::<VerticalPodAutoscaler>::namespaced(fixture.client(), &fixture.namespace);
    let foreign = json!({ "status": { "conditions": [
        { "type": "Foreign", "status": "True", "reason": "Test" },
    ] } });
    for name in NAMES {
        let patch = Patch::Merge(&foreign);
        vpas.patch_status(name, &PatchParams::default(), &patch).await.expect("exists");
    }
    let (writes, behind) = (Mutex::new(HashMap::<String, usize>::new()), fixture.client());
    let proxy = ApiProxy::start(fixture.client(), move |method, path| {
        if *method != Method::PATCH {
            return api_proxy::pass_through();
        }
        let number = {
            let mut writes = writes.lock().expect("no panic");
            let number = writes.entry(path.to_owned()).or_default();
            *number += 1;
            *number
        };
        // Every second request for each object.
        if number % 2 == 1 {
            return api_proxy::pass_through();
        }
        let (client, path) = (behind.clone(), path.to_owned());
        Box::pin(async move {
            write_first(client, path, number).await;
            None
        })
    })
    .await;
    let clock = fixture.clock();
    let flags = ["--checkpoint-interval=0s"];
    let running = fixture.start_with_client(proxy.client.clone(), &clock, &flags).await;
    let address = running.address();
    for _ in 0..8 {
        fixture.advance(&running, &clock, 1, MINUTE * 30).await;
        crate::support::wait::until("everything is saved", || async {
            (running.unsaved() == 0).then_some(())
        })
        .await;
        let (expected, _) = fixture.expected_from_checkpoints(clock.now()).await;
        fixture.wait_for_recommendations("after each pass", &expected).await;
        assert_eq!(targets(&expected).len(), NAMES.len());
    }
    let count = async |code: &str| {
        let labels = ["kind=\"status\"", code];
        metric(address, "plimsoll_writes_total", &labels).await
    };
    let (conflicts, written) = (count("outcome=\"409\"").await, count("outcome=\"200\"").await);
    assert!(conflicts >= 4.0, "{conflicts} conflicts");
    assert!(written >= 8.0, "{written} written");
    assert!(conflicts <= written * 2.0, "{conflicts} conflicts for {written} writes");
    assert_eq!(metric(address, "plimsoll_checkpoints_total", &["\"failed\""]).await, 0.0);
    log.assert_line(&["conflict while writing status; recomputing it", "front"]);
    for vpa in fixture.vpas().await {
        let conditions = vpa.status.expect("a status").conditions;
        let has =
            |kind: &str| conditions.iter().any(|one| one.kind == kind && one.status == "True");
        assert!(has("Foreign") && has("RecommendationProvided"), "{conditions:?}");
        let notes = vpa.metadata.annotations.expect("changed");
        assert!(notes.contains_key("example.com/touched"));
    }
    running.stop().await;
}
