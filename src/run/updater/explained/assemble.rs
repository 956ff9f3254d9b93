//! The report about one pod, out of what was read and decided.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::types::Time;

use super::{Decided, Role, Workload, leases::Leases, unmatched::Unmatched};
use crate::{
    explain::{
        pod::report::{
            Amounts, Breaker, Changed, Container, Earlier, Group, Guards, HeldBack, Named, Need,
            OfVpa, Order, PodReport, Rollout, SCHEMA_VERSION, Spent, Verdict, Windows,
        },
        report::Finding,
    },
    observe::running::RunningPod,
    run::updater::telling::CONDITION,
};
use plimsoll_core::{
    api::{VerticalPodAutoscaler, vpa::Recommendation},
    types::compat::Compat,
    updater::{
        self, Action, Skip, Told, World,
        guard::{Allowance, Charge, Touched},
        priority,
    },
};

/// What was found about a pod.
pub(super) struct Found<'a> {
    pub workload: &'a Workload,
    /// Its place among the pods of the workload.
    pub index: usize,
    pub decided: Decided,
    pub world: World<'a>,
    pub leases: &'a Leases,
    /// Other VPAs for the same workload.
    pub rivals: Vec<String>,
}

/// What is said of every pod.
fn begun(role: &Role, namespace: &str, pod: &RunningPod, now: Time) -> PodReport {
    let owner = pod.life.owner.as_ref();
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
            .map(|it| Named { kind: Arc::clone(&it.kind), name: Arc::clone(&it.name) }),
        workload: None,
        vpa: None,
        verdict: Verdict {
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

fn of_vpa(vpa: &VerticalPodAutoscaler) -> OfVpa {
    let mut conditions = vpa.status.iter().flat_map(|status| &status.conditions);
    let held = conditions.find(|one| one.kind == CONDITION && one.status == "True");
    let held = held.map(|one| HeldBack {
        reason: one.reason.clone(),
        message: one.message.clone(),
        since: one.last_transition_time.as_ref().map(|at| at.0.into()),
    });
    OfVpa {
        name: vpa.name_any(),
        update_mode: vpa.spec.update_mode().as_str().to_owned(),
        recommender: vpa.spec.recommenders.first().map_or("default", |it| &it.name).to_owned(),
        held_back: held,
    }
}

/// About a pod that no VPA has a say about.
pub(super) fn unmatched(
    role: &Role,
    namespace: &str,
    pod: &RunningPod,
    why: Unmatched,
    now: Time,
) -> PodReport {
    let mut report = begun(role, namespace, pod, now);
    report.workload = why.top.map(|(kind, name)| named(&kind, &name));
    report.vpa = why.vpa.as_deref().map(of_vpa);
    report.containers = containers(role, pod, None);
    report.verdict.reason = Some(why.code.to_owned());
    report.verdict.held_back = why.is_fault;
    if why.is_fault {
        report.findings.push(Finding::new(why.code, sentence(&why.message)));
    }
    report.verdict.message = why.message;
    report
}

fn named(kind: &str, name: &str) -> Named {
    Named { kind: kind.into(), name: name.into() }
}

/// About a pod that was decided about.
pub(super) fn report(role: &Role, found: Found<'_>, notes: Vec<String>) -> PodReport {
    let Found { workload, index, decided, world, leases, rivals } = found;
    let pod = &workload.pods[index];
    let mut report = begun(role, &workload.key.namespace, pod, world.now);
    report.workload = Some(named(&workload.target.0, &workload.target.1));
    report.vpa = Some(of_vpa(&workload.vpa));
    report.notes = notes;
    let Decided { told, recall, decision, action, before, unboosted } = decided;
    let need = told.as_ref().map(|told| &told.need);
    let verdict = decision.verdicts.get(index);
    report.verdict = verdict_of(verdict, need, action.as_ref(), &unboosted);
    if let Some(reason) = report.verdict.reason.as_ref().filter(|_| report.verdict.held_back) {
        report.findings.push(Finding::new(reason, sentence(&report.verdict.message)));
    }
    if let Some(told) = told {
        let recommendation = told.recommendation.as_ref().ok();
        report.containers = containers(role, pod, recommendation);
        report.need = need_of(&told);
        let place = told.order.iter().position(|one| *one == index);
        let earlier = |(pod, action): &(usize, &str)| Earlier {
            pod: workload.pods[*pod].name_any(),
            action: (*action).to_owned(),
        };
        report.order = Some(Order {
            place: place.map(|place| place + 1),
            candidates: told.order.len(),
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
    if let Some(harm) = decision.harm {
        notes.push(format!("The next pass stops updates of this workload: {harm}."));
    }
    if decision.rewritten {
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

fn verdict_of(
    verdict: Option<&updater::Verdict>,
    need: Option<&Result<updater::Need, Skip>>,
    action: Option<&Action>,
    unboosted: &[Arc<str>],
) -> Verdict {
    let left = |action: &str, skip: &Skip, held_back| Verdict {
        action: action.to_owned(),
        reason: Some(skip.word().to_owned()),
        message: skip.to_string(),
        held_back,
        restarts: None,
    };
    match verdict {
        Some(updater::Verdict::Changed(word)) => {
            let restarts = match action {
                Some(Action::Resize { restarts, .. }) => Some(*restarts),
                _ => None,
            };
            let message = match (*word, restarts) {
                ("evict", _) => "it would be evicted now, and a new pod gets what is recommended",
                (_, Some(true)) => "it would be resized now, for which a container is restarted",
                _ => "it would be resized now where it runs",
            };
            Verdict {
                action: (*word).to_owned(),
                reason: None,
                message: message.to_owned(),
                held_back: false,
                restarts,
            }
        }
        Some(updater::Verdict::Skipped(skip)) => {
            if !unboosted.is_empty() {
                let mut verdict = left("unboost", skip, false);
                verdict.message =
                    format!("what it was given to start with is taken back: {}", list(unboosted));
                return verdict;
            }
            // Where it is known that nothing is wanted, nothing is held back.
            let nothing = need.is_some_and(|need| need.as_ref().is_err_and(|it| !it.holds_back()));
            let surges = matches!(action, Some(Action::Surge));
            let held_back = skip.holds_back() && !nothing && !surges;
            left(if surges { "surge" } else { "none" }, skip, held_back)
        }
        None => left("none", &Skip::PassEnded, true),
    }
}

fn need_of(told: &Told) -> Option<Need> {
    let priority = told.priority?;
    Some(Need {
        word: told.need.as_ref().ok().map(|need| need.word().to_owned()),
        why_not: told.need.as_ref().err().map(|why| why.word().to_owned()),
        difference: priority.difference,
        outside_range: priority.outside_range,
        grows: priority.scale_up,
    })
}

fn containers(
    role: &Role,
    pod: &RunningPod,
    recommendation: Option<&Recommendation>,
) -> Vec<Container> {
    let sized = pod.sizes.sized(role.config.native_sidecars);
    let container = sized.map(|(_, container)| {
        let requests = container.actual().requests();
        let wanted = recommendation.and_then(|all| priority::find(all, &container.name));
        let amounts = |of: fn(
            &plimsoll_core::api::ResourceList,
        ) -> Option<plimsoll_core::types::quantity::Quantity>| {
            let amounts = Amounts {
                request: of(requests),
                target: wanted.and_then(|it| of(&it.target)),
                lower: wanted.and_then(|it| of(&it.lower_bound)),
                upper: wanted.and_then(|it| of(&it.upper_bound)),
                ..Amounts::default()
            };
            Some(amounts.judged()).filter(|it| it.request.is_some() || it.target.is_some())
        };
        Container {
            name: Arc::clone(&container.name),
            cpu: amounts(plimsoll_core::api::ResourceList::cpu),
            memory: amounts(plimsoll_core::api::ResourceList::memory),
        }
    });
    container.collect()
}

fn group_of(group: updater::Group) -> Group {
    let budget = group.budget;
    Group {
        live: group.live,
        wanted: budget.configured,
        up: budget.running,
        may_be_down: budget.most_down(),
        allows_one_more: budget.allows_one_more(),
        below_minimum: group.below_minimum,
    }
}

fn guards_of(
    role: &Role,
    workload: &Workload,
    told: &Told,
    recall: &updater::Recall,
    world: World<'_>,
    leases: &Leases,
) -> Guards {
    let (settings, now) = (&role.config.settings.guards, world.now);
    let memory = &recall.memory;
    let ground = role.ground(workload, now);
    let windows = ground.windows.as_ref().unwrap_or(&settings.windows);
    let spent = |within: &str, charge: Charge, allowance: Option<Allowance>| {
        let (made, pods) = if within == "namespace" {
            let namespace = &workload.key.namespace;
            (recall.ledger.in_namespace(namespace, charge, now), world.sizes.namespace)
        } else {
            (recall.ledger.in_cluster(charge, now), world.sizes.cluster)
        };
        let charge = match charge {
            Charge::Disruption => "disruption",
            Charge::Resize => "resize",
        };
        let allowed = allowance.map(|allowance| allowance.of(pods));
        Spent { within: within.to_owned(), charge: charge.to_owned(), made, allowed }
    };
    Guards {
        recommender: leases.recommender(role, workload, world.heartbeat),
        admission_controller: leases.admission_controller(),
        windows: Windows {
            limited: *windows != updater::guard::Windows::ALWAYS,
            open: windows.are_open(now),
            next: windows.next(now),
        },
        rollout: memory.rollout.as_ref().map(|it| Rollout {
            began: it.began,
            last: it.last,
            touched: it.touched,
            evicted: it.evicted,
            streak: it.streak,
        }),
        last_change: told.touch.as_ref().map(|touch| Changed {
            what: match touch.what {
                Touched::Evicted => "evicted",
                Touched::Resized => "resized",
            }
            .to_owned(),
            at: touch.at,
        }),
        breaker: memory.breaker.map(|it| Breaker {
            harm: it.harm.word().to_owned(),
            message: it.harm.to_string(),
            since: it.since,
            until: it.until,
            open: it.until > now,
        }),
        rewritten_since: memory.rewritten.map(|it| it.at),
        changes: vec![
            spent("namespace", Charge::Disruption, settings.namespace_disruptions),
            spent("cluster", Charge::Disruption, settings.cluster_disruptions),
            spent("namespace", Charge::Resize, settings.namespace_resizes),
            spent("cluster", Charge::Resize, settings.cluster_resizes),
        ],
        cluster_stopped_until: recall.ledger.open_until(now),
        unproven: recall.ledger.unproven(),
        unproven_allowed: recall.ledger.unproven_allowed(settings, now),
    }
}
