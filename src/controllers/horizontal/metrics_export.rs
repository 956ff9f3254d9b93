//! Exports the objects of the controller at each scrape.

use std::sync::Weak;

use plimsoll_core::types::ObjectKey;

use super::HorizontalController;
use crate::telemetry::{ReplicaMetricsSource, ReplicaRow, objects::PAGE_SIZE};

/// The objects of the controller, for a scrape.
pub(super) struct HorizontalObjectMetrics(pub Weak<HorizontalController>);

impl ReplicaMetricsSource for HorizontalObjectMetrics {
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
