//! `plimsoll explain vpa`: reads what one VPA needs, runs the recommender's own code on it, and reports; or, where
//! the history cannot be read, what the recommender told on the VPA. Nothing is written, and nothing is asked of a
//! running recommender.

mod build;
mod from_annotation;

use std::collections::HashMap;

use kube::{Api, Client, api::ListParams};
use plimsoll_core::{
    api::checkpoint::VerticalPodAutoscalerCheckpoint,
    history::{Sample, Sink, SkippedRecord, Snapshot},
    types::{ContainerKey, ObjectKey, Time},
};
use plimsoll_storage::{
    CheckpointStorage, Error, LoadRequest, LocalStorage, Storage,
    checkpoint::{self},
};

use crate::controllers::{
    recommender::{config::StorageChoice, state::SharedState},
    runtime::cluster::{Cluster, ClusterOptions, NoCluster, RESPONSE_TIMEOUT},
};
use crate::{
    cluster::{
        cache::vpa_index::VpaIndex,
        target::{
            TargetResolution,
            one_shot::{self, LookupError},
        },
        watch::ObjectChange,
    },
    report::explain::{
        VpaReport,
        report::{self, RecordForm, StoredRecord},
        suggestions::suggestions,
    },
};
use plimsoll_core::{
    recommender::{NamespaceScope, ResourceAmounts, RestoreResult, Settings, VpaRegistry},
    types::compat::Compat,
};

/// Whose numbers are to be explained, and by which flags they were made.
#[derive(Clone, Debug)]
pub struct ExplainConfig {
    /// Namespace of the VPA; none is the one of the kubeconfig's context.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// How to reach the cluster.
    pub cluster_options: ClusterOptions,
    /// Whose numbers are wanted.
    pub compat: Compat,
    /// The model's settings.
    pub settings: Settings,
    /// Where history is kept.
    pub storage: StorageChoice,
    /// Whether init containers that keep running are recommended for.
    pub native_sidecars: bool,
    /// Whether a recommendation is kept within the largest node.
    pub cap_to_largest_node: bool,
    /// The most for all containers of a pod together.
    pub pod_cap: ResourceAmounts,
}

/// Why a VPA could not be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// No cluster is known.
    #[error(transparent)]
    NoCluster(#[from] NoCluster),
    /// The cluster does not answer as it should.
    #[error("{address}: {error}")]
    Unreadable {
        /// The cluster.
        address: String,
        /// What it would not tell.
        error: LookupError,
    },
    /// It is not there.
    #[error("there is no VerticalPodAutoscaler {namespace}/{name}: {hint}")]
    NotFound {
        /// Where it was looked for.
        namespace: String,
        /// By which name.
        name: String,
        /// What is there.
        hint: String,
    },
    /// The cluster does not know what a VPA is.
    #[error("{address} has no VerticalPodAutoscalers: apply the output of `plimsoll crds`")]
    CrdMissing {
        /// The cluster.
        address: String,
    },
    /// The stored history cannot be read.
    #[error(transparent)]
    Storage(#[from] plimsoll_storage::Error),
    /// There is no such directory.
    #[error(
        "--storage=local:{0}: there is no such directory here; without --storage it is explained from what the \
         recommender says on the VPA"
    )]
    NoDirectory(String),
    /// The directory is somebody's.
    #[error(
        "--storage=local:{0}: a recommender uses it, and nobody has to stop that one: without --storage it is \
         explained from what the recommender says on the VPA"
    )]
    InUse(String),
}

/// Explains a VPA as of now.
pub async fn explain(
    config: &ExplainConfig,
    cluster: &Cluster,
    now: Time,
) -> Result<VpaReport, ExplainError> {
    let namespace = config.namespace.as_deref().unwrap_or(&cluster.namespace);
    let (client, name) = (&cluster.client, &*config.name);
    let unreadable = |error| ExplainError::Unreadable { address: cluster.address.clone(), error };
    let vpa = one_shot::find_vpa(client, namespace, name).await.map_err(unreadable)?;
    let Some(vpa) = vpa else { return Err(not_found(cluster, namespace, name).await) };
    let target = &vpa.spec.target_ref;
    let outcome = one_shot::find_target(client, namespace, target, RESPONSE_TIMEOUT).await;
    let outcome = outcome.map_err(unreadable)?;
    let pods = match &outcome {
        _ if config.cap_to_largest_node => one_shot::find_all_pods(client).await,
        TargetResolution::Found { selector, .. } => {
            one_shot::find_pods(client, namespace, selector).await
        }
        _ => Ok(Vec::new()),
    };
    let pods = pods.map_err(unreadable)?;
    let nodes = if config.cap_to_largest_node {
        one_shot::find_nodes(client).await.map_err(unreadable)?
    } else {
        Vec::new()
    };

    let recommender = vpa.spec.recommenders.first().map_or("default", |first| &first.name);
    let key = ObjectKey::new(namespace, name);
    let state = SharedState::new(
        VpaIndex::new(NamespaceScope::default(), recommender),
        VpaRegistry::new(config.settings.clone(), config.compat),
        config.native_sidecars,
        config.cap_to_largest_node,
    );
    let owner = match &outcome {
        TargetResolution::Found { owner, .. } => Some(owner.clone()),
        _ => None,
    };
    {
        let mut core = state.lock();
        core.upsert_vpa(&vpa);
        core.set_target(&key, outcome);
        for pod in pods {
            core.apply_pod_change(ObjectChange::Applied(pod));
        }
        for node in nodes {
            core.apply_node_change(ObjectChange::Applied(node));
        }
        core.update_node_capacity(config.pod_cap);
    }
    let mut remembered =
        HistoryLoader { state: &state, now, records: Vec::new(), skipped: Vec::new() };
    let wanted = LoadRequest::Vpas(HashMap::from([(key.clone(), owner)]));
    let storage = open_storage(config, client, namespace, now)?;
    let loaded = storage.load(&wanted, &mut remembered).await;
    let HistoryLoader { mut records, mut skipped, .. } = remembered;
    if config.storage == StorageChoice::Checkpoint && loaded.is_ok() {
        for record in &mut records {
            (record.own, record.written) =
                find_checkpoint_time(client, &key, &record.container).await;
        }
    }
    let told = from_annotation::find_explanation(&vpa, &key, &records, &mut skipped);
    match (loaded, &told) {
        (Ok(loaded), _) => skipped.extend(loaded.skipped),
        (Err(error), Some(_)) => {
            let (what, why) = (format!("{key}, {}", storage.name()), error.to_string());
            skipped.push(SkippedRecord { record: what, reason: why });
        }
        (Err(error), None) => return Err(error.into()),
    }
    let (mut storage, mut records) = (storage.name(), records);
    if let Some(told) = &told {
        (storage, records) =
            (report::ANNOTATION_STORAGE, from_annotation::placeholder_records(told));
    }
    let mut core = state.lock();
    if let Some(sighting) = core.vpa_registry.load_generation(&key) {
        core.vpa_registry.mark_loaded(&key, sighting);
    }
    core.register_containers(&key, now);
    Ok(build::report(
        config,
        &vpa,
        &mut core,
        &key,
        now,
        build::StoredHistory {
            storage: storage.to_owned(),
            records,
            skipped,
            from_annotation: told,
        },
    ))
}

