//! The real binary on a fixture: start it, read its metrics and log, and end it with a signal.

use std::cell::Cell;
use std::fs;
use std::time::Duration;

use jiff::Timestamp;

use super::fixture::{Fixture, HOUR, metric, wait_for_metric};
use crate::support::captured_log;
use crate::support::metrics_server::{Fault, MetricsApi};
use crate::support::plimsoll_process::PlimsollProcesses;
use crate::support::process_guard::ProcessState;
use crate::support::wait;

/// Prefix of its user agent.
const AGENT: &str = "plimsoll-recommender";

/// Flags of every process: a pass every half second, and each saves what changed.
const FLAGS: &[&str] =
    &["--recommender-interval=500ms", "--checkpoint-interval=500ms", "--bounds-dead-band=0"];

/// Runs recommenders as processes and serves them usage with stepped timestamps.
pub struct RecommenderProcesses<'a> {
    stage: &'a Fixture,
    ours: PlimsollProcesses,
    now: Cell<Timestamp>,
}

/// A recommender, which may be restarted.
pub struct RecommenderProcess<'a> {
    stage: &'a Fixture,
    /// Unique among the processes of the testbed.
    name: String,
    port: u16,
    /// Length of its log at the last start.
    began: usize,
}

impl<'a> RecommenderProcesses<'a> {
    /// No process runs yet; samples begin at `now`.
    pub fn new(stage: &'a Fixture, now: Timestamp) -> Self {
        stage.usage.at(now);
        Self { stage, ours: PlimsollProcesses::new(&stage.bed), now: Cell::new(now) }
    }

    /// Starts a recommender.
    pub fn start(&self, name: &str, flags: &[&str]) -> RecommenderProcess<'a> {
        let name = format!("{name}-{}", self.stage.namespace);
        let all = self.stage.flags(&[FLAGS, flags].concat());
        let began = read_log(self.stage, &name).len();
        let port = self.ours.start(&name, &all);
        RecommenderProcess { stage: self.stage, name, port, began }
    }

    /// Advances by hours; at least one recommender reads the samples of each.
    pub async fn advance(&self, hours: usize) {
        for _ in 0..hours {
            self.now.set(self.now.get() + HOUR);
            self.stage.usage.at(self.now.get());
            self.stage.usage.read_by(AGENT).await;
        }
    }

    /// Stops serving usage samples.
    pub fn start_without_usage(&self) {
        self.stage.usage.set_fault(MetricsApi::Resource, Some(Fault::Status(503)));
    }

    /// Serves usage samples again.
    pub fn serve_usage(&self) {
        self.stage.usage.set_fault(MetricsApi::Resource, None);
    }
}

impl RecommenderProcess<'_> {
    /// Its HTTP address.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// One of its metrics.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        metric(&*self.address(), name, labels).await
    }

    /// Waits until one of its metrics satisfies a condition.
    pub async fn metric_is(&self, name: &str, labels: &[&str], is: impl Fn(f64) -> bool) -> f64 {
        let ProcessState::Running(_) =
            self.stage.bed.process_guard().state(&self.name).expect("started")
        else {
            panic!("{} has ended\n{}", self.name, self.log());
        };
        wait_for_metric(&*self.address(), name, labels, is).await
    }

    /// Waits until it has run `count` more passes and written the results.
    pub async fn passes(&self, count: u32) {
        const PASSES: &str = "vpa_recommender_execution_latency_seconds_count";
        const TOTAL: &[&str] = &["step=\"total\""];
        let before =
            super::fixture::read_metric(&*self.address(), PASSES, TOTAL).await.unwrap_or(0.0);
        self.metric_is(PASSES, TOTAL, |passes| passes >= before + f64::from(count)).await;
        self.metric_is("plimsoll_write_queue", &["kind=\"status\""], |left| left == 0.0).await;
    }

    /// Its log since the last start.
    pub fn log(&self) -> String {
        read_log(self.stage, &self.name).split_off(self.began)
    }

    /// Asserts that one line of the log since the last start contains all of these words.
    pub fn assert_line(&self, words: &[&str]) {
        captured_log::assert_line(&self.log(), words);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        self.stage.bed.process_guard().signal(&self.name, signal);
    }

    /// Whether it is stopped by `SIGSTOP`.
    pub fn is_frozen(&self) -> bool {
        let Some(ProcessState::Running(id)) = self.stage.bed.process_guard().state(&self.name)
        else {
            return false;
        };
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The program name may contain any character, even `)`.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    /// Ends it and returns its exit code.
    pub async fn end(&self, signal: &str) -> i32 {
        self.signal(signal);
        wait::within(Duration::from_mins(1), "the process has ended", || async {
            match self.stage.bed.process_guard().state(&self.name)? {
                ProcessState::Exited(code) => Some(code),
                ProcessState::Running(_) => None,
            }
        })
        .await
    }
}

fn read_log(stage: &Fixture, name: &str) -> String {
    let bytes = fs::read(stage.bed.process_guard().log(name)).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}
