//! The real binary on a fixture, with usage whose timestamps the test steps.

use std::cell::Cell;

use jiff::Timestamp;

use super::fixture::{Fixture, HOUR};
use crate::support::metrics_server::{Fault, MetricsApi};
use crate::support::role_process::RoleProcess;

/// Prefix of its user agent.
const AGENT: &str = "plimsoll-recommender";

/// Flags of every process: a pass every half second, and each saves what changed.
const FLAGS: &[&str] =
    &["--recommender-interval=500ms", "--checkpoint-interval=500ms", "--bounds-dead-band=0"];

/// Runs recommenders as processes and serves them usage with stepped timestamps.
pub struct RecommenderProcesses<'a> {
    stage: &'a Fixture,
    now: Cell<Timestamp>,
}

impl<'a> RecommenderProcesses<'a> {
    /// No process runs yet; samples begin at `now`.
    pub fn new(stage: &'a Fixture, now: Timestamp) -> Self {
        stage.usage.at(now);
        Self { stage, now: Cell::new(now) }
    }

    /// Starts a recommender.
    pub fn start(&self, name: &str, flags: &[&str]) -> RoleProcess {
        let bed = &self.stage.bed;
        // Unique among the processes of the testbed.
        let name = format!("{name}-{}", self.stage.namespace);
        RoleProcess::start(bed, &name, &[("NAMESPACE", "kube-system")], |port| {
            let mut arguments = vec!["recommender".to_owned()];
            let all = self.stage.flags(&[FLAGS, flags].concat());
            arguments.extend(all.into_iter().map(ToOwned::to_owned));
            arguments.push(format!("--address=127.0.0.1:{port}"));
            arguments.push(format!("--kubeconfig={}", bed.kubeconfig_path().display()));
            arguments
        })
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

/// Waits until a process has run this many more passes and written the results.
pub async fn wait_for_passes(process: &RoleProcess, more: u32) {
    let passes = "vpa_recommender_execution_latency_seconds_count";
    process.wait_for_increase(passes, &["step=\"total\""], more).await;
    process.wait_for_metric("plimsoll_write_queue", &["kind=\"status\""], |left| left == 0.0).await;
}
