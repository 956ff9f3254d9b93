//! Builds the report about one pod from the decision and its inputs.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::{
    api::{ResourceList, VerticalPodAutoscaler, vpa::Recommendation},
    types::{Time, quantity::Quantity},
    updater::{
        self, Action, PassContext, PodExplanation, PodOutcome, SkipReason, UpdateReason,
        guard::{Allowance, BudgetKind, ChangeKind, MaintenanceWindows},
        priority,
    },
};

use super::{ExplainPodConfig, decide::PodDecision, leases::Leases, unmatched::Unmatched};
use crate::{
    cluster::cache::updater_pod::UpdaterPod,
    controllers::updater::{matching::Workload, status_reporter::CONDITION},
    report::{
        explain::{
            pod::report::{
                Breaker, ChangesMade, Container, ContainerAmounts, EarlierAction, Group, Guards,
                Need, ObjectName, Order, PausedUpdates, PodChange, PodReport, PodVerdict, Rollout,
                VpaSummary, Windows,
            },
            report_parts::{Finding, ReportHeader},
        },
        style::sentence,
    },
};

pub(super) struct ExplainedPod<'a> {
    pub config: &'a ExplainPodConfig,
    pub workload: &'a Workload,
    pub index: usize,
    pub decision: PodDecision,
    pub windows: Option<&'a MaintenanceWindows>,
    pub pass_context: PassContext<'a>,
    pub leases: &'a Leases,
    pub competing_vpas: Vec<String>,
}

fn base_report(
    config: &ExplainPodConfig,
    namespace: &str,
    pod: &UpdaterPod,
    now: Time,
) -> PodReport {
    let owner = pod.status.owner.as_ref();
    PodReport {
        header: ReportHeader::new("explain-pod", namespace, &pod.name_any(), now),
        compat: config.settings.compat.to_string(),
        controller: owner
            .map(|it| ObjectName { kind: Arc::clone(&it.kind), name: Arc::clone(&it.name) }),
        verdict: PodVerdict { action: "none".to_owned(), ..PodVerdict::default() },
        ..PodReport::default()
    }
}

fn of_vpa(vpa: &VerticalPodAutoscaler) -> VpaSummary {
    let mut conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    let paused =
        conditions.find(|condition| condition.kind == CONDITION && condition.status == "True");
    let paused = paused.map(|condition| PausedUpdates {
        reason: condition.reason.clone(),
        message: condition.message.clone(),
        since: condition.last_transition_time.as_ref().map(|at| at.0.into()),
    });
    VpaSummary {
        name: vpa.name_any(),
        update_mode: vpa.spec.update_mode().into_str().to_owned(),
        recommender: vpa.spec.recommender_name().to_owned(),
        held_back: paused,
    }
}

/// The report about a pod that matches no active VPA.
pub(super) fn unmatched_report(
    config: &ExplainPodConfig,
    namespace: &str,
    pod: &UpdaterPod,
    why: Unmatched,
    now: Time,
) -> PodReport {
    let mut report = base_report(config, namespace, pod, now);
    report.workload = why.top_owner.map(|(kind, name)| named(&kind, &name));
    report.vpa = why.vpa.as_ref().map(of_vpa);
    report.containers = containers(config, pod, None);
    report.verdict.reason = Some(why.code.to_owned());
    report.verdict.held_back = why.is_misconfigured;
    if why.is_misconfigured {
        report.findings.push(Finding::new(why.code, sentence(&why.message)));
    }
    report.verdict.message = why.message;
    report
}

fn named(kind: &str, name: &str) -> ObjectName {
    ObjectName { kind: kind.into(), name: name.into() }
}

