//! Liveness and readiness of a controller of replicas.

use std::time::Duration;

use super::{ReplicaAutoscaler, ReplicaController};
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::traffic_metrics::{check_watch_loops, unsynced_watches},
};

/// An idle worker ticks every few seconds; a reconcile may take as long as its slowest metric source.
const LOOP_TIMEOUT: Duration = Duration::from_mins(2);

impl<A: ReplicaAutoscaler> Probes for ReplicaController<A> {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.all())?;
        // With a simulated clock, wall time does not bound how often the loop has to iterate.
        if self.clock.is_wall() {
            self.loop_watchdog.check(LOOP_TIMEOUT, "the watermark controller's loop")
        } else {
            Ok(())
        }
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let missing = unsynced_watches(self.watches.all());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
