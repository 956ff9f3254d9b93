//! An API server in memory, with two objects on each page.

use std::{
    collections::BTreeMap,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Response};
use kube::{Client, client::Body};
use plimsoll_core::rightsizing::survey::Survey;
use serde_json::{Value, json};
use tower::service_fn;

use crate::cluster::survey::{SurveyScope, survey_cluster};

/// The objects of an API server, by the path of their list.
#[derive(Clone, Debug, Default)]
pub(super) struct Cluster {
    lists: BTreeMap<&'static str, Vec<Value>>,
    /// The kinds of an API version.
    versions: BTreeMap<&'static str, Value>,
    /// Paths that are forbidden, by their beginning.
    forbidden: Vec<&'static str>,
    pub requests: Arc<AtomicUsize>,
}

impl Cluster {
    pub fn with(mut self, path: &'static str, object: Value) -> Self {
        self.lists.entry(path).or_default().push(object);
        self
    }

    pub fn forbidding(mut self, path: &'static str) -> Self {
        self.forbidden.push(path);
        self
    }

    pub fn serving(mut self, version: &'static str, resources: Value) -> Self {
        let list = json!({"kind": "APIResourceList", "apiVersion": "v1",
            "groupVersion": version, "resources": resources});
        self.versions.insert(version, list);
        self
    }

    fn respond(&self, request: &Request<Body>) -> (u16, Value) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let path = request.uri().path();
        let failure = |code: u16, message: String| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": message, "reason": "", "code": code});
            (code, status)
        };
        if self.forbidden.contains(&path) {
            return failure(403, format!("{path} is forbidden"));
        }
        if let Some(version) = self.versions.get(path.trim_start_matches("/apis/")) {
            return (200, version.clone());
        }
        if let Some(name) =
            path.strip_prefix("/api/v1/namespaces/").filter(|name| !name.contains('/'))
        {
            let found = self.lists.get("/api/v1/namespaces").into_iter().flatten();
            let mut found = found.filter(|object| object["metadata"]["name"] == name);
            return match found.next() {
                Some(object) => (200, object.clone()),
                None => failure(404, "not found".to_owned()),
            };
        }
        let (list, namespace) = match path.split_once("/namespaces/") {
            Some((root, rest)) => match rest.split_once('/') {
                Some((namespace, plural)) => (format!("{root}/{plural}"), Some(namespace)),
                None => (path.to_owned(), None),
            },
            None => (path.to_owned(), None),
        };
        let is_version = path.starts_with("/apis/") && path.matches('/').count() == 3;
        if is_version || list.contains("verticalpodautoscalers") && !self.lists.contains_key(&*list)
        {
            return failure(404, "not found".to_owned());
        }
        let objects = self.lists.get(&*list).into_iter().flatten();
        let accept = request.headers().get("accept").and_then(|accept| accept.to_str().ok());
        let is_partial = accept.is_some_and(|accept| accept.contains("PartialObjectMetadataList"));
        let reduced = |object: &Value| {
            if is_partial { json!({"metadata": object["metadata"]}) } else { object.clone() }
        };
        let objects: Vec<_> = objects
            .filter(|one| {
                namespace.is_none_or(|namespace| one["metadata"]["namespace"] == namespace)
            })
            .map(reduced)
            .collect();
        // Two objects a page.
        let query = request.uri().query().unwrap_or_default();
        let start: usize = query.split_once("continue=").map_or(0, |(_, at)| {
            at.split('&').next().and_then(|at| at.parse().ok()).expect("a number")
        });
        let limit = query.split_once("limit=").map_or("", |(_, rest)| rest);
        let limit = limit.split('&').next().and_then(|limit| limit.parse().ok()).unwrap_or(2);
        let end = objects.len().min(start + limit.min(2));
        let next = if end < objects.len() { end.to_string() } else { String::new() };
        let list = json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"continue": next}, "items": objects[start..end]});
        (200, list)
    }

    pub async fn survey(&self, scope: &SurveyScope) -> Survey {
        self.survey_after(None, scope).await
    }

    pub async fn survey_after(&self, earlier: Option<&Survey>, scope: &SurveyScope) -> Survey {
        let cluster = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let (code, body) = cluster.respond(&request);
            ready(Response::builder().status(code).body(Body::from(body.to_string().into_bytes())))
        });
        survey_cluster(&Client::new(service, "default"), scope, earlier).await
    }
}