async fn not_found(cluster: &Cluster, namespace: &str, name: &str) -> ExplainError {
    let names = match one_shot::find_vpa_names(&cluster.client, namespace).await {
        Ok(Some(names)) => names,
        Ok(None) => return ExplainError::CrdMissing { address: cluster.address.clone() },
        Err(error) => {
            return ExplainError::Unreadable { address: cluster.address.clone(), error };
        }
    };
    let near = suggestions(name, names.iter().map(String::as_str));
    let hint = if near.is_empty() {
        format!("namespace {namespace} has none; give the namespace as NAMESPACE/NAME or with -n")
    } else {
        format!("the nearest there: {}", near.join(", "))
    };
    ExplainError::NotFound { namespace: namespace.to_owned(), name: name.to_owned(), hint }
}

fn open_storage(
    config: &ExplainConfig,
    client: &Client,
    namespace: &str,
    now: Time,
) -> Result<Box<dyn Storage>, ExplainError> {
    match &config.storage {
        // Beside series there are checkpoints, or the VPA says itself what there is to say.
        StorageChoice::Checkpoint | StorageChoice::Prometheus => {
            let options = checkpoint::CheckpointOptions {
                namespace: Some(namespace.to_owned()),
                ..checkpoint::CheckpointOptions::default()
            };
            Ok(Box::new(CheckpointStorage::new(client.clone(), move || now, options)))
        }
        StorageChoice::Local(directory) => {
            if !directory.is_dir() {
                return Err(ExplainError::NoDirectory(directory.display().to_string()));
            }
            match LocalStorage::open_read_only(directory) {
                Ok((local, _)) => Ok(Box::new(local)),
                Err(Error::InUse { place }) => Err(ExplainError::InUse(place)),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Whether a VPA has a checkpoint of its own for this container, and when it was written. Not to know is no
/// reason to end: it changes no number.
async fn find_checkpoint_time(
    client: &Client,
    key: &ObjectKey,
    container: &str,
) -> (bool, Option<Time>) {
    let api = Api::<VerticalPodAutoscalerCheckpoint>::namespaced(client.clone(), &key.namespace);
    // As upstream calls them, and we do unless the name is taken. The right to list them is needed in any case.
    let name = format!("metadata.name={}-{container}", key.name);
    let Ok(found) = api.list(&ListParams::default().fields(&name)).await else {
        return (true, None);
    };
    match found.items.into_iter().next() {
        Some(object)
            if object.spec.vpa_object_name == *key.name
                && object.spec.container_name == container =>
        {
            let written = object.status.and_then(|status| status.last_update_time);
            (true, written.map(|at| at.0.into()))
        }
        None => (false, None),
        Some(_) => (true, None),
    }
}

/// Takes what is stored into the fleet.
struct HistoryLoader<'a> {
    state: &'a SharedState,
    now: Time,
    records: Vec<StoredRecord>,
    skipped: Vec<SkippedRecord>,
}

impl Sink for HistoryLoader<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        match self.state.lock().vpa_registry.restore(&key, &snapshot, self.now) {
            Ok(restored) => self.records.push(StoredRecord {
                container: key.container,
                // Upstream's form cannot say it.
                form: if snapshot.half_lives.is_some() {
                    RecordForm::Exact
                } else {
                    RecordForm::Upstream
                },
                own: true,
                written: None,
                created: snapshot.created,
                last_alive: snapshot.last_alive,
                outcome: match restored {
                    RestoreResult::Expired => "expired",
                    RestoreResult::Merged | RestoreResult::AlreadyLoaded => "used",
                }
                .to_owned(),
            }),
            Err(bad) => {
                self.skipped
                    .push(SkippedRecord { record: key.to_string(), reason: bad.to_string() });
            }
        }
    }

    fn sample(&mut self, key: &ContainerKey, _: Sample) {
        let why = "single samples cannot be explained yet".to_owned();
        self.skipped.push(SkippedRecord { record: key.to_string(), reason: why });
    }
}
