//! A recommender without checkpoints explains its recommendation on the VPA itself, so it need not be stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use http::Method;
use kube::api::{Api, Patch, PatchParams};
use plimsoll::{
    controllers::recommender::RecommenderHandle,
    report::explain::{Agreement, VpaReport},
};
use plimsoll_core::{
    api::VerticalPodAutoscaler,
    recommender::explanation_annotation::{ANNOTATION, MAX_BYTES, StoredExplanation, read},
};
use serde_json::{Value, json};

use super::{Fixture, MEBIBYTE, json_of, refused, text};
use crate::{
    recommender::{
        in_process::{wait_for_passes, wait_for_vpa},
        recorded_writes::start_with,
    },
    recommender_model::explanations::recompute,
    support::{
        api_proxy::{self, ApiProxy},
        metrics_server::UsageValue,
        wait,
    },
};

/// The response to the next annotation write instead of the server's: the high half once, or else the low half
/// always.
const ONCE: u16 = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_checkpoints_the_vpa_carries_its_own_explanation() {
    let Some(fixture) = Fixture::new().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let storage = format!("--storage=local:{}", folder.path().display());
    let answer = Arc::new(AtomicU16::new(0));
    let answers = Arc::clone(&answer);
    let proxy = ApiProxy::start(fixture.bed.client(), move |method, path| {
        if method != Method::PATCH || !path.ends_with("/verticalpodautoscalers/web") {
            return api_proxy::pass_through();
        }
        match answers.load(Ordering::SeqCst) {
            0 => api_proxy::pass_through(),
            once if once > ONCE => {
                answers.store(0, Ordering::SeqCst);
                api_proxy::respond_with(once - ONCE, None)
            }
            always => api_proxy::respond_with(always, None),
        }
    })
    .await;
    let flags = ["--leader-elect=false", &*storage, "--bounds-dead-band=0"];
    let running = start_with(proxy.client.clone(), &fixture.clock, &flags).await;
    wait_for_passes(&running, 1).await;
    fixture.run_steps(&running, 6).await;
    fixture.kill().await;
    fixture.run_steps(&running, 6).await;
    settled(&running).await;

    let explanation = explained(&fixture).await.expect("the VPA has an explanation");
    assert_recomputable(&fixture, &explanation).await;
    assert_shown_while_running(&fixture, &explanation, &storage);

    answer.store(ONCE + 409, Ordering::SeqCst);
    fixture.run_steps(&running, 1).await;
    settled(&running).await;
    assert_eq!(answer.load(Ordering::SeqCst), 0, "there was a conflict");
    let again = explained(&fixture).await.expect("it retries after a conflict");
    assert!(again.at > explanation.at, "it belongs to the latest status");

    answer.store(500, Ordering::SeqCst);
    fixture.run_steps(&running, 1).await;
    settled(&running).await;
    assert_eq!(explained(&fixture).await, None, "the status was written all the same");
    assert_mismatch_is_rejected(&fixture);
    answer.store(0, Ordering::SeqCst);
    fixture.run_steps(&running, 1).await;
    settled(&running).await;
    assert!(
        explained(&fixture).await.is_some(),
        "and the next explanation goes with the next status"
    );

    let target = json!({"cpu": "7", "memory": "7Gi"});
    let other = json!([{"containerName": "main", "target": target}]);
    let other = json!({"status": {"recommendation": {"containerRecommendations": other}}});
    let api = Api::<VerticalPodAutoscaler>::namespaced(fixture.bed.client(), &fixture.namespace);
    let parameters = PatchParams::default();
    api.patch_status("web", &parameters, &Patch::Merge(&other)).await.expect("is changed");
    assert_mismatch_is_rejected(&fixture);
    fixture.run_steps(&running, 1).await;
    settled(&running).await;
    let last = explained(&fixture).await.expect("the recommender has corrected it");
    running.stop().await;
    let (statuses, annotations) = writes(&proxy);
    assert!(annotations <= statuses + 1, "{annotations} for {statuses} statuses, and one conflict");

    // The history itself gives the same explanation, and can be read now.
    let name = format!("{}/web", fixture.namespace);
    let stored = json_of(&fixture.explain(&[&name, &storage, "-o=json"]));
    assert_eq!(stored["history"]["storage"], "local");
    for resource in ["cpu", "memory"] {
        let main = json!(last.containers[0].explanation);
        assert_eq!(stored["containers"][0][resource]["chain"], main[resource], "{resource}");
    }

    // Nothing visible has changed, so nothing is written.
    let running = start_with(proxy.client.clone(), &fixture.clock, &flags[..2]).await;
    wait_for_passes(&running, 1).await;
    settled(&running).await;
    assert_eq!(writes(&proxy), (statuses, annotations));
    running.stop().await;

    assert_others_write_none(&fixture, &proxy, &storage).await;
}

