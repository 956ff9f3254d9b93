//! Node-pressure evictions are reported, each exactly once.

use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, PostParams};
use plimsoll::cluster::cache::eviction_events::{NodePressureEviction, watch_evictions};
use plimsoll::cluster::watch::status::WatchStatus;
use plimsoll_core::types::units::Bytes;
use serde_json::json;

use crate::support::{Testbed, wait};

#[tokio::test]
async fn an_eviction_event_is_reported_once_with_its_offending_containers() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("web").await;
    let before = send(&bed, &namespace, "before", "Evicted", "memory").await;
    send(&bed, &namespace, "other-reason", "Killing", "memory").await;
    send(&bed, &namespace, "other-resource", "Evicted", "ephemeral-storage").await;

    let evictions = Arc::new(Mutex::new(Vec::<NodePressureEviction>::new()));
    let feed = Arc::new(WatchStatus::new("evictions"));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let watch = tokio::spawn({
        let (evictions, feed) = (Arc::clone(&evictions), Arc::clone(&feed));
        let (client, namespace) = (bed.client(), namespace.clone());
        async move {
            let keep = |eviction| {
                evictions.lock().unwrap_or_else(PoisonError::into_inner).push(eviction);
            };
            let stopped = async { drop(stopped.await) };
            watch_evictions(&client, Some(&namespace), &feed, keep, stopped).await;
        }
    });
    feed.wait_until_synced().await;
    let now = send(&bed, &namespace, "now", "Evicted", "memory,memory").await;
    let evictions = wait::until("two evictions are reported", || async {
        let evictions = evictions.lock().unwrap_or_else(PoisonError::into_inner);
        (evictions.len() == 2).then(|| evictions.clone())
    })
    .await;
    for (eviction, event, is_preexisting, offenders) in
        [(&evictions[0], before, true, 1), (&evictions[1], now, false, 2)]
    {
        assert_eq!(Some(&*eviction.uid), event.metadata.uid.as_deref());
        assert_eq!(&*eviction.pod, "pod");
        assert_eq!(&*eviction.namespace, namespace.as_str());
        assert_eq!(
            Some(eviction.at),
            event.metadata.creation_timestamp.map(|created| created.0.into())
        );
        assert_eq!(
            (eviction.is_preexisting, eviction.offending_containers.len()),
            (is_preexisting, offenders)
        );
        assert_eq!(&*eviction.offending_containers[0].container, "main");
        assert_eq!(eviction.offending_containers[0].usage, Bytes(1 << 30));
    }
    stop.send(()).expect("it watches");
    watch.await.expect("it stops");
}

async fn send(bed: &Testbed, namespace: &str, name: &str, reason: &str, starved: &str) -> Event {
    let count = starved.split(',').count();
    let list = |one: &str| vec![one; count].join(",");
    let event: Event = serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "annotations": {
                "offending_containers": list("main"),
                "offending_containers_usage": list("1Gi"),
                "starved_resource": starved,
            },
        },
        "involvedObject": { "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": "pod" },
        "reason": reason, "message": "a test", "type": "Warning",
    }))
    .expect("an event");
    let events = Api::namespaced(bed.client(), namespace);
    events.create(&PostParams::default(), &event).await.expect("created")
}
