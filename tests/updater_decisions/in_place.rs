//! Golden vectors 189 to 191 and 193 to 215: whether a pod is resized, waits, or is evicted.

use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_core::{
    types::compat::Compat,
    updater::{
        DesiredReplicas, InPlaceDecision, ResizePhase, Settings,
        guard::infeasible::{InfeasibleResizes, RejectedBy, recommended_targets},
        in_place::{InPlaceContext, ResizeCandidate, ResizesFirstSeen},
        pass::Pod,
        pod_status::ResizeCondition,
    },
};

use super::{groups, pod, recommended};

const MODES: [&str; 2] = ["InPlaceOrRecreate", "InPlace"];

fn condition(reason: &str) -> ResizeCondition {
    ResizeCondition { reason: reason.into(), ..ResizeCondition::default() }
}

/// The resize decision for the first of some pods, under upstream's rules.
struct ResizeCase {
    mode: &'static str,
    configured: u32,
    running: usize,
    min: i64,
    settings: Settings,
    first_seen: Option<Time>,
    now: Time,
    pending: Option<ResizeCondition>,
    progress: Option<ResizeCondition>,
    remembered: Option<&'static str>,
    target: Option<&'static str>,
}

const HOUR: Time = Time::from_secs(3600);

impl ResizeCase {
    fn new(mode: &'static str, configured: u32, running: usize) -> Self {
        let settings = Settings { in_place: true, ..Settings::for_compat(Compat::Upstream) };
        Self {
            mode,
            configured,
            running,
            min: 2,
            settings,
            first_seen: None,
            now: HOUR.later(Duration::from_millis(1)),
            pending: None,
            progress: None,
            remembered: None,
            target: Some("cpu 1000m,memory 1Gi"),
        }
    }

    fn pods(&self) -> Vec<Pod> {
        let mut pods: Vec<Pod> =
            (0..self.running).map(|number| pod(number, &["cpu 1,memory 1Gi"])).collect();
        pods[0].status.resize_pending.clone_from(&self.pending);
        pods[0].status.resize_in_progress.clone_from(&self.progress);
        pods
    }

    /// The decision by its name in upstream.
    fn answer(&self) -> &'static str {
        let pods = self.pods();
        let groups =
            groups(&pods, DesiredReplicas::Known(self.configured), self.min, &self.settings);
        let raw = self.target.map(|target| recommended_targets(&recommended(&[target])));
        let mut refusals = InfeasibleResizes::default();
        if let Some(text) = self.remembered {
            let before = recommended_targets(&recommended(&[text]));
            refusals.record("uid-0", RejectedBy::Node, before, self.now);
        }
        let question = InPlaceContext {
            mode: super::spec(self.mode).update_mode(),
            targets: raw.as_deref(),
            groups: &groups,
            settings: &self.settings,
            now: self.now,
        };
        let mut first_seen = ResizesFirstSeen::new();
        first_seen.extend(self.first_seen.map(|at| (pods[0].spec.name.clone(), at)));
        let refusal = refusals.find("uid-0", None, self.now);
        match question.decide(candidate(&pods[0], refusal), &mut first_seen) {
            InPlaceDecision::Approved => "InPlaceApproved",
            InPlaceDecision::Deferred(_) => "InPlaceDeferred",
            InPlaceDecision::Evict => "InPlaceEvict",
            InPlaceDecision::Infeasible => "InPlaceInfeasible",
            InPlaceDecision::InfeasibleCached => "InPlaceInfeasibleCached",
        }
    }
}

fn candidate<'a>(
    pod: &'a Pod,
    refusal: Option<&'a plimsoll_core::updater::guard::infeasible::InfeasibleResize>,
) -> ResizeCandidate<'a> {
    let phase = ResizePhase::from_pod_status(&pod.status, None, true);
    ResizeCandidate {
        pod: &pod.spec,
        status: &pod.status,
        phase,
        is_down: false,
        infeasible: refusal,
    }
}

