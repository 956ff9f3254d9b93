//! Upstream's recommender, with the flags that its history needs.

use std::{
    fs,
    time::{Duration, Instant},
};

use super::{
    process,
    reader_process::Figures,
    support::{
        Testbed,
        process_guard::ProcessState,
        prometheus_server::PrometheusServer,
        upstream_process::{Role, UpstreamProcesses},
    },
};

/// Log lines before it queries history, and at the start of its first pass.
const BEGINS: &str = "Initializing VPA from history provider";
const ENDS: &str = "Recommender Run";
const FAILS: &str = "Cannot get cluster history";
const NAME: &str = "recommender";
/// Timeout of the whole load.
const PATIENCE: Duration = Duration::from_mins(15);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Measures its load of at most seven days: eight would exceed the server's limit of points. Returns `None` after
/// reporting why it is not available.
pub async fn measure(server: &PrometheusServer, days: u32) -> Option<Figures> {
    let bed = Testbed::private().await?;
    let upstream = UpstreamProcesses::new(&bed).await?;
    let flags = [
        "--storage=prometheus".to_owned(),
        format!("--prometheus-address={}", server.url()),
        format!("--history-length={days}d"),
        "--history-resolution=1m".to_owned(),
        "--prometheus-query-timeout=10m".to_owned(),
        "--prometheus-cadvisor-job-name=kubelet".to_owned(),
        "--container-pod-name-label=pod".to_owned(),
        "--container-name-label=container".to_owned(),
        format!("--metric-for-pod-labels=kube_pod_labels{{job=\"kube-state-metrics\"}}[{days}d]"),
        "--pod-label-prefix=label_".to_owned(),
        "--pod-namespace-label=namespace".to_owned(),
        "--pod-name-label=pod".to_owned(),
        // Its first pass starts one interval later.
        "--recommender-interval=1s".to_owned(),
        "--v=3".to_owned(),
    ];
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    upstream.start(Role::Recommender, &flags);
    let log = bed.process_guard().log(NAME);
    let has_logged = |words: &str| fs::read_to_string(&log).unwrap_or_default().contains(words);
    let begun = Instant::now();
    let mut started = None;
    while begun.elapsed() < PATIENCE {
        upstream.assert_running(NAME);
        if started.is_none() && has_logged(BEGINS) {
            started = Some(Instant::now());
        }
        if let Some(started) = started.filter(|_| has_logged(ENDS)) {
            if has_logged(FAILS) {
                super::support::skipped::report_skipped(
                    "upstream's recommender could not read history",
                );
                return None;
            }
            let Some(ProcessState::Running(id)) = bed.process_guard().state(NAME) else {
                return None;
            };
            let process = process::read_stats(id);
            let seconds = (started.elapsed().as_secs_f64() - 1.0).max(0.0);
            let (cpu, peak, resident) = (process.cpu, process.peak, process.resident);
            let figures = Figures { seconds, cpu, peak, resident, ..Figures::default() };
            println!("{:>10}: {figures}", "upstream");
            return Some(figures);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    super::support::skipped::report_skipped("upstream's recommender did not read history in time");
    None
}
