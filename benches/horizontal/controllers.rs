//! The two controllers on one testbed: kube-controller-manager with its HPA controller alone, and ours, which compares.

use std::{collections::HashMap, time::Duration};

use xtask::test_programs;

use super::{
    process::{Process, read_stats},
    support::{
        Testbed, http_get::http_get, plimsoll_process::PlimsollProcesses,
        process_guard::ProcessState,
    },
};

const OURS: &str = "horizontal";
const UPSTREAM: &str = "hpa-controller";

/// Flags of kube-controller-manager that its defaults would limit.
#[derive(Clone, Copy, Debug)]
pub struct UpstreamLimits {
    /// `--concurrent-horizontal-pod-autoscaler-syncs`.
    pub syncs: u32,
    /// `--kube-api-qps`, with a burst of twice that.
    pub qps: u32,
}

/// The two processes.
pub struct Controllers<'a> {
    bed: &'a Testbed,
    ours: PlimsollProcesses,
    /// The port of our metrics, once it runs.
    port: Option<u16>,
}

/// The statistics of both processes.
#[derive(Clone, Copy, Debug, Default)]
pub struct BothProcesses {
    pub ours: Process,
    pub upstream: Process,
}

/// What our controller exports.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// Time since the last decision with a value, by object.
    pub ages: HashMap<String, f64>,
    /// Number of comparisons by result.
    pub comparisons: HashMap<String, f64>,
}

impl<'a> Controllers<'a> {
    /// The controllers of a testbed, which are not started.
    pub fn new(bed: &'a Testbed) -> Self {
        Self { bed, ours: PlimsollProcesses::new(bed), port: None }
    }

    /// Starts kube-controller-manager. Panics if the testbed has none.
    pub fn start_upstream(&self, period: Duration, limits: UpstreamLimits) {
        let programs = test_programs::control_plane().expect("the testbed runs");
        let (program, _) = programs.others.expect("the testbed has controllers");
        let UpstreamLimits { syncs, qps } = limits;
        let mut arguments: Vec<String> =
            program.first.iter().map(|word| word.to_str().expect("text").to_owned()).collect();
        arguments.extend([
            format!("--kubeconfig={}", self.bed.kubeconfig_path().display()),
            "--controllers=horizontal-pod-autoscaler-controller".to_owned(),
            format!("--horizontal-pod-autoscaler-sync-period={}s", period.as_secs()),
            format!("--concurrent-horizontal-pod-autoscaler-syncs={syncs}"),
            format!("--kube-api-qps={qps}"),
            format!("--kube-api-burst={}", 2 * qps),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
        ]);
        self.bed.process_guard().start(UPSTREAM, &program.path, &arguments, &[]);
    }

    /// Starts ours with these additional flags.
    pub fn start_ours(&mut self, period: Duration, flags: &[String]) {
        let period = format!("--horizontal-pod-autoscaler-sync-period={}s", period.as_secs());
        let flags: Vec<&str> =
            [&*period].into_iter().chain(flags.iter().map(String::as_str)).collect();
        self.port = Some(self.ours.horizontal(OURS, &flags));
    }

    /// The statistics of both processes. Panics with the tail of its log if one has ended.
    pub fn stats(&self) -> BothProcesses {
        let stats = |name| match self.bed.process_guard().state(name) {
            Some(ProcessState::Running(id)) => read_stats(id),
            other => panic!("{name} is {other:?}\n{}", self.bed.process_guard().log_tail(name, 15)),
        };
        BothProcesses { ours: stats(OURS), upstream: stats(UPSTREAM) }
    }

    /// Reads the metrics of ours, as a Prometheus would. `None` while it does not serve them.
    pub async fn scrape(&self) -> Option<Scrape> {
        let port = self.port?;
        let text = http_get(&format!("http://127.0.0.1:{port}/metrics")).await?;
        let mut scrape = Scrape::default();
        for line in String::from_utf8_lossy(&text).lines() {
            let Some((series, value)) = line.rsplit_once(' ') else { continue };
            let Ok(value) = value.parse() else { continue };
            if series.starts_with("plimsoll_staleness_seconds{") {
                scrape.ages.extend(label(series, "name").map(|name| (name, value)));
            } else if series.starts_with("plimsoll_shadow_passes_total{") {
                scrape.comparisons.extend(label(series, "result").map(|result| (result, value)));
            }
        }
        Some(scrape)
    }

    /// Stops both.
    pub fn stop(&self) {
        for name in [OURS, UPSTREAM] {
            self.bed.process_guard().signal(name, "KILL");
        }
    }
}

fn label(series: &str, name: &str) -> Option<String> {
    let start = format!("{name}=\"");
    let value = series.split(['{', ',']).find_map(|pair| pair.strip_prefix(&*start))?;
    value.split('"').next().map(str::to_owned)
}
