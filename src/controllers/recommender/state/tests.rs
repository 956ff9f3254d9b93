//! Tests of the state: which containers count as alive, and late responses to writes.

use serde_json::json;

use super::*;
use crate::cluster::cache::selector::Selector;
use plimsoll_core::{
    recommender::{NamespaceScope, Settings},
    types::compat::Compat,
};

const START: Time = Time::from_secs(1_780_000_000);

fn key() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

fn vpa(resource_version: &str) -> VerticalPodAutoscaler {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": resource_version},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    }))
    .expect("a VPA")
}

fn state() -> SharedState {
    let registry = VpaRegistry::new(Settings::for_compat(Compat::Plimsoll), Compat::Plimsoll);
    let state = SharedState::new(
        VpaIndex::new(NamespaceScope::default(), "default"),
        registry,
        true,
        false,
    );
    let mut core = state.lock();
    core.upsert_vpa(&vpa("1"));
    let selector = Selector::parse("app=web").expect("a selector");
    core.set_target(
        &key(),
        TargetResolution::Found { selector, owner: "apps/Deployment/web".into() },
    );
    let generation = core.vpa_registry.load_generation(&key()).expect("is tracked");
    core.vpa_registry.mark_loaded(&key(), generation);
    drop(core);
    state
}

fn pod(name: &str, container: &str, phase: &str) -> ObjectChange<PartialPod> {
    let pod = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": container}]},
        "status": {"phase": phase},
    });
    ObjectChange::Applied(serde_json::from_value(pod).expect("a pod"))
}

#[test]
fn finished_pods_keep_no_container_alive() {
    let state = state();
    let mut core = state.lock();
    core.apply_pod_change(pod("old", "app", "Running"));
    core.register_containers(&key(), START);
    // Evicted; then the container is renamed.
    core.apply_pod_change(pod("old", "app", "Failed"));
    core.apply_pod_change(pod("done", "job", "Succeeded"));
    core.apply_pod_change(pod("new", "server", "Running"));
    for minutes in 1..=62 {
        core.register_containers(&key(), START.later(std::time::Duration::from_mins(minutes)));
    }
    let now = START.later(std::time::Duration::from_mins(62));
    let registered = core.vpa_registry.get(&key()).expect("is tracked");
    let known: Vec<&str> = registered.history.iter().map(|(name, _)| &**name).collect();
    assert_eq!(known, ["app", "job", "server"], "finished pods start a history");
    let recommendation = core.vpa_registry.recommend(&key(), now).expect("the history is loaded");
    let names: Vec<&str> =
        recommendation.containers.iter().map(|container| &*container.container).collect();
    assert_eq!(names, ["server"]);
    // As long as one replica runs, the container is alive.
    core.apply_pod_change(pod("again", "app", "Running"));
    core.register_containers(&key(), now);
    let recommendation = core.vpa_registry.recommend(&key(), now).expect("the history is loaded");
    assert_eq!(recommendation.containers.len(), 2, "{:?}", recommendation.stale);
}

#[test]
fn a_late_write_response_does_not_overwrite_a_newer_watch_event() {
    let state = state();
    let mut core = state.lock();
    let now = START.later(std::time::Duration::from_mins(1));
    let ours =
        || Some(PublishedStatus { observed_generation: Some(1), ..PublishedStatus::default() });
    core.record_status_write(&key(), ours(), "5", now);
    let known = |core: &RecommenderState| {
        let vpa = core.index.vpa(&key()).expect("is known");
        (vpa.resource_version.to_string(), vpa.published_status.observed_generation == Some(1))
    };
    assert_eq!(known(&core), ("5".to_owned(), true));
    // Another writer comes after our next write, and the watch before its response.
    core.upsert_vpa(&vpa("9"));
    core.record_status_write(&key(), ours(), "8", now);
    core.record_explanation_write(&key(), Some(7), "8");
    assert_eq!(known(&core), ("9".to_owned(), false));
    let vpa = core.index.vpa(&key()).expect("is known");
    assert_eq!((vpa.explained_hash, vpa.last_written), (None, Some(now)));
    core.record_explanation_write(&key(), Some(7), "10");
    assert_eq!(core.index.vpa(&key()).expect("is known").explained_hash, Some(7));
}
