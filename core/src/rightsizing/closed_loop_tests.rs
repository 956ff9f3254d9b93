//! Twenty rounds of recommending and applying, while a HorizontalPodAutoscaler with upstream's formula scales
//! by the same CPU: the requests and targets come to rest if they change together, and run away if only the
//! requests change.

use super::{
    ReportOptions,
    autoscaler::AutoscalerRule,
    report::Report,
    survey::{Resource, Survey, UtilizationTarget},
    testing::{MI, amounts, container, deployment, evidence},
};
use crate::{
    sim::autoscaling::{LoadCurve, Mode, Scenario, run::run_with},
    types::Time,
};

const ROUNDS: usize = 20;
const MAX_REPLICAS: i32 = 120;

/// What a round starts with.
#[derive(Clone, Copy, Debug, PartialEq)]
struct State {
    request: i64,
    percent: u32,
}

/// What the pods do for a day and a half with these requests: the 90th percentile of the usage of a pod, and
/// the mean number of pods.
fn observe(state: State, seed: u64) -> (i64, f64) {
    let scenario = Scenario {
        days: 2,
        curve: LoadCurve::Stepped { low: 6000.0, high: 12_000.0, hours: 4 },
        template_request: state.request,
        target_percent: i32::try_from(state.percent).expect("a percentage"),
        max_replicas: MAX_REPLICAS,
        mode: Mode::MemoryOnly,
        ..Scenario::daily(seed)
    };
    let (mut usage, mut replicas, mut passes) = (Vec::new(), 0, 0);
    run_with(&scenario, &mut |input, result| {
        // The first hours scale from an arbitrary number.
        if input.step > 1440 {
            usage.extend(result.usage.map(|usage| usage.mean));
            replicas += i64::from(input.replicas);
            passes += 1;
        }
    });
    usage.sort_unstable();
    (usage[usage.len() * 9 / 10], replicas as f64 / f64::from(passes))
}

fn recommend(state: State, usage: i64, rule: AutoscalerRule) -> Report {
    let target = UtilizationTarget {
        kind: "HorizontalPodAutoscaler".into(),
        name: "web".into(),
        metric: 0,
        resource: Resource::Cpu,
        container: None,
        percent: state.percent,
    };
    let main = container(amounts(Some(state.request), Some(100 * MI)), amounts(None, None));
    let mut web = deployment("web", 10, vec![main]);
    web.utilization_targets = vec![target];
    let survey = Survey { workloads: vec![web.into()], ..Survey::default() };
    // The margin of the recommender.
    let need = usage * 115 / 100;
    let bounds = [need * 9 / 10, need, need * 13 / 10];
    let history = evidence(bounds, [99 * MI, 100 * MI, 101 * MI]);
    let options = ReportOptions { autoscalers: rule, ..ReportOptions::default() };
    super::report(&survey, &|_, _| Some(&history), &options, Time::EPOCH)
}

/// Applies the report of each round; returns the states, the first one included, and the mean replicas of
/// each round.
fn rounds(start: State, rule: AutoscalerRule, seed: u64) -> (Vec<State>, Vec<f64>) {
    let (mut states, mut replicas) = (vec![start], Vec::new());
    let mut state = start;
    for _ in 0..ROUNDS {
        let (usage, mean_replicas) = observe(state, seed);
        replicas.push(mean_replicas);
        let report = recommend(state, usage, rule);
        let workload = &report.workloads[0];
        let change = &workload.containers[0].resources[0].change;
        state.request = change.request.unwrap_or(state.request);
        if let Some(target) = workload.target_changes.first() {
            state.percent = target.new_percent.unwrap_or(state.percent);
        }
        states.push(state);
    }
    (states, replicas)
}

#[test]
fn jointly_changed_requests_and_targets_come_to_rest() {
    for (seed, request, percent) in [(1, 500, 60), (2, 500, 70), (3, 1000, 50), (4, 250, 65)] {
        let (states, replicas) = rounds(State { request, percent }, AutoscalerRule::Joint, seed);
        assert!(states[2..].iter().all(|state| *state == states[2]), "seed {seed}: {states:?}");
        assert!(states[2].request < request, "seed {seed}: {states:?}");
        let (first, last) = (replicas[0], replicas[ROUNDS - 1]);
        assert!((last / first - 1.0).abs() < 0.05, "seed {seed}: {first} and {last} replicas");
    }
}

#[test]
fn requests_run_away_from_a_target_that_stays() {
    for (seed, request, percent) in [(1, 500, 60), (3, 1000, 50)] {
        let (states, replicas) = rounds(State { request, percent }, AutoscalerRule::Ignore, seed);
        let first: Vec<i64> = states.iter().take(4).map(|state| state.request).collect();
        assert!(first.windows(2).all(|pair| pair[1] < pair[0]), "seed {seed}: {first:?}");
        let last = states[ROUNDS].request;
        assert!(last * 3 < request, "seed {seed}: {last}m of {request}m");
        assert!(replicas[ROUNDS - 1] > 2.0 * replicas[0], "seed {seed}: {replicas:?}");
    }
}

#[test]
fn skipped_requests_stay() {
    let start = State { request: 500, percent: 60 };
    let (states, _) = rounds(start, AutoscalerRule::Skip, 1);
    assert!(states.iter().all(|state| *state == start), "{states:?}");
}
