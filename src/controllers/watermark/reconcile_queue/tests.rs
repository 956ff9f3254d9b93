//! Objects that are created, changed and deleted while they are reconciled.

use serde_json::json;

use super::*;
use crate::controllers::watermark::schedule::next_reconcile;

const NOW: Time = Time::from_secs(1_800_000_000);

fn object(name: &str, max: i32) -> WatermarkPodAutoscaler {
    serde_json::from_value(json!({
        "apiVersion": "datadoghq.com/v1alpha1", "kind": "WatermarkPodAutoscaler",
        "metadata": {"name": name, "namespace": "shop", "uid": name},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": max},
    }))
    .expect("an object")
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
    assert_eq!(taken(&queue, NOW).expect("it changed").1.object.spec.max_replicas, 6);
}

#[test]
fn an_object_that_changes_during_its_reconcile_is_reconciled_again() {
    let queue = ReconcileQueue::new(1);
    queue.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    queue.apply(0, ObjectChange::Applied(object("a", 6)), NOW);
    assert!(taken(&queue, NOW).is_none());
    queue.requeue(&key, state, None, NOW);
    assert_eq!(taken(&queue, NOW).expect("it changed").1.object.spec.max_replicas, 6);
    // An object that was deleted during its reconcile is not requeued.
    let (key, state) =
        (ObjectKey::new("shop", "b"), Box::new(ObjectState::new(Arc::new(object("b", 1)))));
    queue.requeue(&key, state, Some(NOW), NOW);
    assert!(taken(&queue, NOW).is_none());
}

fn gone(name: &str) -> ObjectChange<WatermarkPodAutoscaler> {
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
    assert_eq!(state.object.spec.max_replicas, 7);
    // An object that is deleted and not recreated is removed when its reconcile ends.
    queue.apply(0, gone("a"), NOW);
    queue.requeue(&key, state, Some(NOW), NOW);
    assert!(taken(&queue, NOW).is_none());
    assert!(queue.is_idle(NOW));
}

#[test]
fn the_recommender_of_an_object_is_known_during_its_reconcile() {
    let queue = ReconcileQueue::new(1);
    let mut advised = object("a", 5);
    let recommender = json!({"url": "http://advice"});
    advised.spec.recommender = Some(serde_json::from_value(recommender).expect("one"));
    queue.apply(0, ObjectChange::Applied(advised), NOW);
    let known = BTreeSet::from(["http://advice".to_owned()]);
    assert_eq!(queue.recommenders(), known);
    let (key, state) = taken(&queue, NOW).expect("it is new");
    assert_eq!(queue.recommenders(), known);
    queue.requeue(&key, state, None, NOW);
    assert_eq!(queue.recommenders(), known);
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
