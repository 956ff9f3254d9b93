//! The objects of the API server when upstream was recorded: read from a real one once, and served from memory to Plimsoll.
//!
//! Supports reads only: lists, watches without changes, and gets.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower_service::Service;

use super::scenario::Scenario;
use crate::support::bulk_objects::{WorkloadKind, collection};

/// What an admission controller lists.
const LISTS: [&str; 9] = [
    "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers",
    "/api/v1/limitranges",
    "/api/v1/replicationcontrollers",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/replicasets",
    "/apis/apps/v1/statefulsets",
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
];
/// Discovery of the kinds in this group that can be scaled.
const DISCOVERY: [&str; 2] = ["/apis/argoproj.io", "/apis/argoproj.io/v1alpha1"];
/// Fields that differ between two servers for the same request.
const SERVER_SPECIFIC_FIELDS: [&str; 5] =
    ["creationTimestamp", "generation", "managedFields", "resourceVersion", "uid"];

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Responses of an API server, by path.
#[derive(Clone)]
pub struct RecordedCluster(Arc<BTreeMap<String, Value>>);

impl RecordedCluster {
    /// Returns a server with these responses.
    pub fn of(answers: BTreeMap<String, Value>) -> Self {
        Self(Arc::new(answers))
    }

    /// Reads the responses of a real API server to which a scenario was written.
    pub async fn read(client: &Client, scenario: &Scenario) -> BTreeMap<String, Value> {
        let custom = scenario.subjects.iter().map(|subject| &subject.workload);
        let scales =
            custom.filter(|workload| workload.kind == WorkloadKind::Rollout).map(|workload| {
                let of = collection("argoproj.io/v1alpha1", &workload.namespace, "rollouts");
                format!("{of}/{}/scale", workload.name)
            });
        let paths = LISTS.iter().chain(&DISCOVERY).map(ToString::to_string).chain(scales);
        let mut answers = BTreeMap::new();
        for path in paths {
            let request = http::Request::get(&path).body(Vec::new()).expect("valid request");
            let mut answer: Value = client.request(request).await.expect("API server responds");
            let written = scenario.namespaces();
            if let Some(items) = answer["items"].as_array_mut() {
                items.retain(|item| {
                    item["metadata"]["namespace"]
                        .as_str()
                        .is_some_and(|name| written.contains(name))
                });
                for item in items {
                    forget(item);
                }
            }
            forget(&mut answer);
            answers.insert(path, answer);
        }
        answers
    }

    /// Returns a client of this server.
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    fn answer(&self, request: &Request<Body>) -> Answer {
        if request.method() != Method::GET {
            return refusal(StatusCode::METHOD_NOT_ALLOWED);
        }
        let Some(found) = self.0.get(request.uri().path()) else {
            return refusal(StatusCode::NOT_FOUND);
        };
        let query = request.uri().query().unwrap_or_default();
        if query.split('&').any(|part| part == "watch=true") {
            return watch(found, query.contains("sendInitialEvents=true"));
        }
        let mut found = found.clone();
        if found["items"].is_array() {
            found["metadata"] = json!({ "resourceVersion": "1" });
        }
        Response::new(Full::from(found.to_string()).boxed_unsync())
    }
}

impl Service<Request<Body>> for RecordedCluster {
    type Response = Answer;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        std::future::ready(Ok(self.answer(&request)))
    }
}

/// Removes the fields specific to one server.
fn forget(object: &mut Value) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|name, _| !SERVER_SPECIFIC_FIELDS.contains(&name.as_str()));
    }
}

/// A watch that starts with all objects if the client asks for them. Nothing changes afterwards.
fn watch(list: &Value, with_objects: bool) -> Answer {
    let api_version = list["apiVersion"].as_str().unwrap_or_default();
    let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List");
    let mut events = Vec::new();
    if with_objects {
        for item in list["items"].as_array().into_iter().flatten() {
            let mut object = item.clone();
            object["apiVersion"] = api_version.into();
            object["kind"] = kind.into();
            object["metadata"]["resourceVersion"] = "1".into();
            events.push(json!({ "type": "ADDED", "object": object }));
        }
        let annotations = json!({ "k8s.io/initial-events-end": "true" });
        let metadata = json!({ "resourceVersion": "1", "annotations": annotations });
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
        events.push(json!({ "type": "BOOKMARK", "object": object }));
    }
    let lines = events.into_iter().map(|event| Ok(Frame::data(Bytes::from(format!("{event}\n")))));
    let body = StreamBody::new(stream::iter(lines).chain(stream::pending()));
    Response::new(body.boxed_unsync())
}

fn refusal(code: StatusCode) -> Answer {
    let reason = code.canonical_reason().unwrap_or_default();
    let status = json!({
        "apiVersion": "v1", "kind": "Status", "status": "Failure",
        "reason": reason.replace(' ', ""), "message": reason, "code": code.as_u16(),
    });
    let mut answer = Response::new(Full::from(status.to_string()).boxed_unsync());
    *answer.status_mut() = code;
    answer
}
