//! How the controller is, for whoever looks from outside: on its Lease, and in gauges at a scrape.

use std::sync::Arc;

use super::WatermarkController;
use crate::controllers::runtime::shutdown::ShutdownToken;

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
