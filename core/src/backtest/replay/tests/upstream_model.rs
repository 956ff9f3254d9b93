//! Policy `vpa` recommends what the model of the recommender with upstream's behaviour does from the same
//! samples.
//!
//! That the model has the numbers of upstream's recommender is tested elsewhere:
//! `tests/recommender_differential` compares both on one control plane,
//! `tests/prometheus/recommender/upstream_differential.rs` with the history of one server, and
//! `tests/recommender_model/upstream.rs` with upstream's own code.

use crate::{
    backtest::{
        policy::{Estimates, Policy, PolicyRule, RuleContext, RuleState},
        recording::{PodContainer, WorkloadRecording},
        replay::{ReplaySettings, facts::Facts, replicas::Replicas, usage},
        testing::{
            MIB, MINUTES_PER_DAY, amounts, container, evaluation, minutes_later, pod, workload,
        },
    },
    recommender::{self, History, OomKill, VpaSettings, published_status::to_object, recommend},
    types::{
        Time,
        compat::Compat,
        units::{Bytes, MilliCpu},
    },
};

const DAYS: u32 = 6;
const NAMES: [&str; 2] = ["app", "proxy"];
const PODS: u32 = 2;
const REQUEST: [i64; 2] = [400, 128];
const LIMIT: i64 = 500;
/// Nothing was measured for seven hours of the fourth day.
const GAP: std::ops::Range<u32> = 3 * MINUTES_PER_DAY + 300..3 * MINUTES_PER_DAY + 720;
/// The first pod's `app` is killed in the middle of a window.
const KILLED: u32 = 2 * MINUTES_PER_DAY + 602;

/// Usage in millicores in the minute that ends at this one.
fn milli(pod: u32, container: u32, minute: u32) -> i64 {
    let hour = minute / 60 % 24;
    let day = [40, 130, 310, 620][(hour / 6) as usize];
    i64::from((day + 7 * (minute % 13) + 50 * pod) / (1 + 5 * container))
}

/// The peak of memory in mebibytes in a window of five minutes.
fn mebibytes(pod: u32, container: u32, window: u32) -> i64 {
    let drift = (window / 288) * 25 + window % 12;
    i64::from((250 + drift + 20 * pod) / (1 + 3 * container))
}

/// What one container of one pod used, with values of their own so that samples cannot be confused.
fn used(pod: u32, container: u32) -> PodContainer {
    let minutes = 0..DAYS * MINUTES_PER_DAY;
    let cores = |minute: u32| {
        let cores = milli(pod, container, minute) as f32 / 1_000.0;
        if GAP.contains(&minute) { f32::NAN } else { cores }
    };
    let peak = |window: u32| {
        let bytes = (mebibytes(pod, container, window) * MIB) as f32;
        if GAP.contains(&(window * 5)) { f32::NAN } else { bytes }
    };
    PodContainer {
        cpu: minutes.clone().map(cores).collect(),
        memory: (0..minutes.end / 5).map(peak).collect(),
        oom_kills: if (pod, container) == (0, 0) {
            vec![minutes_later(KILLED)]
        } else {
            Vec::new()
        },
        ..PodContainer::default()
    }
}

fn recording() -> WorkloadRecording {
    let containers = NAMES.into_iter().zip(REQUEST).map(|(name, mebibytes)| {
        let limit = (name == NAMES[0]).then_some(LIMIT);
        container(name, amounts(Some(200), Some(mebibytes)), amounts(None, limit))
    });
    let pods = (0..PODS).map(|index| {
        let containers = vec![used(index, 0), used(index, 1)];
        pod(&format!("web-{index}"), 0..DAYS * MINUTES_PER_DAY, containers)
    });
    workload("web", containers.collect(), pods.collect())
}

/// The model itself. It gets each sample a minute after its time.
struct Reference {
    settings: recommender::Settings,
    vpa: VpaSettings,
    history: History,
}

