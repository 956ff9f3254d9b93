//! One scrape of objects of all kinds under way: family by family, and within a family kind by kind, page by page.

use std::sync::Arc;

use plimsoll_core::types::VpaKey;

use super::{ObjectMetrics, passes::PASSES};
use crate::metrics::{definition::Definition, text::Lines, watermark::WatermarkObjects};

/// What the families are of what is printed.
pub(in crate::metrics) fn definitions(
    objects: Option<&ObjectMetrics>,
    watermarks: Option<&WatermarkObjects>,
) -> Vec<Definition> {
    let shared = PASSES.iter().filter(|pass| {
        objects.is_some_and(|objects| objects.rows(pass).is_some())
            || watermarks.is_some_and(|watermarks| watermarks.prints(pass))
    });
    let mut definitions: Vec<Definition> = shared.map(|pass| pass.definition).collect();
    definitions.extend(watermarks.iter().flat_map(|watermarks| watermarks.upstreams()));
    definitions
}

/// One scrape of the objects under way.
pub(in crate::metrics) struct ObjectScrape {
    objects: Option<Arc<ObjectMetrics>>,
    watermarks: Option<Arc<WatermarkObjects>>,
    /// Those that kinds share come first, then upstream's of watermark controllers.
    family: usize,
    turn: Turn,
    after: Option<VpaKey>,
    /// The family's two lines were written: it has a series.
    begun: bool,
}

/// Whose series of a family are being written.
#[derive(Clone, Copy)]
enum Turn {
    Vpas,
    Updates,
    Watermarks,
}

impl ObjectScrape {
    pub(in crate::metrics) const fn new(
        objects: Option<Arc<ObjectMetrics>>,
        watermarks: Option<Arc<WatermarkObjects>>,
    ) -> Self {
        Self { objects, watermarks, family: 0, turn: Turn::Vpas, after: None, begun: false }
    }

    /// Writes the next page. `false`: there is none.
    pub(in crate::metrics) fn write(&mut self, text: &mut String) -> bool {
        let after = self.after.as_ref();
        let (objects, watermarks) = (self.objects.as_deref(), self.watermarks.as_deref());
        let (next, then) = if let Some(pass) = PASSES.get(self.family) {
            let mut lines = Lines::new(text, &pass.definition, &mut self.begun);
            match self.turn {
                Turn::Vpas => {
                    let next = objects.and_then(|objects| objects.write(pass, after, &mut lines));
                    (next, Some(Turn::Updates))
                }
                Turn::Updates => {
                    let write = |it: &ObjectMetrics| it.write_updates(pass, after, &mut lines);
                    (objects.and_then(write), Some(Turn::Watermarks))
                }
                Turn::Watermarks => {
                    let write = |it: &WatermarkObjects| it.write(pass, after, &mut lines);
                    (watermarks.and_then(write), None)
                }
            }
        } else {
            let Some(watermarks) = watermarks else { return false };
            let Some(family) = watermarks.upstream(self.family - PASSES.len()) else {
                return false;
            };
            let mut lines = Lines::new(text, &family.definition, &mut self.begun);
            (watermarks.write_upstream(family, after, &mut lines), None)
        };
        self.after = next;
        if self.after.is_none() {
            self.turn = then.unwrap_or(Turn::Vpas);
            if then.is_none() {
                self.family += 1;
                self.begun = false;
            }
        }
        true
    }
}
