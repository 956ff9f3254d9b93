//! A namespace of a real API server with targets, and manifests of workloads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt as _;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind, NamespaceResourceScope};
use plimsoll::cluster::cache::controllers::{
    Controller, ControllerCache, Lookup, SlimCronJob, SlimDaemonSet, SlimDeployment, SlimJob,
    SlimReplicaSet, SlimReplicationController, SlimStatefulSet, WellKnown,
};
use plimsoll::cluster::cache::selector::Selector;
use plimsoll::cluster::target::scale::{CacheLifetimes, RequestGate};
use plimsoll::cluster::target::{TargetResolution, TargetResolver};
use plimsoll::cluster::watch::ObjectChange;
use plimsoll_core::api::vpa::TargetRef;
use serde_json::json;
use tokio::sync::watch;

use crate::support::{Testbed, wait};

/// A namespace and a resolver for its targets.
pub struct Fixture {
    pub bed: Testbed,
    pub namespace: String,
    pub controllers: Arc<ControllerCache>,
    pub targets: TargetResolver,
    /// Number of requests through the gate.
    calls: Arc<AtomicUsize>,
    /// Whether the gate is open.
    pub open: watch::Sender<bool>,
}

// === impl Fixture ===

impl Fixture {
    pub async fn new(bed: Testbed, lifetimes: CacheLifetimes) -> Self {
        let namespace = bed.namespace("target").await;
        let (calls, (open, opened)) = (Arc::new(AtomicUsize::new(0)), watch::channel(true));
        let counted = Arc::clone(&calls);
        let gate: RequestGate = Arc::new(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            let mut opened = opened.clone();
            // An error means that the test is over.
            async move { opened.wait_for(|open| *open).map(drop).await }.boxed()
        });
        let controllers = Arc::new(ControllerCache::new());
        let targets = TargetResolver::new(bed.client(), Arc::clone(&controllers), gate, lifetimes);
        Self { bed, namespace, controllers, targets, calls, open }
    }

    /// Reads all controllers of the namespace, like a watch.
    pub async fn read(&self) {
        self.read_kind::<SlimDaemonSet>().await;
        self.read_kind::<SlimDeployment>().await;
        self.read_kind::<SlimReplicaSet>().await;
        self.read_kind::<SlimStatefulSet>().await;
        self.read_kind::<SlimReplicationController>().await;
        self.read_kind::<SlimJob>().await;
        self.read_kind::<SlimCronJob>().await;
        for &kind in WellKnown::ALL {
            let found = self.controllers.find(kind, &self.namespace, "-");
            assert_eq!(found, Lookup::Missing, "{kind:?} is synced");
        }
    }

    pub async fn read_kind<K>(&self)
    where
        K: Controller + kube::Resource<Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
    {
        let api = Api::<K>::namespaced(self.bed.client(), &self.namespace);
        self.controllers.apply(ObjectChange::<K>::Restart);
        for object in api.list(&ListParams::default()).await.expect("readable") {
            self.controllers.put(&object);
        }
        self.controllers.finish_list(K::KIND);
    }

    pub async fn resolve(&self, api_version: &str, kind: &str, name: &str) -> TargetResolution {
        self.targets.resolve(&self.namespace, &target(api_version, kind, name)).await
    }

    pub fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// The message for a target that cannot be resolved.
    pub async fn resolve_error(&self, api_version: &str, kind: &str, name: &str) -> String {
        match self.resolve(api_version, kind, name).await {
            TargetResolution::Unsupported { message } => message,
            other => panic!("{api_version} {kind} {name}: {other:?}"),
        }
    }

    /// Creates a CRD with or without a scale subresource, and waits until its objects can be created.
    pub async fn define(&self, group: &str, kind: &str, scale: bool) {
        let plural = format!("{}s", kind.to_lowercase());
        let mut version = json!({
            "name": "v1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"status": {}},
        });
        if scale {
            version["subresources"]["scale"] = json!({
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            });
        }
        let definition = serde_json::from_value(json!({
            "metadata": {"name": format!("{plural}.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "versions": [version],
                "names": {"plural": plural, "kind": kind},
            },
        }));
        let definition: CustomResourceDefinition = definition.expect("a definition");
        let api = Api::<CustomResourceDefinition>::all(self.bed.client());
        api.create(&PostParams::default(), &definition).await.expect("a new definition");
        wait::until("the kind is served", || async {
            self.api(group, kind).list(&ListParams::default()).await.ok()
        })
        .await;
    }

    pub fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(self.bed.client(), &self.namespace, &resource)
    }

    /// Creates an object with this selector, and returns its uid.
    pub async fn create_custom_object(
        &self,
        group: &str,
        kind: &str,
        name: &str,
        selector: &str,
    ) -> String {
        let object = serde_json::from_value(json!({
            "apiVersion": format!("{group}/v1"), "kind": kind,
            "metadata": {"name": name}, "spec": {"replicas": 1},
        }));
        let object: DynamicObject = object.expect("an object");
        let api = self.api(group, kind);
        let created = wait::until("the object is created", || async {
            api.create(&PostParams::default(), &object).await.ok()
        })
        .await;
        self.set_selector(group, kind, name, selector).await;
        created.metadata.uid.expect("it was created")
    }

    pub async fn set_selector(&self, group: &str, kind: &str, name: &str, selector: &str) {
        let status = json!({"status": {"replicas": 1, "selector": selector}});
        self.api(group, kind)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(status))
            .await
            .expect("a status");
    }

    /// The API server's own count of requests for scales of a group.
    pub async fn scale_request_count(&self, group: &str) -> u32 {
        let request = http::Request::get("/metrics").body(Vec::new()).expect("a request");
        let text = self.bed.client().request_text(request).await.expect("metrics");
        let lines = text.lines().filter(|line| {
            line.starts_with("apiserver_request_total{")
                && line.contains(&format!("group=\"{group}\""))
                && line.contains("subresource=\"scale\"")
        });
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok()).sum()
    }
}

