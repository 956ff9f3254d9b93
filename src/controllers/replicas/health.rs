//! Health of the controller, reported on its Lease and in gauges.

use std::sync::Arc;

use super::{ReplicaAutoscaler, ReplicaController};
use crate::controllers::runtime::shutdown::ShutdownToken;

impl<A: ReplicaAutoscaler> ReplicaController<A> {
    /// Updates the health that the next renewal of the Lease writes. The renewal must not wait for the queue's lock.
    pub(super) async fn run_health_loop(self: Arc<Self>, stop: ShutdownToken) {
        loop {
            let exported = self.queue.all_exported();
            let health_of = |exported: &Arc<A::Exported>| A::health_of(exported);
            let unknown = exported.iter().map(health_of).filter(|(unknown, _)| *unknown).count();
            {
                let mut health = self.health_reporter.lock();
                (health.objects, health.stale) = (self.queue.len() as u64, unknown as u64);
                health.last_pass = exported.iter().map(health_of).map(|(_, at)| at).max();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.settings.election.retry_period) => {}
            }
        }
    }
}
