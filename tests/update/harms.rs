//! What a pass makes of what came of the changes before: pods that got worse stop it, one workload at a time and then
//! all of them.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    types::compat::Compat,
    updater::{
        Decision, Ledger, Memory, Phase, Readiness, Skip, Verdict,
        guard::{Harm, ledger::KEY as LEDGER, memory::KEY as MEMORY},
        life::{ContainerLife, Ending},
    },
};

use super::{Case, NOW, ago, pod, recommended, steps};

fn later(minutes: u64) -> Time {
    NOW.later(Duration::from_mins(minutes))
}

/// The first pod was changed just now; the updater that did it is gone, and another one has read what it wrote.
fn changed(mode: &str) -> Case {
    let mut case = Case::new(Compat::Plimsoll, mode, 4);
    let recall = case.decide().recall;
    let target = &case.spec.target_ref;
    let memory = recall.memory.write(target).expect("it fits");
    case.recall.memory = Memory::read(&memory, target).expect("is read");
    case.recall.ledger = Ledger::read(&recall.ledger.write().expect("fits")).expect("is read");
    assert_eq!(case.recall, recall, "nothing is lost on the way");
    case
}

/// The pod that takes the place of the first one.
fn replaced(case: &mut Case) {
    let mut new = pod(9, &["cpu 2, memory 200M"]);
    new.size.annotations = Some([("vpaUpdates".into(), "sized".into())].into());
    new.life.created = later(0);
    new.life.started = Some(NOW);
    new.life.readiness = Readiness::Unready(NOW);
    case.pods[0] = new;
}

fn at(case: &mut Case, minutes: u64) -> Decision {
    case.now = later(minutes);
    case.decide()
}

#[test]
fn a_first_pod_that_gets_ready_lets_the_others_follow() {
    let mut case = changed("Recreate");
    replaced(&mut case);
    let until = later(2);
    let waits = at(&mut case, 1);
    assert_eq!(waits.verdicts[1], Verdict::Skipped(Skip::Canary { until }));
    let waits = at(&mut case, 5);
    assert_eq!(waits.verdicts[1], Verdict::Skipped(Skip::Canary { until }), "it is not ready");
    case.pods[0].life.readiness = Readiness::Ready(later(5));
    let goes_on = at(&mut case, 6);
    assert_eq!(steps(&goes_on, "evict"), 2, "{:?}", goes_on.verdicts);
    assert_eq!(goes_on.harm, None);
}

#[test]
fn a_first_pod_that_never_starts_or_never_gets_ready_stops_the_workload() {
    for (phase, harm) in [(Phase::Pending, Harm::Pending), (Phase::Running, Harm::Unready)] {
        let mut case = changed("Recreate");
        replaced(&mut case);
        case.pods[0].life.phase = phase;
        assert_eq!(at(&mut case, 9).harm, None);
        let stopped = at(&mut case, 11);
        assert_eq!(stopped.harm, Some(harm));
        assert_eq!(steps(&stopped, "evict"), 0);
        let until = later(11 + 60);
        assert_eq!(stopped.verdicts[1], Verdict::Skipped(Skip::BreakerOpen { until }));
        case.recall = stopped.recall;
        let again = at(&mut case, 12);
        assert_eq!(again.harm, None, "it is told once");
        assert_eq!(again.verdicts[1], Verdict::Skipped(Skip::BreakerOpen { until }));
    }
}

#[test]
fn a_pod_that_does_not_come_back_stops_the_workload() {
    let mut case = changed("Recreate");
    case.pods.remove(0);
    case.wanted = plimsoll_core::updater::Wanted::Pods(4);
    assert_eq!(at(&mut case, 9).harm, None);
    assert_eq!(at(&mut case, 11).harm, Some(Harm::Missing));
    case.wanted = plimsoll_core::updater::Wanted::Pods(3);
    assert_eq!(at(&mut case, 11).harm, None, "nobody wants it any more");
    assert_eq!(steps(&at(&mut case, 11), "evict"), 1, "nor is it waited for");
}

