//! `plimsoll explain pod`: the updater's own decision about one pod, made for whoever asks, on live objects and what is
//! stored about them. Its feeds run for a moment; nothing is written, and no updater is asked.

mod assemble;
mod disruptions;
mod leases;
mod size;
mod unmatched;

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;

use self::{
    assemble::Found,
    disruptions::Disruptions,
    leases::{Leases, Read},
};
use super::{
    Role,
    config::{DryRun, UpdaterConfig},
    matching::Workload,
    recollection::Recollection,
};
use crate::{
    clock::Clock,
    explain::{PodReport, nearest::nearest},
    observe::{
        lookup::{self, LookupError},
        running::RunningPod,
    },
    run::{
        cluster::{Cluster, NoCluster, Reach},
        desk::Desk,
        tasks::Group,
    },
};
use plimsoll_core::updater::{
    self, Action, Outcome, Pass, Recall, Wanted, World,
    guard::{Heartbeat, ledger::Sizes},
};

/// How long all lists may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which pod is to be explained, and by which flags the updater decides.
#[derive(Clone, Debug)]
pub struct PodConfig {
    /// Namespace of the pod; none is the one of the kubeconfig's context.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// How to reach the cluster.
    pub reach: Reach,
    /// How the updater decides.
    pub updater: UpdaterConfig,
}

/// Why a pod could not be explained.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
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
    #[error("there is no Pod {namespace}/{name}: {hint}")]
    Unknown {
        /// Where it was looked for.
        namespace: String,
        /// By which name.
        name: String,
        /// What is there.
        hint: String,
    },
    /// What decisions are made on was not read in time.
    #[error("{address}: not read within {} s: {missing}", PATIENCE.as_secs())]
    Unsynced {
        /// The cluster.
        address: String,
        /// What is missing, and what went wrong with it.
        missing: String,
    },
}

/// Decides about a pod as of now.
pub async fn explain(config: &PodConfig, cluster: &Cluster) -> Result<PodReport, PodError> {
    let namespace = config.namespace.as_deref().unwrap_or(&cluster.namespace);
    let (client, name) = (&cluster.client, &*config.name);
    let found = lookup::find_running(client, namespace, name).await;
    let found =
        found.map_err(|error| PodError::Unreadable { address: cluster.address.clone(), error })?;
    let Some(pod) = found else { return Err(missing(cluster, namespace, name).await) };
    let role = reader(config, cluster, Some(namespace));
    let mut feeds = Group::new();
    role.start_feeds(&feeds.stop(), feeds.tasks());
    let (synced, leases, disruptions, can_resize) = tokio::join!(
        role.all_known_in_time(),
        role.read_leases(),
        Disruptions::read(client, namespace),
        role.resizes_are_served(),
    );
    let report = if synced {
        let seen = role.seen.pods(namespace).into_iter().find(|one| one.name_any() == name);
        let is_seen = seen.is_some();
        let pod = seen.unwrap_or_else(|| Arc::new(pod));
        let asked = Asked { config, cluster, namespace, leases, disruptions, can_resize };
        Ok(role.explain(asked, &pod, is_seen).await)
    } else {
        Err(PodError::Unsynced { address: cluster.address.clone(), missing: role.unsynced() })
    };
    feeds.end().await;
    report
}

/// An updater of one namespace, or of all, that does nothing.
fn reader(config: &PodConfig, cluster: &Cluster, only: Option<&str>) -> Arc<Role> {
    let mut updater = config.updater.clone();
    updater.scope.only = only.map(ToOwned::to_owned);
    updater.dry_run = Some(DryRun { events: false });
    Role::new(updater, &mut Desk::of_command(cluster.client.clone(), Clock::wall())).0
}

async fn missing(cluster: &Cluster, namespace: &str, name: &str) -> PodError {
    let names = match lookup::find_pod_names(&cluster.client, namespace).await {
        Ok(names) => names,
        Err(error) => return PodError::Unreadable { address: cluster.address.clone(), error },
    };
    let near = nearest(name, names.iter().map(String::as_str));
    let hint = if near.is_empty() {
        format!("namespace {namespace} has none; give the namespace as NAMESPACE/NAME or with -n")
    } else {
        format!("the nearest there: {}", near.join(", "))
    };
    PodError::Unknown { namespace: namespace.to_owned(), name: name.to_owned(), hint }
}

/// What was asked for, and what was read for it beside the feeds.
struct Asked<'a> {
    config: &'a PodConfig,
    cluster: &'a Cluster,
    namespace: &'a str,
    leases: Leases,
    disruptions: Read<Disruptions>,
    can_resize: Option<bool>,
}

/// What was decided about a pod.
struct Decided {
    told: Option<updater::Told>,
    /// What is remembered, before anything is done.
    recall: Recall,
    decision: updater::Decision,
    /// What is done to the pod itself.
    action: Option<Action>,
    /// What is done to others before.
    before: Vec<(usize, &'static str)>,
    /// Containers that lose their boost.
    unboosted: Vec<Arc<str>>,
}

impl Role {
    /// Ready once everything is known that decisions are made on.
    async fn all_known(&self) {
        self.feeds.synced().await;
        if self.config.settings.compat == plimsoll_core::types::compat::Compat::Plimsoll {
            self.quotas.known().await;
        }
    }

