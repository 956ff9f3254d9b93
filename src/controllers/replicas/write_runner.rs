//! Makes queued writes, and applies their results to the objects' states.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, Span};

use super::{
    ObjectState, ReplicaAutoscaler, ReplicaController, key_of, scale_writer::ScaleFollowUp,
    writes::Write,
};
use crate::cluster::write::{EventSender, PrepaidPermit};
use plimsoll_core::types::Time;

/// Makes the queued writes of a controller until `stop`.
pub(super) async fn run_writes<A: ReplicaAutoscaler>(
    controller: Arc<ReplicaController<A>>,
    stop: CancellationToken,
) {
    let (settings, status) = (&controller.settings, &controller.status);
    let event_sender = EventSender::new(
        status.client.clone(),
        Arc::clone(&status.stats),
        settings.event_component,
    );
    let run = |_, write: Write<A>, permit| {
        let span = write.object().map_or_else(Span::none, A::log_span);
        run_write(&controller, &event_sender, write, permit).instrument(span)
    };
    // Each write in flight has a connection of its own, which stays open.
    let concurrency = settings.workers.max(1);
    status.writes.run(&status.permit, concurrency, run, stop.cancelled()).await;
}

/// Makes a queued write, and applies its result to the object's state.
async fn run_write<A: ReplicaAutoscaler>(
    controller: &Arc<ReplicaController<A>>,
    event_sender: &EventSender,
    write: Write<A>,
    permit: PrepaidPermit,
) {
    let this = Arc::clone(controller);
    match write {
        Write::Event(event) => event_sender.send(&permit, *event).await,
        Write::Status(write) => {
            let result = controller.status.send_status(*write, &permit).await;
            let object = Arc::clone(&result.write.object);
            let stored = (result.written == Ok(true)).then_some(&object);
            complete_write(controller, &object, stored, move |state| {
                this.status.complete_status(state, &result)
            });
        }
        Write::Metadata(object) => {
            let result = A::write_metadata(controller, &object, &permit).await;
            let stored = result.clone().ok().flatten();
            complete_write(controller, &object, stored.as_ref(), move |state| {
                A::complete_metadata(&this, state, &result)
            });
        }
        Write::Scale(mut write) => {
            let key = key_of(&*write.object);
            write.now = write.now.max(controller.clock.now());
            let result = controller.scales.send_scale(*write, &permit).await;
            let now = controller.clock.now();
            let stored = Arc::clone(&result.write.object);
            let end =
                || controller.status.writes.finish_scale(&key, |waiting| waiting.rebase(&stored));
            let complete = Box::new(move |state: &mut ObjectState<A>| {
                let had_exported = state.exported.is_some();
                let mut exported = state.exported.as_deref().cloned().unwrap_or_default();
                let follow_up = this.scales.complete_scale(state, &mut exported, &result);
                let is_outdated = matches!(follow_up, ScaleFollowUp::Reconcile);
                if let ScaleFollowUp::Report(status, events) = follow_up {
                    if let Some(write) = status {
                        this.status.writes.put(&state.key(), Write::Status(Box::new(write)));
                    }
                    this.status.emit_all(state, events);
                }
                A::export_status(&mut exported, &state.status());
                state.exported = had_exported.then(|| Arc::new(exported));
                is_outdated.then_some(now)
            });
            controller.queue.complete(&key, now, true, end, complete);
        }
    }
}

/// Ends a write of an object other than of its scale.
fn complete_write<A: ReplicaAutoscaler>(
    controller: &ReplicaController<A>,
    object: &A::Object,
    stored: Option<&Arc<A::Object>>,
    complete: impl FnOnce(&mut ObjectState<A>) -> Option<Time> + Send + 'static,
) {
    let key = key_of(object);
    let end = || {
        controller.status.writes.finish(&key, |waiting| {
            if let Some(stored) = stored {
                waiting.rebase(stored);
            }
        });
        false
    };
    controller.queue.complete(&key, controller.clock.now(), false, end, Box::new(complete));
}
