//! Runs one updater at a time on a testbed and measures its passes, by its own metrics and by /proc.

use std::time::Duration;

use super::{
    process,
    results::Run,
    support::{
        Testbed,
        http_get::http_get,
        plimsoll_process::PlimsollProcesses,
        process_guard::ProcessState,
        recommender_pair::Implementation,
        skipped::report_skipped,
        upstream_process::{Role, UpstreamProcesses},
        wait,
    },
};

/// Interval between two scrapes of its metrics.
const POLL_INTERVAL: Duration = Duration::from_millis(200);
const LATENCY: &str = "vpa_updater_execution_latency_seconds";
const EVICTED: &str = "vpa_updater_evicted_pods_total";

/// Both updaters, ready to be started.
#[derive(Debug)]
pub struct Updaters {
    bed: Testbed,
    upstream: UpstreamProcesses,
    ours: PlimsollProcesses,
    flags: Vec<String>,
}

/// The name of a side, in the process guard and for display.
pub const fn name(side: Implementation) -> &'static str {
    match side {
        Implementation::Upstream => "upstream",
        Implementation::Ours => "ours",
    }
}

impl Updaters {
    /// Creates the CRDs on a testbed. Returns `None` after reporting what is missing.
    pub async fn on(bed: &Testbed, flags: Vec<String>) -> Option<Self> {
        if let Some(reason) = PlimsollProcesses::missing_role("updater") {
            report_skipped(reason);
            return None;
        }
        let upstream = UpstreamProcesses::new(bed).await?;
        Some(Self { bed: bed.clone(), upstream, ours: PlimsollProcesses::new(bed), flags })
    }

    /// Runs an updater until this many passes have ended, `interval` seconds apart.
    pub async fn run(&self, side: Implementation, interval: u32, passes: u32) -> Run {
        let interval = format!("--updater-interval={interval}s");
        let flags = self.flags.iter().chain([&interval]);
        let flags: Vec<&str> = flags.map(String::as_str).collect();
        let port = match side {
            Implementation::Upstream => self.upstream.start_as(name(side), Role::Updater, &flags),
            Implementation::Ours => {
                let all: Vec<&str> = flags.into_iter().chain(["--compat=upstream"]).collect();
                self.ours.updater(name(side), &all)
            }
        };
        let address = format!("http://127.0.0.1:{port}/metrics");
        let metrics = self.until(side, &address, passes).await;
        let Some(ProcessState::Running(id)) = self.bed.process_guard().state(name(side)) else {
            panic!("{} ended", name(side));
        };
        let process = process::read_stats(id);
        self.bed.process_guard().signal(name(side), "KILL");
        wait::until(&format!("{} ends", name(side)), || async {
            let state = self.bed.process_guard().state(name(side));
            matches!(state, Some(ProcessState::Exited(_))).then_some(())
        })
        .await;
        Run { evicted: metrics.evicted, pass: metrics.seconds / metrics.passes, process }
    }

    /// Waits until this many passes have ended, and returns the metrics.
    async fn until(&self, side: Implementation, address: &str, passes: u32) -> UpdaterMetrics {
        loop {
            let keeper = self.bed.process_guard();
            if let Some(ProcessState::Exited(code)) = keeper.state(name(side)) {
                panic!("{} ended with {code}\n{}", name(side), keeper.log_tail(name(side), 15));
            }
            if let Some(body) = http_get(address).await {
                let metrics = UpdaterMetrics::of(&String::from_utf8_lossy(&body));
                if metrics.passes >= f64::from(passes) {
                    return metrics;
                }
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Metrics of an updater.
#[derive(Clone, Copy, Debug, Default)]
struct UpdaterMetrics {
    passes: f64,
    /// Total duration of all passes.
    seconds: f64,
    evicted: f64,
}

impl UpdaterMetrics {
    fn of(text: &str) -> Self {
        let mut metrics = Self::default();
        for line in text.lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let is_total = series.contains("step=\"total\"");
            match series.split_once('{').map_or(series, |(name, _)| name) {
                family if family == EVICTED => metrics.evicted += value,
                family if is_total && family.strip_suffix("_sum") == Some(LATENCY) => {
                    metrics.seconds = value;
                }
                family if is_total && family.strip_suffix("_count") == Some(LATENCY) => {
                    metrics.passes = value;
                }
                _ => {}
            }
        }
        metrics
    }
}
