//! Watches keep a correct copy despite unreadable objects, lost connections and old servers.

use std::sync::mpsc;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSONSchemaProps;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use plimsoll::cluster::watch::WatchOptions;
use plimsoll::cluster::watch::{PartialNode, PartialPod};
use plimsoll_core::api::VerticalPodAutoscaler;
use plimsoll_core::types::quantity::Quantity;
use serde_json::{Value, json};

use super::watched_objects::WatchedObjects;
use crate::support::hollow_nodes::is_ready;
use crate::support::{Clock, Testbed, manifests, wait};

#[tokio::test]
async fn an_unreadable_object_is_named_and_the_others_are_read() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    create_definition_without_schema(bed.client()).await;
    let namespace = bed.namespace("vpa").await;
    let target = |name: &str| json!({ "kind": "Deployment", "name": name });
    for (name, target) in [("a", target("a")), ("b", json!(5)), ("c", target("c"))] {
        create_vpa(bed.client(), &namespace, name, &target).await;
    }

    let api = Api::namespaced(bed.client(), &namespace);
    let mirror = WatchedObjects::<VerticalPodAutoscaler>::of(api, WatchOptions::default());
    mirror.feed.wait_until_synced().await;
    // A list may be answered from a cache of the server that lacks the newest objects.
    mirror.wait_for_names(&["a", "c"]).await;
    let reason =
        wait::until("b is unreadable", || std::future::ready(mirror.unreadable("b"))).await;
    assert!(reason.contains("invalid type: integer `5`"), "{reason}");
    let status = mirror.status();
    assert_eq!((status.invalid_now, status.streams_lists), (1, true), "{status:?}");
    // Once per list: a watch of a new API may be closed and restarted.
    assert!(status.invalid >= 1, "{status:?}");
    let stored = mirror.get("a").expect("read");
    assert!(stored.metadata.managed_fields.is_none() && stored.metadata.uid.is_some());

    set_target(bed.client(), &namespace, "b", &target("b")).await;
    mirror.wait_for_names(&["a", "b", "c"]).await;
    assert_eq!(mirror.status().invalid_now, 0);

    // The last valid version stays available.
    set_target(bed.client(), &namespace, "c", &json!(["none"])).await;
    wait::until("the third is unreadable", || std::future::ready(mirror.unreadable("c"))).await;
    let stored = mirror.get("c").expect("still known");
    assert_eq!(stored.spec.target_ref.name, "c");
    vpas(bed.client(), &namespace).delete("c", &DeleteParams::default()).await.expect("deleted");
    mirror.wait_for_names(&["a", "b"]).await;
    assert_eq!(mirror.status().invalid_now, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missed_deletion_is_found_by_the_next_list() {
    let Some(bed) = Testbed::api_server_only().await else { return };
    let namespace = bed.namespace("web").await;
    let maps = Api::<ConfigMap>::namespaced(bed.client(), &namespace);
    create_map(&maps, "stays").await;
    create_map(&maps, "goes").await;

    // The watch is blocked while it applies an event.
    let (held, is_held) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let options = WatchOptions { field_selector: Some(own_maps()), ..WatchOptions::default() };
    let mirror = WatchedObjects::<ConfigMap>::with_delay(
        Api::namespaced(bed.client(), &namespace),
        options,
        move |name| {
            if name == "stop" {
                let _ = held.send(());
                // In place: the connection may be blocked behind the watch on this thread.
                let _ = tokio::task::block_in_place(|| released.recv());
            }
        },
    );
    mirror.feed.wait_until_synced().await;
    mirror.wait_for_names(&["goes", "stays"]).await;
    assert_eq!(mirror.status().lists, 1);
    create_map(&maps, "stop").await;
    tokio::task::spawn_blocking(move || is_held.recv())
        .await
        .expect("no panic")
        .expect("the watch is blocked");

    // The new server has no watch history, so the watch cannot continue.
    create_map(&Api::namespaced(bed.client(), "default"), "something-newer").await;
    bed.control_plane().kill_api_server().await;
    bed.control_plane().restart_api_server().await;
    maps.delete("goes", &DeleteParams::default()).await.expect("deleted");
    drop(release);

    mirror.wait_for_names(&["stays", "stop"]).await;
    wait::until("the list is complete", || {
        std::future::ready((mirror.status().lists >= 2).then_some(()))
    })
    .await;
    let status = mirror.status();
    assert!(status.errors > 0 && status.streams_lists, "{status:?}");
    create_map(&maps, "afterwards").await;
    mirror.wait_for_names(&["afterwards", "stays", "stop"]).await;
}

#[tokio::test]
async fn without_streaming_lists_a_list_is_read_in_pages() {
    let flags = ["--feature-gates=WatchList=false"];
    let Some(bed) = Testbed::private_with(&flags, Clock::wall()).await else { return };
    let namespace = bed.namespace("web").await;
    let maps = Api::<ConfigMap>::namespaced(bed.client(), &namespace);
    for name in ["a", "b", "c", "d", "e"] {
        create_map(&maps, name).await;
    }
    let options = WatchOptions { field_selector: Some(own_maps()), page_size: 2 };
    let mirror =
        WatchedObjects::<ConfigMap>::of(Api::namespaced(bed.client(), &namespace), options);
    mirror.feed.wait_until_synced().await;
    mirror.wait_for_names(&["a", "b", "c", "d", "e"]).await;
    let status = mirror.status();
    assert_eq!((status.streams_lists, status.lists, status.errors), (false, 1, 1), "{status:?}");
    create_map(&maps, "f").await;
    mirror.wait_for_names(&["a", "b", "c", "d", "e", "f"]).await;
    maps.delete("f", &DeleteParams::default()).await.expect("deleted");
    mirror.wait_for_names(&["a", "b", "c", "d", "e"]).await;
}

#[tokio::test]
async fn a_permission_granted_later_is_used_without_disabling_streaming_lists() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("web").await;
    create_map(&Api::namespaced(bed.client(), &namespace), "a").await;
    let account = bed.service_account(&namespace, "reader").await;
    let options = WatchOptions { field_selector: Some(own_maps()), ..WatchOptions::default() };
    let mirror =
        WatchedObjects::<ConfigMap>::of(Api::namespaced(account.client, &namespace), options);
    wait::until("it was refused", || {
        std::future::ready(mirror.status().last_error.filter(|why| why.contains("HTTP 403")))
    })
    .await;
    assert!(!mirror.feed.is_synced());

    allow(&bed, &namespace, "reader", "", &["configmaps"]).await;
    mirror.feed.wait_until_synced().await;
    assert_eq!(mirror.names(), ["a"]);
    assert!(mirror.status().streams_lists);
}