/// Recommenders with checkpoints, and those with `--compat=upstream`, write no annotation.
async fn assert_others_write_none(fixture: &Fixture, proxy: &ApiProxy, storage: &str) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(fixture.bed.client(), &fixture.namespace);
    let without = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: null}}}));
    api.patch("web", &PatchParams::default(), &without).await.expect("is changed");
    let (_, before) = writes(proxy);
    for (cpu, flags) in [(2.0, &["--compat=upstream", storage][..]), (0.1, &[])] {
        let use_ = UsageValue { cpu, memory: 900 * MEBIBYTE };
        fixture.usage.set_all(&fixture.namespace, "web-", "main", use_);
        let all = [&["--leader-elect=false"], flags].concat();
        let (statuses, _) = writes(proxy);
        let running = start_with(proxy.client.clone(), &fixture.clock, &all).await;
        wait_for_passes(&running, 1).await;
        fixture.run_steps(&running, 3).await;
        settled(&running).await;
        running.stop().await;
        let (written, annotations) = writes(proxy);
        assert!(written > statuses, "{flags:?}: the status has changed");
        assert_eq!(annotations, before, "{flags:?}");
    }
    let found = wait_for_vpa(&fixture.bed, &fixture.namespace, "web", "exists", |_| true).await;
    assert!(found.metadata.annotations.is_none_or(|all| !all.contains_key(ANNOTATION)));
    let name = format!("{}/web", fixture.namespace);
    let value = json_of(&fixture.explain(&[&name, "-o=json"]));
    assert_eq!(value["history"]["storage"], "checkpoint", "there are some now");
    assert_eq!(value["history"]["records"][0]["form"], "exact");
}

/// Patches of statuses and of annotations so far.
fn writes(proxy: &ApiProxy) -> (usize, usize) {
    let of = |end| proxy.arrival_times(&Method::PATCH, end).len();
    (of("/verticalpodautoscalers/web/status"), of("/verticalpodautoscalers/web"))
}

async fn settled(running: &RecommenderHandle) {
    wait::until("everything is written", || async {
        (running.pending_statuses() == 0).then_some(())
    })
    .await;
}

/// The VPA's explanation of its current status; `None` if it is about another one.
async fn explained(fixture: &Fixture) -> Option<StoredExplanation> {
    let found = wait_for_vpa(&fixture.bed, &fixture.namespace, "web", "exists", |_| true).await;
    let text = found.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    assert!(text.len() < MAX_BYTES / 4, "it is short: {} bytes", text.len());
    read(text, found.status.as_ref()?.recommendation.as_ref()).ok()
}

