//! Objects that are created, changed and deleted while they are reconciled.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::{super::schedule::next_reconcile, *};
use crate::cluster::cache::replica_pod::ReplicaPod;

const NOW: Time = Time::from_secs(1_800_000_000);

/// A kind of object for tests. What counts of it is its data.
#[derive(Debug)]
enum TestAutoscaler {}

type ReconcileQueue = super::ReconcileQueue<TestAutoscaler>;
type ObjectState = super::ObjectState<TestAutoscaler>;

impl AutoscalerKind for TestAutoscaler {
    type Object = ConfigMap;
    type Status = ();
    type State = ();
    type Pod = ReplicaPod;

    const RESOURCE: &'static str = "configmaps";

    fn trimmed(object: ConfigMap) -> Arc<ConfigMap> {
        Arc::new(object)
    }

    fn stored_status(_: &ConfigMap) -> Option<&()> {
        None
    }

    fn is_material_change(before: &ConfigMap, after: &ConfigMap) -> bool {
        before.data != after.data || before.metadata.uid != after.metadata.uid
    }

    fn is_pending((): &()) -> bool {
        false
    }

    fn on_takeover((): &mut ()) {}
}

fn object(name: &str, max: i32) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "data": {"max": max.to_string()},
    }))
    .expect("an object")
}

fn max(object: &ConfigMap) -> &str {
    &object.data.as_ref().expect("data")["max"]
}

fn taken(queue: &ReconcileQueue, now: Time) -> Option<(ObjectKey, Box<ObjectState>)> {
    match queue.pop_due(now) {
        NextItem::Due(key, state, _) => Some((key, state)),
        NextItem::NoneUntil(_) => None,
    }
}

#[test]
fn a_new_object_is_due_at_once_and_then_once_per_period() {
    let queue = ReconcileQueue::new(1);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    assert!(taken(&queue, NOW).is_none(), "it is being reconciled");
    let period = Duration::from_secs(15);
    let next = next_reconcile(&key, NOW, period);
    queue.requeue(&key, state, Some(next), NOW);
    assert_eq!(queue.longest_wait(NOW), Duration::ZERO);
    assert_eq!(queue.longest_wait(next.later(period)), period);
    assert!(matches!(queue.pop_due(NOW), NextItem::NoneUntil(Some(at)) if at == next));
    // A new resourceVersion alone does not requeue the object; a new spec does.
    let mut same = object("a", 5);
    same.metadata.resource_version = Some("2".into());
    queue.apply(0, ObjectChange::Applied(same), NOW);
    assert!(taken(&queue, NOW).is_none());
    queue.apply(0, ObjectChange::Applied(object("a", 6)), NOW);
    assert_eq!(taken(&queue, NOW).expect("it changed").1.object.data, object("a", 6).data);
}

#[test]
fn an_object_that_changes_during_its_reconcile_is_reconciled_again() {
    let queue = ReconcileQueue::new(1);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    queue.apply(0, ObjectChange::Applied(object("a", 6)), NOW);
    assert!(taken(&queue, NOW).is_none());
    queue.requeue(&key, state, None, NOW);
    assert_eq!(taken(&queue, NOW).expect("it changed").1.object.data, object("a", 6).data);
    // An object that was deleted during its reconcile is not requeued.
    let (key, state) =
        (ObjectKey::new("shop", "b"), Box::new(ObjectState::new(Arc::new(object("b", 1)))));
    queue.requeue(&key, state, Some(NOW), NOW);
    assert!(taken(&queue, NOW).is_none());
}

fn gone(name: &str) -> ObjectChange<ConfigMap> {
    ObjectChange::Deleted { namespace: "shop".into(), name: name.into(), uid: None }
}

