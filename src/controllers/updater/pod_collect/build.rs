//! The report about one pod, out of what was read and decided.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::types::Time;

use super::{PodDecision, Updater, Workload, leases::Leases, unmatched::Unmatched};
use crate::{
    cluster::cache::updater_pod::UpdaterPod,
    controllers::updater::status_reporter::CONDITION,
    report::explain::{
        pod::report::{
            Breaker, ChangesMade, Container, ContainerAmounts, EarlierAction, Group, Guards, Need,
            ObjectName, Order, PausedUpdates, PodChange, PodReport, PodVerdict, Rollout,
            SCHEMA_VERSION, VpaSummary, Windows,
        },
        report::Finding,
    },
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::Recommendation},
    types::compat::Compat,
    updater::{
        self, Action, PassContext, PodExplanation, SkipReason,
        guard::{Allowance, BudgetKind, ChangeKind},
        priority,
    },
};

/// What was found about a pod.
pub(super) struct ExplainedPod<'a> {
    pub workload: &'a Workload,
    /// Its place among the pods of the workload.
    pub index: usize,
    pub decision: PodDecision,
    pub pass_context: PassContext<'a>,
    pub leases: &'a Leases,
    /// Other VPAs for the same workload.
    pub competing_vpas: Vec<String>,
}

/// What is said of every pod.
fn base_report(role: &Updater, namespace: &str, pod: &UpdaterPod, now: Time) -> PodReport {
    let owner = pod.status.owner.as_ref();
    PodReport {
        schema_version: SCHEMA_VERSION,
        kind: "explain-pod".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        namespace: namespace.to_owned(),
        name: pod.name_any(),
        at: now,
        compat: match role.config.settings.compat {
            Compat::Plimsoll => "plimsoll",
            Compat::Upstream => "upstream",
        }
        .to_owned(),
        controller: owner
            .map(|it| ObjectName { kind: Arc::clone(&it.kind), name: Arc::clone(&it.name) }),
        workload: None,
        vpa: None,
        verdict: PodVerdict {
            action: "none".to_owned(),
            reason: None,
            message: String::new(),
            held_back: false,
            restarts: None,
        },
        need: None,
        containers: Vec::new(),
        order: None,
        group: None,
        guards: None,
        findings: Vec::new(),
        notes: Vec::new(),
    }
}

fn of_vpa(vpa: &VerticalPodAutoscaler) -> VpaSummary {
    let mut conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    let held = conditions.find(|one| one.kind == CONDITION && one.status == "True");
    let held = held.map(|one| PausedUpdates {
        reason: one.reason.clone(),
        message: one.message.clone(),
        since: one.last_transition_time.as_ref().map(|at| at.0.into()),
    });
    VpaSummary {
        name: vpa.name_any(),
        update_mode: vpa.spec.update_mode().as_str().to_owned(),
        recommender: vpa.spec.recommenders.first().map_or("default", |it| &it.name).to_owned(),
        held_back: held,
    }
}

