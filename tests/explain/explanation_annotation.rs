//! A recommender without checkpoints explains its numbers on the VPA itself, and nobody has to stop it to read them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use http::Method;
use kube::api::{Api, Patch, PatchParams};
use plimsoll::{
    controllers::recommender::RecommenderHandle,
    report::explain::{VpaReport, report::Agreement},
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

/// What the next annotation gets in place of the server's answer; the high half once, the low half always.
const ONCE: u16 = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_checkpoints_a_vpa_says_itself_why_its_numbers_are_what_they_are() {
    let Some(scene) = Fixture::new().await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let storage = format!("--storage=local:{}", folder.path().display());
    let answer = Arc::new(AtomicU16::new(0));
    let answers = Arc::clone(&answer);
    let proxy = ApiProxy::start(scene.bed.client(), move |method, path| {
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
    let running = start_with(proxy.client.clone(), &scene.clock, &flags).await;
    wait_for_passes(&running, 1).await;
    scene.run_steps(&running, 6).await;
    scene.kill().await;
    scene.run_steps(&running, 6).await;
    settled(&running).await;

    let told = explained(&scene).await.expect("the VPA says why");
    assert_recomputable(&scene, &told).await;
    assert_shown_while_running(&scene, &told, &storage);

    answer.store(ONCE + 409, Ordering::SeqCst);
    scene.run_steps(&running, 1).await;
    settled(&running).await;
    assert_eq!(answer.load(Ordering::SeqCst), 0, "there was a conflict");
    let again = explained(&scene).await.expect("a conflict is met by trying again");
    assert!(again.at > told.at, "it is of the latest status");

    answer.store(500, Ordering::SeqCst);
    scene.run_steps(&running, 1).await;
    settled(&running).await;
    assert_eq!(explained(&scene).await, None, "the status was written all the same");
    assert_mismatch_is_rejected(&scene);
    answer.store(0, Ordering::SeqCst);
    scene.run_steps(&running, 1).await;
    settled(&running).await;
    assert!(
        explained(&scene).await.is_some(),
        "and the next explanation goes with the next status"
    );

    let target = json!({"cpu": "7", "memory": "7Gi"});
    let other = json!([{"containerName": "main", "target": target}]);
    let other = json!({"status": {"recommendation": {"containerRecommendations": other}}});
    let api = Api::<VerticalPodAutoscaler>::namespaced(scene.bed.client(), &scene.namespace);
    let parameters = PatchParams::default();
    api.patch_status("web", &parameters, &Patch::Merge(&other)).await.expect("is changed");
    assert_mismatch_is_rejected(&scene);
    scene.run_steps(&running, 1).await;
    settled(&running).await;
    let last = explained(&scene).await.expect("the recommender has set it right");
    running.stop().await;
    let (statuses, annotations) = writes(&proxy);
    assert!(annotations <= statuses + 1, "{annotations} for {statuses} statuses, and one conflict");

    // The history itself says the same, and now it can be read.
    let name = format!("{}/web", scene.namespace);
    let stored = json_of(&scene.explain(&[&name, &storage, "-o=json"]));
    assert_eq!(stored["history"]["storage"], "local");
    for resource in ["cpu", "memory"] {
        let main = json!(last.containers[0].explanation);
        assert_eq!(stored["containers"][0][resource]["chain"], main[resource], "{resource}");
    }

    // Nothing has changed that anybody could see, so nothing is written.
    let running = start_with(proxy.client.clone(), &scene.clock, &flags[..2]).await;
    wait_for_passes(&running, 1).await;
    settled(&running).await;
    assert_eq!(writes(&proxy), (statuses, annotations));
    running.stop().await;

    assert_others_write_none(&scene, &proxy, &storage).await;
}

/// Recommenders that keep checkpoints, and those that do as upstream does, leave VPAs alone.
async fn assert_others_write_none(scene: &Fixture, proxy: &ApiProxy, storage: &str) {
    let api = Api::<VerticalPodAutoscaler>::namespaced(scene.bed.client(), &scene.namespace);
    let without = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: null}}}));
    api.patch("web", &PatchParams::default(), &without).await.expect("is changed");
    let (_, before) = writes(proxy);
    for (cpu, flags) in [(2.0, &["--compat=upstream", storage][..]), (0.1, &[])] {
        let use_ = UsageValue { cpu, memory: 900 * MEBIBYTE };
        scene.usage.set_all(&scene.namespace, "web-", "main", use_);
        let all = [&["--leader-elect=false"], flags].concat();
        let (statuses, _) = writes(proxy);
        let running = start_with(proxy.client.clone(), &scene.clock, &all).await;
        wait_for_passes(&running, 1).await;
        scene.run_steps(&running, 3).await;
        settled(&running).await;
        running.stop().await;
        let (written, annotations) = writes(proxy);
        assert!(written > statuses, "{flags:?}: the status has changed");
        assert_eq!(annotations, before, "{flags:?}");
    }
    let found = wait_for_vpa(&scene.bed, &scene.namespace, "web", "is there", |_| true).await;
    assert!(found.metadata.annotations.is_none_or(|all| !all.contains_key(ANNOTATION)));
    let name = format!("{}/web", scene.namespace);
    let value = json_of(&scene.explain(&[&name, "-o=json"]));
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