#[test]
fn budgets_apply_to_pods_that_are_not_being_resized() {
    let ipor = || ResizeCase::new("InPlaceOrRecreate", 3, 3);
    assert_eq!(ipor().answer(), "InPlaceApproved", "193");
    for mode in MODES {
        let mut case = ResizeCase::new(mode, 1, 1);
        assert_eq!(case.answer(), "InPlaceDeferred", "195 {mode}");
        case.settings.in_place_skips_budget = true;
        assert_eq!(case.answer(), "InPlaceApproved", "194 {mode}");
        let case = ResizeCase { min: 10, ..ResizeCase::new(mode, 5, 5) };
        assert_eq!(case.answer(), "InPlaceDeferred", "213 {mode}");
    }
    assert_eq!(ResizeCase { running: 2, ..ipor() }.answer(), "InPlaceDeferred", "196");
    let mut case = ipor();
    case.settings.eviction_tolerance = 0.1;
    assert_eq!(case.answer(), "InPlaceApproved", "197");
    let case = ResizeCase { target: None, ..ResizeCase::new("InPlace", 3, 3) };
    assert_eq!(case.answer(), "InPlaceDeferred", "211");
    let mut case = ResizeCase::new("InPlace", 3, 3);
    case.settings.in_place = false;
    assert_eq!(case.answer(), "InPlaceDeferred", "212");
}

#[test]
fn a_resize_timeout_leads_to_eviction_except_in_place_only() {
    let epoch = Some(Time::EPOCH);
    let deferred = |mode, first_seen| ResizeCase {
        pending: Some(condition("Deferred")),
        first_seen,
        ..ResizeCase::new(mode, 3, 3)
    };
    let progress = |mode, first_seen| ResizeCase {
        progress: Some(condition("")),
        first_seen,
        ..ResizeCase::new(mode, 3, 3)
    };
    let infeasible =
        |mode| ResizeCase { pending: Some(condition("Infeasible")), ..ResizeCase::new(mode, 3, 3) };
    let ipor = "InPlaceOrRecreate";
    assert_eq!(deferred(ipor, Some(HOUR)).answer(), "InPlaceDeferred", "198");
    let ten_minutes = Time::from_secs(600);
    let case = ResizeCase { now: ten_minutes, ..deferred(ipor, epoch) };
    assert_eq!(case.answer(), "InPlaceEvict", "199");
    assert_eq!(progress(ipor, epoch).answer(), "InPlaceEvict", "200");
    assert_eq!(progress(ipor, Some(HOUR)).answer(), "InPlaceDeferred", "201");
    assert_eq!(infeasible(ipor).answer(), "InPlaceEvict", "202");
    assert_eq!(progress("Recreate", epoch).answer(), "InPlaceEvict", "203");
    let case = ResizeCase { now: Time::from_secs(7200), ..progress("InPlace", epoch) };
    assert_eq!(case.answer(), "InPlaceDeferred", "204");
    assert_eq!(infeasible("InPlace").answer(), "InPlaceInfeasible", "205");
    assert_eq!(deferred("InPlace", epoch).answer(), "InPlaceDeferred", "206");
    let case =
        ResizeCase { progress: Some(condition("Error")), ..ResizeCase::new("InPlace", 3, 3) };
    assert_eq!(case.answer(), "InPlaceDeferred", "206");
}

#[test]
fn an_infeasible_resize_is_retried_only_for_a_lower_target() {
    let case = |mode, before, now| ResizeCase {
        remembered: Some(before),
        target: Some(now),
        ..ResizeCase::new(mode, 3, 3)
    };
    let (one, two) = ("cpu 1000m,memory 1Gi", "cpu 2000m,memory 2Gi");
    assert_eq!(case("InPlace", one, one).answer(), "InPlaceInfeasibleCached", "207");
    let less = "cpu 1000m,memory 2Gi";
    assert_eq!(case("InPlace", two, less).answer(), "InPlaceApproved", "208");
    let more = "cpu 2000m,memory 2Gi";
    assert_eq!(case("InPlace", one, more).answer(), "InPlaceInfeasibleCached", "209");
    assert_eq!(case("InPlaceOrRecreate", one, one).answer(), "InPlaceApproved", "210");
}

