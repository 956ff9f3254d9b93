//! Invariants of a small replica group: whatever fails, whichever updater takes over, however stale its view, the number of
//! unavailable pods never exceeds the limit.

use plimsoll_core::{
    types::compat::Compat,
    updater::{GuardSettings, Pod, guard::Allowance, pod_status::ContainerStatus},
};
use proptest::prelude::*;

use super::{
    PassCase, pod,
    simulated_cluster::{SimulatedWorkload, UpdaterCrash},
    steps,
};
use crate::support::tier;

/// What happens within a minute.
#[derive(Clone, Debug)]
enum ClusterEvent {
    Nothing,
    /// A pod terminates on its own.
    Kill(usize),
    /// The updater crashes at its n-th step.
    Dies(usize, UpdaterCrash),
    /// Another updater makes a pass too, with the state persisted a minute ago.
    Second,
    /// The pass uses the pods from before the previous pass.
    OldView,
    /// The recommendation changes.
    Target(&'static str),
    /// The webhook goes down, or comes back.
    Webhook(bool),
}

fn event() -> impl Strategy<Value = ClusterEvent> {
    prop_oneof![
        4 => Just(ClusterEvent::Nothing),
        2 => (0..8_usize).prop_map(ClusterEvent::Kill),
        1 => (1..3_usize).prop_map(|step| ClusterEvent::Dies(step, UpdaterCrash::DiesBefore)),
        1 => (1..3_usize).prop_map(|step| ClusterEvent::Dies(step, UpdaterCrash::DiesAfter)),
        1 => Just(ClusterEvent::Second),
        1 => Just(ClusterEvent::OldView),
        1 => prop_oneof![Just("cpu 3, memory 300M"), Just("cpu 2, memory 200M"), Just("cpu 5, memory 1G")]
            .prop_map(ClusterEvent::Target),
        1 => any::<bool>().prop_map(ClusterEvent::Webhook),
    ]
}

/// Applies events, and checks that the disruption limit was never exceeded.
fn run_events(workload: &mut SimulatedWorkload, events: &[ClusterEvent]) {
    let mut before = (workload.read(), workload.case.pods.clone());
    let mut was_killed = false;
    for event in events {
        let now = (workload.read(), workload.case.pods.clone());
        workload.step();
        let (mut stale_pods, mut fate, mut second) = (None, (0, UpdaterCrash::Survives), None);
        match event {
            ClusterEvent::Kill(pod) => workload.kill(*pod),
            ClusterEvent::Dies(step, crash) => fate = (*step, *crash),
            ClusterEvent::Second => second = Some(before.0.clone()),
            // Pods killed in between cannot be known; changes made by updaters are.
            ClusterEvent::OldView if !was_killed => stale_pods = Some(before.1.clone()),
            ClusterEvent::Nothing | ClusterEvent::OldView => {}
            ClusterEvent::Target(target) => workload.target = target,
            ClusterEvent::Webhook(up) => workload.is_webhook_up = *up,
        }
        let read = workload.read();
        workload.pass(read.clone(), stale_pods, fate);
        if let Some(stale) = second {
            workload.pass(stale, None, (0, UpdaterCrash::Survives));
            // A second updater that read the state at the same time as the first.
            workload.pass(read, None, (0, UpdaterCrash::Survives));
        }
        before = now;
        was_killed = matches!(event, ClusterEvent::Kill(_));
    }
}

/// A workload whose guards allow as much as they can.
fn hasty(mode: &str, pods: usize) -> SimulatedWorkload {
    let mut workload = SimulatedWorkload::new(Compat::Plimsoll, mode, pods);
    workload.case.settings.min_replicas = 1;
    let guards = &mut workload.case.settings.guards;
    guards.canary = None;
    guards.cool_down = None;
    guards.breaker = None;
    guards.max_unproven_evictions = None;
    workload
}

proptest! {
    #![proptest_config(tier::properties(32, 2_000))]

    #[test]
    fn never_more_pods_are_down_than_the_budget_allows(
        pods in 1..8_usize,
        starts_within in 0..20_u64,
        is_hasty in any::<bool>(),
        restarts in any::<bool>(),
        events in prop::collection::vec(event(), 1..60),
    ) {
        for mode in ["Recreate", "InPlaceOrRecreate"] {
            let mut workload = if is_hasty { hasty(mode, pods) } else { SimulatedWorkload::new(Compat::Plimsoll, mode, pods) };
            workload.starts_within = starts_within;
            if restarts {
                workload.restart_for_resizes();
            }
            run_events(&mut workload, &events);
            prop_assert!(workload.broken_budget.is_none(), "{:?}", workload.broken_budget);
        }
    }

    #[test]
    fn all_pods_of_a_stable_workload_are_updated_exactly_once(
        pods in 2..8_usize,
        starts_within in 0..5_u64,
    ) {
        let mut workload = SimulatedWorkload::new(Compat::Plimsoll, "Recreate", pods);
        workload.starts_within = starts_within;
        run_events(&mut workload, &vec![ClusterEvent::Nothing; 120]);
        prop_assert_eq!(workload.updated(), pods);
        prop_assert_eq!(workload.evictions, pods);
    }

    #[test]
    fn guards_never_allow_more_evictions(pods in 2..12_usize, which in 0..6_usize) {
        let case = PassCase::new(Compat::Plimsoll, "Recreate", pods);
        let mut open = case.clone();
        open.settings.guards = GuardSettings::NONE;
        let most = steps(&open.decide(), "evict");
        let mut guarded = open.clone();
        let defaults = GuardSettings::default();
        let guards = &mut guarded.settings.guards;
        match which {
            0 => guards.canary = defaults.canary,
            1 => guards.cool_down = defaults.cool_down,
            2 => guards.breaker = defaults.breaker,
            3 => guards.namespace_disruptions = Some(Allowance { at_least: 1, share: 0.0 }),
            4 => guards.max_unproven_evictions = Some(1),
            _ => guards.maintenance_windows = "0 3 * * * for 1h".parse().expect("valid window"),
        }
        let evictions = steps(&guarded.decide(), "evict");
        prop_assert!(evictions <= most, "{evictions} > {most}");
        prop_assert!(steps(&case.decide(), "evict") <= evictions.max(1));
    }

    #[test]
    fn a_decision_is_made_for_any_pod(
        pods in prop::collection::vec((0..3_u8, 0..4_u8, any::<bool>(), any::<bool>(), 0..3_usize), 0..6),
        mode in prop_oneof![Just("Off"), Just("Recreate"), Just("InPlace"), Just("InPlaceOrRecreate")],
        is_upstream in any::<bool>(),
    ) {
        let compat = if is_upstream { Compat::Upstream } else { Compat::Plimsoll };
        let mut case = PassCase::new(compat, mode, pods.len());
        case.settings.in_place = true;
        case.settings.startup_boost = true;
        for (number, (phase, readiness, owned, backs_off, shape)) in pods.iter().enumerate() {
            case.pods[number] = odd_pod(number, *phase, *readiness, *owned, *backs_off, *shape);
        }
        let decision = case.decide();
        prop_assert_eq!(decision.pod_outcomes.len(), pods.len());
        case.recall = decision.state;
        prop_assert_eq!(case.decide().pod_outcomes.len(), pods.len());
    }
}

fn odd_pod(
    number: usize,
    phase: u8,
    readiness: u8,
    owned: bool,
    backs_off: bool,
    shape: usize,
) -> Pod {
    use plimsoll_core::updater::{Phase, Readiness, pod_status::ResizeCondition};

    let requests: &[&str] = [&[][..], &[""], &["cpu 1", "memory 1"]][shape];
    let mut pod = pod(number, requests);
    pod.status.phase = [Phase::Pending, Phase::Running, Phase::Other][usize::from(phase)];
    pod.status.readiness = match readiness {
        0 => Readiness::Unknown,
        1 => Readiness::Unready(plimsoll_core::types::Time::from_nanos(i64::MIN)),
        2 => Readiness::Ready(plimsoll_core::types::Time::from_nanos(i64::MAX)),
        _ => pod.status.readiness,
    };
    if !owned {
        pod.status.owner = None;
        pod.status.started = None;
        pod.status.resize_pending = Some(ResizeCondition::default());
    }
    if backs_off {
        pod.status.containers = vec![
            ContainerStatus {
                backing_off: true,
                restarts: u32::MAX,
                ..ContainerStatus::default()
            };
            2
        ];
        pod.status.resize_in_progress = Some(ResizeCondition::default());
        pod.spec.annotations = Some([("vpaCpuStartupBoost/c1".into(), "?".into())].into());
    }
    pod
}

#[test]
fn upstreams_rules_exceed_the_budget_with_slow_starting_pods() {
    let mut workload = SimulatedWorkload::new(Compat::Upstream, "Recreate", 4);
    workload.starts_within = 10;
    workload.is_webhook_up = false;
    run_events(&mut workload, &vec![ClusterEvent::Nothing; 10]);
    assert!(workload.broken_budget.is_some(), "so the invariant above can fail");
}