/// What the VPA says of its own status; `None` where that is about another one.
async fn explained(scene: &Fixture) -> Option<StoredExplanation> {
    let found = wait_for_vpa(&scene.bed, &scene.namespace, "web", "is there", |_| true).await;
    let text = found.metadata.annotations.as_ref()?.get(ANNOTATION)?;
    assert!(text.len() < MAX_BYTES / 4, "it is short: {} bytes", text.len());
    read(text, found.status.as_ref()?.recommendation.as_ref()).ok()
}

/// The numbers of the status, worked out by the golden formulas from what the annotation says of them.
async fn assert_recomputable(scene: &Fixture, told: &StoredExplanation) {
    let found = wait_for_vpa(&scene.bed, &scene.namespace, "web", "is there", |_| true).await;
    let said = found.status.and_then(|status| status.recommendation).expect("is recommended");
    let (said, main) = (&said.container_recommendations[0], &told.containers[0]);
    assert_eq!((&*said.container_name, &*main.name, told.containers.len()), ("main", "main", 1));
    let cpu = main.explanation.cpu.as_ref().expect("is explained");
    let memory = main.explanation.memory.as_ref().expect("is explained");
    // A sample a step of each of two pods, and the pass at the start.
    assert!((24..=26).contains(&cpu.evidence.samples), "{:?}", cpu.evidence);
    assert!(memory.bump.is_some(), "it was killed for its memory");
    for (chain, is_cpu) in [(cpu, true), (memory, false)] {
        let again = recompute(chain, is_cpu);
        let all = [again.target, again.lower, again.upper, again.uncapped].map(Some);
        let lists = [&said.target, &said.lower_bound, &said.upper_bound, &said.uncapped_target];
        let written = lists.map(|list| if is_cpu { list.cpu() } else { list.memory() });
        assert_eq!(all, written, "{chain:?}");
    }
}

/// `explain` shows the same numbers, and says where it has them from, while the recommender goes on.
fn assert_shown_while_running(scene: &Fixture, told: &StoredExplanation, storage: &str) {
    let name = format!("{}/web", scene.namespace);
    let output = scene.explain(&[&name, "-o=json"]);
    let value = json_of(&output);
    assert_eq!(output.status.code(), Some(0), "{:#}", value["findings"]);
    let report: VpaReport = serde_json::from_value(value.clone()).expect("a report");
    assert_eq!(value["history"]["storage"], "annotation");
    assert_eq!(value["history"]["records"][0]["form"], "explanation");
    assert_eq!(report.history.records[0].written, Some(told.at));
    assert_eq!(report.left_out, []);
    assert!(report.conditions.iter().all(|condition| condition.state == "written"));
    let main = &report.containers[0];
    assert_eq!(main.kills.iter().map(|kill| kill.counted).collect::<Vec<_>>(), [Some(true)]);
    let explanation = &told.containers[0].explanation;
    for (resource, why) in [(&main.cpu, &explanation.cpu), (&main.memory, &explanation.memory)] {
        let resource = resource.as_ref().expect("is recommended");
        assert_eq!(resource.agreement, Agreement::Same, "{resource:#?}");
        assert_eq!(resource.status, Some(resource.recomputed));
        assert_eq!(Some(&resource.chain), why.as_ref());
    }

    let output = scene.explain(&[&name]);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    for line in said.lines() {
        assert!(line.chars().count() <= 80 && line.trim_end() == line, "{line:?}");
    }
    for words in [
        "plimsoll.dev/explanation",
        "explained them on the VPA itself",
        "not at hand",
        ": counted",
        "OOM bump",
        "max_allowed: p95 reads",
    ] {
        assert!(said.contains(words), "{words} is not in\n{said}");
    }

    let said = refused(&scene.explain(&[&name, storage]), 1);
    assert!(said.contains("without --storage"), "{said}");
    assert!(said.contains("nobody has to stop that one"), "{said}");
}

fn assert_mismatch_is_rejected(scene: &Fixture) {
    let name = format!("{}/web", scene.namespace);
    let output = scene.explain(&[&name, "-o=json"]);
    let value: Value = json_of(&output);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(value["history"]["storage"], "checkpoint", "what it says is of another status");
    assert_eq!(value["history"]["records"], json!([]));
    let skipped = &value["history"]["skipped"][0];
    assert_eq!(skipped["what"], format!("{name}, annotation {ANNOTATION}"), "{value:#}");
    assert_eq!(skipped["why"], "it belongs to a recommendation that is no longer in the status");
    assert_eq!(value["findings"][0]["code"], "history_missing");
    assert!(text(&scene.explain(&[&name])).contains("plimsoll.dev/explanation"));
}
