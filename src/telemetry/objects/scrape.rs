//! One scrape of objects of all kinds under way: family by family, and within a family kind by kind, page by page.

use std::sync::Arc;

use plimsoll_core::types::ObjectKey;

use super::{ObjectMetrics, families::OBJECT_FAMILIES};
use crate::telemetry::{definition::Definition, text::FamilyWriter, watermark::WpaObjectMetrics};

/// What the families are of what is printed.
pub(in crate::telemetry) fn definitions(
    objects: Option<&ObjectMetrics>,
    watermarks: Option<&WpaObjectMetrics>,
) -> Vec<Definition> {
    let shared = OBJECT_FAMILIES.iter().filter(|pass| {
        objects.is_some_and(|objects| objects.rows(pass).is_some())
            || watermarks.is_some_and(|watermarks| watermarks.prints(pass))
    });
    let mut definitions: Vec<Definition> = shared.map(|pass| pass.definition).collect();
    definitions.extend(watermarks.iter().flat_map(|watermarks| watermarks.upstream_definitions()));
    definitions
}

/// One scrape of the objects under way.
pub(in crate::telemetry) struct ObjectScrape {
    objects: Option<Arc<ObjectMetrics>>,
    watermarks: Option<Arc<WpaObjectMetrics>>,
    /// Those that kinds share come first, then upstream's of watermark controllers.
    family: usize,
    step: ScrapeStep,
    after: Option<ObjectKey>,
    /// The family's two lines were written: it has a series.
    header_written: bool,
}

/// Whose series of a family are being written.
#[derive(Clone, Copy)]
enum ScrapeStep {
    Vpas,
    Updates,
    Watermarks,
}

impl ObjectScrape {
    pub(in crate::telemetry) const fn new(
        objects: Option<Arc<ObjectMetrics>>,
        watermarks: Option<Arc<WpaObjectMetrics>>,
    ) -> Self {
        Self {
            objects,
            watermarks,
            family: 0,
            step: ScrapeStep::Vpas,
            after: None,
            header_written: false,
        }
    }

    /// Writes the next page. `false`: there is none.
    pub(in crate::telemetry) fn write(&mut self, text: &mut String) -> bool {
        let after = self.after.as_ref();
        let (objects, watermarks) = (self.objects.as_deref(), self.watermarks.as_deref());
        let (next, then) = if let Some(pass) = OBJECT_FAMILIES.get(self.family) {
            let mut lines = FamilyWriter::new(text, &pass.definition, &mut self.header_written);
            match self.step {
                ScrapeStep::Vpas => {
                    let next = objects.and_then(|objects| objects.write(pass, after, &mut lines));
                    (next, Some(ScrapeStep::Updates))
                }
                ScrapeStep::Updates => {
                    let write = |it: &ObjectMetrics| it.write_updates(pass, after, &mut lines);
                    (objects.and_then(write), Some(ScrapeStep::Watermarks))
                }
                ScrapeStep::Watermarks => {
                    let write = |it: &WpaObjectMetrics| it.write(pass, after, &mut lines);
                    (watermarks.and_then(write), None)
                }
            }
        } else {
            let Some(watermarks) = watermarks else { return false };
            let Some(family) = watermarks.upstream_family(self.family - OBJECT_FAMILIES.len())
            else {
                return false;
            };
            let mut lines = FamilyWriter::new(text, &family.definition, &mut self.header_written);
            (watermarks.write_upstream(family, after, &mut lines), None)
        };
        self.after = next;
        if self.after.is_none() {
            self.step = then.unwrap_or(ScrapeStep::Vpas);
            if then.is_none() {
                self.family += 1;
                self.header_written = false;
            }
        }
        true
    }
}
