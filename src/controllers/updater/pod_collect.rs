//! `plimsoll explain pod`: makes the updater's decision about one pod from live objects and persisted state. Its watches
//! run only until they are synced. It writes nothing and contacts no running updater.

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
    report::explain::{PodReport, suggestions::not_found_hint},
};
use plimsoll_core::updater::{
    self, Action, DesiredReplicas, PassContext, PersistedState, StepResult, UpdatePass,
    guard::{RecommenderHeartbeat, disruption_budget::PodCounts},
};

/// How long the watches may take to sync.
const SYNC_TIMEOUT: Duration = Duration::from_secs(10);

/// Which pod is to be explained, and by which flags the updater decides.
#[derive(Clone, Debug)]
pub struct ExplainPodConfig {
    /// Namespace of the pod; `None` selects the namespace of the kubeconfig's current context.
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
    /// The API server returned an error.
    #[error("{address}: {error}")]
    Unreadable {
        /// The cluster.
        address: String,
        /// The failed lookup.
        error: LookupError,
    },
    /// The pod does not exist.
    #[error("Pod {namespace}/{name} not found: {hint}")]
    NotFound {
        /// Namespace of the pod.
        namespace: String,
        /// Name of the pod.
        name: String,
        /// Similar names, or what else the user can try.
        hint: String,
    },
    /// The watches did not sync in time.
    #[error("{address}: timed out after {} s waiting for: {missing}", SYNC_TIMEOUT.as_secs())]
    Unsynced {
        /// The cluster.
        address: String,
        /// The watches that are not synced, with their last errors.
        missing: String,
    },
}

/// Makes the updater's decision about a pod at the current time.
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
    let mut watch_tasks = TaskGroup::default();
    role.start_watches(&watch_tasks.shutdown_token(), watch_tasks.tasks());
    let (synced, leases, disruptions, can_resize) = tokio::join!(
        role.synced_in_time(),
        role.read_leases(),
        DisruptionBudgets::read(client, namespace),
        role.supports_resize(),
    );
    let report = if synced {
        let seen = role.stores.pods(namespace).into_iter().find(|other| other.name_any() == name);
        let is_seen = seen.is_some();
        let pod = seen.unwrap_or_else(|| Arc::new(pod));
        let inputs = ExplainInputs { config, cluster, namespace, leases, disruptions, can_resize };
        Ok(role.explain(inputs, &pod, is_seen).await)
    } else {
        Err(ExplainPodError::Unsynced {
            address: cluster.address.clone(),
            missing: role.unsynced_message(),
        })
    };
    watch_tasks.shut_down().await;
    report
}

/// An updater in dry run, for one namespace or for all.
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
    let hint = not_found_hint("pods", namespace, name, &names);
    ExplainPodError::NotFound { namespace: namespace.to_owned(), name: name.to_owned(), hint }
}

/// The request, and what was read for it besides the watches.
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
    /// The persisted state before any action.
    persisted: PersistedState,
    decision: updater::Decision,
    /// The action on the pod itself.
    action: Option<Action>,
    /// Actions on other pods that come first.
    earlier_actions: Vec<(usize, &'static str)>,
    /// Containers that lose their boost.
    unboosted: Vec<Arc<str>>,
}

impl Updater {
    /// Waits until all watches that decisions depend on are synced.
    async fn wait_for_sync(&self) {
        self.watches.wait_for_sync().await;
        if self.config.settings.compat == plimsoll_core::types::compat::Compat::Plimsoll {
            self.quotas.ready().await;
        }
    }

    /// The watches that are not synced, with their last errors.
    fn unsynced_message(&self) -> String {
        let unsynced =
            self.watches.all().chain(self.quotas.watch_status()).filter(|watch| !watch.is_synced());
        let messages = unsynced.map(|watch| match watch.stats().last_error {
            Some(why) => format!("{} ({why})", watch.name()),
            None => watch.name().to_owned(),
        });
        let messages: Vec<String> = messages.collect();
        if messages.is_empty() { "unknown".to_owned() } else { messages.join("; ") }
    }

