//! The objects of a controller, for a scrape.

use std::sync::{Arc, Weak};

use plimsoll_core::types::ObjectKey;

use super::{ReplicaAutoscaler, ReplicaController};
use crate::telemetry::{ReplicaMetricsSource, ReplicaRow, objects::PAGE_SIZE};

/// The objects of a controller that metrics export. The registry of the metrics does not keep the controller alive.
pub(in crate::controllers) struct ExportedObjects<A: ReplicaAutoscaler>(Weak<ReplicaController<A>>);

impl<A: ReplicaAutoscaler> ExportedObjects<A> {
    pub fn of(controller: &Arc<ReplicaController<A>>) -> Arc<dyn ReplicaMetricsSource> {
        Arc::new(Self(Arc::downgrade(controller)))
    }
}

impl<A: ReplicaAutoscaler> ReplicaMetricsSource for ExportedObjects<A> {
    fn visit(
        &self,
        after: Option<&ObjectKey>,
        visit: &mut dyn FnMut(ReplicaRow<'_>),
    ) -> Option<ObjectKey> {
        self.0.upgrade()?.visit_exported(after, PAGE_SIZE, |key, state, now| {
            visit(ReplicaRow { key, state, now });
        })
    }
}
