//! `plimsoll explain vpa`: takes the inputs of one VPA from a snapshot and runs the recommender's own code on them. If the
//! history is not readable, it uses the explanation that the recommender stored on the VPA. It writes nothing and contacts
//! no running recommender.

mod build;
mod from_annotation;

use std::collections::HashMap;

use kube::{Api, Client, api::ListParams};
use plimsoll_core::{
    api::checkpoint::VerticalPodAutoscalerCheckpoint,
    history::{Sample, Sink, SkippedRecord, Snapshot},
    recommender::{NamespaceScope, ResourceAmounts, RestoreResult, Settings, VpaRegistry},
    types::{ContainerKey, ObjectKey, Time, compat::Compat},
};
use plimsoll_storage::{CheckpointStorage, Error, LoadRequest, LocalStorage, Storage, checkpoint};

use super::{
    lookup::{ExplainError, find_object, required},
    shared_requests,
};
use crate::{
    cluster::{
        cache::vpa_index::VpaIndex,
        snapshot::{ClusterSnapshot, SnapshotPart, read_leases},
        target::TargetResolution,
        watch::ObjectChange,
    },
    controllers::{
        recommender::{config::StorageChoice, state::SharedState},
        runtime::{command_client::Cluster, hpa_replacement},
    },
    report::explain::{
        VpaReport,
        vpa::report::{self, RecordForm, StoredRecord},
    },
};

/// Which VPA to explain, and the flags of its recommender.
#[derive(Clone, Debug)]
pub struct ExplainConfig {
    /// Namespace of the VPA; `None` selects the namespace of the kubeconfig's current context.
    pub namespace: Option<String>,
    pub name: String,
    pub compat: Compat,
    pub settings: Settings,
    pub storage: StorageChoice,
    pub native_sidecars: bool,
    pub cap_to_largest_node: bool,
    /// The maximum for all containers of a pod together.
    pub pod_cap: ResourceAmounts,
}

pub async fn explain(
    config: &ExplainConfig,
    cluster: &Cluster,
    now: Time,
) -> Result<VpaReport, ExplainError> {
    let namespace = config.namespace.as_deref().unwrap_or(&cluster.namespace);
    let (client, name) = (&cluster.client, &*config.name);
    // The pods of the cluster include those of the namespace.
    let (parts, capacity_parts): (&[_], &[_]) = if config.cap_to_largest_node {
        (&[SnapshotPart::Vpas, SnapshotPart::Hpas], &[SnapshotPart::Pods, SnapshotPart::Nodes])
    } else {
        (&[SnapshotPart::Vpas, SnapshotPart::Hpas, SnapshotPart::Pods], &[])
    };
    let (snapshot, of_cluster) = tokio::join!(
        ClusterSnapshot::read(client, Some(namespace), parts),
        ClusterSnapshot::read(client, None, capacity_parts),
    );
    let vpa = find_object(cluster, &snapshot.vpas, namespace, name)?;
    let target = &vpa.spec.target_ref;
    let (parts, kinds) = ([SnapshotPart::Controllers], [&*target.kind]);
    let controllers = ClusterSnapshot::read_for_targets(client, namespace, &parts, &kinds).await;
    let targets = controllers.target_resolver(client);
    let outcome = controllers.resolve_target(&targets, namespace, target).await;
    let outcome = outcome.map_err(|error| ExplainError::unreadable(cluster, &error))?;
    let (pods, nodes) = if config.cap_to_largest_node {
        (&of_cluster.pods, &required(cluster, &of_cluster.nodes)?.objects[..])
    } else {
        (&snapshot.pods, &[][..])
    };
    let pods = &required(cluster, pods)?.objects;

    let is_replaced = is_hpa_controller_replaced(config, client, &snapshot, now).await;
    let key = ObjectKey::new(namespace, name);
    let state = SharedState::new(
        VpaIndex::new(NamespaceScope::default(), vpa.spec.recommender_name()),
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
        core.upsert_vpa(vpa);
        core.set_target(&key, outcome);
        for pod in pods.iter().filter(|pod| pod.is_started()) {
            core.apply_pod_change(ObjectChange::Applied(pod.recommender.clone()));
        }
        for node in nodes {
            core.apply_node_change(ObjectChange::Applied(node.clone()));
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
    let explanation = from_annotation::find_explanation(vpa, &key, &records, &mut skipped);
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
    let history = report::History { storage: storage.to_owned(), records, skipped };
    let about = (&key, now);
    let mut report = build::report(config, vpa, &mut core, about, &history, explanation.as_ref());
    if config.compat == Compat::Plimsoll {
        shared_requests::add(&mut report, &snapshot, &controllers.controllers, vpa, is_replaced);
    }
    Ok(report)
}

/// Whether Plimsoll replaces the HPA controller of the cluster. Leases are read only if there are HPAs.
async fn is_hpa_controller_replaced(
    config: &ExplainConfig,
    client: &Client,
    snapshot: &ClusterSnapshot,
    now: Time,
) -> bool {
    let has_hpas = snapshot.hpas.as_ref().is_ok_and(|hpas| !hpas.objects.is_empty());
    if !has_hpas || config.compat == Compat::Upstream {
        return false;
    }
    let namespace = hpa_replacement::DEFAULT_NAMESPACE;
    let leases = read_leases(client, [namespace]).await;
    shared_requests::is_hpa_controller_replaced(leases.get(namespace), now)
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
    let Some(object) = found.items.into_iter().next() else { return (false, None) };
    let is_own =
        object.spec.vpa_object_name == *key.name && object.spec.container_name == container;
    let written = object.status.filter(|_| is_own).and_then(|status| status.last_update_time);
    (true, written.map(|at| at.0.into()))
}

struct HistoryLoader<'a> {
    state: &'a SharedState,
    now: Time,
    records: Vec<StoredRecord>,
    skipped: Vec<SkippedRecord>,
}

impl Sink for HistoryLoader<'_> {
    fn snapshot(&mut self, key: ContainerKey, snapshot: Snapshot) {
        match self.state.lock().vpa_registry.restore(&key, &snapshot, self.now, false) {
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
