//! Health of the controller, reported on its Lease and in gauges.

use std::sync::Arc;

use plimsoll_core::watermark::Restriction;

use super::{WatermarkController, exported_state::ExportedState};
use crate::controllers::runtime::shutdown::ShutdownToken;

impl WatermarkController {
    /// Updates the health that the next renewal of the Lease writes. The renewal must not wait for the queue's lock.
    pub(super) async fn run_health_loop(self: Arc<Self>, stop: ShutdownToken) {
        loop {
            let exported = self.queue.all_exported();
            let is_unknown =
                |one: &&Arc<ExportedState>| one.restrictions.contains(&Restriction::MetricUnknown);
            let unknown = exported.iter().filter(is_unknown).count();
            {
                let mut health = self.health_reporter.lock();
                (health.objects, health.stale) = (self.queue.len() as u64, unknown as u64);
                health.last_pass = exported.iter().map(|one| one.reconciled_at).max();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.config.election.retry_period) => {}
            }
        }
    }
}
