//! Replays eviction storms that upstream's users reported.

use plimsoll_core::{types::compat::Compat, updater::guard::RecommenderHeartbeat};

use super::simulated_cluster::{SimulatedWorkload, run};

const HOUR: u64 = 60;

/// The recommendation from a long history, and from none; each target is outside of the other's bounds.
const RICH: &str = "cpu 1, memory 100M; cpu 800m, memory 80M; cpu 2, memory 200M";
/// The pods' requests are far outside of these bounds, so pods need no minimum age for an eviction.
const WANTED: &str = "cpu 2, memory 200M; cpu 1500m, memory 150M; cpu 3, memory 300M";
const POOR: &str = "cpu 25m, memory 250M; cpu 25m, memory 250M; cpu 100m, memory 500M";

fn evictions(workloads: &[SimulatedWorkload]) -> usize {
    workloads.iter().map(|workload| workload.evictions).sum()
}

/// A cluster whose pods have the recommended requests.
fn settled(compat: Compat, workloads: usize, pods: usize) -> Vec<SimulatedWorkload> {
    let build = || {
        let mut workload = SimulatedWorkload::new(compat, "Recreate", pods);
        workload.target = RICH;
        workload
    };
    (0..workloads).map(|_| build()).collect()
}

/// autoscaler issue 2180: the recommender is redeployed without history and recommends very little until it has samples, so
/// two to three thousand pods are evicted within twenty minutes, and again when it has them.
fn redeployed(compat: Compat) -> usize {
    let mut workloads = settled(compat, 30, 5);
    run(&mut workloads, HOUR, |minute, workloads| {
        let is_loading = (10..30).contains(&minute);
        for workload in workloads {
            workload.case.heartbeat = RecommenderHeartbeat::Fresh { history_loaded: !is_loading };
            workload.target = if is_loading { POOR } else { RICH };
        }
    });
    evictions(&workloads)
}

#[test]
fn a_recommender_that_just_started_causes_no_evictions() {
    assert!(redeployed(Compat::Upstream) > 250, "two for each pod");
    assert_eq!(redeployed(Compat::Plimsoll), 0);
}

/// autoscaler issue 6884: client-side throttling slows the webhook down until the API server's call times out. Its Lease is
/// fresh, new pods are unchanged, and all of them are evicted again and again.
fn unsized_pods(compat: Compat, count: usize, hours: u64) -> Vec<SimulatedWorkload> {
    let mut workloads: Vec<SimulatedWorkload> =
        (0..count).map(|_| SimulatedWorkload::new(compat, "Recreate", 5)).collect();
    for workload in &mut workloads {
        workload.is_webhook_up = false;
        for pod in &mut workload.case.pods {
            pod.status.started = Some(pod.status.created);
        }
    }
    run(&mut workloads, hours * HOUR, |_, workloads| {
        for workload in workloads {
            workload.target = WANTED;
        }
    });
    workloads
}

#[test]
fn a_webhook_that_sizes_no_pods_is_detected_by_one_eviction_and_retried_rarely() {
    assert!(evictions(&unsized_pods(Compat::Upstream, 40, 1)) > 2000, "for 200 pods in one hour");
    for (hours, tried) in [(1, 3), (24, 10)] {
        let workloads = unsized_pods(Compat::Plimsoll, 40, hours);
        assert_eq!(evictions(&workloads), tried, "of 200 pods within {hours} hours");
        let of_one = workloads.iter().map(|workload| workload.evictions).max();
        assert!(of_one < Some(5), "the same workload is not retried repeatedly: {of_one:?}");
        assert!(hours > 1 || of_one == Some(1), "within an hour each is of a different workload");
    }
}

#[test]
fn when_the_webhook_returns_every_pod_is_evicted_once_and_sized() {
    let mut workloads = unsized_pods(Compat::Plimsoll, 12, 2);
    let before = evictions(&workloads);
    run(&mut workloads, 8 * HOUR, |_, workloads| {
        for workload in workloads {
            workload.is_webhook_up = true;
            workload.target = WANTED;
        }
    });
    let updated: usize = workloads.iter().map(SimulatedWorkload::updated).sum();
    assert_eq!((updated, evictions(&workloads) - before), (60, 60));
}
