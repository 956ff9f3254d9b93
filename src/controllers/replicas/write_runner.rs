//! Makes queued writes, and applies their results to the objects' states.

use std::sync::Arc;

use tracing::{Instrument as _, Span};

use super::{ObjectState, ReplicaAutoscaler, ReplicaController, key_of, writes::Write};
use crate::{
    cluster::write::{EventSender, PrepaidPermit},
    controllers::runtime::shutdown::ShutdownToken,
};
use plimsoll_core::types::Time;

/// Makes the queued writes of a controller.
pub(super) struct WriteRunner<A: ReplicaAutoscaler> {
    controller: Arc<ReplicaController<A>>,
    event_sender: EventSender,
}

impl<A: ReplicaAutoscaler> WriteRunner<A> {
    pub fn new(controller: Arc<ReplicaController<A>>) -> Arc<Self> {
        let (client, stats) = (controller.client.clone(), Arc::clone(&controller.status.stats));
        let event_sender = EventSender::new(client, stats, controller.settings.event_component);
        Arc::new(Self { controller, event_sender })
    }

    /// Makes the writes until `stop`.
    pub async fn run(self: Arc<Self>, stop: ShutdownToken) {
        let (settings, status) = (&self.controller.settings, &self.controller.status);
        let run = |_, write, permit| Arc::clone(&self).run_write(write, permit);
        // Each write in flight has a connection of its own, which stays open.
        let concurrency = settings.workers.max(1);
        status.writes.run(&status.permit, concurrency, run, stop.cancelled()).await;
    }

    /// Makes a queued write, and applies its result to the object's state.
    async fn run_write(self: Arc<Self>, write: Write<A>, permit: PrepaidPermit) {
        let span = write.object().map_or_else(Span::none, A::log_span);
        self.make_write(write, permit).instrument(span).await;
    }

    async fn make_write(self: Arc<Self>, write: Write<A>, permit: PrepaidPermit) {
        let (controller, this) = (&self.controller, Arc::clone(&self.controller));
        match write {
            Write::Event(event) => self.event_sender.send(&permit, *event).await,
            Write::Status(write) => {
                let result = controller.status.send_status(*write, &permit).await;
                let object = Arc::clone(&result.write.object);
                let stored = (result.written == Ok(true)).then_some(&object);
                self.complete_write(&object, stored, move |state| {
                    this.status.complete_status(state, &result)
                });
            }
            Write::Metadata(object) => {
                let result = A::write_metadata(&self.controller, &object, &permit).await;
                let stored = result.clone().ok().flatten();
                self.complete_write(&object, stored.as_ref(), move |state| {
                    A::complete_metadata(&this, state, &result)
                });
            }
            Write::Scale(mut write) => {
                let key = key_of(&*write.object);
                write.now = write.now.max(controller.clock.now());
                let result = controller.scales.send_scale(*write, &permit).await;
                let now = controller.clock.now();
                let stored = Arc::clone(&result.write.object);
                let end = || {
                    controller.status.writes.finish_scale(&key, |waiting| waiting.rebase(&stored))
                };
                let complete = Box::new(move |state: &mut ObjectState<A>| {
                    let had_exported = state.exported.is_some();
                    let mut exported = state.exported.as_deref().cloned().unwrap_or_default();
                    let follow_up = this.scales.complete_scale(state, &mut exported, &result);
                    if let Some(write) = follow_up.status {
                        this.status.writes.put(&state.key(), Write::Status(Box::new(write)));
                    }
                    this.events.emit_all(state, follow_up.events);
                    A::export_status(&mut exported, &state.status());
                    state.exported = had_exported.then(|| Arc::new(exported));
                    follow_up.is_outdated.then_some(now)
                });
                controller.queue.complete(&key, now, true, end, complete);
            }
        }
    }

    /// Ends a write of an object other than of its scale.
    fn complete_write(
        &self,
        object: &A::Object,
        stored: Option<&Arc<A::Object>>,
        complete: impl FnOnce(&mut ObjectState<A>) -> Option<Time> + Send + 'static,
    ) {
        let key = key_of(object);
        let end = || {
            self.controller.status.writes.finish(&key, |waiting| {
                if let Some(stored) = stored {
                    waiting.rebase(stored);
                }
            });
            false
        };
        self.controller.queue.complete(
            &key,
            self.controller.clock.now(),
            false,
            end,
            Box::new(complete),
        );
    }
}
