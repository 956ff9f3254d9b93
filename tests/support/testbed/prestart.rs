//! Starts the control plane of a testbed: limited by slots, and one ahead of the next test.
//!
//! etcd and the API server are the same for most testbeds, so they are started ahead; controllers, flags and the
//! clock of the nodes are chosen by the test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use xtask::test_programs;

use super::super::clock::Clock;
use super::super::control_plane::{self, ControlPlane};
use super::super::hollow_nodes::HollowNodes;
use super::super::testbed_lock::TestbedSlot;
use super::{Inner, on_runtime, spawn};
use crate::support::testbed_events;

const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The configuration of a testbed.
#[derive(Debug)]
pub struct TestbedSpec<'a> {
    /// The kind in the report of the run.
    pub kind: &'static str,
    /// Additional flags of the API server.
    pub flags: &'a [&'a str],
    /// The clock of the nodes.
    pub clock: Clock,
    /// Whether controller manager and scheduler run.
    pub controllers: bool,
    /// Whether it needs one of the machine's slots. A testbed that lives as long as the process does not: tests would
    /// wait for a slot that is never released.
    pub takes_slot: bool,
}

/// A control plane without controllers, and its slot.
struct StartedControlPlane {
    plane: ControlPlane,
    slot: Option<TestbedSlot>,
}

/// The control plane that is started ahead of the next test.
struct Prestart {
    requests: usize,
    next: Option<JoinHandle<Option<StartedControlPlane>>>,
}

static PRESTART: Mutex<Prestart> = Mutex::new(Prestart { requests: 0, next: None });

// === impl TestbedSpec ===

impl TestbedSpec<'_> {
    /// Starts the testbed, or returns why it failed.
    pub async fn start(self) -> Result<Arc<Inner>, String> {
        let found =
            tokio::task::spawn_blocking(test_programs::control_plane).await.expect("no panic");
        let programs = found.map_err(|reason| format!("{reason:#}"))?;
        let (StartedControlPlane { mut plane, slot }, begun) = self.plane(&programs).await;
        if self.controllers {
            plane.start_controllers(&programs);
        }
        let (plane, clock) = (Arc::new(plane), self.clock);
        let nodes = on_runtime({
            let plane = Arc::clone(&plane);
            async move {
                let client =
                    control_plane::client(&plane.kubeconfig_for(control_plane::ADMIN_TOKEN)).await;
                HollowNodes::start(&plane, client, clock)
            }
        })
        .await;
        testbed_events::record("bed", &[self.kind], begun.elapsed());
        Ok(Arc::new(Inner::new(nodes, plane, slot)))
    }

    /// Returns a control plane, and since when the test has waited for it, excluding the wait for a slot.
    async fn plane(
        &self,
        programs: &test_programs::ControlPlane,
    ) -> (StartedControlPlane, Instant) {
        let begun = Instant::now();
        if !self.takes_slot {
            let plane = ControlPlane::start(programs, self.flags).await;
            return (StartedControlPlane { plane, slot: None }, begun);
        }
        loop {
            if self.flags.is_empty()
                && let Some(next) = with_prestart(|ahead| ahead.next.take())
                // The prestart may have found no slot, or have failed; this start then reports the error.
                && let Ok(Some(started)) = next.await
            {
                prestart_next(programs);
                return (started, begun);
            }
            if let Some(slot) = TestbedSlot::try_take() {
                let waited = begun.elapsed();
                testbed_events::record("slot-wait", &[], waited);
                let plane = ControlPlane::start(programs, self.flags).await;
                prestart_next(programs);
                return (StartedControlPlane { plane, slot: Some(slot) }, begun + waited);
            }
            // The prestarted control plane may hold the last slot.
            drop(with_prestart(|ahead| ahead.next.take()));
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

fn with_prestart<T>(of: impl FnOnce(&mut Prestart) -> T) -> T {
    of(&mut PRESTART.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts another one if a slot is free. Not after the first one of a process, which is often a single test.
fn prestart_next(programs: &test_programs::ControlPlane) {
    with_prestart(|ahead| {
        ahead.requests += 1;
        if ahead.requests < 2 || ahead.next.is_some() {
            return;
        }
        let programs = programs.clone();
        ahead.next = Some(spawn(async move {
            let slot = TestbedSlot::try_take()?;
            let begun = Instant::now();
            let plane = ControlPlane::start(&programs, &[]).await;
            testbed_events::record("bed-ahead", &[], begun.elapsed());
            Some(StartedControlPlane { plane, slot: Some(slot) })
        }));
    });
}
