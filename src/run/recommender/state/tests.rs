//! The state as a pass sees it: which containers of pods count as alive.

use serde_json::json;

use super::*;
use crate::observe::selector::Selector;
use plimsoll_core::{
    recommender::{Scope, Settings},
    types::compat::Compat,
};

const START: Time = Time::from_secs(1_780_000_000);

fn key() -> VpaKey {
    VpaKey::new("shop", "web")
}

fn vpa(resource_version: &str) -> VerticalPodAutoscaler {
    serde_json::from_value(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": resource_version},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    }))
    .expect("a VPA")
}

fn state() -> State {
    let fleet = Fleet::new(Settings::of(Compat::Plimsoll), Compat::Plimsoll);
    let state = State::new(Index::new(Scope::default(), "default"), fleet, true, false);
    let mut core = state.lock();
    core.put_vpa(&vpa("1"));
    let selector = Selector::parse("app=web").expect("a selector");
    core.take_outcome(&key(), Outcome::Found { selector, owner: "apps/Deployment/web".into() });
    let sighting = core.fleet.sighting(&key()).expect("is tracked");
    core.fleet.loaded(&key(), sighting);
    drop(core);
    state
}

fn pod(name: &str, container: &str, phase: &str) -> Change<SlimPod> {
    let pod = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": container}]},
        "status": {"phase": phase},
    });
    Change::Put(serde_json::from_value(pod).expect("a pod"))
}

#[test]
fn finished_pods_keep_no_container_alive() {
    let state = state();
    let mut core = state.lock();
    core.change_pod(pod("old", "app", "Running"));
    core.see_containers(&key(), START);
    // Evicted; then the container is renamed.
    core.change_pod(pod("old", "app", "Failed"));
    core.change_pod(pod("done", "job", "Succeeded"));
    core.change_pod(pod("new", "server", "Running"));
    for minutes in 1..=62 {
        core.see_containers(&key(), START.later(std::time::Duration::from_mins(minutes)));
    }
    let now = START.later(std::time::Duration::from_mins(62));
    let watched = core.fleet.get(&key()).expect("is tracked");
    let known: Vec<&str> = watched.history().iter().map(|(name, _)| &**name).collect();
    assert_eq!(known, ["app", "job", "server"], "finished pods start a history");
    let said = core.fleet.recommend(&key(), now).expect("the history is loaded");
    let names: Vec<&str> = said.containers.iter().map(|one| &*one.container).collect();
    assert_eq!(names, ["server"]);
    // As long as one replica runs, the container is alive.
    core.change_pod(pod("again", "app", "Running"));
    core.see_containers(&key(), now);
    let said = core.fleet.recommend(&key(), now).expect("the history is loaded");
    assert_eq!(said.containers.len(), 2, "{:?}", said.stale);
}

#[test]
fn a_late_response_to_a_write_does_not_overwrite_what_the_watch_brought_since() {
    let state = state();
    let mut core = state.lock();
    let now = START.later(std::time::Duration::from_mins(1));
    let ours = || Some(Reported { observed_generation: Some(1), ..Reported::default() });
    core.status_written(&key(), ours(), "5", now);
    let known = |core: &Core| {
        let vpa = core.index.vpa(&key()).expect("is known");
        (vpa.resource_version.to_string(), vpa.reported.observed_generation == Some(1))
    };
    assert_eq!(known(&core), ("5".to_owned(), true));
    // Another writer comes after our next write, and the watch before its response.
    core.put_vpa(&vpa("9"));
    core.status_written(&key(), ours(), "8", now);
    core.explanation_written(&key(), Some(7), "8");
    assert_eq!(known(&core), ("9".to_owned(), false));
    let vpa = core.index.vpa(&key()).expect("is known");
    assert_eq!((vpa.explained, vpa.last_written), (None, Some(now)));
    core.explanation_written(&key(), Some(7), "10");
    assert_eq!(core.index.vpa(&key()).expect("is known").explained, Some(7));
}
