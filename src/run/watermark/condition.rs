//! How the controller is, for whoever looks from outside: on its Lease, and in gauges at a scrape.

use std::sync::Arc;

use super::{
    super::{
        desk::Member,
        shown::{show_feeds, show_writes},
        tasks::Stop,
    },
    Role,
};

impl Role {
    /// Updates what the next renewal of the Lease will show. The renewal itself must not wait for the lock of all objects.
    pub(super) async fn keep_condition(self: Arc<Self>, stop: Stop) {
        loop {
            let (objects, unknown, latest) = self.book.summary();
            {
                let mut vitals = self.condition.lock();
                (vitals.objects, vitals.stale) = (objects as u64, unknown as u64);
                vitals.last_pass = latest;
            }
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(self.config.election.retry_period) => {}
            }
        }
    }
}

impl Member for Role {
    fn refresh(&self) {
        show_feeds(&self.traffic, self.feeds.all().chain(self.workloads.scopes.scale_feeds()));
        self.traffic.set_feed_objects("watermarkpodautoscalers", self.book.len());
        self.traffic.set_feed_objects("pods", self.workloads.scopes.pod_count());
        for (name, count) in self.workloads.scopes.scale_counts() {
            self.traffic.set_feed_objects(name, count);
        }
        show_writes(&self.traffic, &self.stats);
        self.pace.set_leader(self.permit.fence().is_held());
        self.pace.set_lag(self.book.longest_wait(self.clock.now()));
        self.metrics.set_queue_depth(self.book.late(self.clock.now()));
        self.keep_clients();
    }
}
