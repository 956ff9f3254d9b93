//! Bulk writes of thousands of objects, as fast as an API server accepts them, without controllers.
//!
//! Controllers would reconcile such objects: a test that creates them stops the controllers first.

mod workload;

use std::time::Duration;

use futures::StreamExt as _;
use http::Method;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Client;
use kube::api::{Api, PostParams};
use serde_json::{Value, json};

use super::process_guard::ProcessState;
use super::testbed::Testbed;
use super::wait;
pub use workload::{ContainerRun, Workload, WorkloadKind, collection, create_definition};

/// Concurrent requests; more do not make an API server on two cores faster.
const AT_ONCE: usize = 32;
/// An API that was just registered returns 404 until all parts of the server know it.
const TRIES: u32 = 40;

/// One write request.
#[derive(Clone, Debug)]
pub struct ApiWrite {
    method: Method,
    path: String,
    body: Vec<u8>,
}

// === impl ApiWrite ===

impl ApiWrite {
    /// Creates an object in a collection.
    pub fn create(collection: impl Into<String>, object: &Value) -> Self {
        Self { method: Method::POST, path: collection.into(), body: object.to_string().into() }
    }

    /// Patches an object or its subresource.
    pub fn patch(path: impl Into<String>, change: &Value) -> Self {
        Self { method: Method::PATCH, path: path.into(), body: change.to_string().into() }
    }

    /// Deletes an object without a grace period, or a whole collection.
    pub fn delete(path: impl Into<String>) -> Self {
        let at_once = br#"{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}"#;
        Self { method: Method::DELETE, path: path.into(), body: at_once.to_vec() }
    }

    /// Method, path and body, for a comparison with another run.
    pub fn text(&self) -> String {
        format!("{} {} {}", self.method, self.path, String::from_utf8_lossy(&self.body))
    }

    async fn send(self, client: &Client) {
        for attempt in 0.. {
            let kind = match self.method {
                Method::PATCH => "application/merge-patch+json",
                _ => "application/json",
            };
            let request = http::Request::builder()
                .method(self.method.clone())
                .uri(&self.path)
                .header(http::header::CONTENT_TYPE, kind)
                .body(self.body.clone())
                .expect("a request");
            match client.request_text(request).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if self.is_success(status.code) => return,
                Err(kube::Error::Api(status))
                    if matches!(status.code, 404 | 429) && attempt < TRIES => {}
                Err(why) => panic!(
                    "{why} for {} {}\n{}",
                    self.method,
                    self.path,
                    String::from_utf8_lossy(&self.body)
                ),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Deleting an object that does not exist counts as success.
    fn is_success(&self, code: u16) -> bool {
        self.method == Method::DELETE && code == 404
    }
}

/// Sends all writes, in no particular order.
pub async fn send(client: &Client, writes: impl IntoIterator<Item = ApiWrite>) {
    futures::stream::iter(writes).for_each_concurrent(AT_ONCE, |write| write.send(client)).await;
}

/// Stops the controllers and the scheduler of a testbed, so that objects stay as they are written.
pub async fn stop_controllers(bed: &Testbed) {
    for name in ["kube-controller-manager", "kube-scheduler"] {
        bed.process_guard().signal(name, "KILL");
        wait::until("the controllers have ended", || async {
            (!matches!(bed.process_guard().state(name), Some(ProcessState::Running(_))))
                .then_some(())
        })
        .await;
    }
}

/// Creates a namespace with a fixed name, ready for pods, on a private testbed: for names that are part of a
/// recording.
pub async fn create_namespace(bed: &Testbed, name: &str) {
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name },
    });
    send(&bed.client(), [ApiWrite::create("/api/v1/namespaces", &namespace)]).await;
    let accounts = Api::<ServiceAccount>::namespaced(bed.client(), name);
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("default".to_owned());
    match accounts.create(&PostParams::default(), &account).await {
        Ok(_) => {}
        // The controller was faster.
        Err(kube::Error::Api(status)) if status.is_already_exists() => {}
        Err(why) => panic!("{why}"),
    }
}
