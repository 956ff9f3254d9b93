//! Removing objects that a relist no longer contains costs time linear in their number.

use std::sync::Arc;
use std::time::Duration;

use plimsoll::cluster::cache::label_store::{HasLabels, LabelStore};
use plimsoll::cluster::cache::selector::Labels;
use plimsoll::cluster::cache::vpa_index::VpaIndex;
use plimsoll::cluster::watch::ObjectChange;
use plimsoll::cluster::watch::PartialPod;
use plimsoll_core::recommender::NamespaceScope;
use serde_json::json;

const FEW: usize = 2_000;
const TIMES: u32 = 8;

/// CPU time of this thread.
fn spent() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
    let nanos = text.split_whitespace().next().expect("a number");
    Duration::from_nanos(nanos.parse().expect("a number"))
}

/// The cost for many relative to the cost for few: the minimum of three attempts.
fn growth(mut cost: impl FnMut(usize) -> Duration) -> f64 {
    let mut least = |count| (0..3).map(|_| cost(count)).min().expect("three");
    let few = least(FEW).max(Duration::from_micros(100));
    least(FEW * TIMES as usize).as_secs_f64() / few.as_secs_f64()
}

fn pod(number: usize) -> PartialPod {
    let labels = json!({"app": "web", "tier": "front", "release": "stable"});
    let name = format!("web-{number}");
    let metadata = json!({"namespace": "shop", "name": name, "uid": name, "labels": labels});
    let spec = json!({"containers": [{"name": "main"}]});
    serde_json::from_value(json!({"metadata": metadata, "spec": spec})).expect("a pod")
}

#[test]
fn removing_many_pods_from_the_index_takes_linear_time() {
    let factor = growth(|count| {
        let mut index = VpaIndex::new(NamespaceScope::default(), "default");
        // Objects that stay make the searched lists long.
        for number in 0..2 * count {
            index.put_pod(&pod(number));
        }
        index.restart_pods();
        for number in 0..count {
            index.keep_unreadable_pod("shop", &format!("web-{number}"));
        }
        let before = spent();
        index.finish_pod_list();
        let cost = spent().saturating_sub(before);
        assert_eq!(index.pod_count, count);
        cost
    });
    assert!(
        factor < 3.0 * f64::from(TIMES),
        "{TIMES} times as many cost {factor:.0} times as much"
    );
}

struct Object(Labels);

impl HasLabels for Object {
    fn labels(&self) -> &Labels {
        &self.0
    }
}

#[test]
fn removing_many_objects_from_the_store_takes_linear_time() {
    let put = |objects: &mut LabelStore<Object>, number: usize| {
        let pairs = ["app", "tier", "release"].map(|key| (key.to_owned(), "web".to_owned()));
        let object = Object(Labels::from(std::collections::BTreeMap::from(pairs)));
        let name = Arc::from(format!("web-{number}"));
        objects.apply(ObjectChange::Applied(("shop".to_owned(), name, object)));
    };
    let factor = growth(|count| {
        let mut objects = LabelStore::default();
        for number in 0..2 * count {
            put(&mut objects, number);
        }
        objects.apply(ObjectChange::Restart);
        for number in 0..count {
            put(&mut objects, number);
        }
        let before = spent();
        objects.apply(ObjectChange::Synced);
        let cost = spent().saturating_sub(before);
        assert_eq!(objects.len(), count);
        cost
    });
    assert!(
        factor < 3.0 * f64::from(TIMES),
        "{TIMES} times as many cost {factor:.0} times as much"
    );
}