#[tokio::test]
async fn cached_pods_and_nodes_keep_only_the_fields_that_are_used() {
    let Some(bed) = Testbed::shared().await.filter(Testbed::has_controllers) else { return };
    let namespace = bed.namespace("web").await;
    let web = manifests::deployment("web", 1, "100m", "64Mi");
    manifests::create::<Deployment>(bed.client(), &namespace, &web).await;
    let pods = bed.nodes().pods(&namespace, "web-", 1, "are ready", is_ready).await;
    let name = pods[0].name_any();

    let options = WatchOptions {
        field_selector: Some("status.phase!=Pending".to_owned()),
        ..WatchOptions::default()
    };
    let mirror =
        WatchedObjects::<PartialPod>::of(Api::namespaced(bed.client(), &namespace), options);
    mirror.wait_for_names(&[&name]).await;
    let pod = mirror.get(&name).expect("known");
    assert_eq!(pod.metadata.uid, pods[0].metadata.uid);
    assert_eq!(pod.metadata.labels, pods[0].metadata.labels);
    assert_eq!(
        pod.metadata.owner_references.as_ref().map(|owners| &*owners[0].kind),
        Some("ReplicaSet")
    );
    assert!(pod.metadata.managed_fields.is_none() && pod.metadata.annotations.is_none());
    assert_eq!(pod.spec.node_name.as_deref(), Some("shared"));
    let requests = &pod.spec.containers[0].resources.requests;
    assert_eq!(requests.cpu.map(|cpu| cpu.to_string()).as_deref(), Some("100m"));
    assert_eq!(requests.memory.map(|memory| memory.to_string()).as_deref(), Some("64Mi"));
    let status = &pod.status.container_statuses[0];
    assert_eq!(status.resources.as_ref().map(|given| given.requests), Some(*requests));
    assert!(status.state.waiting.is_none() && status.last_state.terminated.is_none());

    bed.nodes().oom_kill(&namespace, &name, "main").await;
    let killed = wait::until("the kill shows", || async {
        let status = mirror.get(&name)?.status.container_statuses.remove(0);
        status.last_state.terminated.or(status.state.terminated)
    })
    .await;
    assert_eq!(killed.reason.as_deref(), Some("OOMKilled"));
    assert!(killed.finished_at.is_some());

    let nodes = WatchedObjects::<PartialNode>::of(Api::all(bed.client()), WatchOptions::default());
    nodes.wait_for_names(&["shared"]).await;
    let node = nodes.get("shared").expect("known");
    assert!(node.is_ready() && !node.spec.unschedulable && node.spec.taints.is_empty());
    assert_eq!(node.status.allocatable.cpu.map(Quantity::value), Some(64));
}

