//! Emits events about objects.

use std::sync::Arc;

use kube::ResourceExt as _;
use plimsoll_core::{scaling::Event, types::compat::Compat};

use super::{ObjectState, ReplicaAutoscaler, ReplicaSettings, WriteQueue, writes::Write};
use crate::cluster::{
    clock::Clock,
    write::{EventDetails, InvolvedObject},
};

pub(in crate::controllers) struct EventRecorder<A: ReplicaAutoscaler> {
    pub(super) settings: Arc<ReplicaSettings>,
    pub(super) clock: Clock,
    pub(super) writes: Arc<WriteQueue<Write<A>>>,
}

impl<A: ReplicaAutoscaler> EventRecorder<A> {
    /// Emits the events of a decision. A lasting warning is emitted once; upstream emits it on every reconcile.
    pub fn emit_all(&self, state: &mut ObjectState<A>, events: Vec<Event>) {
        if self.settings.compat == Compat::Upstream {
            for Event { is_warning, reason, message } in events {
                self.emit(state, is_warning, reason, message);
            }
            return;
        }
        let (warnings, others): (Vec<Event>, Vec<Event>) =
            events.into_iter().partition(|event| event.is_warning);
        let mut active_warnings = Vec::new();
        for Event { reason, message, .. } in warnings {
            let is_new = state.active_warnings.iter().all(|(before, _)| *before != reason);
            if is_new {
                self.emit(state, true, reason, message.clone());
            }
            active_warnings.push((reason, message));
        }
        state.active_warnings = active_warnings;
        let was_idle = state.is_idle;
        state.is_idle = others.iter().any(|event| event.reason == "NotScaling");
        for Event { reason, message, .. } in others {
            if reason != "NotScaling" || !was_idle {
                self.emit(state, false, reason, message);
            }
        }
    }

    /// Emits an event about an object.
    pub fn emit(
        &self,
        state: &ObjectState<A>,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        if self.settings.dry_run.is_some_and(|dry| !dry.events) {
            return;
        }
        let involved_object = InvolvedObject {
            api_version: A::API_VERSION,
            kind: A::KIND,
            namespace: state.object.namespace().unwrap_or_default(),
            name: state.object.name_any(),
            uid: state.object.uid().unwrap_or_default(),
        };
        let at = self.clock.now();
        let event = EventDetails { involved_object, is_warning, reason, message, at };
        self.writes.put(&state.key(), Write::Event(Box::new(event)));
    }
}
