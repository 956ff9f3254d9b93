//! Health of the controller, reported on its Lease, in gauges, and to probes.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use super::{ReplicaAutoscaler, ReplicaController};
use crate::{
    cluster::server::{Probes, Stalled},
    controllers::runtime::{
        loop_watchdog::LoopWatchdog,
        role_health::HealthReporter,
        traffic_metrics::{check_watch_loops, unsynced_watches},
    },
    telemetry::{ExportedState, LoopMetrics, Registry},
};
use plimsoll_core::scaling::Restriction;

/// An idle worker ticks every few seconds; a reconcile may take as long as its slowest metric source.
const LOOP_TIMEOUT: Duration = Duration::from_mins(2);

pub(super) struct ControllerHealth {
    pub loop_watchdog: LoopWatchdog,
    pub loop_metrics: LoopMetrics,
    pub reporter: HealthReporter,
    pub reconciles: AtomicU64,
}

impl ControllerHealth {
    pub fn new(registry: &mut Registry, name: &'static str, period: Duration) -> Self {
        Self {
            loop_watchdog: LoopWatchdog::default(),
            loop_metrics: LoopMetrics::new(registry, name),
            reporter: HealthReporter::new(name, period),
            reconciles: AtomicU64::new(0),
        }
    }
}

/// Updates the health that the next renewal of the Lease writes. The renewal must not wait for the queue's lock.
pub(super) async fn run_health_loop<A: ReplicaAutoscaler>(controller: Arc<ReplicaController<A>>) {
    loop {
        let exported = controller.queue.all_exported();
        let is_unknown = |exported: &&Arc<ExportedState>| {
            exported.restrictions().contains(&Restriction::MetricUnknown)
        };
        let unknown = exported.iter().filter(is_unknown).count();
        {
            let mut health = controller.health.reporter.lock();
            (health.objects, health.stale) = (controller.queue.len() as u64, unknown as u64);
            health.mode = controller.autoscaler.mode().map(str::to_owned);
            health.last_pass = exported.iter().map(|exported| exported.reconciled_at).max();
        }
        tokio::time::sleep(controller.settings.election.retry_period).await;
    }
}

impl<A: ReplicaAutoscaler> Probes for ReplicaController<A> {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(&self.watches.required)?;
        let what = format!("the {} controller's loop", A::NAME);
        self.health.loop_watchdog.check_by(&self.clock, LOOP_TIMEOUT, &what)
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let mut missing = unsynced_watches(&self.watches.required);
        missing.extend(self.autoscaler.missing());
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
