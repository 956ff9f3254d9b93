//! `plimsoll explain vpa`: reads what one VPA needs, runs the recommender's own code on it, and reports; or, where
//! the history cannot be read, what the recommender told on the VPA. Nothing is written, and nothing is asked of a
//! running recommender.

mod assemble;
mod told;

use std::collections::HashMap;

use kube::{Api, Client, api::ListParams};
use plimsoll_core::{
    api::checkpoint::VerticalPodAutoscalerCheckpoint,
    history::{Sample, Sink, Skipped, Snapshot},
    types::{Key, Time, VpaKey},
};
use plimsoll_storage::{
    Checkpoints, Error, Local, Storage, Wanted,
    checkpoint::{self},
};

use super::{
    cluster::{ANSWER, Cluster, NoCluster, Reach},
    config::StorageChoice,
    recommender::state::State,
};
use crate::{
    explain::{
        Report,
        nearest::nearest,
        report::{self, Form, StoredRecord},
    },
    observe::{
        index::Index,
        lookup::{self, LookupError},
        target::Outcome,
        watch::Change,
    },
};
use plimsoll_core::{
    recommender::{Amounts, Fleet, Restored, Scope, Settings},
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
    pub reach: Reach,
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
    pub pod_cap: Amounts,
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
    Unknown {
        /// Where it was looked for.
        namespace: String,
        /// By which name.
        name: String,
        /// What is there.
        hint: String,
    },
    /// The cluster does not know what a VPA is.
    #[error("{address} has no VerticalPodAutoscalers: apply the output of `plimsoll crds`")]
    Undefined {
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
) -> Result<Report, ExplainError> {
    let namespace = config.namespace.as_deref().unwrap_or(&cluster.namespace);
    let (client, name) = (&cluster.client, &*config.name);
    let unreadable = |error| ExplainError::Unreadable { address: cluster.address.clone(), error };
    let vpa = lookup::find_vpa(client, namespace, name).await.map_err(unreadable)?;
    let Some(vpa) = vpa else { return Err(missing(cluster, namespace, name).await) };
    let target = &vpa.spec.target_ref;
    let outcome = lookup::find_target(client, namespace, target, ANSWER).await;
    let outcome = outcome.map_err(unreadable)?;
    let pods = match &outcome {
        _ if config.cap_to_largest_node => lookup::find_all_pods(client).await,
        Outcome::Found { selector, .. } => lookup::find_pods(client, namespace, selector).await,
        _ => Ok(Vec::new()),
    };
    let pods = pods.map_err(unreadable)?;
    let nodes = if config.cap_to_largest_node {
        lookup::find_nodes(client).await.map_err(unreadable)?
    } else {
        Vec::new()
    };

    let recommender = vpa.spec.recommenders.first().map_or("default", |first| &first.name);
    let key = VpaKey::new(namespace, name);
    let state = State::new(
        Index::new(Scope::default(), recommender),
        Fleet::new(config.settings.clone(), config.compat),
        config.native_sidecars,
        config.cap_to_largest_node,
    );
    let owner = match &outcome {
        Outcome::Found { owner, .. } => Some(owner.clone()),
        _ => None,
    };
    {
        let mut core = state.lock();
        core.put_vpa(&vpa);
        core.take_outcome(&key, outcome);
        for pod in pods {
            core.change_pod(Change::Put(pod));
        }
        for node in nodes {
            core.change_node(Change::Put(node));
        }
        core.survey(config.pod_cap);
    }
    let mut remembered =
        Remembered { state: &state, now, records: Vec::new(), skipped: Vec::new() };
    let wanted = Wanted::Vpas(HashMap::from([(key.clone(), owner)]));
    let storage = open(config, client, namespace, now)?;
    let loaded = storage.load(&wanted, &mut remembered).await;
    let Remembered { mut records, mut skipped, .. } = remembered;
    if config.storage == StorageChoice::Checkpoint && loaded.is_ok() {
        for record in &mut records {
            (record.own, record.written) = find_written(client, &key, &record.container).await;
        }
    }
    let told = told::find(&vpa, &key, &records, &mut skipped);
    match (loaded, &told) {
        (Ok(loaded), _) => skipped.extend(loaded.skipped),
        (Err(error), Some(_)) => {
            let (what, why) = (format!("{key}, {}", storage.name()), error.to_string());
            skipped.push(Skipped { what, why });
        }
        (Err(error), None) => return Err(error.into()),
    }
    let (mut storage, mut records) = (storage.name(), records);
    if let Some(told) = &told {
        (storage, records) = (report::ANNOTATION, told::records(told));
    }
    let mut core = state.lock();
    if let Some(sighting) = core.fleet.sighting(&key) {
        core.fleet.loaded(&key, sighting);
    }
    core.see_containers(&key, now);
    Ok(assemble::report(
        config,
        &vpa,
        &mut core,
        &key,
        now,
        assemble::Stored { storage: storage.to_owned(), records, skipped, told },
    ))
}

async fn missing(cluster: &Cluster, namespace: &str, name: &str) -> ExplainError {
    let names = match lookup::find_vpa_names(&cluster.client, namespace).await {
        Ok(Some(names)) => names,
        Ok(None) => return ExplainError::Undefined { address: cluster.address.clone() },
        Err(error) => {
            return ExplainError::Unreadable { address: cluster.address.clone(), error };
        }
    };
    let near = nearest(name, names.iter().map(String::as_str));
    let hint = if near.is_empty() {
        format!("namespace {namespace} has none; give the namespace as NAMESPACE/NAME or with -n")
    } else {
        format!("the nearest there: {}", near.join(", "))
    };
    ExplainError::Unknown { namespace: namespace.to_owned(), name: name.to_owned(), hint }
}

fn open(
    config: &ExplainConfig,
    client: &Client,
    namespace: &str,
    now: Time,
) -> Result<Box<dyn Storage>, ExplainError> {
    match &config.storage {
        // Beside series there are checkpoints, or the VPA says itself what there is to say.
        StorageChoice::Checkpoint | StorageChoice::Prometheus => {
            let options = checkpoint::Options {
                namespace: Some(namespace.to_owned()),
                ..checkpoint::Options::default()
            };
            Ok(Box::new(Checkpoints::new(client.clone(), move || now, options)))
        }
        StorageChoice::Local(directory) => {
            if !directory.is_dir() {
                return Err(ExplainError::NoDirectory(directory.display().to_string()));
            }
            match Local::open_read_only(directory) {
                Ok((local, _)) => Ok(Box::new(local)),
                Err(Error::InUse { place }) => Err(ExplainError::InUse(place)),
                Err(error) => Err(error.into()),
            }
        }
    }
}

/// Whether a VPA has a checkpoint of its own for this container, and when it was written. Not to know is no
/// reason to end: it changes no number.
async fn find_written(client: &Client, key: &VpaKey, container: &str) -> (bool, Option<Time>) {
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
struct Remembered<'a> {
    state: &'a State,
    now: Time,
    records: Vec<StoredRecord>,
    skipped: Vec<Skipped>,
}

impl Sink for Remembered<'_> {
    fn snapshot(&mut self, key: Key, snapshot: Snapshot) {
        match self.state.lock().fleet.restore(&key, &snapshot, self.now) {
            Ok(restored) => self.records.push(StoredRecord {
                container: key.container,
                // Upstream's form cannot say it.
                form: if snapshot.half_lives.is_some() { Form::Exact } else { Form::Upstream },
                own: true,
                written: None,
                created: snapshot.created,
                last_alive: snapshot.last_alive,
                outcome: match restored {
                    Restored::Expired => "expired",
                    Restored::Taken | Restored::Already => "used",
                }
                .to_owned(),
            }),
            Err(bad) => {
                self.skipped.push(Skipped { what: key.to_string(), why: bad.to_string() });
            }
        }
    }

    fn sample(&mut self, key: &Key, _: Sample) {
        let why = "single samples cannot be explained yet".to_owned();
        self.skipped.push(Skipped { what: key.to_string(), why });
    }
}
