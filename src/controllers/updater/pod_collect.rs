//! `plimsoll explain pod`: the updater's own decision about one pod, made for whoever asks, on live objects and what is
//! stored about them. Its feeds run for a moment; nothing is written, and no updater is asked.

mod build;
mod cluster_size;
mod disruption_budgets;
mod leases;
mod unmatched;

use std::{sync::Arc, time::Duration};

use kube::ResourceExt as _;

use self::{
    build::ExplainedPod,
    disruption_budgets::DisruptionBudgets,
    leases::{Leases, ReadResult},
};
use super::{
    Updater,
    config::{DryRun, UpdaterConfig},
    matching::Workload,
    persisted_state::UpdaterState,
};
use crate::{
    cluster::{
        cache::updater_pod::UpdaterPod,
        clock::Clock,
        target::one_shot::{self, LookupError},
    },
    controllers::runtime::{
        cluster::{Cluster, ClusterOptions, NoCluster},
        context::ControllerContext,
        shutdown::TaskGroup,
    },
    report::explain::{PodReport, suggestions::suggestions},
};
use plimsoll_core::updater::{
    self, Action, DesiredReplicas, PassContext, PersistedState, StepResult, UpdatePass,
    guard::{RecommenderHeartbeat, disruption_budget::PodCounts},
};

/// How long all lists may take.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Which pod is to be explained, and by which flags the updater decides.
#[derive(Clone, Debug)]
pub struct ExplainPodConfig {
    /// Namespace of the pod; none is the one of the kubeconfig's context.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// How to reach the cluster.
    pub cluster_options: ClusterOptions,
    /// How the updater decides.
    pub updater: UpdaterConfig,
}

/// Why a pod could not be explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainPodError {
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
    NotFound {
        /// Where it was looked for.
        namespace: String,
        /// By which name.
        name: String,
        /// What is there.
        hint: String,
    },
    /// What decisions are made on was not read in time.
    #[error("{address}: not read within {} s: {missing}", SYNC_TIMEOUT.as_secs())]
    Unsynced {
        /// The cluster.
        address: String,
        /// What is missing, and what went wrong with it.
        missing: String,
    },
}

/// Decides about a pod as of now.
pub async fn explain(
    config: &ExplainPodConfig,
    cluster: &Cluster,
) -> Result<PodReport, ExplainPodError> {
    let namespace = config.namespace.as_deref().unwrap_or(&cluster.namespace);
    let (client, name) = (&cluster.client, &*config.name);
    let found = one_shot::find_updater_pod(client, namespace, name).await;
    let found = found
        .map_err(|error| ExplainPodError::Unreadable { address: cluster.address.clone(), error })?;
    let Some(pod) = found else { return Err(not_found(cluster, namespace, name).await) };
    let role = read_only_updater(config, cluster, Some(namespace));
    let mut feeds = TaskGroup::default();
    role.start_watches(&feeds.shutdown_token(), feeds.tasks());
    let (synced, leases, disruptions, can_resize) = tokio::join!(
        role.synced_in_time(),
        role.read_leases(),
        DisruptionBudgets::read(client, namespace),
        role.supports_resize(),
    );
    let report = if synced {
        let seen = role.stores.pods(namespace).into_iter().find(|one| one.name_any() == name);
        let is_seen = seen.is_some();
        let pod = seen.unwrap_or_else(|| Arc::new(pod));
        let asked = ExplainInputs { config, cluster, namespace, leases, disruptions, can_resize };
        Ok(role.explain(asked, &pod, is_seen).await)
    } else {
        Err(ExplainPodError::Unsynced {
            address: cluster.address.clone(),
            missing: role.unsynced_message(),
        })
    };
    feeds.shut_down().await;
    report
}

/// An updater of one namespace, or of all, that does nothing.
fn read_only_updater(
    config: &ExplainPodConfig,
    cluster: &Cluster,
    only: Option<&str>,
) -> Arc<Updater> {
    let mut updater = config.updater.clone();
    updater.scope.only = only.map(ToOwned::to_owned);
    updater.dry_run = Some(DryRun { events: false });
    let mut context = ControllerContext::for_command(cluster.client.clone(), Clock::wall());
    Updater::from_context(updater, &mut context)
}