#[test]
fn an_object_recreated_during_its_reconcile_waits_for_the_old_reconcile() {
    let queue = ReconcileQueue::new(1);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    queue.apply(0, gone("a"), NOW);
    assert_eq!(queue.len(), 0);
    let mut recreated = object("a", 7);
    recreated.metadata.uid = Some("another".into());
    queue.apply(0, ObjectChange::Applied(recreated), NOW);
    assert_eq!(queue.len(), 1);
    assert!(taken(&queue, NOW).is_none(), "the old one is being reconciled");
    assert!(!queue.is_idle(NOW), "the old one is being reconciled");
    // The reconcile of the old object ends without a next due time.
    queue.requeue(&key, state, None, NOW);
    assert!(!queue.is_idle(NOW), "the new one waits");
    let (_, state) = taken(&queue, NOW).expect("it is due");
    assert_eq!(state.object.uid().as_deref(), Some("another"));
    assert_eq!(max(&state.object), "7");
    // An object that is deleted and not recreated is removed when its reconcile ends.
    queue.apply(0, gone("a"), NOW);
    queue.requeue(&key, state, Some(NOW), NOW);
    assert!(taken(&queue, NOW).is_none());
    assert!(queue.is_idle(NOW));
}

#[test]
fn an_object_is_known_during_its_reconcile() {
    let queue = ReconcileQueue::new(1);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    assert_eq!(queue.objects().len(), 1);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    assert_eq!(queue.objects().len(), 1);
    queue.requeue(&key, state, None, NOW);
    assert_eq!(queue.objects().len(), 1);
}

#[test]
fn a_scale_that_is_written_during_a_reconcile_makes_that_outdated_and_is_applied_at_its_end() {
    let queue = ReconcileQueue::new(1);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    assert_eq!(queue.if_current(&key, || true), Some(true));
    let complete = |state: &mut ObjectState| {
        state.failures = 7;
        None
    };
    queue.complete(&key, NOW, true, || false, Box::new(complete));
    assert_eq!(queue.if_current(&key, || true), None);
    queue.requeue(&key, state, None, NOW);
    let (_, state) = taken(&queue, NOW).expect("it is reconciled again at once");
    assert_eq!(state.failures, 7);
    assert_eq!(queue.if_current(&key, || true), Some(true));
}

#[test]
fn the_end_of_a_write_is_applied_at_once_and_can_make_an_object_due() {
    let queue = ReconcileQueue::new(1);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    queue.requeue(&key, state, None, NOW);
    let next = NOW.later(Duration::from_secs(1));
    queue.complete(&key, NOW, false, || false, Box::new(move |_| Some(next)));
    assert!(taken(&queue, NOW).is_none());
    let (key, state) = taken(&queue, next).expect("it is due");
    queue.requeue(&key, state, None, next);
    queue.complete(&key, next, false, || true, Box::new(|_| None));
    assert!(taken(&queue, next).is_some(), "a write that waited was outdated");
}

#[test]
fn an_older_version_from_the_watch_does_not_replace_what_was_written() {
    let queue = ReconcileQueue::new(1);
    let version = |version: &str| {
        let mut object = object("a", 5);
        object.metadata.resource_version = Some(version.to_owned());
        object
    };
    queue.apply(0, ObjectChange::Applied(version("5")), NOW);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    queue.requeue(&key, state, None, NOW);
    let stored = Arc::new(version("9"));
    let complete = move |state: &mut ObjectState| {
        state.accept_stored(&stored);
        None
    };
    queue.complete(&key, NOW, false, || false, Box::new(complete));
    let seen = || queue.objects()[0].metadata.resource_version.clone();
    queue.apply(0, ObjectChange::Applied(version("7")), NOW);
    assert_eq!(seen().as_deref(), Some("9"));
    // A list is right: versions start over when a cluster is restored.
    queue.apply(0, ObjectChange::Restart, NOW);
    queue.apply(0, ObjectChange::Applied(version("7")), NOW);
    assert_eq!(seen().as_deref(), Some("7"));
}

#[test]
fn a_list_removes_missing_objects_of_its_own_watch_only() {
    let queue = ReconcileQueue::new(2);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    queue.apply(0, ObjectChange::Applied(object("b", 5)), NOW);
    queue.apply(1, ObjectChange::Applied(object("c", 5)), NOW);
    queue.apply(0, ObjectChange::Restart, NOW);
    queue.apply(0, ObjectChange::Applied(object("b", 5)), NOW);
    assert_eq!(queue.len(), 3, "the list is not complete");
    queue.apply(0, ObjectChange::Synced, NOW);
    assert_eq!(queue.len(), 2);
    let names: Vec<_> =
        std::iter::from_fn(|| taken(&queue, NOW)).map(|(key, _)| key.name).collect();
    assert_eq!(names, ["b".into(), "c".into()]);
}