    /// What has not been read, with what went wrong.
    fn unsynced(&self) -> String {
        let behind = self.feeds.all().chain(self.quotas.feed()).filter(|feed| !feed.is_synced());
        let named = behind.map(|feed| match feed.status().last_error {
            Some(why) => format!("{} ({why})", feed.name()),
            None => feed.name().to_owned(),
        });
        let named: Vec<String> = named.collect();
        if named.is_empty() { "nothing tells why".to_owned() } else { named.join("; ") }
    }

    async fn explain(
        self: &Arc<Self>,
        mut asked: Asked<'_>,
        pod: &Arc<RunningPod>,
        is_seen: bool,
    ) -> PodReport {
        let now = self.clock.now();
        let workloads = self.workloads().await.workloads;
        let place = workloads.iter().find_map(|workload| {
            let is_it = |one: &Arc<RunningPod>| Arc::ptr_eq(one, pod);
            Some((workload, workload.pods.iter().position(is_it)?))
        });
        let Some((workload, index)) = place else {
            let why = self.unmatched(asked.namespace, pod, is_seen).await;
            return assemble::unmatched(self, asked.namespace, pod, why, now);
        };
        let pods = workloads.iter().map(|one| one.pods.len() as u32).sum();
        let mut notes = std::mem::take(&mut asked.leases.notes);
        let (mut recall, ignored) = Recollection::default().of(workload);
        if let Some(why) = ignored {
            notes.push(format!(
                "What stands on the VPA about its last changes does not count: {why}."
            ));
        }
        recall.ledger = std::mem::take(&mut asked.leases.ledger);
        let sizes = Sizes { cluster: pods, namespace: pods };
        let sizes = self.sizes(&asked, &recall.ledger, sizes, &mut notes).await;
        let disruptions = match std::mem::replace(&mut asked.disruptions, Read::Forbidden) {
            Read::Done(found) => found,
            Read::Forbidden => {
                notes.push("You may not list PodDisruptionBudgets: one may keep the pod.".into());
                Disruptions::default()
            }
            Read::Failed(why) => {
                notes.push(format!("PodDisruptionBudgets could not be read: {why}."));
                Disruptions::default()
            }
        };
        if asked.can_resize.is_none() {
            notes.push("Whether the server can resize pods could not be found out.".to_owned());
        }
        let wanted =
            |owner: &updater::Owner| workload.wanted.get(owner).copied().unwrap_or(Wanted::Unknown);
        let world = World {
            wanted: &wanted,
            sizes,
            heartbeat: asked.leases.heartbeat(self, workload, &mut notes),
            is_admission_ready: asked.leases.is_admission_ready(&mut notes),
            can_resize: asked.can_resize.unwrap_or(false),
            now,
        };
        let decided = self.decide(workload, index, world, recall, disruptions);
        let rivals = self.rivals(workload);
        let found = Found { workload, index, decided, world, leases: &asked.leases, rivals };
        assemble::report(self, found, notes)
    }

    fn decide(
        &self,
        workload: &Workload,
        index: usize,
        world: World<'_>,
        recall: Recall,
        mut disruptions: Disruptions,
    ) -> Decided {
        let ground = self.ground(workload, world.now);
        let settings = &self.config.settings;
        let subject = self.subject(workload, &ground);
        let mut pass = Pass::begin(subject, world, settings, recall).without_unboosts();
        let told = pass.tell(index);
        let recall = pass.recall().clone();
        let order: &[usize] = told.as_ref().map_or(&[], |told| &told.order);
        let turn = |pod: usize| order.iter().position(|one| *one == pod);
        let (mut action, mut before) = (None, Vec::new());
        while let Some(step) = pass.next() {
            let outcome = match &step.action {
                Action::Evict { .. } => disruptions.evict(&workload.pods[step.pod]),
                _ => Outcome::Done,
            };
            // The end of a surge is about the workload, and no pod of it in particular.
            let is_done = outcome == Outcome::Done && !matches!(step.action, Action::EndSurge);
            if is_done && step.pod == index {
                action = Some(step.action.clone());
            } else if is_done && turn(step.pod) < turn(index) {
                before.push((step.pod, step.action.word()));
            }
            pass.note(outcome);
        }
        let decision = pass.end();
        let mut unboosted = Vec::new();
        if settings.startup_boost && workload.pods[index].is_boosted() {
            let world = World { heartbeat: Heartbeat::Absent, is_admission_ready: true, ..world };
            let mut pass = Pass::begin(subject, world, settings, Recall::default()).only_unboosts();
            while let Some(step) = pass.next() {
                if let Action::Unboost { containers, .. } = step.action
                    && step.pod == index
                {
                    unboosted = containers;
                }
                pass.note(Outcome::Done);
            }
        }
        Decided { told, recall, decision, action, before, unboosted }
    }

    /// Other VPAs that are for the same workload, and do not count.
    fn rivals(&self, workload: &Workload) -> Vec<String> {
        let (kind, name) = &workload.target;
        let vpas = self.seen.vpas(&workload.key.namespace).into_iter();
        let others = vpas.filter(|vpa| {
            let target = &vpa.spec.target_ref;
            !Arc::ptr_eq(vpa, &workload.vpa) && *target.kind == **kind && *target.name == **name
        });
        others.map(|vpa| vpa.name_any()).collect()
    }

    /// Whether everything became known in time.
    async fn all_known_in_time(&self) -> bool {
        tokio::time::timeout(PATIENCE, self.all_known()).await.is_ok()
    }
}
