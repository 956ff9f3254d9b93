//! Comparisons with another controller that decides at other times.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use serde_json::{Value, json};

use super::fixture::{Case, NOW, cpu, pod, pod_value, quantity};
use crate::hpa::{
    Answer, Config, Decision, Fetched, Fixes, HpaState, Observed, Pod, ScaleValues, Spec,
    comparison::{
        Comparison::{self, Later, Same, Sampling, Unexplained, Warming},
        Shadow, ShadowRules,
    },
    decide, defaults,
    hpa_state::Windows,
    stabilization::{Direction, Held, Stabilization},
    status_values::StatusValues,
};
use crate::types::Time;

const RULES: ShadowRules = ShadowRules {
    period: Duration::from_secs(15),
    windows: Windows { up: Duration::ZERO, down: Duration::from_mins(5), period: Duration::ZERO },
};

/// A decision for 4 replicas with 50 % of usage, at this second after the first.
fn decision(second: u64, desired: Option<i32>) -> Decision {
    let decided = Case::new(4, cpu(50)).using(&[500, 500, 500, 500]).decide();
    Decision { at: NOW.later(Duration::from_secs(second)), desired, ..decided }
}

/// What the other controller wrote: its desired replicas, and the utilization that it saw.
fn status(desired: i32, percent: i32) -> HorizontalPodAutoscalerStatus {
    let current = json!({"averageUtilization": percent, "averageValue": "1"});
    read(&json!({"desiredReplicas": desired,
        "currentMetrics": [{"type": "Resource", "resource": {"name": "cpu", "current": current}}]}))
}

fn read(status: &Value) -> HorizontalPodAutoscalerStatus {
    serde_json::from_value(status.clone()).expect("a status")
}

/// The results of decisions, each with the other controller's desired replicas and utilization at that time.
fn results(shadow: &mut Shadow, from: u64, steps: &[(i32, i32, i32)]) -> Vec<Comparison> {
    let each = steps.iter().zip((from..).step_by(15));
    each.flat_map(|((ours, theirs, percent), second)| {
        shadow.compare(&decision(second, Some(*ours)), &status(*theirs, *percent), RULES)
    })
    .collect()
}

/// A shadow that has run for longer than all windows.
fn warm() -> Shadow {
    let mut shadow = Shadow::default();
    assert_eq!(results(&mut shadow, 0, &[(4, 4, 50)]), [Same]);
    shadow
}

#[test]
fn equal_decisions_are_the_same_and_those_made_later_are_later() {
    assert_eq!(
        results(&mut warm(), 600, &[(4, 4, 50), (6, 4, 50), (6, 6, 50)]),
        [Same, Later, Same]
    );
    // Within two periods and a minute.
    let steps = [(6, 4, 50), (4, 4, 50), (4, 4, 50), (4, 4, 50), (4, 4, 50), (4, 6, 50)];
    assert_eq!(results(&mut warm(), 600, &steps)[..5], [Same, Same, Same, Same, Later]);
}

#[test]
fn a_difference_has_a_cause_once_the_other_controller_had_time() {
    let late = |percent| [(6, 4, percent); 7];
    assert_eq!(results(&mut warm(), 600, &late(50)), [Unexplained], "90 seconds after the first");
    assert_eq!(results(&mut warm(), 600, &late(51)), [Sampling], "it has seen another value");
    assert_eq!(results(&mut warm(), 30, &late(50)), [Warming], "it remembers more");
    // It skipped 6, because the value moved on before it read it.
    let steps =
        [(6, 4, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50), (8, 8, 50)];
    let mut results = results(&mut warm(), 600, &steps);
    results.retain(|result| *result != Same);
    assert_eq!(results, [Sampling]);
}

/// The results of a difference that lasts, with the reason of the other controller's condition.
fn lasting_difference(ours: &Decision, theirs: i32, reason: &str) -> Vec<Comparison> {
    let mut status = status(theirs, 50);
    let able = json!([{"type": "AbleToScale", "status": "True", "reason": reason}]);
    status.conditions = serde_json::from_value(able).expect("conditions");
    let mut shadow = warm();
    let pass = |second: u64| {
        let ours = Decision { at: NOW.later(Duration::from_secs(second)), ..ours.clone() };
        shadow.compare(&ours, &status, RULES)
    };
    (600..700).step_by(15).flat_map(pass).collect()
}