/// Like upstream's CRD, but without validation and pruning.
async fn create_definition_without_schema(client: Client) {
    let mut definition = plimsoll_core::api::crds()
        .expect("definitions")
        .into_iter()
        .find(|definition| definition.spec.names.kind == "VerticalPodAutoscaler")
        .expect("the object is listed");
    for version in &mut definition.spec.versions {
        version.schema.get_or_insert_default().open_api_v3_schema = Some(JSONSchemaProps {
            type_: Some("object".to_owned()),
            x_kubernetes_preserve_unknown_fields: Some(true),
            ..JSONSchemaProps::default()
        });
    }
    manifests::create_definition(client, &definition).await;
}

fn vpas(client: Client, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<VerticalPodAutoscaler>(&());
    Api::namespaced_with(client, namespace, &kind)
}

async fn create_vpa(client: Client, namespace: &str, name: &str, target: &Value) {
    let kind = ApiResource::erase::<VerticalPodAutoscaler>(&());
    let object = DynamicObject::new(name, &kind).data(json!({ "spec": { "targetRef": target } }));
    manifests::create_with_retry(&vpas(client, namespace), &object).await;
}

async fn set_target(client: Client, namespace: &str, name: &str, target: &Value) {
    let change = json!([{ "op": "replace", "path": "/spec/targetRef", "value": target }]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(change).expect("a patch"));
    let api = vpas(client, namespace);
    api.patch(name, &PatchParams::default(), &patch).await.expect("patched");
}

/// All but the ConfigMap that controllers create in each namespace.
fn own_maps() -> String {
    "metadata.name!=kube-root-ca.crt".to_owned()
}

async fn create_map(maps: &Api<ConfigMap>, name: &str) {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    maps.create(&PostParams::default(), &map).await.expect("created");
}

/// Allows a service account to read these resources in its namespace.
pub async fn allow(bed: &Testbed, namespace: &str, account: &str, group: &str, resources: &[&str]) {
    use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
    let role: Role = serde_json::from_value(json!({
        "metadata": { "name": account },
        "rules": [{ "apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"] }],
    }))
    .expect("a role");
    let binding: RoleBinding = serde_json::from_value(json!({
        "metadata": { "name": account },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account },
        "subjects": [{ "kind": "ServiceAccount", "name": account, "namespace": namespace }],
    }))
    .expect("a binding");
    let parameters = PostParams::default();
    Api::namespaced(bed.client(), namespace).create(&parameters, &role).await.expect("created");
    Api::namespaced(bed.client(), namespace).create(&parameters, &binding).await.expect("created");
}