/// Counts how many pods of a group can be resized in sequence.
fn resized(pods: &[Pod], configured: u32, settings: &Settings) -> usize {
    let mut groups = groups(pods, DesiredReplicas::Known(configured), 2, settings);
    let raw = recommended_targets(&recommended(&["cpu 2"]));
    let mut approved = 0;
    for pod in pods {
        let question = InPlaceContext {
            mode: super::spec("InPlaceOrRecreate").update_mode(),
            targets: Some(&raw),
            groups: &groups,
            settings,
            now: HOUR,
        };
        let answer = question.decide(candidate(pod, None), &mut ResizesFirstSeen::new());
        if answer == InPlaceDecision::Approved {
            groups.get_mut(&pod.status).expect("exists").budget.resized += 1;
            approved += 1;
        }
    }
    approved
}

#[test]
fn resizes_share_the_budget_unless_they_skip_it_and_restart_nothing() {
    let pods: Vec<Pod> = (0..5).map(|number| pod(number, &["cpu 1", "cpu 1"])).collect();
    let mut settings = Settings::for_compat(Compat::Upstream);
    settings.eviction_tolerance = 0.1;
    assert_eq!(resized(&pods, 5, &settings), 1, "214");
    settings.in_place_skips_budget = true;
    assert_eq!(resized(&pods, 5, &settings), 5);
    let mut restarting = pods.clone();
    for pod in &mut restarting {
        pod.spec.containers[1].resize_restarts.on_memory = true;
    }
    assert_eq!(resized(&restarting, 5, &settings), 1);
    let alone = &pods[..1];
    assert_eq!(resized(alone, 5, &settings), 1, "215");
    let groups = groups(alone, DesiredReplicas::Known(5), 2, &settings);
    assert!(groups.may_evict(&alone[0].status, false).is_err(), "215");
}

/// Counts how many pods of a group can be evicted in sequence.
fn evicted(pods: &[Pod], configured: u32, tolerance: f64) -> (usize, usize) {
    let settings =
        Settings { eviction_tolerance: tolerance, ..Settings::for_compat(Compat::Upstream) };
    let mut groups = groups(pods, DesiredReplicas::Known(configured), 2, &settings);
    let (mut before, mut evicted) = (0, 0);
    for evict in [false, true] {
        for pod in pods {
            let question = InPlaceContext {
                mode: super::spec("Recreate").update_mode(),
                targets: None,
                groups: &groups,
                settings: &settings,
                now: HOUR,
            };
            if question.may_evict(candidate(pod, None), &mut ResizesFirstSeen::new()).is_ok() {
                if evict {
                    groups.get_mut(&pod.status).expect("exists").budget.evicted += 1;
                    evicted += 1;
                } else {
                    before += 1;
                }
            }
        }
    }
    (before, evicted)
}

#[test]
fn pods_with_an_infeasible_resize_are_evicted_within_the_budget() {
    let pods = |count, infeasible: usize| {
        let mut pods: Vec<Pod> = (0..count).map(|number| pod(number, &["cpu 1"])).collect();
        for pod in pods.iter_mut().rev().take(infeasible) {
            pod.status.resize_pending = Some(condition("Infeasible"));
        }
        pods
    };
    assert_eq!(evicted(&pods(3, 2), 3, 0.5), (3, 1), "189");
    assert_eq!(evicted(&pods(3, 1), 4, 0.1), (0, 0), "190");
    assert_eq!(evicted(&pods(3, 1), 3, 1.0), (3, 3), "191");
}