#[test]
fn a_peak_that_only_one_of_the_two_has_read_explains_what_its_window_holds() {
    let free = decision(600, Some(4));
    for (theirs, reason, expected) in [
        (6, "ScaleDownStabilized", Sampling),
        (3, "ScaleUpStabilized", Sampling),
        // A window holds nothing in this direction.
        (3, "ScaleDownStabilized", Unexplained),
        (6, "ScaleUpStabilized", Unexplained),
        (6, "ReadyForNewScale", Unexplained),
    ] {
        assert_eq!(lasting_difference(&free, theirs, reason), [expected], "{theirs} {reason}");
    }
    let held = |direction: Direction, recommended: i32| {
        let held = Some(Held { direction, by: None, until: None });
        let stabilization = Some(Stabilization { recommended, stabilized: 6, held });
        Decision { stabilization, ..decision(600, Some(6)) }
    };
    for (ours, theirs, expected) in [
        (held(Direction::Down, 4), 4, Sampling),
        (held(Direction::Down, 4), 5, Sampling),
        (held(Direction::Down, 4), 3, Unexplained),
        (held(Direction::Down, 4), 7, Unexplained),
        (held(Direction::Up, 8), 8, Sampling),
        (held(Direction::Up, 8), 9, Unexplained),
        (held(Direction::Up, 8), 5, Unexplained),
    ] {
        let results = lasting_difference(&ours, theirs, "ReadyForNewScale");
        assert_eq!(results, [expected], "{theirs} {:?}", ours.stabilization);
    }
}

#[test]
fn without_a_decision_the_other_controller_has_to_have_failed_too() {
    let failed = |kind: &str, status: &str| {
        read(&json!({"desiredReplicas": 4,
            "conditions": [{"type": kind, "status": status, "reason": "FailedGetResourceMetric"}]}))
    };
    for (kind, holds, expected) in [
        ("ScalingActive", "False", &[Same][..]),
        ("AbleToScale", "False", &[Same]),
        ("ScalingActive", "True", &[]),
        ("ScalingLimited", "False", &[]),
    ] {
        let results = warm().compare(&decision(600, None), &failed(kind, holds), RULES);
        assert_eq!(results, expected, "{kind} {holds}");
    }
}

#[test]
fn a_scale_by_the_other_controller_is_observed_once() {
    let at = "2026-01-01T00:00:00Z";
    let mut shadow = Shadow::default();
    for (replicas, last_scale, expected) in [
        (4, None, None),
        // Another client changed the replicas.
        (5, None, None),
        (7, Some(at), Some((5, Time::from_secs(1_767_225_600)))),
        (7, Some(at), None),
        (8, Some(at), None),
    ] {
        let status = read(&json!({"desiredReplicas": 6, "lastScaleTime": last_scale}));
        assert_eq!(shadow.observe_scale(replicas, &status), expected, "{replicas}");
    }
}

/// Two controllers of one object, of which the first scales, and the second takes values from its status.
struct Pair {
    spec: Spec,
    /// Replicas of the spec over time.
    scaled: BTreeMap<u64, i32>,
    /// How long it takes until pods exist.
    lag: u64,
    status: HorizontalPodAutoscalerStatus,
    theirs: HpaState,
    ours: HpaState,
    shadow: Shadow,
    results: BTreeMap<&'static str, usize>,
}

