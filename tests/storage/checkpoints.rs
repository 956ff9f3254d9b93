//! The checkpoint backend on a real API server: the conformance suite of all backends, with and without annotations.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use plimsoll_core::{
    api::checkpoint::VerticalPodAutoscalerCheckpoint as Checkpoint,
    history::{
        BucketScheme, Record, Sample, Sink, Snapshot,
        checkpoint::{snapshot_from_status, status_from_snapshot},
    },
    types::{ContainerKey, ObjectKey},
};
use plimsoll_storage::{
    CheckpointStorage, Error, LoadReport, LoadRequest, OrphanPredicate, SaveReport, Storage,
    WritePermit, Writer, checkpoint::CheckpointOptions,
};
use serde_json::json;

use super::checkpoint_objects::{NOW, at_now, create_definitions};
use super::conformance::{
    BackendFactory, Case, Tampering, TestBackend, WriteUnit, failed_cases, format_table,
    not_applicable_cases, run_suite,
};
use crate::support::Testbed;

/// The suite uses any namespaces; each subject maps them to its own with a prefix.
struct ClusterNamespaces {
    bed: Testbed,
    prefix: String,
    /// Namespaces that exist.
    created: Mutex<BTreeSet<String>>,
    extras: bool,
}

impl ClusterNamespaces {
    fn key(&self, key: &ContainerKey) -> ContainerKey {
        ContainerKey::new(self.vpa(&key.vpa), key.container.clone())
    }

    fn vpa(&self, vpa: &ObjectKey) -> ObjectKey {
        ObjectKey::new(format!("{}{}", self.prefix, vpa.namespace), vpa.name.clone())
    }

    /// The key without the prefix, if it belongs to this subject.
    fn unprefixed(&self, key: &ContainerKey) -> Option<ContainerKey> {
        let namespace = key.vpa.namespace.strip_prefix(&self.prefix)?;
        Some(ContainerKey::new(
            ObjectKey::new(namespace, key.vpa.name.clone()),
            key.container.clone(),
        ))
    }

    async fn create_namespace(&self, namespace: &str) {
        let known = self.created.lock().expect("no panic").contains(namespace);
        if known || !namespace.is_ascii() {
            return;
        }
        let object = Namespace {
            metadata: ObjectMeta { name: Some(namespace.into()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        let namespaces = Api::<Namespace>::all(self.bed.client());
        match namespaces.create(&PostParams::default(), &object).await {
            Ok(_) => {}
            // Another save of the same subject was faster.
            Err(kube::Error::Api(status)) if status.is_already_exists() => {}
            Err(error) => panic!("{error}"),
        }
        self.created.lock().expect("no panic").insert(namespace.into());
    }

    fn checkpoints(&self) -> CheckpointStorage {
        let options = CheckpointOptions {
            write_annotations: self.extras,
            concurrency: 3,
            page_size: 50,
            ..CheckpointOptions::default()
        };
        CheckpointStorage::new(self.bed.client(), at_now, options)
    }
}

/// A subject's view of the backend.
struct PrefixedCheckpoints {
    cluster: Arc<ClusterNamespaces>,
    checkpoints: CheckpointStorage,
}

struct PrefixFilter<'a> {
    cluster: &'a ClusterNamespaces,
    sink: &'a mut dyn Sink,
    taken: usize,
}

impl Sink for PrefixFilter<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        if let Some(key) = self.cluster.unprefixed(&key) {
            self.taken += 1;
            self.sink.snapshot(key, snapshot);
        }
    }

    fn sample(&mut self, _: &ContainerKey, _: Sample) {
        panic!("checkpoints have no samples");
    }
}

#[async_trait]
impl Storage for PrefixedCheckpoints {
    fn name(&self) -> &'static str {
        self.checkpoints.name()
    }

    async fn load(&self, wanted: &LoadRequest, sink: &mut dyn Sink) -> Result<LoadReport, Error> {
        let wanted = match wanted {
            LoadRequest::All => LoadRequest::All,
            LoadRequest::Vpas(vpas) => LoadRequest::Vpas(
                vpas.iter().map(|(vpa, owner)| (self.cluster.vpa(vpa), owner.clone())).collect(),
            ),
        };
        let mut own = PrefixFilter { cluster: &self.cluster, sink, taken: 0 };
        let report = self.checkpoints.load(&wanted, &mut own).await?;
        let skipped = report.skipped.into_iter();
        Ok(LoadReport {
            snapshots: own.taken,
            samples: 0,
            skipped: skipped.filter(|one| one.record.starts_with(&self.cluster.prefix)).collect(),
        })
    }

    fn writer(&self) -> Option<&dyn Writer> {
        Some(self)
    }
}

