//! An API server in memory, which counts requests and bytes.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};
use tower::service_fn;

/// An API server with these documents by path. Lists are served in pages of the size that is requested.
#[derive(Clone, Default)]
pub(super) struct FakeServer {
    lists: BTreeMap<String, Vec<Value>>,
    documents: BTreeMap<String, Value>,
    pub forbidden: Vec<&'static str>,
    pub requests: Arc<AtomicUsize>,
    pub bytes: Arc<AtomicUsize>,
    /// The requests that are answered at once, and their maximum.
    pub concurrent: Arc<[AtomicUsize; 2]>,
}

impl FakeServer {
    pub fn with_list(mut self, path: &str, objects: impl IntoIterator<Item = Value>) -> Self {
        self.lists.entry(path.to_owned()).or_default().extend(objects);
        self
    }

    pub fn with(mut self, path: &str, document: Value) -> Self {
        self.documents.insert(path.to_owned(), document);
        self
    }

    fn respond(&self, request: &Request<Body>) -> (u16, Value) {
        let failure = |code: u16, message: &str| {
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                "message": message, "reason": "", "code": code});
            (code, status)
        };
        let path = request.uri().path();
        if self.forbidden.contains(&path) {
            return failure(403, "no right to do so");
        }
        if let Some(document) = self.documents.get(path) {
            return (200, document.clone());
        }
        let Some(objects) = self.lists.get(path) else { return failure(404, "not found") };
        let query = request.uri().query().unwrap_or_default();
        let number = |name: &str| {
            let value = query.split('&').find_map(|pair| pair.strip_prefix(name));
            value.and_then(|value| value.parse::<usize>().ok())
        };
        let accept = request.headers().get("accept").and_then(|accept| accept.to_str().ok());
        let is_partial = accept.is_some_and(|accept| accept.contains("PartialObjectMetadataList"));
        let start = number("continue=").unwrap_or(0);
        let end = objects.len().min(start + number("limit=").unwrap_or(usize::MAX - start));
        let next = if end < objects.len() { end.to_string() } else { String::new() };
        let page = objects[start..end].iter().map(|object| {
            if is_partial { json!({"metadata": object["metadata"]}) } else { object.clone() }
        });
        let page: Vec<Value> = page.collect();
        let list = json!({"kind": "List", "apiVersion": "v1",
            "metadata": {"continue": next}, "items": page});
        (200, list)
    }

    pub fn client(&self) -> Client {
        let server = self.clone();
        let service = service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let [now, most] = &*server.concurrent;
                most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                // Others may send requests meanwhile.
                tokio::task::yield_now().await;
                let (code, body) = server.respond(&request);
                let body = body.to_string().into_bytes();
                server.requests.fetch_add(1, Ordering::Relaxed);
                server.bytes.fetch_add(body.len(), Ordering::Relaxed);
                now.fetch_sub(1, Ordering::Relaxed);
                Response::builder().status(code).body(Body::from(body))
            }
        });
        Client::new(service, "default")
    }
}
