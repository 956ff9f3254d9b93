//! The index compared with a naive implementation that matches every pod with every VPA.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::cluster::cache::selector::Labels;
use plimsoll_core::recommender::NamespaceScope;

const NAMESPACES: [&str; 3] = ["one", "two", "ignored"];
const SELECTORS: [&str; 10] =
    ["a=0", "a=1,b=0", "a in (0,1)", "!c", "c", "", "b!=1", "b=0,c=0", "a=0,a=1", "nothing"];

#[derive(Clone, Debug)]
enum Step {
    Pod(usize, u8, Option<[u8; 3]>),
    Vpa(usize, u8, bool),
    NoVpa(usize, u8),
    Target(usize, u8, usize),
    Pods(Vec<(usize, u8, [u8; 3])>),
    Vpas(Vec<(usize, u8, bool)>),
}

fn step() -> impl Strategy<Value = Step> {
    let place = || (0..NAMESPACES.len(), 0_u8..6);
    let labels = || [0_u8..3, 0_u8..3, 0_u8..3];
    prop_oneof![
        6 => (place(), prop::option::weighted(0.8, labels())).prop_map(|((n, p), l)| Step::Pod(n, p, l)),
        4 => (place(), prop::bool::weighted(0.8)).prop_map(|((n, v), ours)| Step::Vpa(n, v, ours)),
        1 => place().prop_map(|(n, v)| Step::NoVpa(n, v)),
        6 => (place(), 0..SELECTORS.len()).prop_map(|((n, v), s)| Step::Target(n, v, s)),
        1 => prop::collection::vec((place(), labels()).prop_map(|((n, p), l)| (n, p, l)), 0..12)
            .prop_map(Step::Pods),
        1 => prop::collection::vec((place(), any::<bool>()).prop_map(|((n, v), o)| (n, v, o)), 0..8)
            .prop_map(Step::Vpas),
    ]
}

fn selector(number: usize) -> Selector {
    match SELECTORS[number] {
        "nothing" => Selector::nothing(),
        text => Selector::parse(text).expect("a selector"),
    }
}

/// The label is set for 0 and 1, and absent for 2.
fn labels(values: [u8; 3]) -> BTreeMap<String, String> {
    let pairs = ["a", "b", "c"].into_iter().zip(values).filter(|(_, value)| *value < 2);
    pairs.map(|(key, value)| (key.to_owned(), value.to_string())).collect()
}

