//! Objects that come, change and go while others look at them.

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

fn taken(book: &ReconcileQueue, now: Time) -> Option<(ObjectKey, Box<ObjectState>)> {
    match book.pop_due(now) {
        NextItem::Due(key, seat, _) => Some((key, seat)),
        NextItem::NoneUntil(_) => None,
    }
}

#[test]
fn what_is_new_has_its_turn_at_once_and_then_in_its_period() {
    let book = ReconcileQueue::new(1);
    book.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, seat) = taken(&book, NOW).expect("it is new");
    assert!(taken(&book, NOW).is_none(), "nobody else looks at it meanwhile");
    let period = Duration::from_secs(15);
    let next = next_reconcile(&key, NOW, period);
    book.requeue(&key, seat, Some(next), NOW);
    assert_eq!(book.longest_wait(NOW), Duration::ZERO);
    assert_eq!(book.longest_wait(next.later(period)), period);
    assert!(matches!(book.pop_due(NOW), NextItem::NoneUntil(Some(at)) if at == next));
    // The same again, with another status, changes nothing; another spec does.
    let mut same = object("a", 5);
    same.metadata.resource_version = Some("2".into());
    book.apply(0, ObjectChange::Applied(same), NOW);
    assert!(taken(&book, NOW).is_none());
    book.apply(0, ObjectChange::Applied(object("a", 6)), NOW);
    assert_eq!(taken(&book, NOW).expect("it changed").1.object.spec.max_replicas, 6);
}

#[test]
fn what_changes_while_it_is_looked_at_is_looked_at_again() {
    let book = ReconcileQueue::new(1);
    book.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, seat) = taken(&book, NOW).expect("it is new");
    book.apply(0, ObjectChange::Applied(object("a", 6)), NOW);
    assert!(taken(&book, NOW).is_none());
    book.requeue(&key, seat, None, NOW);
    assert_eq!(taken(&book, NOW).expect("it changed").1.object.spec.max_replicas, 6);
    // What is gone when it is given back stays gone.
    let (key, seat) =
        (ObjectKey::new("shop", "b"), Box::new(ObjectState::new(Arc::new(object("b", 1)))));
    book.requeue(&key, seat, Some(NOW), NOW);
    assert!(taken(&book, NOW).is_none());
}

fn gone(name: &str) -> ObjectChange<WatermarkPodAutoscaler> {
    ObjectChange::Deleted { namespace: "shop".into(), name: name.into(), uid: None }
}

#[test]
fn what_is_deleted_and_created_anew_while_it_is_looked_at_is_the_new_one_and_waits_for_that_look() {
    let book = ReconcileQueue::new(1);
    book.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    let (key, seat) = taken(&book, NOW).expect("it is new");
    book.apply(0, gone("a"), NOW);
    assert_eq!(book.len(), 0);
    let mut anew = object("a", 7);
    anew.metadata.uid = Some("another".into());
    book.apply(0, ObjectChange::Applied(anew), NOW);
    assert_eq!(book.len(), 1);
    assert!(taken(&book, NOW).is_none(), "nobody else looks at it meanwhile");
    assert!(!book.is_idle(NOW), "somebody looks at it");
    // The look at the old one ends with nothing more to do until it changes.
    book.requeue(&key, seat, None, NOW);
    assert!(!book.is_idle(NOW), "the new one waits");
    let (_, seat) = taken(&book, NOW).expect("it has its turn");
    assert_eq!(seat.object.uid().as_deref(), Some("another"));
    assert_eq!(seat.object.spec.max_replicas, 7);
    // And what only went is forgotten once nobody looks at it.
    book.apply(0, gone("a"), NOW);
    book.requeue(&key, seat, Some(NOW), NOW);
    assert!(taken(&book, NOW).is_none());
    assert!(book.is_idle(NOW));
}

#[test]
fn the_recommender_of_an_object_is_known_while_it_is_asked() {
    let book = ReconcileQueue::new(1);
    let mut advised = object("a", 5);
    let recommender = json!({"url": "http://advice"});
    advised.spec.recommender = Some(serde_json::from_value(recommender).expect("one"));
    book.apply(0, ObjectChange::Applied(advised), NOW);
    let known = BTreeSet::from(["http://advice".to_owned()]);
    assert_eq!(book.recommenders(), known);
    let (key, seat) = taken(&book, NOW).expect("it is new");
    assert_eq!(book.recommenders(), known);
    book.requeue(&key, seat, None, NOW);
    assert_eq!(book.recommenders(), known);
}

#[test]
fn a_list_that_lacks_an_object_takes_it_away_but_not_those_of_other_lists() {
    let book = ReconcileQueue::new(2);
    book.apply(0, ObjectChange::Applied(object("a", 5)), NOW);
    book.apply(0, ObjectChange::Applied(object("b", 5)), NOW);
    book.apply(1, ObjectChange::Applied(object("c", 5)), NOW);
    book.apply(0, ObjectChange::Restart, NOW);
    book.apply(0, ObjectChange::Applied(object("b", 5)), NOW);
    assert_eq!(book.len(), 3, "the list is not complete");
    book.apply(0, ObjectChange::Synced, NOW);
    assert_eq!(book.len(), 2);
    let names: Vec<_> = std::iter::from_fn(|| taken(&book, NOW)).map(|(key, _)| key.name).collect();
    assert_eq!(names, ["b".into(), "c".into()]);
}
