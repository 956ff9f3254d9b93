//! A scrape of the objects of all kinds: family by family, within a family kind by kind, and page by page.

use std::sync::Arc;

use plimsoll_core::types::ObjectKey;

use super::{ObjectMetrics, families::OBJECT_FAMILIES};
use crate::telemetry::{
    definition::Definition, exposition::FamilyWriter, replicas::ReplicaObjectMetrics,
};

pub(in crate::telemetry) fn definitions(
    objects: Option<&ObjectMetrics>,
    replicas: &[Arc<ReplicaObjectMetrics>],
) -> Vec<Definition> {
    let shared = OBJECT_FAMILIES.iter().filter(|family| {
        objects.is_some_and(|objects| objects.rows(family).is_some())
            || replicas.iter().any(|replicas| replicas.prints(family))
    });
    let mut definitions: Vec<Definition> = shared.map(|family| family.definition).collect();
    let upstream = replicas.iter().flat_map(|replicas| &replicas.upstream.families);
    definitions.extend(upstream.map(|family| family.definition));
    definitions
}

pub(in crate::telemetry) struct ObjectScrape {
    objects: Option<Arc<ObjectMetrics>>,
    replicas: Vec<Arc<ReplicaObjectMetrics>>,
    /// Index of the family: first the shared families, then upstream's of each kind of replica autoscaler.
    family: usize,
    step: ScrapeStep,
    after: Option<ObjectKey>,
    /// Whether the HELP and TYPE lines of the family were written, which they are with its first series.
    header_written: bool,
}

/// The objects whose series of a family are being rendered.
#[derive(Clone, Copy)]
enum ScrapeStep {
    Vpas,
    Updates,
    /// Replica autoscalers of the kind with this index.
    Replicas(usize),
}

impl ObjectScrape {
    pub(in crate::telemetry) const fn new(
        objects: Option<Arc<ObjectMetrics>>,
        replicas: Vec<Arc<ReplicaObjectMetrics>>,
    ) -> Self {
        Self {
            objects,
            replicas,
            family: 0,
            step: ScrapeStep::Vpas,
            after: None,
            header_written: false,
        }
    }

    /// Renders the next page. Returns `false` if there is none.
    pub(in crate::telemetry) fn write(&mut self, text: &mut String) -> bool {
        let (after, objects) = (self.after.as_ref(), self.objects.as_deref());
        let header_written = &mut self.header_written;
        let (next, next_step) = if let Some(family) = OBJECT_FAMILIES.get(self.family) {
            let mut lines = FamilyWriter { text, definition: &family.definition, header_written };
            match self.step {
                ScrapeStep::Vpas => {
                    let next = objects.and_then(|objects| objects.write(family, after, &mut lines));
                    (next, Some(ScrapeStep::Updates))
                }
                ScrapeStep::Updates => {
                    let write =
                        |source: &ObjectMetrics| source.write_updates(family, after, &mut lines);
                    (objects.and_then(write), Some(ScrapeStep::Replicas(0)))
                }
                ScrapeStep::Replicas(kind) => match self.replicas.get(kind) {
                    Some(replicas) => {
                        let next = replicas.write(family, after, &mut lines);
                        (next, Some(ScrapeStep::Replicas(kind + 1)))
                    }
                    None => (None, None),
                },
            }
        } else {
            let index = self.family - OBJECT_FAMILIES.len();
            let mut families = self.replicas.iter().flat_map(|replicas| {
                replicas.upstream.families.iter().map(move |family| (replicas, family))
            });
            let Some((replicas, family)) = families.nth(index) else { return false };
            let mut lines = FamilyWriter { text, definition: &family.definition, header_written };
            (replicas.write_upstream(family, after, &mut lines), None)
        };
        self.after = next;
        if self.after.is_none() {
            self.step = next_step.unwrap_or(ScrapeStep::Vpas);
            if next_step.is_none() {
                self.family += 1;
                self.header_written = false;
            }
        }
        true
    }
}
