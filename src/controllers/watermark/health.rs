//! Health of the controller, reported on its Lease and in gauges.

use std::sync::Arc;

use super::WatermarkController;
use crate::controllers::runtime::shutdown::ShutdownToken;

impl WatermarkController {
    /// Updates the health that the next renewal of the Lease writes. The renewal must not wait for the queue's lock.
    pub(super) async fn run_health_loop(self: Arc<Self>, stop: ShutdownToken) {
        loop {
            let (objects, unknown, latest) = self.queue.summary();
            {
                let mut health = self.health_reporter.lock();
                (health.objects, health.stale) = (objects as u64, unknown as u64);
                health.last_pass = latest;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.config.election.retry_period) => {}
            }
        }
    }
}
