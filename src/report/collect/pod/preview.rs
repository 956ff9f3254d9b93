//! What the updater would do now in a namespace: its own pass over each VPA, with the same inputs as `plimsoll explain pod`,
//! and no step is executed.

use plimsoll_core::{
    types::Time,
    updater::{
        DisruptionBudget, PassContext, PersistedState, PodOutcome, PodOwner, SkipReason,
        StepResult, UpdatePass, UpdateReason, guard::disruption_budget::PodCounts,
    },
};
use serde::Serialize;
use serde_with::skip_serializing_none;

use super::{
    Constraints, ExplainPodConfig, build::pod_verdict, count_pods, decide::DisruptionBudgets,
    decision_inputs, leases::Leases, match_workloads, persisted_state, read_namespace,
};
use crate::{
    cluster::snapshot::ReadError,
    controllers::{runtime::command_client::Cluster, updater::matching::Workload},
    report::explain::pod::report::PodVerdict,
};
use kube::ResourceExt as _;

/// The most pods of a namespace that are named.
const MAX_PODS: usize = 500;

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespacePreview {
    /// When this was decided.
    pub at: Time,
    /// The workloads of the VPAs that change running pods.
    pub workloads: Vec<WorkloadPreview>,
    /// What was assumed.
    pub notes: Vec<String>,
}

/// What the updater would do with the pods of a VPA.
#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadPreview {
    pub vpa: String,
    pub kind: String,
    pub name: String,
    pub pods: usize,
    /// Pods that need an update and may be updated.
    pub candidates: usize,
    /// The pods, those that would be changed first.
    pub decisions: Vec<PodPreview>,
    /// Pods that are not named, because there are too many.
    pub left_out: usize,
}

#[skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PodPreview {
    pub pod: String,
    /// `evict`, `resize`, `surge` or `none`.
    pub action: String,
    /// The place of the action in this pass, from 1.
    pub step: Option<usize>,
    /// Why the pod needs an update: `quick_oom`, `outside_range` or `drift`.
    pub need: Option<String>,
    /// Why it is skipped: a label value of `plimsoll_updater_skipped_pods`.
    pub reason: Option<String>,
    pub message: String,
    /// Whether a needed update is held back.
    pub held_back: bool,
}

/// Decides what the updater would do in a namespace now.
pub async fn preview(
    config: &ExplainPodConfig,
    cluster: &Cluster,
    namespace: &str,
    now: Time,
) -> Result<NamespacePreview, ReadError> {
    let (client, compat) = (&cluster.client, config.settings.compat);
    let (snapshot, can_resize) = read_namespace(config, client, namespace).await;
    let constraints = Constraints::of(&snapshot, compat)?;
    let workloads = match_workloads(client, &snapshot, compat).await?;
    let mut leases = Leases::of(config, &snapshot, now);
    let mut notes = std::mem::take(&mut leases.notes);
    let is_admission_ready = leases.is_admission_ready(&mut notes);
    let pods = count_pods(&workloads);
    let mut disruptions = DisruptionBudgets::of(&snapshot.disruption_budgets, &mut notes);
    let mut budget = leases.ledger.clone();
    let mut room = MAX_PODS;
    let mut previews = Vec::new();
    for workload in &workloads {
        let persisted = PersistedState {
            workload: persisted_state(&workload.vpa, &mut notes),
            budget,
            ..PersistedState::default()
        };
        let desired_replicas = |owner: &PodOwner| workload.desired_replicas_of(owner);
        let context = PassContext {
            desired_replicas: &desired_replicas,
            pod_counts: PodCounts { cluster: pods, namespace: pods },
            heartbeat: leases.heartbeat(config, workload, &mut notes),
            is_admission_ready,
            can_resize: can_resize.unwrap_or(false),
            now,
        };
        let inputs = decision_inputs(config, (&snapshot, &constraints), workload, now, &mut notes);
        let subject = inputs.vpa_with_pods(workload);
        let pass =
            UpdatePass::new(subject, context, &config.settings, persisted).without_boost_removal();
        let preview;
        (preview, budget) = run_pass(pass, workload, &mut disruptions, room);
        room = room.saturating_sub(preview.decisions.len());
        previews.push(preview);
    }
    notes.sort();
    notes.dedup();
    Ok(NamespacePreview { at: now, workloads: previews, notes })
}

/// Names at most `room` pods.
fn run_pass(
    mut pass: UpdatePass<'_>,
    workload: &Workload,
    disruptions: &mut DisruptionBudgets,
    room: usize,
) -> (WorkloadPreview, DisruptionBudget) {
    let needs: Vec<Option<Result<_, SkipReason>>> = (0..workload.pods.len())
        .map(|pod| pass.explain_pod(pod).map(|explanation| explanation.reason))
        .collect();
    let mut steps: Vec<(usize, &'static str)> = Vec::new();
    while let Some(step) = pass.next() {
        let outcome = disruptions.simulate(&step.action, &workload.pods[step.pod]);
        if outcome == StepResult::Done {
            steps.push((step.pod, step.action.into_str()));
        }
        pass.record_result(outcome);
    }
    let decision = pass.finish();
    let outcomes = decision.pod_outcomes.iter().zip(&needs).enumerate();
    let mut decisions: Vec<PodPreview> = outcomes
        .map(|(pod, (outcome, need))| {
            let step = steps.iter().position(|(other, _)| *other == pod);
            let name = workload.pods[pod].name_any();
            pod_preview(name, outcome, need.as_ref(), step.map(|step| (step + 1, steps[step].1)))
        })
        .collect();
    decisions.sort_by_key(|one| (one.step.unwrap_or(usize::MAX), !one.held_back));
    let left_out = decisions.len().saturating_sub(room);
    decisions.truncate(room);
    let preview = WorkloadPreview {
        vpa: workload.key.name.to_string(),
        kind: workload.target.0.to_string(),
        name: workload.target.1.to_string(),
        pods: workload.pods.len(),
        candidates: decision.candidates,
        decisions,
        left_out,
    };
    (preview, decision.state.budget)
}

fn pod_preview(
    pod: String,
    outcome: &PodOutcome,
    need: Option<&Result<UpdateReason, SkipReason>>,
    step: Option<(usize, &'static str)>,
) -> PodPreview {
    let surges = step.is_some_and(|(_, action)| action == "surge");
    let is_shown = surges || matches!(outcome, PodOutcome::Changed(_));
    let PodVerdict { action, reason, message, held_back, .. } =
        pod_verdict(Some(outcome), need, surges, None);
    PodPreview {
        pod,
        action,
        step: step.map(|(step, _)| step).filter(|_| is_shown),
        need: need.and_then(|need| Some(need.as_ref().ok()?.into_str().to_owned())),
        reason,
        message,
        held_back,
    }
}