/// Recomputes the status with the golden formulas from the annotation.
async fn assert_recomputable(fixture: &Fixture, stored: &StoredExplanation) {
    let found = wait_for_vpa(&fixture.bed, &fixture.namespace, "web", "exists", |_| true).await;
    let recommendation =
        found.status.and_then(|status| status.recommendation).expect("is recommended");
    let (recommended, main) = (&recommendation.container_recommendations[0], &stored.containers[0]);
    assert_eq!(
        (&*recommended.container_name, &*main.name, stored.containers.len()),
        ("main", "main", 1)
    );
    let cpu = main.explanation.cpu.as_ref().expect("is explained");
    let memory = main.explanation.memory.as_ref().expect("is explained");
    // A sample per step for each of two pods, and the pass at the start.
    assert!((24..=26).contains(&cpu.evidence.samples), "{:?}", cpu.evidence);
    assert!(memory.bump.is_some(), "it was killed for its memory");
    for (chain, is_cpu) in [(cpu, true), (memory, false)] {
        let again = recompute(chain, is_cpu);
        let all = [again.target, again.lower, again.upper, again.uncapped].map(Some);
        let lists = [
            &recommended.target,
            &recommended.lower_bound,
            &recommended.upper_bound,
            &recommended.uncapped_target,
        ];
        let written = lists.map(|list| if is_cpu { list.cpu() } else { list.memory() });
        assert_eq!(all, written, "{chain:?}");
    }
}

/// `explain` shows the same numbers and their source, while the recommender keeps running.
fn assert_shown_while_running(fixture: &Fixture, stored: &StoredExplanation, storage: &str) {
    let name = format!("{}/web", fixture.namespace);
    let output = fixture.explain(&[&name, "-o=json"]);
    let value = json_of(&output);
    assert_eq!(output.status.code(), Some(0), "{:#}", value["findings"]);
    let report: VpaReport = serde_json::from_value(value.clone()).expect("a report");
    assert_eq!(value["history"]["storage"], "annotation");
    assert_eq!(value["history"]["records"][0]["form"], "explanation");
    assert_eq!(report.history.records[0].written, Some(stored.at));
    assert_eq!(report.left_out, []);
    assert!(report.conditions.iter().all(|condition| condition.state == "written"));
    let main = &report.containers[0];
    assert_eq!(main.kills.iter().map(|kill| kill.counted).collect::<Vec<_>>(), [Some(true)]);
    let explanation = &stored.containers[0].explanation;
    for (resource, why) in [(&main.cpu, &explanation.cpu), (&main.memory, &explanation.memory)] {
        let resource = resource.as_ref().expect("is recommended");
        assert_eq!(resource.agreement, Agreement::Same, "{resource:#?}");
        assert_eq!(resource.status, Some(resource.recomputed));
        assert_eq!(Some(&resource.chain), why.as_ref());
    }

    let output = fixture.explain(&[&name]);
    let printed = text(&output);
    assert_eq!(output.status.code(), Some(0), "{printed}");
    for line in printed.lines() {
        assert!(line.chars().count() <= 80 && line.trim_end() == line, "{line:?}");
    }
    for words in [
        "plimsoll.dev/explanation",
        "As explained by the recommender",
        "not available",
        ": counted",
        "OOM bump",
        "max_allowed: p95 reads",
    ] {
        assert!(printed.contains(words), "{words} is not in\n{printed}");
    }

    let printed = refused(&fixture.explain(&[&name, storage]), 1);
    assert!(printed.contains("without --storage"), "{printed}");
    assert!(printed.contains("which need not be stopped"), "{printed}");
}

fn assert_mismatch_is_rejected(fixture: &Fixture) {
    let name = format!("{}/web", fixture.namespace);
    let output = fixture.explain(&[&name, "-o=json"]);
    let value: Value = json_of(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(value["history"]["storage"], "checkpoint", "the annotation is about another status");
    assert_eq!(value["history"]["records"], json!([]));
    let skipped = &value["history"]["skipped"][0];
    assert_eq!(skipped["what"], format!("{name}, annotation {ANNOTATION}"), "{value:#}");
    assert_eq!(skipped["why"], "it does not match the recommendation in the status");
    assert_eq!(value["findings"][0]["code"], "history_missing");
    assert!(text(&fixture.explain(&[&name])).contains("plimsoll.dev/explanation"));
}