pub fn target(api_version: &str, kind: &str, name: &str) -> TargetRef {
    let api_version = (!api_version.is_empty()).then(|| api_version.to_owned());
    TargetRef { api_version, kind: kind.to_owned(), name: name.to_owned() }
}

pub fn found(selector: &str, owner: &str) -> TargetResolution {
    let selector = Selector::parse(selector).expect("a selector");
    TargetResolution::Found { selector, owner: owner.into() }
}

pub fn owned(api_version: &str, kind: &str, name: &str, uid: &str) -> String {
    format!(
        "ownerReferences: [{{apiVersion: {api_version}, kind: {kind}, name: {name}, uid: {uid}, controller: true}}]"
    )
}

/// A workload without pods, with this label and additional metadata.
pub fn workload(name: &str, metadata: &str, spec: &str) -> String {
    format!(
        "{{metadata: {{name: {name}, {metadata}}}, spec: {{{spec}, template: {{metadata: {{labels: {{app: {name}}}}}, \
         spec: {{containers: [{{name: main, image: example/main}}]}}}}}}}}"
    )
}

pub fn workload_selecting_itself(name: &str) -> String {
    format!("selector: {{matchLabels: {{app: {name}}}}}")
}

pub fn job(name: &str, metadata: &str) -> String {
    workload(name, metadata, "suspend: true")
        .replace("containers:", "restartPolicy: Never, containers:")
}

pub fn cron_job(name: &str) -> String {
    format!(
        "{{metadata: {{name: {name}}}, spec: {{schedule: '0 0 1 1 *', suspend: true, jobTemplate: {}}}}}",
        job("unused", "")
            .replace("app: unused", &format!("app: {name}"))
            .replace("name: unused, ", "")
    )
}
