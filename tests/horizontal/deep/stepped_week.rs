//! A week of an HPA and a VPA on CPU of one Deployment, and two days with the HPA controller of kube-controller-manager.

use std::time::Duration;

use crate::horizontal::stepped_day::{
    Rules, Scaler, Settled, TEMPLATE, assert_follows, drift, run, summary,
};

const HOUR: Duration = Duration::from_hours(3);
/// A day of eight steps, none of them an exact multiple of the scale point: usage is rounded up to millicores, so one pod too
/// many would stay.
const DAY: [u64; 8] = [390, 550, 1150, 1950, 1580, 1150, 700, 390];

#[expect(clippy::print_stdout, reason = "the numbers are in docs/vpa-and-hpa.md")]
fn report(what: &str, loads: &[u64], results: &[Settled]) {
    println!("{what}: {}", summary(loads, results));
}

fn days(count: usize) -> Vec<u64> {
    DAY.repeat(count)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_rules_replicas_of_the_last_day_are_those_of_the_first() {
    let loads = days(7);
    let Some(results) = run(Rules::Ours, Scaler::Plimsoll, &loads, HOUR).await else { return };
    report("with the rules", &loads, &results);
    assert_follows(&loads, &results);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_rules_replicas_of_the_last_day_are_a_multiple_of_those_of_the_first() {
    let loads = days(7);
    let Some(results) = run(Rules::Upstream, Scaler::Plimsoll, &loads, HOUR).await else { return };
    report("without the rules", &loads, &results);
    let of_day = |day: usize| drift(&DAY, &results[day * DAY.len()..][..DAY.len()]);
    let drifts: Vec<f64> = (0..7).map(of_day).collect();
    let is_growing = drifts[6] >= 2.0 && drifts[6] > drifts[1];
    assert!(is_growing, "{drifts:?}: {}", summary(&loads, &results));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_the_hpa_controller_scales_by_are_not_changed_so_its_replicas_do_not_drift() {
    let loads = days(2);
    let Some(results) = run(Rules::Ours, Scaler::BuiltIn, &loads, HOUR).await else { return };
    report("with the rules, beside the HPA controller", &loads, &results);
    assert_follows(&loads, &results);
    let mut requests = results.iter().flat_map(|settled| &settled.requests);
    assert!(requests.all(|request| *request == TEMPLATE), "{}", summary(&loads, &results));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_rules_replicas_of_the_hpa_controller_drift() {
    let loads = days(2);
    let Some(results) = run(Rules::Upstream, Scaler::BuiltIn, &loads, HOUR).await else { return };
    report("without the rules, beside the HPA controller", &loads, &results);
    let drift = drift(&loads, &results);
    assert!(drift >= 1.5, "{drift}: {}", summary(&loads, &results));
}