async fn not_found(cluster: &Cluster, namespace: &str, name: &str) -> ExplainPodError {
    let names = match one_shot::find_pod_names(&cluster.client, namespace).await {
        Ok(names) => names,
        Err(error) => {
            return ExplainPodError::Unreadable { address: cluster.address.clone(), error };
        }
    };
    let near = suggestions(name, names.iter().map(String::as_str));
    let hint = if near.is_empty() {
        format!("namespace {namespace} has none; give the namespace as NAMESPACE/NAME or with -n")
    } else {
        format!("the nearest there: {}", near.join(", "))
    };
    ExplainPodError::NotFound { namespace: namespace.to_owned(), name: name.to_owned(), hint }
}

/// What was asked for, and what was read for it beside the feeds.
struct ExplainInputs<'a> {
    config: &'a ExplainPodConfig,
    cluster: &'a Cluster,
    namespace: &'a str,
    leases: Leases,
    disruptions: ReadResult<DisruptionBudgets>,
    can_resize: Option<bool>,
}

/// What was decided about a pod.
struct PodDecision {
    explanation: Option<updater::PodExplanation>,
    /// What is remembered, before anything is done.
    persisted: PersistedState,
    decision: updater::Decision,
    /// What is done to the pod itself.
    action: Option<Action>,
    /// What is done to others before.
    earlier_actions: Vec<(usize, &'static str)>,
    /// Containers that lose their boost.
    unboosted: Vec<Arc<str>>,
}

impl Updater {
    /// Ready once everything is known that decisions are made on.
    async fn wait_for_sync(&self) {
        self.watches.wait_for_sync().await;
        if self.config.settings.compat == plimsoll_core::types::compat::Compat::Plimsoll {
            self.quotas.ready().await;
        }
    }

    /// What has not been read, with what went wrong.
    fn unsynced_message(&self) -> String {
        let behind =
            self.watches.all().chain(self.quotas.watch_status()).filter(|feed| !feed.is_synced());
        let named = behind.map(|feed| match feed.stats().last_error {
            Some(why) => format!("{} ({why})", feed.name()),
            None => feed.name().to_owned(),
        });
        let named: Vec<String> = named.collect();
        if named.is_empty() { "nothing tells why".to_owned() } else { named.join("; ") }
    }

    async fn explain(
        self: &Arc<Self>,
        mut asked: ExplainInputs<'_>,
        pod: &Arc<UpdaterPod>,
        is_seen: bool,
    ) -> PodReport {
        let now = self.clock.now();
        let workloads = self.workloads().await.workloads;
        let place = workloads.iter().find_map(|workload| {
            let is_it = |one: &Arc<UpdaterPod>| Arc::ptr_eq(one, pod);
            Some((workload, workload.pods.iter().position(is_it)?))
        });
        let Some((workload, index)) = place else {
            let why = self.explain_unmatched(asked.namespace, pod, is_seen).await;
            return build::unmatched_report(self, asked.namespace, pod, why, now);
        };
        let pods = workloads.iter().map(|one| one.pods.len() as u32).sum();
        let mut notes = std::mem::take(&mut asked.leases.notes);
        let (mut recall, ignored) = UpdaterState::default().recall(workload);
        if let Some(why) = ignored {
            notes.push(format!(
                "What stands on the VPA about its last changes does not count: {why}."
            ));
        }
        recall.budget = std::mem::take(&mut asked.leases.ledger);
        let sizes = PodCounts { cluster: pods, namespace: pods };
        let sizes = self.with_cluster_size(&asked, &recall.budget, sizes, &mut notes).await;
        let disruptions = match std::mem::replace(&mut asked.disruptions, ReadResult::Forbidden) {
            ReadResult::Found(found) => found,
            ReadResult::Forbidden => {
                notes.push("You may not list PodDisruptionBudgets: one may keep the pod.".into());
                DisruptionBudgets::default()
            }
            ReadResult::Failed(why) => {
                notes.push(format!("PodDisruptionBudgets could not be read: {why}."));
                DisruptionBudgets::default()
            }
        };
        if asked.can_resize.is_none() {
            notes.push("Whether the server can resize pods could not be found out.".to_owned());
        }
        let wanted = |owner: &updater::PodOwner| {
            workload.desired_replicas.get(owner).copied().unwrap_or(DesiredReplicas::Unknown)
        };
        let world = PassContext {
            desired_replicas: &wanted,
            pod_counts: sizes,
            heartbeat: asked.leases.heartbeat(self, workload, &mut notes),
            is_admission_ready: asked.leases.is_admission_ready(&mut notes),
            can_resize: asked.can_resize.unwrap_or(false),
            now,
        };
        let decided = self.decide(workload, index, world, recall, disruptions);
        let rivals = self.competing_vpas(workload);
        let found = ExplainedPod {
            workload,
            index,
            decision: decided,
            pass_context: world,
            leases: &asked.leases,
            competing_vpas: rivals,
        };
        build::report(self, found, notes)
    }