    async fn explain(
        self: &Arc<Self>,
        mut inputs: ExplainInputs<'_>,
        pod: &Arc<UpdaterPod>,
        is_seen: bool,
    ) -> PodReport {
        let now = self.clock.now();
        let workloads = self.workloads().await.workloads;
        let found = workloads.iter().find_map(|workload| {
            let is_same = |other: &Arc<UpdaterPod>| Arc::ptr_eq(other, pod);
            Some((workload, workload.pods.iter().position(is_same)?))
        });
        let Some((workload, index)) = found else {
            let why = self.explain_unmatched(inputs.namespace, pod, is_seen).await;
            return build::unmatched_report(self, inputs.namespace, pod, why, now);
        };
        let pods = workloads.iter().map(|workload| workload.pods.len() as u32).sum();
        let mut notes = std::mem::take(&mut inputs.leases.notes);
        let (mut persisted, ignored) = UpdaterState::default().recall(workload);
        if let Some(why) = ignored {
            notes.push(format!(
                "The updater's state in the annotation of the VPA is unreadable and was ignored: {why}."
            ));
        }
        persisted.budget = std::mem::take(&mut inputs.leases.ledger);
        let pod_counts = PodCounts { cluster: pods, namespace: pods };
        let pod_counts =
            self.with_cluster_size(&inputs, &persisted.budget, pod_counts, &mut notes).await;
        let disruptions = match std::mem::replace(&mut inputs.disruptions, ReadResult::Forbidden) {
            ReadResult::Found(found) => found,
            ReadResult::Forbidden => {
                notes.push(
                    "No permission to list PodDisruptionBudgets: one may block the eviction."
                        .into(),
                );
                DisruptionBudgets::default()
            }
            ReadResult::Failed(why) => {
                notes.push(format!("Failed to list PodDisruptionBudgets: {why}."));
                DisruptionBudgets::default()
            }
        };
        if inputs.can_resize.is_none() {
            notes.push(
                "Failed to find out whether the API server supports in-place resize.".to_owned(),
            );
        }
        let desired_replicas = |owner: &updater::PodOwner| {
            workload.desired_replicas.get(owner).copied().unwrap_or(DesiredReplicas::Unknown)
        };
        let context = PassContext {
            desired_replicas: &desired_replicas,
            pod_counts,
            heartbeat: inputs.leases.heartbeat(self, workload, &mut notes),
            is_admission_ready: inputs.leases.is_admission_ready(&mut notes),
            can_resize: inputs.can_resize.unwrap_or(false),
            now,
        };
        let decision = self.decide(workload, index, context, persisted, disruptions);
        let competing_vpas = self.competing_vpas(workload);
        let found = ExplainedPod {
            workload,
            index,
            decision,
            pass_context: context,
            leases: &inputs.leases,
            competing_vpas,
        };
        build::report(self, found, notes)
    }

    fn decide(
        &self,
        workload: &Workload,
        index: usize,
        context: PassContext<'_>,
        persisted: PersistedState,
        mut disruptions: DisruptionBudgets,
    ) -> PodDecision {
        let inputs = self.decision_inputs(workload, context.now);
        let settings = &self.config.settings;
        let subject = self.vpa_with_pods(workload, &inputs);
        let mut pass =
            UpdatePass::new(subject, context, settings, persisted).without_boost_removal();
        let explanation = pass.explain_pod(index);
        let persisted = pass.state().clone();
        let order: &[usize] =
            explanation.as_ref().map_or(&[], |explanation| &explanation.candidate_order);
        let position = |pod: usize| order.iter().position(|candidate| *candidate == pod);
        let (mut action, mut earlier_actions) = (None, Vec::new());
        while let Some(step) = pass.next() {
            let outcome = match &step.action {
                Action::Evict { .. } => disruptions.simulate_eviction(&workload.pods[step.pod]),
                _ => StepResult::Done,
            };
            // The end of a surge concerns the whole workload, not one of its pods.
            let is_done = outcome == StepResult::Done && !matches!(step.action, Action::EndSurge);
            if is_done && step.pod == index {
                action = Some(step.action.clone());
            } else if is_done && position(step.pod) < position(index) {
                earlier_actions.push((step.pod, step.action.as_str()));
            }
            pass.record_result(outcome);
        }
        let decision = pass.finish();
        let mut unboosted = Vec::new();
        if settings.startup_boost && workload.pods[index].is_boosted() {
            let context = PassContext {
                heartbeat: RecommenderHeartbeat::Absent,
                is_admission_ready: true,
                ..context
            };
            let mut pass = UpdatePass::new(subject, context, settings, PersistedState::default())
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
        PodDecision { explanation, persisted, decision, action, earlier_actions, unboosted }
    }

    /// Other VPAs with the same target, which are ignored.
    fn competing_vpas(&self, workload: &Workload) -> Vec<String> {
        let (kind, name) = &workload.target;
        let vpas = self.stores.vpas(&workload.key.namespace).into_iter();
        let others = vpas.filter(|vpa| {
            let target = &vpa.spec.target_ref;
            !Arc::ptr_eq(vpa, &workload.vpa) && *target.kind == **kind && *target.name == **name
        });
        others.map(|vpa| vpa.name_any()).collect()
    }

    /// Whether all watches synced within [`SYNC_TIMEOUT`].
    async fn synced_in_time(&self) -> bool {
        tokio::time::timeout(SYNC_TIMEOUT, self.wait_for_sync()).await.is_ok()
    }
}
