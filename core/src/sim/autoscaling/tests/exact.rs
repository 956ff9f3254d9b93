//! The pass of the simulation compared with a pass over real objects.

use std::time::Duration;

use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscalerStatus;
use serde_json::json;

use crate::{
    coordination::RatioRule,
    hpa::{
        Answer, Fixes, Observed, Pod, ScaleValues, Spec, decide,
        pod::{Container, ReadyCondition, ReadyStatus, Resources},
        samples::PodMetrics,
        scale_point::with_rule,
    },
    scaling::pod_readiness::Phase,
    sim::autoscaling::{
        LoadCurve, Mode, PERIOD, Scenario,
        hpa_pass::{PassInput, PassResult},
        replica::Replica,
        run::run_with,
    },
    types::{Quantity, Time, quantity::Format},
};

fn cpu(milli: i64) -> Resources {
    [("cpu".to_owned(), Quantity::from_milli(milli, Format::DecimalSi))].into()
}

fn time(input: &PassInput<'_>, step: u64) -> Time {
    let back = PERIOD * u32::try_from(input.step.abs_diff(step)).expect("a short run");
    if step <= input.step { input.now.earlier(back) } else { input.now.later(back) }
}

fn pod(input: &PassInput<'_>, replica: &Replica) -> Pod {
    let is_ready = replica.is_ready(input.step);
    let since = if is_ready { replica.ready } else { replica.created };
    let container = Container {
        name: "app".to_owned(),
        requests: cpu(replica.request),
        ..Container::default()
    };
    Pod {
        name: format!("web-{}", replica.id),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        phase: Phase::Running,
        start_time: Some(time(input, replica.created)),
        ready: Some(ReadyCondition {
            status: if is_ready { ReadyStatus::True } else { ReadyStatus::False },
            since: Some(time(input, since)),
        }),
        containers: vec![container],
        ..Pod::default()
    }
}

/// The write and the memory of a pass over real objects.
fn exact(input: &PassInput<'_>, spec: &Spec) -> (i32, crate::hpa::HpaState) {
    let mut spec = with_rule(spec, 0, input.rule);
    (spec.min_replicas, spec.max_replicas) = input.bounds;
    let pods: Vec<Pod> = input.pods.iter().map(|replica| pod(input, replica)).collect();
    let scale = ScaleValues {
        replicas: input.replicas,
        status_replicas: input.replicas,
        selector: "app=web".to_owned(),
    };
    let status = HorizontalPodAutoscalerStatus::default();
    let observed = Observed {
        namespace: "shop",
        name: "web",
        uid: None,
        spec: &spec,
        status: &status,
        scale: Ok(&scale),
        pods: &pods,
        others: &[],
        memory: input.memory,
        config: input.config,
        fixes: Fixes::UPSTREAM,
        options: &crate::hpa::NO_OPTIONS,
        now: input.now,
    };
    let usage = input.pods.iter().filter_map(|replica| {
        Some(PodMetrics {
            pod: format!("web-{}", replica.id),
            timestamp: input.now,
            window: Duration::from_mins(1),
            containers: vec![("app".to_owned(), cpu(replica.sample()?))],
        })
    });
    let answers = [Some(Ok(Answer::Resource(usage.collect())))];
    let decision = decide(&observed, &answers);
    (decision.write.unwrap_or(input.replicas), decision.memory)
}

#[test]
fn a_pass_of_the_simulation_decides_as_one_over_real_objects() {
    let metrics = json!([{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 60}}}]);
    let spec = json!({"minReplicas": 2, "maxReplicas": 40, "metrics": metrics,
        "scaleTargetRef": {"kind": "Deployment", "name": "web"}});
    let spec = serde_json::from_value(spec).expect("a spec");
    let spec = Spec::read(&spec).expect("a valid spec");
    // Small workloads that change often, with waves in between.
    let curve = LoadCurve::Bursty { night: 300.0, peak: 1500.0, burst: 1500.0 };
    for (mode, in_place) in
        [(Mode::Coordinated, false), (Mode::Retargeted, false), (Mode::Unaware, true)]
    {
        let scenario = Scenario {
            curve,
            mode,
            in_place,
            alternates: mode != Mode::Unaware,
            startup_steps: 5,
            days: 2,
            max_replicas: 9,
            ..Scenario::daily(3)
        };
        let (mut changes, mut rules) = (0, std::collections::BTreeSet::new());
        run_with(&scenario, &mut |input: &PassInput<'_>, result: &PassResult| {
            let (desired, memory) = exact(input, &spec);
            assert_eq!(result.desired, desired, "step {} of {mode:?}", input.step);
            assert_eq!(result.memory, memory, "step {} of {mode:?}", input.step);
            changes += u32::from(desired != input.replicas);
            if let RatioRule::Utilization { percent } = input.rule {
                rules.insert(percent);
            }
        });
        assert!(changes > 50, "{changes} changes in {mode:?}");
        assert!(mode != Mode::Retargeted || rules.len() > 1, "the target followed the request");
    }
}