/// About a pod that no VPA has a say about.
pub(super) fn unmatched_report(
    role: &Updater,
    namespace: &str,
    pod: &UpdaterPod,
    why: Unmatched,
    now: Time,
) -> PodReport {
    let mut report = base_report(role, namespace, pod, now);
    report.workload = why.top_owner.map(|(kind, name)| named(&kind, &name));
    report.vpa = why.vpa.as_deref().map(of_vpa);
    report.containers = containers(role, pod, None);
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

/// About a pod that was decided about.
pub(super) fn report(role: &Updater, found: ExplainedPod<'_>, notes: Vec<String>) -> PodReport {
    let ExplainedPod {
        workload,
        index,
        decision: decided,
        pass_context: world,
        leases,
        competing_vpas: rivals,
    } = found;
    let pod = &workload.pods[index];
    let mut report = base_report(role, &workload.key.namespace, pod, world.now);
    report.workload = Some(named(&workload.target.0, &workload.target.1));
    report.vpa = Some(of_vpa(&workload.vpa));
    report.notes = notes;
    let PodDecision {
        explanation: told,
        persisted: recall,
        decision,
        action,
        earlier_actions: before,
        unboosted,
    } = decided;
    let need = told.as_ref().map(|told| &told.reason);
    let verdict = decision.pod_outcomes.get(index);
    report.verdict = pod_verdict(verdict, need, action.as_ref(), &unboosted);
    if let Some(reason) = report.verdict.reason.as_ref().filter(|_| report.verdict.held_back) {
        report.findings.push(Finding::new(reason, sentence(&report.verdict.message)));
    }
    if let Some(told) = told {
        let recommendation = told.recommendation.as_ref().ok();
        report.containers = containers(role, pod, recommendation);
        report.need = need_of(&told);
        let place = told.candidate_order.iter().position(|one| *one == index);
        let earlier = |(pod, action): &(usize, &str)| EarlierAction {
            pod: workload.pods[*pod].name_any(),
            action: (*action).to_owned(),
        };
        report.order = Some(Order {
            place: place.map(|place| place + 1),
            candidates: told.candidate_order.len(),
            before: before.iter().map(earlier).collect(),
        });
        report.group = told.group.as_ref().ok().copied().map(group_of);
        let guards = guards_of(role, workload, &told, &recall, world, leases);
        report.guards = Some(guards);
    }
    let notes = &mut report.notes;
    if report.verdict.reason.is_some() && !before.is_empty() {
        notes
            .push("This is as if all had been done by then that comes before its turn.".to_owned());
    }
    if !unboosted.is_empty() && report.verdict.action != "unboost" {
        notes.push(format!("What it was given to start with is taken back: {}.", list(&unboosted)));
    }
    if let Some(harm) = decision.regression {
        notes.push(format!("The next pass stops updates of this workload: {harm}."));
    }
    if decision.externally_overwritten {
        notes.push("The next pass stops updates: somebody else writes other values.".to_owned());
    }
    for rival in rivals {
        notes.push(format!(
            "VPA {rival} is for the same workload and does not count: the older one does."
        ));
    }
    report
}

fn list(names: &[Arc<str>]) -> String {
    names.join(", ")
}

/// Words as a sentence of their own.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str().trim_end_matches('.'))
}

fn pod_verdict(
    verdict: Option<&updater::PodOutcome>,
    need: Option<&Result<updater::UpdateReason, SkipReason>>,
    action: Option<&Action>,
    unboosted: &[Arc<str>],
) -> PodVerdict {
    let left = |action: &str, skip: &SkipReason, held_back| PodVerdict {
        action: action.to_owned(),
        reason: Some(skip.as_str().to_owned()),
        message: skip.to_string(),
        held_back,
        restarts: None,
    };
    match verdict {
        Some(updater::PodOutcome::Changed(word)) => {
            let restarts = match action {
                Some(Action::Resize { restarts_containers: restarts, .. }) => Some(*restarts),
                _ => None,
            };
            let message = match (*word, restarts) {
                ("evict", _) => "it would be evicted now, and a new pod gets what is recommended",
                (_, Some(true)) => "it would be resized now, for which a container is restarted",
                _ => "it would be resized now where it runs",
            };
            PodVerdict {
                action: (*word).to_owned(),
                reason: None,
                message: message.to_owned(),
                held_back: false,
                restarts,
            }
        }
        Some(updater::PodOutcome::Skipped(skip)) => {
            if !unboosted.is_empty() {
                let mut verdict = left("unboost", skip, false);
                verdict.message =
                    format!("what it was given to start with is taken back: {}", list(unboosted));
                return verdict;
            }
            // Where it is known that nothing is wanted, nothing is held back.
            let nothing =
                need.is_some_and(|need| need.as_ref().is_err_and(|it| !it.is_restriction()));
            let surges = matches!(action, Some(Action::Surge));
            let held_back = skip.is_restriction() && !nothing && !surges;
            left(if surges { "surge" } else { "none" }, skip, held_back)
        }
        None => left("none", &SkipReason::PassEnded, true),
    }
}