fn killed(minutes: u64, restarts: u32) -> ContainerLife {
    let finished = later(minutes);
    let started = finished.earlier(Duration::from_mins(1));
    ContainerLife {
        name: "c1".into(),
        restarts,
        backing_off: false,
        last_ending: Some(Ending { out_of_memory: true, started, finished }),
    }
}

#[test]
fn a_resize_that_makes_a_pod_run_out_of_memory_stops_the_workload_and_helps_that_pod_only() {
    let mut case = Case::new(Compat::Plimsoll, "InPlaceOrRecreate", 4);
    case.recommendation = Some(recommended(&["cpu 1, memory 50M"]));
    let first = case.decide();
    assert_eq!(steps(&first, "resize"), 1);
    case.recall = first.recall;
    case.pods[0].life.generation = Some(2);
    case.pods[0].size.containers[0].spec = crate::fit::resources("cpu 1, memory 50M");
    case.pods[0].life.containers = vec![killed(3, 1)];
    let stopped = at(&mut case, 4);
    assert_eq!(stopped.harm, Some(Harm::OutOfMemory));
    assert!(stopped.steps.is_empty());
    // More is recommended for it soon.
    case.recall = stopped.recall;
    case.recommendation = Some(recommended(&["cpu 1, memory 80M"]));
    let helped = at(&mut case, 5);
    assert_eq!(helped.verdicts[0], Verdict::Changed("resize"));
    assert_eq!(helped.steps.len(), 1, "{:?}", helped.verdicts);
}

#[test]
fn pods_that_were_as_bad_before_stop_nothing() {
    let mut case = Case::new(Compat::Plimsoll, "InPlaceOrRecreate", 4);
    for pod in &mut case.pods {
        pod.life.containers = vec![ContainerLife {
            restarts: 7,
            last_ending: Some(Ending { out_of_memory: true, started: ago(40), finished: ago(20) }),
            ..ContainerLife::default()
        }];
    }
    case.recall = case.decide().recall;
    case.pods[0].life.generation = Some(2);
    case.pods[0].size.containers[0].spec = crate::fit::resources("cpu 2, memory 200M");
    case.pods[0].life.containers = vec![killed(3, 8)];
    let goes_on = at(&mut case, 4);
    assert_eq!(goes_on.harm, None);
    assert!(steps(&goes_on, "resize") > 0, "{:?}", goes_on.verdicts);
}

#[test]
fn several_workloads_that_got_worse_stop_all_of_them() {
    let mut ledger = Ledger::default();
    for number in 0..5 {
        let mut case = changed("Recreate");
        case.namespace = format!("team-{number}");
        replaced(&mut case);
        case.recall.ledger = ledger;
        ledger = at(&mut case, 11).recall.ledger;
    }
    let mut healthy = Case::new(Compat::Plimsoll, "Recreate", 4);
    healthy.recall.ledger = ledger;
    let stopped = at(&mut healthy, 12);
    let until = later(11 + 60);
    assert_eq!(stopped.verdicts[0], Verdict::Skipped(Skip::ClusterBreakerOpen { until }));
    assert_eq!(steps(&at(&mut healthy, 72), "evict"), 1);
}

#[test]
fn what_is_remembered_has_keys_of_its_own() {
    assert_ne!(LEDGER, MEMORY);
    assert!(LEDGER.starts_with("plimsoll.dev/") && MEMORY.starts_with("plimsoll.dev/"));
}

#[test]
fn every_word_is_said_once() {
    let mut words = Skip::WORDS.to_vec();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), Skip::WORDS.len());
    for skip in [Skip::Mode, Skip::Canary { until: NOW }, Skip::PassEnded, Skip::Failed] {
        assert!(Skip::WORDS.contains(&skip.word()) && !skip.to_string().is_empty(), "{skip:?}");
    }
}
