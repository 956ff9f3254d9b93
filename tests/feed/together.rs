//! One watch for several readers: each hears all that it asked for, from the beginning, whenever it comes.

use k8s_openapi::api::core::v1::{LimitRange, Pod};
use kube::{Api, api::DeleteParams};
use plimsoll::observe::{
    limit_range::SlimLimitRange,
    running::RunningPod,
    slim::SlimPod,
    watch::{Options, Reader},
};

use super::mirror::Mirror;
use crate::support::{
    Bed, objects,
    proxy::{Proxy, pass},
};

/// What updaters watch.
const RUNNING: &str = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed";

fn of(fields: &str) -> Options {
    Options { fields: Some(fields.to_owned()), ..Options::default() }
}

/// How often something was listed or watched.
fn asked(proxy: &Proxy, end: &str) -> usize {
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
async fn readers_of_one_process_share_a_watch_and_each_reads_what_it_needs() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("together").await;
    let proxy = Proxy::start(bed.client(), |_, _| pass()).await;
    let reader = Reader::together(proxy.client.clone());
    let only = Some(&*namespace);
    objects::create::<Pod>(bed.client(), &namespace, &pod("waits", None)).await;
    objects::create::<Pod>(bed.client(), &namespace, &pod("bound", Some("nowhere"))).await;

    let all = Mirror::<SlimPod>::of(reader.objects(only), Options::default());
    let running = Mirror::<RunningPod>::of(reader.objects(only), of(RUNNING));
    all.holds(&["bound", "waits"]).await;
    running.holds(&["bound"]).await;
    let lists = asked(&proxy, "/pods");
    assert_eq!(lists, 1, "{:?}", proxy.requests());

    // Whoever comes later is told everything, and nobody else loses anything.
    let late = Mirror::<SlimPod>::of(reader.objects(only), of("spec.nodeName="));
    late.holds(&["waits"]).await;
    all.holds(&["bound", "waits"]).await;
    assert_eq!(asked(&proxy, "/pods"), lists + 1);

    // What leaves a selection goes from the reader that asked for it.
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
    late.holds(&[]).await;
    running.holds(&["bound", "waits"]).await;

    // Who has gone is waited for by nobody.
    drop(late);
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    pods.delete("bound", &now).await.expect("it is there");
    all.holds(&["waits"]).await;
    running.holds(&["waits"]).await;
    assert_eq!(asked(&proxy, "/pods"), lists + 1);

    // A connection that breaks off is one for all.
    proxy.cut();
    objects::create::<Pod>(bed.client(), &namespace, &pod("third", Some("nowhere"))).await;
    all.holds(&["third", "waits"]).await;
    running.holds(&["third", "waits"]).await;
}

#[tokio::test]
async fn what_only_the_server_can_select_is_watched_apart() {
    let Some(bed) = Bed::shared().await else { return };
    let namespace = bed.namespace("apart").await;
    let proxy = Proxy::start(bed.client(), |_, _| pass()).await;
    let reader = Reader::together(proxy.client.clone());
    let only = Some(&*namespace);
    let limits = |name: &str| {
        format!(
            "apiVersion: v1\nkind: LimitRange\nmetadata:\n  name: {name}\nspec:\n  limits:\n  - type: Pod\n"
        )
    };
    for name in ["one", "two"] {
        objects::create::<LimitRange>(bed.client(), &namespace, &limits(name)).await;
    }
    let all = Mirror::<SlimLimitRange>::of(reader.objects(only), Options::default());
    let one = Mirror::<SlimLimitRange>::of(reader.objects(only), of("metadata.name=one"));
    all.holds(&["one", "two"]).await;
    one.holds(&["one"]).await;
    assert_eq!(asked(&proxy, "/limitranges"), 2);
}