impl Reference {
    fn take(&mut self, now: u32) {
        let Some(minute) = now.checked_sub(1) else { return };
        let rules = self.vpa.rules(None, &self.settings);
        let at = minutes_later(minute);
        for (pod, container) in (0..PODS).flat_map(|pod| [(pod, 0), (pod, 1)]) {
            let (name, replica) = (NAMES[container as usize], format!("web-{pod}"));
            let of = self.history.container_mut(name, at, &rules);
            if !GAP.contains(&minute) {
                of.add_cpu(&replica, at, MilliCpu(milli(pod, container, minute)), &rules)
                    .expect("samples are in order");
            }
            // The window that ended a minute ago; its last sample is of the minute before its end.
            if let Some(window) = (minute / 5).checked_sub(1).filter(|_| minute % 5 == 0)
                && !GAP.contains(&(window * 5))
            {
                let bytes = Bytes(mebibytes(pod, container, window) * MIB);
                of.add_memory(&replica, minutes_later(minute - 1), bytes, &rules)
                    .expect("samples are in order");
            }
            if (pod, container, minute) == (0, 0, KILLED) {
                let kill = OomKill {
                    request: Bytes(REQUEST[0] * MIB),
                    limit: Some(Bytes(LIMIT * MIB)),
                    usage: None,
                };
                of.record_oom(&replica, at, kill, &rules).expect("it is new");
            }
        }
    }

    /// Lower bound, target and upper bound of each container.
    fn numbers(&self, now: Time) -> Vec<Option<Estimates>> {
        let found = recommend(&self.vpa, &self.history, &self.settings, now);
        let of = |name: &str| {
            let of = found.containers.iter().find(|of| *of.container == *name)?;
            let amounts = [of.lower, of.target, of.upper];
            let cpu = amounts.map(|of| of.cpu.expect("CPU is recommended").to_cpu().0);
            let memory = amounts.map(|of| of.memory.expect("memory is recommended").to_memory().0);
            Some(Estimates { cpu, memory })
        };
        NAMES.into_iter().map(of).collect()
    }
}

#[test]
fn policy_vpa_recommends_what_the_model_with_upstreams_behaviour_does() {
    let recording = recording();
    let evaluation = evaluation(DAYS, 0);
    let facts = Facts::new(&recording, &evaluation);
    let settings = ReplaySettings::default();
    let policy = Policy::new(PolicyRule::Vpa);
    let context = RuleContext { recording: &recording, facts: &facts, settings: &settings };
    let mut rule = RuleState::new(&policy, context);
    let mut replicas = Replicas::new(&recording, &facts, evaluation.from, None);
    let mut reference = Reference {
        settings: recommender::Settings::for_compat(Compat::Upstream),
        vpa: VpaSettings::default(),
        history: History::default(),
    };
    let mut estimates = Vec::new();
    let mut targets = Vec::new();
    for minute in 0..DAYS * MINUTES_PER_DAY {
        let now = usage::time_of(&recording, minute);
        replicas.show(minute, &mut rule);
        replicas.follow_recording(now, true);
        replicas.create_born(minute, now, |_| None);
        reference.take(minute);
        // Each hour, and each minute around the kill.
        if minute % 60 == 7 || minute.abs_diff(KILLED) < 10 {
            let expected = reference.numbers(now);
            assert!(rule.estimates(now, &mut estimates), "the numbers are known without reasons");
            assert_eq!(estimates, expected, "minute {minute}");
            let found = recommend(&reference.vpa, &reference.history, &reference.settings, now);
            let Some(crate::backtest::policy::Advice::Object(object)) = rule.advise(now) else {
                panic!("minute {minute}: no recommendation")
            };
            assert_eq!(object, to_object(&found), "minute {minute}");
            targets.push((minute, expected[0].expect("known since the first minute").memory[1]));
        }
        replicas.run_minute(minute, now, &mut rule);
    }
    let before = targets.iter().rfind(|(minute, _)| *minute <= KILLED).expect("decisions");
    let after = targets.iter().find(|(minute, _)| *minute > KILLED).expect("decisions");
    assert!(after.1 > before.1, "the kill is known a minute after it: {before:?} {after:?}");
    let distinct: std::collections::BTreeSet<i64> = targets.iter().map(|(_, of)| *of).collect();
    assert!(distinct.len() > 3, "{distinct:?}");
}
