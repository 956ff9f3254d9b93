//! A run of `plimsoll recommend` as a process.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use serde_json::Value;

use super::process;

const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The samples of one day cover less than a day.
const THRESHOLDS: &str = "unsaid: {coveredHours: 23}\n";

/// What a run needed.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub seconds: f64,
    pub queries: f64,
    /// MB of responses as they were transferred, and after decompression.
    pub transferred: f64,
    pub decoded: f64,
    pub peak_mebibytes: f64,
    /// The same without pages of the program.
    pub allocated_mebibytes: f64,
    /// Containers with a target of CPU and memory.
    pub containers: usize,
}

impl Run {
    pub fn new(url: &str, until: Timestamp, days: u32, step: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let report = folder.path().join("report.json");
        let thresholds = folder.path().join("thresholds.yaml");
        fs::write(&thresholds, THRESHOLDS).expect("the folder is writable");
        let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
        command.args(["recommend", "--source=prometheus"]);
        command.args([
            &format!("--prometheus-address={url}"),
            &format!("--until={until}"),
            &format!("--history-length={days}d"),
            &format!("--step={step}"),
            &format!("--thresholds={}", thresholds.display()),
        ]);
        command.args(["-o", &format!("json={}", report.display())]);
        let finished = Finished::of(command);
        let report = File::open(report).expect("a report");
        let report: Value = serde_json::from_reader(report).expect("JSON");
        let sum = |field: &str| -> f64 {
            let sources = report["sources"].as_array().into_iter().flatten();
            sources.filter_map(|source| source[field].as_f64()).sum()
        };
        Self {
            seconds: finished.seconds,
            queries: sum("queries"),
            transferred: sum("transferredBytes") / 1e6,
            decoded: sum("bytes") / 1e6,
            peak_mebibytes: finished.peak_mebibytes,
            allocated_mebibytes: finished.allocated_mebibytes,
            containers: with_targets(&report),
        }
    }
}

/// What a process that ended well needed.
#[derive(Clone, Copy, Debug)]
pub struct Finished {
    pub seconds: f64,
    /// CPU time, but for the last milliseconds.
    pub cpu_seconds: f64,
    pub peak_mebibytes: f64,
    /// The same without pages of the program.
    pub allocated_mebibytes: f64,
}

impl Finished {
    /// Runs a command to its end.
    pub fn of(mut command: Command) -> Self {
        command.stdout(Stdio::null()).stderr(Stdio::inherit());
        let begun = Instant::now();
        let mut child = command.spawn().expect("the program starts");
        let (mut peak, mut allocated, mut cpu_seconds) = (0, 0, 0.0_f64);
        let status = loop {
            let stats = process::read_stats(child.id());
            peak = peak.max(stats.peak);
            cpu_seconds = cpu_seconds.max(stats.cpu);
            allocated = allocated.max(anonymous_kibibytes(child.id()));
            if let Some(status) = child.try_wait().expect("a child") {
                break status;
            }
            std::thread::sleep(POLL_INTERVAL);
        };
        assert!(status.code() == Some(0), "it ended with {status}");
        Self {
            seconds: begun.elapsed().as_secs_f64(),
            cpu_seconds,
            peak_mebibytes: peak as f64 / f64::from(1 << 20),
            allocated_mebibytes: allocated as f64 / 1024.0,
        }
    }
}

/// Resident memory of a process without pages of files, such as those of the program.
fn anonymous_kibibytes(id: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

fn with_targets(report: &Value) -> usize {
    let workloads = report["workloads"].as_array().into_iter().flatten();
    let containers = workloads.filter_map(|workload| workload["containers"].as_array()).flatten();
    let has_targets = |container: &&Value| {
        let resources = container["resources"].as_array().into_iter().flatten();
        resources.filter(|resource| resource["target"].is_i64()).count() == 2
    };
    containers.filter(has_targets).count()
}