    fn decide(
        &self,
        workload: &Workload,
        index: usize,
        world: PassContext<'_>,
        recall: PersistedState,
        mut disruptions: DisruptionBudgets,
    ) -> PodDecision {
        let ground = self.decision_inputs(workload, world.now);
        let settings = &self.config.settings;
        let subject = self.vpa_with_pods(workload, &ground);
        let mut pass = UpdatePass::new(subject, world, settings, recall).without_boost_removal();
        let told = pass.explain_pod(index);
        let recall = pass.state().clone();
        let order: &[usize] = told.as_ref().map_or(&[], |told| &told.candidate_order);
        let turn = |pod: usize| order.iter().position(|one| *one == pod);
        let (mut action, mut before) = (None, Vec::new());
        while let Some(step) = pass.next() {
            let outcome = match &step.action {
                Action::Evict { .. } => disruptions.simulate_eviction(&workload.pods[step.pod]),
                _ => StepResult::Done,
            };
            // The end of a surge is about the workload, and no pod of it in particular.
            let is_done = outcome == StepResult::Done && !matches!(step.action, Action::EndSurge);
            if is_done && step.pod == index {
                action = Some(step.action.clone());
            } else if is_done && turn(step.pod) < turn(index) {
                before.push((step.pod, step.action.as_str()));
            }
            pass.record_result(outcome);
        }
        let decision = pass.finish();
        let mut unboosted = Vec::new();
        if settings.startup_boost && workload.pods[index].is_boosted() {
            let world = PassContext {
                heartbeat: RecommenderHeartbeat::Absent,
                is_admission_ready: true,
                ..world
            };
            let mut pass = UpdatePass::new(subject, world, settings, PersistedState::default())
                .only_boost_removal();
            while let Some(step) = pass.next() {
                if let Action::RemoveBoost { containers, .. } = step.action
                    && step.pod == index
                {
                    unboosted = containers;
                }
                pass.record_result(StepResult::Done);
            }
        }
        PodDecision {
            explanation: told,
            persisted: recall,
            decision,
            action,
            earlier_actions: before,
            unboosted,
        }
    }

    /// Other VPAs that are for the same workload, and do not count.
    fn competing_vpas(&self, workload: &Workload) -> Vec<String> {
        let (kind, name) = &workload.target;
        let vpas = self.stores.vpas(&workload.key.namespace).into_iter();
        let others = vpas.filter(|vpa| {
            let target = &vpa.spec.target_ref;
            !Arc::ptr_eq(vpa, &workload.vpa) && *target.kind == **kind && *target.name == **name
        });
        others.map(|vpa| vpa.name_any()).collect()
    }

    /// Whether everything became known in time.
    async fn synced_in_time(&self) -> bool {
        tokio::time::timeout(SYNC_TIMEOUT, self.wait_for_sync()).await.is_ok()
    }
}
