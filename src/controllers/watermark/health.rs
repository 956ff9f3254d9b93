//! How the controller is, for whoever looks from outside: on its Lease, and in gauges at a scrape.

use std::sync::Arc;

use super::WatermarkController;
use crate::controllers::runtime::{
    context::Controller,
    shutdown::ShutdownToken,
    traffic_metrics::{export_watch_metrics, export_write_metrics},
};

impl WatermarkController {
    /// Updates what the next renewal of the Lease will show. The renewal itself must not wait for the lock of all objects.
    pub(super) async fn run_health_loop(self: Arc<Self>, stop: ShutdownToken) {
        loop {
            let (objects, unknown, latest) = self.queue.summary();
            {
                let mut vitals = self.health_reporter.lock();
                (vitals.objects, vitals.stale) = (objects as u64, unknown as u64);
                vitals.last_pass = latest;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.config.election.retry_period) => {}
            }
        }
    }
}

impl Controller for WatermarkController {
    fn refresh_metrics(&self) {
        export_watch_metrics(
            &self.traffic,
            self.watches.all().chain(self.workloads.scopes.scale_watches()),
        );
        self.traffic.set_watch_objects("watermarkpodautoscalers", self.queue.len());
        self.traffic.set_watch_objects("pods", self.workloads.scopes.pod_count());
        for (name, count) in self.workloads.scopes.scale_counts() {
            self.traffic.set_watch_objects(name, count);
        }
        export_write_metrics(&self.traffic, &self.write_stats);
        self.loop_metrics.set_leader(self.permit.fence().is_granted());
        self.loop_metrics.set_lag(self.queue.longest_wait(self.clock.now()));
        self.metrics.set_queue_depth(self.queue.overdue(self.clock.now()));
        self.retain_recommender_series();
    }
}