impl Pair {
    fn new(metric: &Value, lag: u64) -> Self {
        let spec = json!({"scaleTargetRef": {"kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 20, "metrics": [metric]});
        let mut spec = serde_json::from_value(spec).expect("a spec");
        defaults::complete(&mut spec);
        Self {
            spec: Spec::read(&spec).expect("amounts"),
            scaled: BTreeMap::from([(0, 2)]),
            lag,
            status: read(&json!({"desiredReplicas": 0})),
            theirs: HpaState::default(),
            ours: HpaState::default(),
            shadow: Shadow::default(),
            results: BTreeMap::new(),
        }
    }

    fn replicas(&self, second: u64) -> i32 {
        self.scaled.range(..=second).next_back().map_or(2, |(_, replicas)| *replicas)
    }

    fn scale(&self, second: u64) -> (ScaleValues, Vec<Pod>) {
        let scale = ScaleValues {
            replicas: self.replicas(second),
            status_replicas: self.replicas(second.saturating_sub(self.lag)),
            selector: "app=web".to_owned(),
        };
        let pods = (0..scale.status_replicas).map(|index| pod(index as usize, 1000));
        let pods = pods.collect();
        (scale, pods)
    }

    fn decide(&self, second: u64, memory: &HpaState, answers: &[Option<Fetched>]) -> Decision {
        let (scale, pods) = self.scale(second);
        let observed = Observed {
            namespace: "shop",
            name: "web",
            uid: None,
            spec: &self.spec,
            status: &self.status,
            scale: Ok(&scale),
            pods: &pods,
            others: &[],
            memory,
            config: &Config::default(),
            fixes: Fixes::UPSTREAM,
            options: &crate::hpa::NO_OPTIONS,
            now: NOW.later(Duration::from_secs(second)),
        };
        decide(&observed, answers)
    }

    /// A pass of the other controller, which reads the metric.
    fn pass(&mut self, second: u64, answer: Answer) {
        let mut decision = self.decide(second, &self.theirs, &[Some(Ok(answer))]);
        if let Some(replicas) = decision.write {
            self.scaled.insert(second, replicas);
            decision.record_write(Ok(()), decision.at);
        }
        (self.status, self.theirs) = (decision.status, decision.memory);
    }

    /// A pass of ours, which is compared.
    fn shadow_pass(&mut self, second: u64) {
        let (scale, pods) = self.scale(second);
        let now = NOW.later(Duration::from_secs(second));
        self.shadow.observe_scale(scale.replicas, &self.status);
        let reported_replicas =
            self.shadow.reported_replicas(&scale, &self.status, RULES.period, now);
        let values = StatusValues {
            status: &self.status,
            scale: &scale,
            reported_replicas,
            pods: &pods,
            now,
        };
        let decision = self.decide(second, &self.ours, &values.answers(&self.spec));
        self.ours = decision.memory.clone();
        for result in self.shadow.compare(&decision, &self.status, RULES) {
            *self.results.entry(result.as_str()).or_default() += 1;
        }
    }
}

#[test]
fn averages_of_fewer_pods_than_there_are_now_raise_nothing() {
    let average = json!({"type": "AverageValue", "averageValue": "50"});
    let metric = json!({"name": "jobs"});
    let described = json!({"kind": "Ingress", "name": "main"});
    for (name, spec) in [
        (
            "external",
            json!({"type": "External", "external": {"metric": metric, "target": average}}),
        ),
        (
            "object",
            json!({"type": "Object", "object": {"metric": metric, "target": average,
            "describedObject": described}}),
        ),
        ("pods", json!({"type": "Pods", "pods": {"metric": metric, "target": average}})),
    ] {
        // Pods are created within a second or after the next pass.
        for lag in [1, 20] {
            let mut pair = Pair::new(&spec, lag);
            for second in 0..3600_u64 {
                // Longer than the window of five minutes, so that nothing is warming.
                let total = if second < 600 || (1500..2500).contains(&second) { 90 } else { 180 };
                match second % 15 {
                    0 => {
                        let (_, pods) = pair.scale(second);
                        let each = total * 1000 / pods.len() as i64;
                        let values = pods.iter().map(|pod| pod_value(&pod.name, each));
                        let total = quantity(&total.to_string());
                        pair.pass(
                            second,
                            match name {
                                "external" => Answer::External(vec![total]),
                                "object" => Answer::Object(total),
                                _ => Answer::Pods(values.collect()),
                            },
                        );
                    }
                    7 => pair.shadow_pass(second),
                    _ => {}
                }
            }
            let (results, scaled) = (&pair.results, &pair.scaled);
            assert!(scaled.len() >= 4, "{name}: it scales up, down and up: {scaled:?}");
            let most = scaled.values().max();
            assert_eq!(most, Some(&4), "{name} after {lag} s: {scaled:?}");
            assert!(!results.contains_key("unexplained"), "{name} after {lag} s: {results:?}");
            let same = results.get("same").copied().unwrap_or_default();
            assert!(same >= 235, "{name} after {lag} s: {results:?} of 240");
        }
    }
}