fn pod(namespace: &str, name: u8, values: [u8; 3]) -> PartialPod {
    let metadata = json!({"namespace": namespace, "name": format!("p{name}"), "uid": "u", "labels": labels(values)});
    let spec = json!({"containers": [{"name": "main"}]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

fn vpa(namespace: &str, name: u8, ours: bool) -> VerticalPodAutoscaler {
    let recommenders = if ours { json!([]) } else { json!([{"name": "another"}]) };
    serde_json::from_value(json!({
        "metadata": {"namespace": namespace, "name": format!("v{name}")},
        "spec": {"targetRef": {"kind": "Deployment", "name": "d"}, "recommenders": recommenders},
    }))
    .expect("a VPA")
}

fn key(namespace: &str, name: u8) -> ObjectKey {
    ObjectKey::new(namespace, format!("v{name}"))
}

/// Plain lists of all objects, searched in a loop.
#[derive(Debug, Default)]
struct Naive {
    pods: BTreeMap<(usize, u8), Labels>,
    vpas: BTreeMap<(usize, u8), Selector>,
    others: BTreeSet<(usize, u8)>,
}

impl Naive {
    fn put_vpa(&mut self, at: (usize, u8), ours: bool) {
        if ours {
            self.others.remove(&at);
            self.vpas.entry(at).or_insert_with(Selector::nothing);
        } else {
            self.vpas.remove(&at);
            self.others.insert(at);
        }
    }
}

fn apply(index: &mut VpaIndex, naive: &mut Naive, step: Step) {
    let in_scope = |namespace: usize| NAMESPACES[namespace] != "ignored";
    match step {
        Step::Pod(n, p, Some(values)) => {
            index.put_pod(&pod(NAMESPACES[n], p, values));
            if in_scope(n) {
                naive.pods.insert((n, p), Labels::from(labels(values)));
            }
        }
        Step::Pod(n, p, None) => {
            index.remove_pod(NAMESPACES[n], &format!("p{p}"));
            naive.pods.remove(&(n, p));
        }
        Step::Vpa(n, v, ours) => {
            index.put_vpa(&vpa(NAMESPACES[n], v, ours));
            if in_scope(n) {
                naive.put_vpa((n, v), ours);
            }
        }
        Step::NoVpa(n, v) => {
            index.remove_vpa(&key(NAMESPACES[n], v));
            naive.vpas.remove(&(n, v));
            naive.others.remove(&(n, v));
        }
        Step::Target(n, v, s) => {
            index.set_target(&key(NAMESPACES[n], v), TargetState::Found, Some(selector(s)));
            if let Some(stored_selector) = naive.vpas.get_mut(&(n, v)) {
                *stored_selector = selector(s);
            }
        }
        Step::Pods(pods) => {
            index.restart_pods();
            let listed = |at: &(usize, u8)| pods.iter().any(|&(n, p, _)| (n, p) == *at);
            naive.pods.retain(|at, _| listed(at));
            for &(n, p, values) in pods.iter().filter(|(n, ..)| in_scope(*n)) {
                index.put_pod(&pod(NAMESPACES[n], p, values));
                naive.pods.insert((n, p), Labels::from(labels(values)));
            }
            index.finish_pod_list();
        }
        Step::Vpas(vpas) => {
            index.restart_vpas();
            let listed = |at: &(usize, u8)| vpas.iter().any(|&(n, v, _)| (n, v) == *at);
            let gone_vpas: Vec<_> = naive.vpas.keys().copied().filter(|at| !listed(at)).collect();
            naive.others.retain(|at| listed(at));
            for (n, v, ours) in vpas.into_iter().filter(|(n, ..)| in_scope(*n)) {
                index.put_vpa(&vpa(NAMESPACES[n], v, ours));
                naive.put_vpa((n, v), ours);
            }
            let gone: BTreeSet<_> = index.finish_vpa_list().into_iter().collect();
            let expected: BTreeSet<_> =
                gone_vpas.iter().map(|&(n, v)| key(NAMESPACES[n], v)).collect();
            assert_eq!(gone, expected);
            naive.vpas.retain(|at, _| !gone_vpas.contains(at));
        }
    }
}

fn compare(index: &VpaIndex, naive: &Naive) {
    let mut vpas_of: HashMap<(usize, u8), BTreeSet<String>> = HashMap::new();
    assert_eq!((index.vpa_count, index.pod_count), (naive.vpas.len(), naive.pods.len()));
    assert_eq!(index.vpa_count, naive.vpas.len());
    assert_eq!(index.pods().count(), naive.pods.len());
    for (&(n, v), selector) in &naive.vpas {
        let matching = naive
            .pods
            .iter()
            .filter(|((namespace, _), labels)| *namespace == n && selector.matches(labels));
        let expected: BTreeSet<String> = matching
            .map(|(&(_, p), _)| {
                vpas_of.entry((n, p)).or_default().insert(format!("v{v}"));
                format!("p{p}")
            })
            .collect();
        let at = key(NAMESPACES[n], v);
        let found: BTreeSet<String> =
            index.pods_of(&at).map(|(name, _)| name.to_string()).collect();
        assert_eq!(found, expected, "pods of {at}");
        assert_eq!(index.vpa(&at).map(|vpa| vpa.pods.len()), Some(expected.len()));
    }
    for &(n, p) in naive.pods.keys() {
        let (_, vpas) = index.pod(NAMESPACES[n], &format!("p{p}")).expect("the pod is indexed");
        let found: Vec<String> = vpas.iter().map(ToString::to_string).collect();
        let unique: BTreeSet<String> = found.iter().cloned().collect();
        assert_eq!(found.len(), unique.len(), "no duplicates");
        assert_eq!(unique, vpas_of.remove(&(n, p)).unwrap_or_default(), "VPAs of p{p}");
    }
    for (n, namespace) in NAMESPACES.iter().enumerate() {
        for v in 0..6 {
            let any = naive.vpas.contains_key(&(n, v)) || naive.others.contains(&(n, v));
            assert_eq!(index.has_any_vpa(&key(namespace, v)), any);
        }
    }
}

proptest! {
    #[test]
    fn every_vpa_has_its_matching_pods_after_any_sequence_of_changes(
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let scope = NamespaceScope { ignored: vec!["ignored".into()], ..NamespaceScope::default() };
        let mut index = VpaIndex::new(scope, "default");
        index.restart_vpas();
        index.restart_pods();
        let mut naive = Naive::default();
        for step in steps {
            apply(&mut index, &mut naive, step);
            compare(&index, &naive);
        }
        apply(&mut index, &mut naive, Step::Vpas(Vec::new()));
        apply(&mut index, &mut naive, Step::Pods(Vec::new()));
        prop_assert!(index.namespaces.is_empty(), "nothing is left of {:?}", index.namespaces);
    }
}

fn killed(name: u8, finished: &str) -> PartialPod {
    let ended = json!({"terminated": {"reason": "OOMKilled", "finishedAt": finished}});
    let status = json!({"name": "main", "state": {"running": {}}, "lastState": ended});
    let mut pod = serde_json::to_value(json!({
        "metadata": {"namespace": "one", "name": format!("p{name}"), "uid": "u", "labels": {"a": "0"}},
        "spec": {"containers": [{"name": "main", "resources": {"requests": {"memory": "64Mi"}}}]},
    }))
    .expect("is JSON");
    pod["status"] = json!({"containerStatuses": [status]});
    serde_json::from_value(pod).expect("a pod")
}

fn found(index: &mut VpaIndex) -> Vec<(String, OomKillSource, Vec<String>)> {
    let summarize = |kill: ObservedOomKill| {
        let vpas = kill.vpas.iter().map(ToString::to_string).collect();
        (kill.pod.to_string(), kill.source, vpas)
    };
    index.take_oom_kills().into_iter().map(summarize).collect()
}

#[test]
fn an_oom_kill_is_found_once_and_again_for_a_vpa_that_matches_its_pod_later() {
    let (first, second) = ("2026-03-01T12:00:00Z", "2026-03-01T12:10:00Z");
    let mut index = VpaIndex::new(NamespaceScope::default(), "default");
    index.put_pod(&killed(0, first));
    assert_eq!(found(&mut index), [("p0".into(), OomKillSource::FirstObserved, vec![])]);
    index.put_pod(&killed(0, first));
    assert_eq!(found(&mut index), []);
    index.put_pod(&killed(0, second));
    assert_eq!(found(&mut index), [("p0".into(), OomKillSource::PodUpdate, vec![])]);

    index.put_vpa(&vpa("one", 0, true));
    index.set_target(&key("one", 0), TargetState::Found, Some(selector(0)));
    let late = ("p0".to_owned(), OomKillSource::FirstObserved, vec!["v0".to_owned()]);
    assert_eq!(found(&mut index), [late], "its target was resolved late");
    index.set_target(&key("one", 0), TargetState::Found, Some(selector(2)));
    assert_eq!(found(&mut index), [], "it matched the pod before");
}

#[test]
fn an_oom_kill_that_moves_from_state_to_last_state_is_found_once() {
    let status = |last: Option<&str>, current: Option<&str>| {
        let state = |finished: Option<&str>| match finished {
            Some(at) => json!({"terminated": {"reason": "OOMKilled", "finishedAt": at}}),
            None => json!({"running": {}}),
        };
        let mut pod = killed(0, "2026-03-01T12:00:00Z");
        let status = json!({"name": "main", "state": state(current), "lastState": last.map(|at| state(Some(at)))
            .unwrap_or(json!({}))});
        pod.status =
            serde_json::from_value(json!({"containerStatuses": [status]})).expect("a status");
        pod
    };
    // The second kill is earlier than the first: the clock of the node was corrected between them.
    let (first, second) = ("2026-03-01T12:20:00Z", "2026-03-01T12:10:00Z");
    let mut index = VpaIndex::new(NamespaceScope::default(), "default");
    for (pod, expected) in [
        (status(None, Some(first)), 1),
        (status(Some(first), None), 0),
        (status(Some(first), Some(second)), 1),
        (status(Some(second), None), 0),
        (status(Some(second), None), 0),
    ] {
        index.put_pod(&pod);
        assert_eq!(found(&mut index).len(), expected, "{:?}", pod.status);
    }
}

#[test]
fn an_oom_kill_of_a_deleted_pod_counts_for_the_vpas_that_matched_it() {
    let mut index = VpaIndex::new(NamespaceScope::default(), "default");
    index.put_vpa(&vpa("one", 0, true));
    index.set_target(&key("one", 0), TargetState::Found, Some(selector(0)));
    index.put_pod(&killed(0, "2026-03-01T12:00:00Z"));
    index.remove_pod("one", "p0");
    assert_eq!(found(&mut index), [("p0".into(), OomKillSource::FirstObserved, vec!["v0".into()])]);
}

#[test]
fn an_unreadable_vpa_or_pod_stays_unchanged_through_a_list() {
    let mut index = VpaIndex::new(NamespaceScope::default(), "default");
    index.restart_vpas();
    index.restart_pods();
    index.put_vpa(&vpa("one", 0, true));
    index.put_pod(&pod("one", 0, [0, 0, 0]));
    index.restart_vpas();
    index.restart_pods();
    index.keep_unreadable_vpa("one", "v0");
    index.keep_unreadable_vpa("one", "v1");
    index.keep_unreadable_pod("one", "p0");
    assert_eq!(index.finish_vpa_list(), []);
    index.finish_pod_list();
    assert_eq!((index.vpa_count, index.pod_count), (1, 1));
    assert!(index.has_any_vpa(&key("one", 1)), "its history is not orphaned");
}

#[test]
fn a_stale_watch_event_does_not_overwrite_a_newer_read() {
    let at = |version: &str, kind: &str, uid: &str| -> VerticalPodAutoscaler {
        serde_json::from_value(json!({
            "metadata": {"namespace": "one", "name": "v0", "uid": uid, "resourceVersion": version},
            "spec": {"targetRef": {"kind": kind, "name": "d"}},
        }))
        .expect("a VPA")
    };
    let mut index = VpaIndex::new(NamespaceScope::default(), "default");
    index.restart_vpas();
    assert_eq!(index.put_vpa(&at("9", "Deployment", "a")).1, PutResult::New);
    index.finish_vpa_list();
    let newer = index.put_vpa(&at("11", "StatefulSet", "a")).1;
    assert_eq!(newer, PutResult::Changed { retargeted: true });
    assert_eq!(index.put_vpa(&at("10", "DaemonSet", "a")).1, PutResult::Old);
    let target_kind = |index: &VpaIndex| {
        index.vpa(&key("one", 0)).expect("the VPA is indexed").target_ref.kind.clone()
    };
    assert_eq!(target_kind(&index), "StatefulSet");
    // Accepts another object of the name, a version that is not a number, and a new list from a restored server.
    index.put_vpa(&at("8", "DaemonSet", "b"));
    assert_eq!(target_kind(&index), "DaemonSet");
    index.put_vpa(&at("x", "Job", "b"));
    assert_eq!(target_kind(&index), "Job");
    index.put_vpa(&at("8", "DaemonSet", "b"));
    index.restart_vpas();
    index.put_vpa(&at("7", "ReplicaSet", "b"));
    assert_eq!(index.finish_vpa_list(), []);
    assert_eq!(target_kind(&index), "ReplicaSet");
}
