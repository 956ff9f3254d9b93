//! Usage of a large cluster is read in bounded memory, and a truncated response keeps the pods that arrived before.

use plimsoll::cluster::container_usage::pod_metrics::{PodUsage, UsageError, fetch_usage};
use tokio::runtime::Builder;

use crate::support::metrics_server::UsageValue;
use crate::support::wait::PATIENCE;
use crate::support::{MetricsServer, Testbed};

const PODS: usize = 10_000;
const CONTAINERS: usize = 10;
/// Buffers of the connection, and one pod. The response is more than ten times as large.
const MEMORY: i64 = 1 << 20;

#[test]
fn usage_of_100000_containers_is_read_in_a_megabyte() {
    // Allocations are counted per thread, so all readers run on this one.
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let Some(bed) = runtime.block_on(Testbed::private()) else { return };
    let usage = runtime.block_on(MetricsServer::serve(&bed));
    for pod in 0..PODS {
        for container in 0..CONTAINERS {
            let used = UsageValue { cpu: 0.1, memory: 1 << 20 };
            usage.set("web", &format!("web-{pod:05}"), &format!("container-{container}"), used);
        }
    }
    let client = bed.client();
    let fetch = |each: &mut (dyn FnMut() + Send)| {
        let mut sum = 0;
        let report = runtime.block_on(async {
            let mut add = |pod: PodUsage| {
                sum +=
                    pod.containers.iter().filter_map(|used| used.cpu).map(|cpu| cpu.0).sum::<i64>();
                each();
            };
            fetch_usage(&client, None, &mut add, PATIENCE).await
        });
        (report, sum)
    };
    // An API server that stalled has lost its connection to the metrics API, and returns 503 until it reconnects.
    let answered = || {
        let mut answer = None;
        let counted = allocation_counter::measure(|| answer = Some(fetch(&mut || {})));
        let (report, sum) = answer.expect("measured");
        report.map(|report| (counted, report, sum))
    };
    let tried = std::iter::repeat_with(answered).take(5);
    let (counted, report, sum) = tried.flatten().next().expect("answered at one of five tries");
    assert_eq!((report.pods, report.containers), (PODS as u64, (PODS * CONTAINERS) as u64));
    assert_eq!(sum, 100 * (PODS * CONTAINERS) as i64);
    let largest = i64::try_from(counted.bytes_max).expect("a number of bytes");
    assert!(largest > 1000 && largest < MEMORY, "{largest} bytes at once");

    let mut handed_out = 0;
    let (report, _) = fetch(&mut || {
        handed_out += 1;
        if handed_out == 100 {
            bed.process_guard().signal("kube-apiserver", "KILL");
        }
    });
    let report = report.expect("some items were read");
    assert!(report.pods >= 100 && report.pods < PODS as u64, "{}", report.pods);
    assert!(!report.is_complete());
    assert!(matches!(report.failures[..], [UsageError::Truncated { .. }]), "{:?}", report.failures);
}
