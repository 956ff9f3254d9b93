//! `plimsoll explain vpa`: reads the inputs of one VPA and runs the recommender's own code on them. If the history is not
//! readable, it uses the explanation that the recommender stored on the VPA. It writes nothing and contacts no running
//! recommender.

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
        suggestions::not_found_hint,
    },
};
use plimsoll_core::{
    recommender::{NamespaceScope, ResourceAmounts, RestoreResult, Settings, VpaRegistry},
    types::compat::Compat,
};

/// Which VPA to explain, and the flags of its recommender.
#[derive(Clone, Debug)]
pub struct ExplainConfig {
    /// Namespace of the VPA; `None` selects the namespace of the kubeconfig's current context.
    pub namespace: Option<String>,
    /// Name of the VPA.
    pub name: String,
    /// How to reach the cluster.
    pub cluster_options: ClusterOptions,
    /// Whether the recommender behaves like upstream.
    pub compat: Compat,
    /// The model's settings.
    pub settings: Settings,
    /// Where history is stored.
    pub storage: StorageChoice,
    /// Whether native sidecars get recommendations.
    pub native_sidecars: bool,
    /// Whether recommendations are capped to the largest node.
    pub cap_to_largest_node: bool,
    /// The maximum for all containers of a pod together.
    pub pod_cap: ResourceAmounts,
}

/// Why a VPA could not be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// No cluster is known.
    #[error(transparent)]
    NoCluster(#[from] NoCluster),
    /// The API server returned an error.
    #[error("{address}: {error}")]
    Unreadable {
        /// The cluster.
        address: String,
        /// The failed lookup.
        error: LookupError,
    },
    /// The VPA does not exist.
    #[error("VerticalPodAutoscaler {namespace}/{name} not found: {hint}")]
    NotFound {
        /// Namespace of the VPA.
        namespace: String,
        /// Name of the VPA.
        name: String,
        /// Similar names, or what else the user can try.
        hint: String,
    },
    /// The CRD is not installed.
    #[error(
        "{address}: the VerticalPodAutoscaler CRD is not installed: apply the output of `plimsoll crds`"
    )]
    CrdMissing {
        /// The cluster.
        address: String,
    },
    /// The stored history cannot be read.
    #[error(transparent)]
    Storage(#[from] plimsoll_storage::Error),
    /// The storage directory does not exist.
    #[error(
        "--storage=local:{0}: no such directory; without --storage the explanation that the recommender stored on the \
         VPA is used"
    )]
    NoDirectory(String),
    /// The storage directory is locked by a recommender.
    #[error(
        "--storage=local:{0}: in use by a recommender, which need not be stopped: without --storage the explanation \
         that the recommender stored on the VPA is used"
    )]
    InUse(String),
}

/// Explains a VPA at the given time.
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
    let mut loader = HistoryLoader { state: &state, now, records: Vec::new(), skipped: Vec::new() };
    let load_request = LoadRequest::Vpas(HashMap::from([(key.clone(), owner)]));
    let storage = open_storage(config, client, namespace, now)?;
    let load_result = storage.load(&load_request, &mut loader).await;
    let HistoryLoader { mut records, mut skipped, .. } = loader;
    if config.storage == StorageChoice::Checkpoint && load_result.is_ok() {
        for record in &mut records {
            (record.own, record.written) =
                find_checkpoint_time(client, &key, &record.container).await;
        }
    }
    let explanation = from_annotation::find_explanation(&vpa, &key, &records, &mut skipped);
    match (load_result, &explanation) {
        (Ok(load_report), _) => skipped.extend(load_report.skipped),
        (Err(error), Some(_)) => {
            let (record, reason) = (format!("{key}, {}", storage.name()), error.to_string());
            skipped.push(SkippedRecord { record, reason });
        }
        (Err(error), None) => return Err(error.into()),
    }
    let (mut storage, mut records) = (storage.name(), records);
    if let Some(explanation) = &explanation {
        (storage, records) =
            (report::ANNOTATION_STORAGE, from_annotation::placeholder_records(explanation));
    }
    let mut core = state.lock();
    if let Some(generation) = core.vpa_registry.load_generation(&key) {
        core.vpa_registry.mark_loaded(&key, generation);
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
            from_annotation: explanation,
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
    let hint = not_found_hint("VerticalPodAutoscalers", namespace, name, &names);
    ExplainError::NotFound { namespace: namespace.to_owned(), name: name.to_owned(), hint }
}

fn open_storage(
    config: &ExplainConfig,
    client: &Client,
    namespace: &str,
    now: Time,
) -> Result<Box<dyn Storage>, ExplainError> {
    match &config.storage {
        // Besides Prometheus there may be checkpoints; otherwise the explanation on the VPA is used.
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

/// Whether a VPA has its own checkpoint for this container, and when it was written. Errors are ignored because the result
/// does not affect the numbers.
async fn find_checkpoint_time(
    client: &Client,
    key: &ObjectKey,
    container: &str,
) -> (bool, Option<Time>) {
    let api = Api::<VerticalPodAutoscalerCheckpoint>::namespaced(client.clone(), &key.namespace);
    // The name that upstream uses, as Plimsoll does unless it is taken. Listing needs no additional permission.
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

/// Loads stored history into the recommender's state.
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
                // Upstream's format has no half-lives.
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
