//! Owns the start of a bed's control plane: in a slot, and one ahead of the test that will want it.
//!
//! etcd and the API server are the same for most beds, so those are what is started ahead; controllers, flags and the
//! clock of the nodes are what a test chooses.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use xtask::parts;

use super::super::clock::Clock;
use super::super::control_plane::{self, ControlPlane};
use super::super::nodes::Nodes;
use super::super::slots::Slot;
use super::{Inner, on_runtime, spawn};
use crate::support::events;

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// What a test wants of a bed.
#[derive(Debug)]
pub struct Wanted<'a> {
    /// What it is counted as.
    pub kind: &'static str,
    /// Flags of the API server beside the usual ones.
    pub flags: &'a [&'a str],
    /// The clock of the nodes.
    pub clock: Clock,
    /// Whether controller manager and scheduler run.
    pub controllers: bool,
    /// Whether it counts against the beds that a machine may have. One that a process keeps to its end does not: its
    /// tests would wait for a slot that is never released.
    pub in_slot: bool,
}

/// A control plane without controllers, and its right to run.
struct Started {
    plane: ControlPlane,
    slot: Option<Slot>,
}

/// The control plane that is started ahead of the next test that wants one.
struct Ahead {
    asked: usize,
    next: Option<JoinHandle<Option<Started>>>,
}

static AHEAD: Mutex<Ahead> = Mutex::new(Ahead { asked: 0, next: None });

// === impl Wanted ===

impl Wanted<'_> {
    /// Starts one, or says why it cannot.
    pub async fn start(self) -> Result<Arc<Inner>, String> {
        let found = tokio::task::spawn_blocking(parts::control_plane).await.expect("no panic");
        let programs = found.map_err(|reason| format!("{reason:#}"))?;
        let (Started { mut plane, slot }, begun) = self.plane(&programs).await;
        if self.controllers {
            plane.start_controllers(&programs);
        }
        let (plane, clock) = (Arc::new(plane), self.clock);
        let nodes = on_runtime({
            let plane = Arc::clone(&plane);
            async move {
                let client =
                    control_plane::client(&plane.kubeconfig_for(control_plane::ADMIN_TOKEN)).await;
                Nodes::start(&plane, client, clock)
            }
        })
        .await;
        events::note("bed", &[self.kind], begun.elapsed());
        Ok(Arc::new(Inner::new(nodes, plane, slot)))
    }

    /// A control plane, and since when it is what the test waits for rather than a slot.
    async fn plane(&self, programs: &parts::ControlPlane) -> (Started, Instant) {
        let begun = Instant::now();
        if !self.in_slot {
            let plane = ControlPlane::start(programs, self.flags).await;
            return (Started { plane, slot: None }, begun);
        }
        loop {
            if self.flags.is_empty()
                && let Some(next) = ahead(|ahead| ahead.next.take())
                // It may have found no slot, or have failed to start: then this one finds out why.
                && let Ok(Some(started)) = next.await
            {
                start_next(programs);
                return (started, begun);
            }
            if let Some(slot) = Slot::try_take() {
                let waited = begun.elapsed();
                events::note("slot-wait", &[], waited);
                let plane = ControlPlane::start(programs, self.flags).await;
                start_next(programs);
                return (Started { plane, slot: Some(slot) }, begun + waited);
            }
            // What was started ahead may be what has the last slot.
            drop(ahead(|ahead| ahead.next.take()));
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
}

fn ahead<T>(of: impl FnOnce(&mut Ahead) -> T) -> T {
    of(&mut AHEAD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts another one if there is a slot for it. Not after the first of a process, which is often one test alone.
fn start_next(programs: &parts::ControlPlane) {
    ahead(|ahead| {
        ahead.asked += 1;
        if ahead.asked < 2 || ahead.next.is_some() {
            return;
        }
        let programs = programs.clone();
        ahead.next = Some(spawn(async move {
            let slot = Slot::try_take()?;
            let begun = Instant::now();
            let plane = ControlPlane::start(&programs, &[]).await;
            events::note("bed-ahead", &[], begun.elapsed());
            Some(Started { plane, slot: Some(slot) })
        }));
    });
}
