//! Testbeds that tests use one after another, because they change something that exists once per cluster. After each
//! test the testbed is restored: new objects are deleted, and missing ones fail the test.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt as _};
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::super::inventory::{self, ClusterObject};
use super::super::{control_plane, wait};
use super::prestart::TestbedSpec;
use super::{Inner, spawn};
use crate::support::clock::Clock;

/// The testbed of a kind, once it was started, and its objects between two tests.
#[derive(Default)]
pub struct ExclusiveTestbed {
    idle: Arc<Mutex<Option<IdleTestbed>>>,
}

struct IdleTestbed {
    inner: Arc<Inner>,
    before: Objects,
}

/// A test's exclusive use of such a testbed. Dropping it restores the testbed.
pub struct ExclusiveUse {
    inner: Arc<Inner>,
    idle: OwnedMutexGuard<Option<IdleTestbed>>,
}

/// Objects by title.
type Objects = BTreeMap<String, ClusterObject>;

// === impl ExclusiveTestbed ===

impl ExclusiveTestbed {
    /// Waits until no other test uses the testbed of this kind, and starts it if needed.
    pub async fn acquire(&self, kind: &'static str) -> Result<ExclusiveUse, String> {
        let mut idle = Arc::clone(&self.idle).lock_owned().await;
        let found = idle.as_ref().map(|found| Arc::clone(&found.inner));
        if let Some(inner) = found {
            return Ok(ExclusiveUse { inner, idle });
        }
        let clock = Clock::wall();
        let wanted = TestbedSpec { kind, flags: &[], clock, controllers: true, takes_slot: false };
        let inner = wanted.start().await?;
        let client = client(&inner).await;
        define(&client).await;
        let before = wait_until_settled(&client).await;
        *idle = Some(IdleTestbed { inner: Arc::clone(&inner), before });
        Ok(ExclusiveUse { inner, idle })
    }
}

// === impl ExclusiveUse ===

impl ExclusiveUse {
    pub(super) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }
}

impl Drop for ExclusiveUse {
    fn drop(&mut self) {
        // A testbed that could not be restored is not used again.
        let Some(idle) = self.idle.take() else { return };
        if std::thread::panicking() {
            return;
        }
        let (done, end) = mpsc::channel();
        spawn(async move {
            let missing = restore(&client(&idle.inner).await, &idle.before).await;
            // The receiver is only gone if the process ends.
            let _ = done.send((idle, missing));
        });
        let (idle, missing) = end.recv().expect("the testbed is restored; see the panic above");
        assert!(missing.is_empty(), "the test deleted objects that others need: {missing:#?}");
        *self.idle = Some(idle);
    }
}

async fn client(inner: &Inner) -> Client {
    control_plane::client(&inner.plane.kubeconfig_for(control_plane::ADMIN_TOKEN)).await
}

/// Our CRDs stay from test to test: it takes seconds until a new one is served.
async fn define(client: &Client) {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in plimsoll_core::api::crdgen::crds().expect("definitions") {
        definitions.create(&PostParams::default(), &definition).await.expect("a new definition");
    }
    let served = |found: &CustomResourceDefinition| {
        let conditions = found.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True")
    };
    wait::until("our definitions are served", || async {
        let found = definitions.list(&ListParams::default()).await.ok()?.items;
        found.iter().all(served).then_some(())
    })
    .await;
}

/// The objects after the control plane has created everything that it creates itself.
async fn wait_until_settled(client: &Client) -> Objects {
    const QUIET: Duration = Duration::from_secs(1);
    let last = std::sync::Mutex::new(Objects::new());
    wait::often(QUIET, wait::PATIENCE, "the control plane creates no more objects", || async {
        let now = objects_of_tests(client).await;
        let mut last = last.lock().expect("no panic");
        if now.keys().eq(last.keys()) {
            return Ok(now);
        }
        *last = now;
        Err(format!("{} objects by now", last.len()))
    })
    .await
}

/// Deletes new objects; returns those that are missing.
async fn restore(client: &Client, before: &Objects) -> Vec<String> {
    // Webhooks first: they would be called for all other deletions and may no longer respond.
    let webhooks = Api::<MutatingWebhookConfiguration>::all(client.clone());
    for webhook in webhooks.list(&ListParams::default()).await.expect("a list") {
        delete(&webhooks, &webhook.name_any()).await;
    }
    wait::until_ok("the testbed is restored", || async {
        let now = objects_of_tests(client).await;
        let new: Vec<&ClusterObject> = now
            .iter()
            .filter(|(title, _)| !before.contains_key(*title))
            .map(|(_, found)| found)
            .collect();
        for found in &new {
            let goes_with = |namespace: &String| {
                new.iter().any(|one| one.resource.kind == "Namespace" && one.name == *namespace)
            };
            if !found.namespace.as_ref().is_some_and(goes_with) {
                delete(&found.api(client), &found.name).await;
            }
        }
        let remaining: Vec<String> = new.iter().map(|found| found.title()).collect();
        if remaining.is_empty() { Ok(()) } else { Err(format!("not deleted: {remaining:#?}")) }
    })
    .await;
    let now = objects_of_tests(client).await;
    before.keys().filter(|title| !now.contains_key(*title)).cloned().collect()
}

async fn delete<K>(api: &Api<K>, name: &str)
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    match api.delete(name, &DeleteParams::background()).await {
        Ok(_) => {}
        // It was deleted meanwhile, or is checked again.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
        Err(why) => panic!("{name} cannot be deleted: {why}"),
    }
}

/// All objects except those that exist without a test, and those of the testbed's metrics API.
async fn objects_of_tests(client: &Client) -> Objects {
    let mut all = inventory::all_objects(client).await;
    all.retain(|_, found| !belongs_to_testbed(found));
    all
}

fn belongs_to_testbed(found: &ClusterObject) -> bool {
    match found.resource.kind.as_str() {
        "APIService" => found.name.ends_with(".metrics.k8s.io"),
        "ConfigMap" => found.name == "kube-root-ca.crt",
        "ControllerRevision" => true,
        "Lease" => found.name.starts_with("apiserver-"),
        "Service" => found.name == "usage",
        "ServiceAccount" => found.name == "default",
        _ => false,
    }
}
