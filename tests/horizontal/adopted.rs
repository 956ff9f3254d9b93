//! Adopted objects, which the horizontal controller scales while kube-controller-manager runs.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::{
    apps::v1::Deployment, autoscaling::v2::HorizontalPodAutoscaler, core::v1::Event,
};
use kube::{Api, ResourceExt as _, api::ListParams};
use plimsoll_core::hpa::{HpaRecord, record::RECORD_ANNOTATION};

use super::{Fixture, MEBIBYTE, MEMORY, hpa, start};
use crate::support::{hollow_nodes::is_ready, manifests, metrics_server::UsageValue, wait};

/// The name of each object, the mode that it asks for, and the behavior that the HPA controller sees.
const OBJECTS: [(&str, &str, &str); 4] = [
    ("drive", "drive", "{scaleUp: {selectPolicy: Disabled}, scaleDown: {selectPolicy: Disabled}}"),
    ("assist", "assist", "{scaleDown: {selectPolicy: Disabled}}"),
    ("half", "drive", "{scaleDown: {selectPolicy: Disabled}}"),
    ("native", "shadow", "null"),
];
/// Removes replicas at once, and remembers that for half an hour.
const OWN_BEHAVIOR: &str = r#"{"scaleDown":{"stabilizationWindowSeconds":0,"policies":[{"type":"Percent","value":100,"periodSeconds":1800}]}}"#;

impl Fixture {
    async fn create_adopted(&self) {
        for (name, mode, behavior) in OBJECTS {
            let workload = manifests::deployment(name, 2, "100m", "256Mi");
            manifests::create::<Deployment>(self.bed.client(), &self.namespace, &workload).await;
            self.bed
                .nodes()
                .pods(&self.namespace, &format!("{name}-"), 2, "are ready", is_ready)
                .await;
            let annotations =
                format!("{{plimsoll.dev/hpa: {mode}, plimsoll.dev/behavior: '{OWN_BEHAVIOR}'}}");
            let hpa = hpa(name, &[MEMORY], behavior, &annotations);
            manifests::create::<HorizontalPodAutoscaler>(self.bed.client(), &self.namespace, &hpa)
                .await;
        }
    }

    fn load_all(&self, mebibytes: u64) {
        for (name, ..) in OBJECTS {
            let usage = UsageValue { cpu: 0.1, memory: mebibytes * MEBIBYTE };
            self.usage.set_all(&self.namespace, &format!("{name}-"), "main", usage);
        }
    }

    async fn wait_for_replicas(&self, what: &str, expected: [(&str, i32); 4]) {
        let expected: BTreeMap<String, i32> =
            expected.into_iter().map(|(name, count)| (name.to_owned(), count)).collect();
        let api = Api::<Deployment>::namespaced(self.bed.client(), &self.namespace);
        wait::until_ok(what, || async {
            let found = api.list(&ListParams::default()).await.map_err(|why| why.to_string())?;
            let replicas: BTreeMap<String, i32> = found
                .into_iter()
                .map(|one| (one.name_any(), one.spec.and_then(|spec| spec.replicas).unwrap_or(1)))
                .collect();
            if replicas == expected { Ok(()) } else { Err(format!("{replicas:?}")) }
        })
        .await;
    }

    async fn record(&self, name: &str) -> Option<HpaRecord> {
        let api = Api::<HorizontalPodAutoscaler>::namespaced(self.bed.client(), &self.namespace);
        let object = api.get(name).await.expect("the object");
        let text = object.annotations().get(RECORD_ANNOTATION)?;
        Some(HpaRecord::parse(text).expect("a record"))
    }

    /// Replaces the process.
    async fn restart(&mut self, mode: &str) {
        let role = start(&self.proxy, &self.namespace, mode).await;
        let stopped = std::mem::replace(&mut self.role, role);
        tokio::time::timeout(Duration::from_mins(1), stopped.stop()).await.expect("it stops");
    }

