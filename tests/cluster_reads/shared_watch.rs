//! One watch for several subscribers: each receives all objects that it selects, whenever it subscribes.

use k8s_openapi::api::core::v1::{LimitRange, Pod};
use kube::{Api, api::DeleteParams};
use plimsoll::cluster::{
    cache::{limit_range::PartialLimitRange, updater_pod::UpdaterPod},
    watch::{PartialPod, WatchFactory, WatchOptions},
};

use super::watched_objects::WatchedObjects;
use crate::support::{
    Testbed,
    api_proxy::{ApiProxy, pass_through},
    manifests,
};

/// The field selector of updaters.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

fn of(fields: &str) -> WatchOptions {
    WatchOptions { field_selector: Some(fields.to_owned()), ..WatchOptions::default() }
}

/// The number of lists and watches of a resource.
fn request_count(proxy: &ApiProxy, end: &str) -> usize {
    proxy.requests().iter().filter(|(_, path)| path.ends_with(end)).count()
}

fn pod(name: &str, node: Option<&str>) -> String {
    let bound = node.map(|node| format!("\n  nodeName: {node}")).unwrap_or_default();
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:{bound}\n  schedulerName: nobody\n  \
         containers:\n  - name: main\n    image: none\n"
    )
}

#[tokio::test]
async fn readers_in_one_process_share_a_watch_and_each_gets_its_objects() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("together").await;
    let proxy = ApiProxy::start(bed.client(), |_, _| pass_through()).await;
    let reader = WatchFactory::shared(proxy.client.clone());
    let only = Some(&*namespace);
    manifests::create::<Pod>(bed.client(), &namespace, &pod("waits", None)).await;
    manifests::create::<Pod>(bed.client(), &namespace, &pod("bound", Some("nowhere"))).await;

    let all = WatchedObjects::<PartialPod>::of(reader.objects(only), WatchOptions::default());
    let running = WatchedObjects::<UpdaterPod>::of(reader.objects(only), of(RUNNING));
    all.wait_for_names(&["bound", "waits"]).await;
    running.wait_for_names(&["bound"]).await;
    let lists = request_count(&proxy, "/pods");
    assert_eq!(lists, 1, "{:?}", proxy.requests());

    // A late subscriber receives everything, and the others lose nothing.
    let late = WatchedObjects::<PartialPod>::of(reader.objects(only), of("spec.nodeName="));
    late.wait_for_names(&["waits"]).await;
    all.wait_for_names(&["bound", "waits"]).await;
    assert_eq!(request_count(&proxy, "/pods"), lists + 1);

    // An object that leaves a selection is removed from its subscriber.
    let pods: Api<Pod> = Api::namespaced(bed.client(), &namespace);
    let to = serde_json::json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"},
    });
    let binding = http::Request::post(format!("/api/v1/namespaces/{namespace}/pods/waits/binding"))
        .header("content-type", "application/json")
        .body(serde_json::to_vec(&to).expect("JSON"))
        .expect("a request");
    bed.client().request::<serde_json::Value>(binding).await.expect("it is bound");
    late.wait_for_names(&[]).await;
    running.wait_for_names(&["bound", "waits"]).await;

    // The watch does not wait for a subscriber that is gone.
    drop(late);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("bound", &now).await.expect("it exists");
    all.wait_for_names(&["waits"]).await;
    running.wait_for_names(&["waits"]).await;
    assert_eq!(request_count(&proxy, "/pods"), lists + 1);

    // A lost connection affects all subscribers at once.
    proxy.cut_responses();
    manifests::create::<Pod>(bed.client(), &namespace, &pod("third", Some("nowhere"))).await;
    all.wait_for_names(&["third", "waits"]).await;
    running.wait_for_names(&["third", "waits"]).await;
}

#[tokio::test]
async fn selectors_that_only_the_server_supports_have_their_own_watch() {
    let Some(bed) = Testbed::shared().await else { return };
    let namespace = bed.namespace("apart").await;
    let proxy = ApiProxy::start(bed.client(), |_, _| pass_through()).await;
    let reader = WatchFactory::shared(proxy.client.clone());
    let only = Some(&*namespace);
    let limits = |name: &str| {
        format!(
            "apiVersion: v1\nkind: LimitRange\nmetadata:\n  name: {name}\nspec:\n  limits:\n  - type: Pod\n"
        )
    };
    for name in ["one", "two"] {
        manifests::create::<LimitRange>(bed.client(), &namespace, &limits(name)).await;
    }
    let all =
        WatchedObjects::<PartialLimitRange>::of(reader.objects(only), WatchOptions::default());
    let one =
        WatchedObjects::<PartialLimitRange>::of(reader.objects(only), of("metadata.name=one"));
    all.wait_for_names(&["one", "two"]).await;
    one.wait_for_names(&["one"]).await;
    assert_eq!(request_count(&proxy, "/limitranges"), 2);
}