/// The report about a pod that the updater makes a decision about.
pub(super) fn report(found: ExplainedPod<'_>, notes: Vec<String>) -> PodReport {
    let ExplainedPod { config, workload, index, pass_context: context, .. } = found;
    let pod = &workload.pods[index];
    let mut report = base_report(config, &workload.key.namespace, pod, context.now);
    report.workload = Some(named(&workload.target.0, &workload.target.1));
    report.vpa = Some(of_vpa(&workload.vpa));
    report.notes = notes;
    let PodDecision { explanation, persisted, decision, action, earlier_actions, unboosted } =
        found.decision;
    let update_reason = explanation.as_ref().map(|explanation| &explanation.reason);
    let outcome = decision.pod_outcomes.get(index);
    let restarts = match action {
        Some(Action::Resize { restarts_containers, .. }) => Some(restarts_containers),
        _ => None,
    };
    let surges = matches!(action, Some(Action::Surge));
    report.verdict = pod_verdict(outcome, update_reason, surges, restarts);
    if matches!(outcome, Some(PodOutcome::Skipped(_))) && !unboosted.is_empty() {
        "unboost".clone_into(&mut report.verdict.action);
        report.verdict.message = format!("its startup boost is removed: {}", unboosted.join(", "));
        report.verdict.held_back = false;
    }
    if let Some(reason) = report.verdict.reason.as_ref().filter(|_| report.verdict.held_back) {
        report.findings.push(Finding::new(reason, sentence(&report.verdict.message)));
    }
    if let Some(explanation) = explanation {
        let recommendation = explanation.recommendation.as_ref().ok();
        report.containers = containers(config, pod, recommendation);
        report.need = need_of(&explanation);
        let position = explanation.candidate_order.iter().position(|candidate| *candidate == index);
        let earlier_action = |(pod, action): &(usize, &str)| EarlierAction {
            pod: workload.pods[*pod].name_any(),
            action: (*action).to_owned(),
        };
        report.order = Some(Order {
            place: position.map(|position| position + 1),
            candidates: explanation.candidate_order.len(),
            before: earlier_actions.iter().map(earlier_action).collect(),
        });
        report.group = explanation.group.as_ref().ok().copied().map(group_of);
        let windows = found.windows.unwrap_or(&config.settings.guards.maintenance_windows);
        let leases = found.leases;
        let guards =
            guards_of(config, workload, &explanation, &persisted, windows, context, leases);
        report.guards = Some(guards);
    }
    let notes = &mut report.notes;
    if report.verdict.reason.is_some() && !earlier_actions.is_empty() {
        notes.push("This assumes that all actions on pods that come first succeed.".to_owned());
    }
    if !unboosted.is_empty() && report.verdict.action != "unboost" {
        notes.push(format!("Its startup boost is removed: {}.", unboosted.join(", ")));
    }
    if let Some(regression) = decision.regression {
        notes.push(format!("The next pass pauses updates of this workload: {regression}."));
    }
    if decision.externally_overwritten {
        let note = "The next pass pauses updates: another controller overwrites the resources of the pods.";
        notes.push(note.to_owned());
    }
    for vpa in found.competing_vpas {
        notes.push(format!(
            "VPA {vpa} targets the same workload and is ignored, because it is younger."
        ));
    }
    report
}

/// What the updater does with a pod. `need` is why the pod should be updated, or why not; `surges` is whether a new pod is
/// started first.
pub(super) fn pod_verdict(
    outcome: Option<&PodOutcome>,
    need: Option<&Result<UpdateReason, SkipReason>>,
    surges: bool,
    restarts: Option<bool>,
) -> PodVerdict {
    let skip = match outcome {
        Some(PodOutcome::Changed(action)) => {
            let message = match (*action, restarts) {
                ("evict", _) => {
                    "it would be evicted now, and the new pod gets the recommended resources"
                }
                (_, Some(true)) => "it would be resized in place now, which restarts a container",
                _ => "it would be resized in place now",
            };
            let (action, message) = ((*action).to_owned(), message.to_owned());
            return PodVerdict { action, message, restarts, ..PodVerdict::default() };
        }
        Some(PodOutcome::Skipped(skip)) => skip,
        None => &SkipReason::PassEnded,
    };
    // If the pod needs no update, nothing is held back.
    let is_needed = need.is_none_or(|need| match need {
        Ok(_) => true,
        Err(why) => why.is_restriction(),
    });
    PodVerdict {
        action: if surges { "surge" } else { "none" }.to_owned(),
        reason: Some(skip.into_str().to_owned()),
        message: skip.to_string(),
        held_back: outcome.is_none() || (skip.is_restriction() && is_needed && !surges),
        restarts: None,
    }
}

fn need_of(explanation: &PodExplanation) -> Option<Need> {
    let priority = explanation.priority?;
    Some(Need {
        word: explanation.reason.as_ref().ok().map(|reason| reason.into_str().to_owned()),
        why_not: explanation.reason.as_ref().err().map(|why| why.into_str().to_owned()),
        difference: priority.resource_diff,
        outside_range: priority.outside_recommended_range,
        grows: priority.scale_up,
    })
}