    /// Waits until each object was reconciled this many times more.
    async fn passes(&self, count: u64) {
        let before = self.role.reconciles();
        let expected = before + count * OBJECTS.len() as u64;
        wait::until("objects are reconciled", || async {
            (self.role.reconciles() >= expected).then_some(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn adopted_objects_are_scaled_by_this_controller_and_survive_without_it() {
    let Some(mut fixture) = Fixture::new("adopted", "adopted").await else { return };
    fixture.load_all(200);
    fixture.create_adopted().await;
    // 400 of 256 MiB are twice the target. An object that asks for a mode which has no effect is left to the HPA controller.
    fixture.load_all(400);
    let all = |count| OBJECTS.map(|(name, ..)| (name, count));
    fixture.wait_for_replicas("all grow", all(6)).await;
    let reasons = fixture.series("plimsoll_restricted_scaling", "reason").await;
    assert_eq!(reasons.get("builtin_acts"), Some(&1.0), "{reasons:?}");
    let record = fixture.record("drive").await.expect("a record");
    let change = record.last_scale.expect("a change");
    assert_eq!((change.to, record.pending), (6, None));
    for name in ["half", "native"] {
        assert_eq!(fixture.record(name).await, None, "{name}");
    }

    // The HPA controller waits for five minutes before it removes replicas, and nothing makes it undo what was removed.
    fixture.load_all(60);
    let shrunk = [("drive", 2), ("assist", 2), ("half", 6), ("native", 6)];
    fixture.wait_for_replicas("adopted objects shrink", shrunk).await;
    fixture.passes(5).await;
    fixture.wait_for_replicas("they stay", shrunk).await;

    // Without this controller, an assisted object still grows, and a driven one stays within its bounds.
    fixture.restart("shadow").await;
    fixture.load_all(400);
    let without = [("drive", 2), ("assist", 6), ("half", 6), ("native", 6)];
    fixture.wait_for_replicas("the HPA controller adds replicas", without).await;
    fixture.passes(5).await;
    fixture.wait_for_replicas("a driven object stays", without).await;
    let before = fixture.record("drive").await.expect("a record");

    // The next process continues with the memory of the last one.
    fixture.restart("adopted").await;
    fixture.wait_for_replicas("the driven object grows", all(6)).await;
    let after = fixture.record("drive").await.expect("a record");
    let downs = |record: &HpaRecord| record.memory.scale_down_events.clone();
    assert_eq!(downs(&after), downs(&before));
    assert!(!downs(&after).is_empty(), "{after:?}");

    // Only those objects, their scales, events and the Lease were written.
    let namespace = &fixture.namespace;
    let written = fixture.proxy.written_objects("/");
    let is_expected = |path: &str| {
        ["drive", "assist"].iter().any(|name| {
            path.ends_with(&format!("/horizontalpodautoscalers/{name}"))
                || path.ends_with(&format!("/deployments/{name}/scale"))
        }) || path.ends_with("/leases/plimsoll-horizontal")
            || path.contains(&format!("/namespaces/{namespace}/events/"))
            || path.contains("authorization")
    };
    let others: Vec<_> = written.iter().filter(|path| !is_expected(path)).collect();
    assert_eq!(others, [""; 0]);
    let events = Api::<Event>::namespaced(fixture.bed.client(), namespace);
    let events = events.list(&ListParams::default()).await.expect("a list");
    let ours = events.iter().filter(|event| {
        event.reporting_component.as_deref() == Some("plimsoll-horizontal")
            && event.reason.as_deref() == Some("SuccessfulRescale")
    });
    let objects: Vec<_> = ours.filter_map(|event| event.involved_object.name.as_deref()).collect();
    assert!(objects.contains(&"drive") && !objects.contains(&"half"), "{objects:?}");
    tokio::time::timeout(Duration::from_mins(1), fixture.role.stop()).await.expect("it stops");
}
