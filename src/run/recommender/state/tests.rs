//! The state as a pass sees it: which containers of pods count as alive.

use serde_json::json;

use super::*;
use crate::{
    compat::Compat,
    observe::selector::Selector,
    recommend::{Scope, Settings},
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