#[async_trait]
impl Writer for PrefixedCheckpoints {
    async fn save(&self, batch: &[Record], permit: &dyn WritePermit) -> Result<SaveReport, Error> {
        let mut renamed = batch.to_vec();
        for record in &mut renamed {
            record.key = self.cluster.key(&record.key);
            self.cluster.create_namespace(&record.key.vpa.namespace).await;
        }
        let mut report = self.checkpoints.save(&renamed, permit).await?;
        for key in &mut report.stored_richer {
            *key = self.cluster.unprefixed(key).expect("saved by this subject");
        }
        Ok(report)
    }

    async fn collect_garbage(
        &self,
        orphaned: OrphanPredicate<'_>,
        permit: &dyn WritePermit,
    ) -> Result<usize, Error> {
        let own =
            |key: &ContainerKey| self.cluster.unprefixed(key).is_some_and(|key| orphaned(&key));
        self.checkpoints.collect_garbage(&own, permit).await
    }
}

#[async_trait]
impl TestBackend for PrefixedCheckpoints {
    fn storage(&self) -> &dyn Storage {
        self
    }

    fn write_unit(&self) -> WriteUnit {
        WriteUnit::Record
    }

    fn has_room(&self, record: &Record) -> bool {
        let key = &record.key;
        let ascii = key.to_string().is_ascii();
        ascii && record.snapshot.cpu.scheme == BucketScheme::Standard
    }

    fn expected_snapshot(&self, record: &Record) -> Snapshot {
        if self.cluster.extras {
            return record.snapshot.clone();
        }
        let status = status_from_snapshot(&record.snapshot, NOW).expect("has capacity");
        snapshot_from_status(&status).expect("written file is readable")
    }

    async fn reopen(self: Arc<Self>, tampering: Tampering) -> Result<Arc<dyn TestBackend>, String> {
        let cluster = Arc::clone(&self.cluster);
        drop(self);
        match tampering {
            Tampering::None => {}
            Tampering::Corrupt(key) => {
                let key = cluster.key(&key);
                let api = Api::<Checkpoint>::namespaced(cluster.bed.client(), &key.vpa.namespace);
                let change = json!({"status": {"cpuHistogram": {"bucketWeights": {"x": 1}}}});
                let name = format!("{}-{}", key.vpa.name, key.container);
                let patch = Patch::Merge(change);
                api.patch(&name, &PatchParams::default(), &patch).await.expect("stored");
            }
            Tampering::Foreign(key) => {
                let key = cluster.key(&key);
                let api = Api::<Checkpoint>::namespaced(cluster.bed.client(), &key.vpa.namespace);
                let object = serde_json::from_value(json!({
                    "metadata": {"name": "from-the-future"},
                    "spec": {"vpaObjectName": &*key.vpa.name, "containerName": &*key.container},
                    "status": {"version": "v4", "totalSamplesCount": 5},
                }));
                let object: Checkpoint = object.expect("an object");
                api.create(&PostParams::default(), &object).await.expect("created");
            }
        }
        let checkpoints = cluster.checkpoints();
        Ok(Arc::new(Self { cluster, checkpoints }))
    }
}

struct ClusterMaker {
    bed: Testbed,
    extras: bool,
}

#[async_trait]
impl BackendFactory for ClusterMaker {
    async fn create(&self) -> Result<Arc<dyn TestBackend>, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cluster = Arc::new(ClusterNamespaces {
            bed: self.bed.clone(),
            prefix: format!("suite-{}-", NEXT.fetch_add(1, Relaxed)),
            created: Mutex::default(),
            extras: self.extras,
        });
        let checkpoints = cluster.checkpoints();
        Ok(Arc::new(PrefixedCheckpoints { cluster, checkpoints }))
    }
}

async fn passes(extras: bool) {
    let Some(bed) = Testbed::shared().await else { return };
    create_definitions(&bed).await;
    let outcomes = run_suite(&ClusterMaker { bed, extras }).await;
    assert_eq!(
        (failed_cases(&outcomes), not_applicable_cases(&outcomes)),
        (Vec::<Case>::new(), vec![]),
        "{}",
        format_table(&outcomes)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn checkpoint_storage_passes_every_case() {
    passes(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn checkpoint_storage_without_annotations_passes_what_upstreams_format_allows() {
    passes(false).await;
}