fn containers(
    config: &ExplainPodConfig,
    pod: &UpdaterPod,
    recommendation: Option<&Recommendation>,
) -> Vec<Container> {
    let sized = pod.sizing.sized_containers(config.native_sidecars);
    let container = sized.map(|(_, container)| {
        let requests = container.actual().requests();
        let recommended =
            recommendation.and_then(|all| priority::recommendation_for(all, &container.name));
        let amounts = |of: fn(&ResourceList) -> Option<Quantity>| {
            let amounts = ContainerAmounts {
                request: of(requests),
                target: recommended.and_then(|it| of(&it.target)),
                lower: recommended.and_then(|it| of(&it.lower_bound)),
                upper: recommended.and_then(|it| of(&it.upper_bound)),
                ..ContainerAmounts::default()
            };
            Some(amounts.with_position()).filter(|it| it.request.is_some() || it.target.is_some())
        };
        Container {
            name: Arc::clone(&container.name),
            cpu: amounts(ResourceList::cpu),
            memory: amounts(ResourceList::memory),
        }
    });
    container.collect()
}

fn group_of(group: updater::ReplicaGroup) -> Group {
    let budget = group.budget;
    Group {
        live: group.live,
        wanted: budget.configured,
        up: budget.running,
        may_be_down: budget.max_unavailable(),
        allows_one_more: budget.allows_one_more(),
        below_minimum: group.below_min_replicas,
    }
}

fn guards_of(
    config: &ExplainPodConfig,
    workload: &Workload,
    explanation: &PodExplanation,
    persisted: &updater::PersistedState,
    windows: &MaintenanceWindows,
    context: PassContext<'_>,
    leases: &Leases,
) -> Guards {
    let (settings, now) = (&config.settings.guards, context.now);
    let state = &persisted.workload;
    let changes_made = |within: &str, charge: BudgetKind, allowance: Option<Allowance>| {
        let (made, pods) = if within == "namespace" {
            let namespace = &workload.key.namespace;
            (
                persisted.budget.changes(charge).in_namespace(namespace, now),
                context.pod_counts.namespace,
            )
        } else {
            (persisted.budget.changes(charge).in_cluster(now), context.pod_counts.cluster)
        };
        let charge = match charge {
            BudgetKind::Disruption => "disruption",
            BudgetKind::Resize => "resize",
        };
        let allowed = allowance.map(|allowance| allowance.limit_for(pods));
        ChangesMade { within: within.to_owned(), charge: charge.to_owned(), made, allowed }
    };
    Guards {
        recommender: leases.recommender_health(config, workload, context.heartbeat),
        admission_controller: leases.admission_controller_health(),
        windows: Windows {
            limited: *windows != MaintenanceWindows::ALWAYS,
            open: windows.is_any_open(now),
            next: windows.next_opening(now),
        },
        rollout: state.rollout.as_ref().map(|it| Rollout {
            began: it.began,
            last: it.last,
            touched: it.touched,
            evicted: it.evicted,
            streak: it.streak,
        }),
        last_change: explanation.last_change.as_ref().map(|touch| PodChange {
            what: match touch.what {
                ChangeKind::Evicted => "evicted",
                ChangeKind::Resized => "resized",
            }
            .to_owned(),
            at: touch.at,
        }),
        breaker: state.breaker.map(|it| Breaker {
            harm: it.harm.into_str().to_owned(),
            message: it.harm.to_string(),
            since: it.since,
            until: it.until,
            open: it.until > now,
        }),
        rewritten_since: state.rewritten.map(|it| it.at),
        changes: vec![
            changes_made("namespace", BudgetKind::Disruption, settings.namespace_disruptions),
            changes_made("cluster", BudgetKind::Disruption, settings.cluster_disruptions),
            changes_made("namespace", BudgetKind::Resize, settings.namespace_resizes),
            changes_made("cluster", BudgetKind::Resize, settings.cluster_resizes),
        ],
        cluster_stopped_until: persisted.budget.open_until(now),
        unproven: persisted.budget.unproven(),
        unproven_allowed: persisted.budget.max_unproven(settings, now),
    }
}
