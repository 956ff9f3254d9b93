//! Checkpoint objects on the shared control plane, created, read and changed as other programs would.

use std::collections::BTreeMap;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use plimsoll_core::{
    api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint,
    history::{Record, Sample, Sink, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{
    CheckpointStorage, LoadReport, LoadRequest, SaveReport, Storage, Writer,
    checkpoint::{CheckpointOptions, annotation},
};
use serde_json::{Value, json};

use super::temp_store::{AlwaysPermitted, record};
use crate::support::{Testbed, wait};

/// Time of all writes.
pub const NOW: Time = Time::from_secs(1_790_100_000);

/// The clock of these tests.
pub fn at_now() -> Time {
    NOW
}

/// Creates the CRDs.
pub async fn create_definitions(bed: &Testbed) {
    let definitions = Api::<CustomResourceDefinition>::all(bed.client());
    for definition in plimsoll_core::api::crdgen::crds().expect("definitions") {
        match definitions.create(&PostParams::default(), &definition).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
    }
    wait::until("checkpoints can be listed", || async {
        Api::<Checkpoint>::all(bed.client()).list(&ListParams::default().limit(1)).await.ok()
    })
    .await;
}

/// A namespace with its checkpoints.
pub struct CheckpointFixture {
    pub bed: Testbed,
    pub namespace: String,
    pub objects: Api<Checkpoint>,
}

impl CheckpointFixture {
    /// An empty namespace; `None` if there is no control plane.
    pub async fn new(name: &str) -> Option<Self> {
        let bed = Testbed::shared().await?;
        create_definitions(&bed).await;
        let namespace = bed.namespace(name).await;
        let objects = Api::namespaced(bed.client(), &namespace);
        Some(Self { bed, namespace, objects })
    }

    /// A backend for the namespace.
    pub fn open(&self) -> CheckpointStorage {
        self.open_with(|_| {})
    }

    /// A backend with other options.
    pub fn open_with(&self, change: impl FnOnce(&mut CheckpointOptions)) -> CheckpointStorage {
        let mut options = CheckpointOptions {
            namespace: Some(self.namespace.clone()),
            ..CheckpointOptions::default()
        };
        change(&mut options);
        CheckpointStorage::new(self.bed.client(), at_now, options)
    }

    /// A key in the namespace.
    pub fn key(&self, vpa: &str, container: &str) -> ContainerKey {
        ContainerKey::new(ObjectKey::new(self.namespace.as_str(), vpa), container)
    }

    /// A record of a key; each generation has more samples.
    pub fn record(&self, vpa: &str, container: &str, generation: u64) -> Record {
        Record { key: self.key(vpa, container), ..record(0, generation) }
    }

    /// The checkpoint of that name.
    pub async fn object(&self, name: &str) -> Checkpoint {
        self.objects.get(name).await.unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Creates an object.
    pub async fn create(&self, object: Value) {
        let object: Checkpoint = serde_json::from_value(object).expect("a checkpoint");
        self.objects.create(&PostParams::default(), &object).await.expect("created");
    }

    /// Changes an object by a merge patch.
    pub async fn change(&self, name: &str, change: Value) {
        let patch = Patch::Merge(change);
        let changed = self.objects.patch(name, &PatchParams::default(), &patch).await;
        changed.unwrap_or_else(|error| panic!("{name}: {error}"));
    }

    /// Changes our annotation of an object.
    pub async fn annotate(&self, name: &str, text: &str) {
        self.change(name, json!({"metadata": {"annotations": {annotation::KEY: text}}})).await;
    }

    /// Removes an object.
    pub async fn remove(&self, name: &str) {
        self.objects.delete(name, &DeleteParams::default()).await.expect("exists");
    }

    /// The names of all objects.
    pub async fn names(&self) -> Vec<String> {
        let list = self.objects.list(&ListParams::default()).await.expect("a list");
        list.items.into_iter().filter_map(|object| object.metadata.name).collect()
    }

    /// Loads everything with a new backend.
    pub async fn load(&self) -> LoadedSnapshots {
        load(&self.open(), &LoadRequest::All).await
    }
}

/// The annotation of an object.
pub fn annotation_of(object: &Checkpoint) -> Option<&str> {
    object.metadata.annotations.as_ref()?.get(annotation::KEY).map(String::as_str)
}

/// The result of a load.
#[derive(Debug, Default)]
pub struct LoadedSnapshots {
    pub snapshots: BTreeMap<ContainerKey, Snapshot>,
    pub report: LoadReport,
}

impl Sink for LoadedSnapshots {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        let known = self.snapshots.insert(key, snapshot);
        assert_eq!(known, None, "duplicate key");
    }

    fn sample(&mut self, key: &ContainerKey, _: Sample) {
        panic!("{key}: checkpoints have no samples");
    }
}

/// Loads the requested snapshots.
pub async fn load(checkpoints: &CheckpointStorage, wanted: &LoadRequest) -> LoadedSnapshots {
    let mut loaded = LoadedSnapshots::default();
    let report = checkpoints.load(wanted, &mut loaded).await.expect("loads");
    assert_eq!(report.snapshots, loaded.snapshots.len());
    LoadedSnapshots { report, ..loaded }
}

/// Saves with all permits.
pub async fn save(checkpoints: &CheckpointStorage, batch: &[Record]) -> SaveReport {
    checkpoints.save(batch, &AlwaysPermitted).await.expect("succeeds")
}
