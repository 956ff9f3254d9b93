//! The in-memory API server behaves like the real one: one script of requests runs against both.

use std::collections::BTreeSet;

use futures::AsyncBufReadExt as _;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, WatchParams};
use kube::{Client, Resource as _, ResourceExt};
use plimsoll_core::api::VerticalPodAutoscaler;
use serde_json::{Value, json};

use super::bed_with_definitions;
use crate::support::{in_memory_api::InMemoryApiServer, wait};

/// A request of the script; `{version}` and `{uid}` are those of the object in the last response.
struct Step {
    method: Method,
    path: String,
    kind: &'static str,
    body: Value,
}

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STEPS: &str = "application/json-patch+json";

fn step(method: Method, path: impl Into<String>, kind: &'static str, body: Value) -> Step {
    Step { method, path: path.into(), kind, body }
}

/// The requests on objects of one kind.
#[expect(clippy::too_many_lines, reason = "one request after the other")]
fn script(collection: &str, object: &dyn Fn(&str) -> Value, is_custom: bool) -> Vec<Step> {
    let of = |name: &str| format!("{collection}/{name}");
    let with = |name: &str, metadata: Value| {
        let mut object = object(name);
        for (key, value) in metadata.as_object().expect("metadata") {
            object["metadata"][key] = value.clone();
        }
        object
    };
    let labels = |text: &str| format!("{collection}?labelSelector={text}");
    let web = |method, kind, body| step(method, of("web"), kind, body);
    let mut steps = vec![
        web(Method::GET, JSON, Value::Null),
        step(Method::GET, collection, JSON, Value::Null),
        web(Method::PATCH, MERGE, json!({"metadata": {"labels": {"a": "b"}}})),
        web(Method::DELETE, JSON, Value::Null),
        step(Method::POST, collection, JSON, object("web")),
        step(Method::POST, collection, JSON, object("web")),
        step(
            Method::POST,
            collection,
            JSON,
            with("db", json!({"labels": {"tier": "data", "app": "db"}})),
        ),
        step(Method::POST, collection, JSON, with("odd", json!({"resourceVersion": "7"}))),
        web(Method::GET, JSON, Value::Null),
        // An update of the current version, the same again, one without a version, and one with another name.
        web(
            Method::PUT,
            JSON,
            with("web", json!({"resourceVersion": "{version}", "labels": {"app": "web"}})),
        ),
        web(
            Method::PUT,
            JSON,
            with("web", json!({"resourceVersion": "{version}", "labels": {"app": "web"}})),
        ),
        web(Method::PUT, JSON, with("web", json!({"resourceVersion": "1"}))),
        web(Method::PUT, JSON, object("web")),
        web(Method::PUT, JSON, object("other")),
        web(Method::GET, JSON, Value::Null),
        // Patches: a change, a no-op, a removal, and one with an outdated version.
        web(Method::PATCH, MERGE, json!({"metadata": {"annotations": {"x/y": "1", "z": "2"}}})),
        web(Method::PATCH, MERGE, json!({"metadata": {"annotations": {"x/y": "1"}}})),
        web(Method::PATCH, MERGE, json!({"metadata": {"annotations": {"z": null}}})),
        web(
            Method::PATCH,
            MERGE,
            json!({"metadata": {"resourceVersion": "1", "labels": {"late": "yes"}}}),
        ),
        web(Method::GET, JSON, Value::Null),
        web(
            Method::PATCH,
            MERGE,
            json!({"metadata": {"resourceVersion": "{version}", "labels": {"late": "no"}}}),
        ),
        web(
            Method::PATCH,
            STEPS,
            json!([{"op": "replace", "path": "/metadata/annotations/x~1y", "value": "3"}]),
        ),
        web(
            Method::PATCH,
            STEPS,
            json!([
                {"op": "test", "path": "/metadata/annotations/x~1y", "value": "3"},
                {"op": "add", "path": "/metadata/annotations/more", "value": "4"},
                {"op": "remove", "path": "/metadata/annotations/x~1y"},
            ]),
        ),
        web(
            Method::PATCH,
            STEPS,
            json!([{"op": "test", "path": "/metadata/annotations/more", "value": "5"}]),
        ),
        web(Method::PATCH, STEPS, json!([{"op": "remove", "path": "/metadata/annotations/none"}])),
        web(Method::PATCH, "text/plain", json!({})),
        step(Method::PATCH, of("none"), MERGE, json!({"metadata": {"labels": {"a": "b"}}})),
        step(Method::GET, collection, JSON, Value::Null),
        step(
            Method::GET,
            format!("{collection}?fieldSelector=metadata.name%3Ddb"),
            JSON,
            Value::Null,
        ),
        // Deletes: with an unmet precondition, with a met one, and of a missing object.
        web(Method::DELETE, JSON, json!({"preconditions": {"uid": "another"}})),
        web(Method::DELETE, JSON, json!({"preconditions": {"resourceVersion": "1"}})),
        web(Method::GET, JSON, Value::Null),
        web(Method::DELETE, JSON, json!({"preconditions": {"uid": "{uid}"}})),
        web(Method::DELETE, JSON, Value::Null),
        web(
            Method::PUT,
            JSON,
            with("web", json!({"resourceVersion": "{version}", "uid": "{uid}"})),
        ),
        step(Method::POST, collection, JSON, object("web")),
    ];
    for text in [
        "app%3Ddb",
        "app%21%3Ddb",
        "app",
        "%21app",
        "app%20in%20(db,web),tier%3Ddata",
        "app%20notin%20(db)",
    ] {
        steps.push(step(Method::GET, labels(text), JSON, Value::Null));
    }
    if is_custom {
        let status = format!("{}/status", of("web"));
        let condition =
            json!([{"type": "A", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        steps.extend([
            step(
                Method::PATCH,
                &*status,
                MERGE,
                json!({"status": {"conditions": condition}, "spec": {"targetRef": {"name": "x"}}}),
            ),
            step(Method::PATCH, &*status, MERGE, json!({"status": {"conditions": condition}})),
            step(
                Method::PATCH,
                &*status,
                MERGE,
                json!({"metadata": {"resourceVersion": "1"}, "status": {"conditions": []}}),
            ),
            web(Method::PATCH, MERGE, json!({"status": {"conditions": []}})),
            web(Method::PATCH, MERGE, json!({"spec": {"targetRef": {"name": "y"}}})),
            web(Method::GET, JSON, Value::Null),
        ]);
    } else {
        steps.push(step(Method::POST, of("web"), JSON, object("web")));
    }
    steps
}

/// The comparable part of a response: without times, versions, server-specific fields and messages.
fn comparable_response(code: u16, mut answer: Value) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(members) => {
                members.retain(|key, _| {
                    !["continue", "managedFields", "creationTimestamp", "message", "causes"]
                        .contains(&&**key)
                });
                for (key, value) in members.iter_mut() {
                    if ["uid", "resourceVersion"].contains(&&**key) {
                        *value = json!("some");
                    }
                    strip(value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut answer);
    if let Some(items) = answer.get_mut("items").and_then(Value::as_array_mut) {
        items.sort_by_key(|item| item["metadata"]["name"].to_string());
    }
    if answer["status"] == "Failure" {
        answer = json!({"reason": answer["reason"], "name": answer["details"]["name"], "code": answer["code"]});
    }
    json!({"code": code, "answer": answer})
}

/// Sends a request. It is repeated while the server initializes the storage of a new kind, as clients do.
async fn send(
    client: &Client,
    method: &Method,
    path: &str,
    kind: &str,
    body: &str,
) -> (u16, Value) {
    wait::until("the storage of the kind is initialized", || async {
        let request = Request::builder().method(method).uri(path).header("content-type", kind);
        let request = request.body(kube::client::Body::from(body.to_owned().into_bytes()));
        let answer = client.send(request.expect("a request")).await.expect("an answer");
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.expect("a body").to_bytes();
        let answer = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        (code != 429).then_some((code, answer))
    })
    .await
}

/// Runs a script; returns the response of each step, and whether versions increase with changes.
async fn run_script(client: &Client, steps: &[Step]) -> Vec<String> {
    let (mut version, mut uid) = (String::new(), String::new());
    let (mut results, mut versions) = (Vec::new(), BTreeSet::new());
    for Step { method, path, kind, body } in steps {
        let template = if body.is_null() { String::new() } else { body.to_string() };
        let body = template.replace("{version}", &version).replace("{uid}", &uid);
        let (code, answer) = send(client, method, path, kind, &body).await;
        let mut is_new = String::new();
        if let Some(now) = answer["metadata"]["resourceVersion"]
            .as_str()
            .filter(|_| answer["metadata"]["name"].is_string())
        {
            now.clone_into(&mut version);
            answer["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut uid);
            is_new = format!(" new: {}", versions.insert(version.clone()));
        }
        results.push(format!(
            "{method} {path} {template}{is_new}\n    {}",
            comparable_response(code, answer)
        ));
    }
    results
}

/// The events of a watch from a version on, up to the deletion of the last object.
async fn watch_events(client: &Client, namespace: &str, since: &str) -> Vec<(String, String)> {
    let parameters = WatchParams::default().labels("app=seen");
    let path = Lease::url_path(&(), Some(namespace));
    let request = kube::core::Request::new(path).watch(&parameters, since).expect("a request");
    let lines = client.request_stream(request).await.expect("a stream");
    let (mut lines, mut events) = (std::pin::pin!(lines.lines()), Vec::new());
    while let Some(line) = futures::TryStreamExt::try_next(&mut lines).await.expect("a line") {
        let event: Value = serde_json::from_str(&line).expect("an event");
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, object) = (word(&event["type"]), &event["object"]);
        if kind != "BOOKMARK" {
            events.push((kind.clone(), word(&object["metadata"]["name"])));
        }
        if kind == "DELETED" && object["metadata"]["name"] == "last" {
            break;
        }
    }
    events
}

/// Objects are created, updated, leave and enter the selection, and are deleted.
async fn watch_of_leases(client: &Client, namespace: &str) -> Vec<(String, String)> {
    let collection = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
    let list = Api::<Lease>::namespaced(client.clone(), namespace);
    let since = list.list(&kube::api::ListParams::default()).await.expect("a list");
    let since = since.metadata.resource_version.expect("a version");
    let of = |name: &str| format!("{collection}/{name}");
    let lease = |name: &str, app: &str| json!({"metadata": {"name": name, "labels": {"app": app}}, "spec": {}});
    let app = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let steps = [
        step(Method::POST, &*collection, JSON, lease("one", "seen")),
        step(Method::POST, &*collection, JSON, lease("two", "hidden")),
        step(Method::PATCH, of("one"), MERGE, json!({"spec": {"holderIdentity": "a"}})),
        step(Method::PATCH, of("one"), MERGE, json!({"spec": {"holderIdentity": "a"}})),
        step(Method::PATCH, of("two"), MERGE, app("seen")),
        step(Method::PATCH, of("one"), MERGE, app("hidden")),
        step(Method::DELETE, of("one"), JSON, Value::Null),
        step(Method::POST, &*collection, JSON, lease("last", "seen")),
        step(Method::DELETE, of("last"), JSON, Value::Null),
    ];
    let (events, _) =
        tokio::join!(watch_events(client, namespace, &since), run_script(client, &steps));
    events
}

#[tokio::test]
async fn the_in_memory_api_responds_like_a_real_api_server() {
    let Some(bed) = bed_with_definitions().await else { return };
    let namespace = bed.namespace("conformance").await;
    let memory = InMemoryApiServer::new().client();
    let real = bed.client();
    let lease = |name: &str| {
        let metadata = json!({"name": name});
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata,
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}})
    };
    let vpa = |name: &str| {
        let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name});
        json!({"apiVersion": "autoscaling.k8s.io/v1", "kind": "VerticalPodAutoscaler",
            "metadata": {"name": name}, "spec": {"targetRef": target}})
    };
    let group =
        |group: &str, plural: &str| format!("/apis/{group}/v1/namespaces/{namespace}/{plural}");
    let leases = script(&group("coordination.k8s.io", "leases"), &lease, false);
    let vpas = group("autoscaling.k8s.io", "verticalpodautoscalers");
    let vpas = script(&vpas, &vpa, true);
    let mut differ = Vec::new();
    for steps in [leases, vpas] {
        let (real, memory) = (run_script(&real, &steps).await, run_script(&memory, &steps).await);
        let both = real.iter().zip(&memory).filter(|(real, memory)| real != memory);
        differ.extend(both.map(|(real, memory)| format!("real   {real}\nmemory {memory}")));
    }
    assert!(differ.is_empty(), "{} steps differ\n{}", differ.len(), differ.join("\n"));
    let events = watch_of_leases(&real, &namespace).await;
    assert_eq!(watch_of_leases(&memory, &namespace).await, events);
    assert_eq!(events.len(), 6, "{events:?}");
    // Typed clients can read both.
    for client in [real, memory] {
        let vpas = Api::<VerticalPodAutoscaler>::namespaced(client, &namespace);
        let list = vpas.list(&kube::api::ListParams::default()).await.expect("a list");
        let mut names: Vec<_> = list.iter().map(ResourceExt::name_any).collect();
        names.sort();
        assert_eq!(names, ["db", "web"]);
    }
}
