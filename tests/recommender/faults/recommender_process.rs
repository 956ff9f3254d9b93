//! Owns the real binary on a stage: started, read, and ended in one way or another.

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

/// What its user agent begins with.
const AGENT: &str = "plimsoll-recommender";

/// For all of them: a pass every half second, and each saves what changed.
const FLAGS: &[&str] =
    &["--recommender-interval=500ms", "--checkpoint-interval=500ms", "--bounds-dead-band=0"];

/// Where recommenders run as processes, and the time that is served to them.
pub struct RecommenderProcesses<'a> {
    stage: &'a Fixture,
    ours: PlimsollProcesses,
    now: Cell<Timestamp>,
}

/// One recommender, in its latest life.
pub struct RecommenderProcess<'a> {
    stage: &'a Fixture,
    /// Unlike that of any other process of the bed.
    name: String,
    port: u16,
    /// How long its log was when this life began.
    began: usize,
}

impl<'a> RecommenderProcesses<'a> {
    /// None runs yet; samples begin at that time.
    pub fn new(stage: &'a Fixture, now: Timestamp) -> Self {
        stage.usage.at(now);
        Self { stage, ours: PlimsollProcesses::new(&stage.bed), now: Cell::new(now) }
    }

    /// Starts one.
    pub fn start(&self, name: &str, flags: &[&str]) -> RecommenderProcess<'a> {
        let name = format!("{name}-{}", self.stage.namespace);
        let all = self.stage.flags(&[FLAGS, flags].concat());
        let began = read_log(self.stage, &name).len();
        let port = self.ours.start(&name, &all);
        RecommenderProcess { stage: self.stage, name, port, began }
    }

    /// Lets hours go by, each seen by one recommender at least.
    pub async fn advance(&self, hours: usize) {
        for _ in 0..hours {
            self.now.set(self.now.get() + HOUR);
            self.stage.usage.at(self.now.get());
            self.stage.usage.read_by(AGENT).await;
        }
    }

    /// From here on nobody sees any sample.
    pub fn start_without_usage(&self) {
        self.stage.usage.set_fault(MetricsApi::Resource, Some(Fault::Status(503)));
    }

    /// Samples are seen again.
    pub fn serve_usage(&self) {
        self.stage.usage.set_fault(MetricsApi::Resource, None);
    }
}

impl RecommenderProcess<'_> {
    /// Where it serves.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A metric of it.
    pub async fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        metric(&*self.address(), name, labels).await
    }

    /// Waits until a metric of it is as wanted.
    pub async fn metric_is(&self, name: &str, labels: &[&str], is: impl Fn(f64) -> bool) -> f64 {
        let ProcessState::Running(_) =
            self.stage.bed.process_guard().state(&self.name).expect("started")
        else {
            panic!("{} has ended\n{}", self.name, self.log());
        };
        wait_for_metric(&*self.address(), name, labels, is).await
    }

    /// Waits until it has made so many passes more, and has written what came of them.
    pub async fn passes(&self, count: u32) {
        const PASSES: &str = "vpa_recommender_execution_latency_seconds_count";
        const TOTAL: &[&str] = &["step=\"total\""];
        let before =
            super::fixture::read_metric(&*self.address(), PASSES, TOTAL).await.unwrap_or(0.0);
        self.metric_is(PASSES, TOTAL, |passes| passes >= before + f64::from(count)).await;
        self.metric_is("plimsoll_write_queue", &["kind=\"status\""], |left| left == 0.0).await;
    }

    /// What it has logged in this life.
    pub fn log(&self) -> String {
        read_log(self.stage, &self.name).split_off(self.began)
    }

    /// Fails unless it has logged a line with all of these words in this life.
    pub fn assert_line(&self, words: &[&str]) {
        captured_log::assert_line(&self.log(), words);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: &str) {
        self.stage.bed.process_guard().signal(&self.name, signal);
    }

    /// Whether a signal has stopped it.
    pub fn is_frozen(&self) -> bool {
        let Some(ProcessState::Running(id)) = self.stage.bed.process_guard().state(&self.name)
        else {
            return false;
        };
        let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // The name of the program may have anything in it.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    /// Ends it, and answers its exit code.
    pub async fn end(&self, signal: &str) -> i32 {
        self.signal(signal);
        wait::within(Duration::from_mins(1), "it has ended", || async {
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