fn need_of(told: &PodExplanation) -> Option<Need> {
    let priority = told.priority?;
    Some(Need {
        word: told.reason.as_ref().ok().map(|need| need.as_str().to_owned()),
        why_not: told.reason.as_ref().err().map(|why| why.as_str().to_owned()),
        difference: priority.resource_diff,
        outside_range: priority.outside_recommended_range,
        grows: priority.scale_up,
    })
}

fn containers(
    role: &Updater,
    pod: &UpdaterPod,
    recommendation: Option<&Recommendation>,
) -> Vec<Container> {
    let sized = pod.sizing.sized_containers(role.config.native_sidecars);
    let container = sized.map(|(_, container)| {
        let requests = container.actual().requests();
        let wanted =
            recommendation.and_then(|all| priority::recommendation_for(all, &container.name));
        let amounts = |of: fn(
            &plimsoll_core::api::ResourceList,
        ) -> Option<plimsoll_core::types::quantity::Quantity>| {
            let amounts = ContainerAmounts {
                request: of(requests),
                target: wanted.and_then(|it| of(&it.target)),
                lower: wanted.and_then(|it| of(&it.lower_bound)),
                upper: wanted.and_then(|it| of(&it.upper_bound)),
                ..ContainerAmounts::default()
            };
            Some(amounts.with_position()).filter(|it| it.request.is_some() || it.target.is_some())
        };
        Container {
            name: Arc::clone(&container.name),
            cpu: amounts(plimsoll_core::api::ResourceList::cpu),
            memory: amounts(plimsoll_core::api::ResourceList::memory),
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
    role: &Updater,
    workload: &Workload,
    told: &PodExplanation,
    recall: &updater::PersistedState,
    world: PassContext<'_>,
    leases: &Leases,
) -> Guards {
    let (settings, now) = (&role.config.settings.guards, world.now);
    let memory = &recall.workload;
    let ground = role.decision_inputs(workload, now);
    let windows = ground.windows.as_ref().unwrap_or(&settings.maintenance_windows);
    let spent = |within: &str, charge: BudgetKind, allowance: Option<Allowance>| {
        let (made, pods) = if within == "namespace" {
            let namespace = &workload.key.namespace;
            (recall.budget.in_namespace(namespace, charge, now), world.pod_counts.namespace)
        } else {
            (recall.budget.in_cluster(charge, now), world.pod_counts.cluster)
        };
        let charge = match charge {
            BudgetKind::Disruption => "disruption",
            BudgetKind::Resize => "resize",
        };
        let allowed = allowance.map(|allowance| allowance.limit_for(pods));
        ChangesMade { within: within.to_owned(), charge: charge.to_owned(), made, allowed }
    };
    Guards {
        recommender: leases.recommender_health(role, workload, world.heartbeat),
        admission_controller: leases.admission_controller_health(),
        windows: Windows {
            limited: *windows != updater::guard::MaintenanceWindows::ALWAYS,
            open: windows.is_any_open(now),
            next: windows.next_opening(now),
        },
        rollout: memory.rollout.as_ref().map(|it| Rollout {
            began: it.began,
            last: it.last,
            touched: it.touched,
            evicted: it.evicted,
            streak: it.streak,
        }),
        last_change: told.last_change.as_ref().map(|touch| PodChange {
            what: match touch.what {
                ChangeKind::Evicted => "evicted",
                ChangeKind::Resized => "resized",
            }
            .to_owned(),
            at: touch.at,
        }),
        breaker: memory.breaker.map(|it| Breaker {
            harm: it.harm.as_str().to_owned(),
            message: it.harm.to_string(),
            since: it.since,
            until: it.until,
            open: it.until > now,
        }),
        rewritten_since: memory.rewritten.map(|it| it.at),
        changes: vec![
            spent("namespace", BudgetKind::Disruption, settings.namespace_disruptions),
            spent("cluster", BudgetKind::Disruption, settings.cluster_disruptions),
            spent("namespace", BudgetKind::Resize, settings.namespace_resizes),
            spent("cluster", BudgetKind::Resize, settings.cluster_resizes),
        ],
        cluster_stopped_until: recall.budget.open_until(now),
        unproven: recall.budget.unproven(),
        unproven_allowed: recall.budget.max_unproven(settings, now),
    }
}
