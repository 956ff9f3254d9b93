//! Prints the objects of a watermark controller: upstream's families, and those that all kinds share.

use std::{fmt, sync::Arc};

use plimsoll_core::types::VpaKey;

use super::{
    families::{FAMILIES, Values},
    rows::{Each, Restrictions, WatermarkRow, Watermarks, one},
    tags::{Tag, tags},
};
use crate::metrics::{
    definition::Definition,
    labels::{LabelSet, flag},
    objects::{Cardinality, EverHeld, Pass},
    text::Lines,
};
use plimsoll_core::watermark::Restriction;

/// The `kind` of these objects.
const WPA: &str = "wpa";
/// More labels no series has, but the one with labels of objects.
const MOST_LABELS: usize = 9;

/// Prints a role's objects: all series of upstream's, and of our own as many as asked for.
pub struct WatermarkObjects {
    state: Arc<dyn Watermarks>,
    cardinality: Cardinality,
    families: Vec<Upstream>,
    tags: Vec<Tag>,
    held: EverHeld,
}

/// A family of upstream's with the labels of one release.
pub(in crate::metrics) struct Upstream {
    pub definition: Definition,
    values: &'static Values,
}

/// What becomes of metrics with the same name.
#[derive(Clone, Copy)]
enum Namesakes {
    /// The last one is shown.
    LastWins,
    /// They are numbered.
    Numbered,
}

impl fmt::Debug for WatermarkObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatermarkObjects").field(&self.cardinality).field(&self.tags).finish()
    }
}

impl WatermarkObjects {
    /// Prints this state. `labels_as_tags` are keys of labels of objects that are shown.
    pub fn new(
        state: Arc<dyn Watermarks>,
        cardinality: Cardinality,
        set: LabelSet,
        labels_as_tags: &[String],
    ) -> Self {
        let families: Vec<Upstream> = FAMILIES
            .iter()
            .map(|family| Upstream { definition: family.definition(set), values: &family.values })
            .collect();
        let with_tags = families.iter().find(|family| matches!(family.values, Values::Tags));
        let tags = tags(with_tags.map_or(&[], |family| family.definition.labels), labels_as_tags);
        Self { state, cardinality, families, tags, held: EverHeld::default() }
    }

    /// What upstream's families are.
    pub(in crate::metrics) fn upstreams(&self) -> impl Iterator<Item = Definition> {
        self.families.iter().map(|family| family.definition)
    }

    /// One of upstream's families, if there are as many.
    pub(in crate::metrics) fn upstream(&self, place: usize) -> Option<&Upstream> {
        self.families.get(place)
    }

    /// Whether a family that kinds share has series of these objects.
    pub(in crate::metrics) fn prints(&self, pass: &Pass) -> bool {
        pass.watermarks.as_ref().is_some_and(|(_, values)| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(values, Values::Source(_)),
            Cardinality::Off => false,
        })
    }

    /// Writes a page of a family that kinds share.
    pub(in crate::metrics) fn write(
        &self,
        pass: &Pass,
        after: Option<&VpaKey>,
        lines: &mut Lines<'_>,
    ) -> Option<VpaKey> {
        let &(names, ref values) = pass.watermarks.as_ref().filter(|_| self.prints(pass))?;
        if matches!(values, Values::Restrictions) && self.cardinality != Cardinality::All {
            let mut page = self.held.page();
            let next = self.state.visit(after, &mut |row| {
                let Some(now) = row.restrictions else { return };
                let so_far = Restrictions::of_bits(page.note(row.key, "", now.bits()));
                for restriction in Restriction::ALL.into_iter().filter(|it| so_far.has(*it)) {
                    write(lines, names, &row, restriction.word(), one(now.has(restriction)));
                }
            });
            page.end(after, next.as_ref());
            return next;
        }
        self.state.visit(after, &mut |row| {
            visit(values, &row, Namesakes::Numbered, &mut |own, value| {
                write(lines, names, &row, own, value);
            });
        })
    }

    /// Writes a page of a family of upstream's.
    pub(in crate::metrics) fn write_upstream(
        &self,
        family: &Upstream,
        after: Option<&VpaKey>,
        lines: &mut Lines<'_>,
    ) -> Option<VpaKey> {
        if matches!(family.values, Values::Tags) {
            let names: Vec<&str> = self.tags.iter().map(|tag| tag.name.as_str()).collect();
            return self.state.visit(after, &mut |row| {
                let values = self.tags.iter().map(|tag| match &tag.key {
                    Some(key) => (row.label)(key).unwrap_or_default(),
                    None => label(&row, &tag.name, ""),
                });
                let values: Vec<&str> = values.collect();
                lines.write(&names, &values, 1.0);
            });
        }
        let names = family.definition.labels;
        self.state.visit(after, &mut |row| {
            visit(family.values, &row, Namesakes::LastWins, &mut |own, value| {
                write(lines, names, &row, own, value);
            });
        })
    }
}

/// Hands out what a family takes from a row.
fn visit(values: &Values, row: &WatermarkRow<'_>, namesakes: Namesakes, each: &mut Each<'_>) {
    match (values, namesakes) {
        (Values::Whole(read), _) => {
            if let Some(value) = read(row) {
                each("", value);
            }
        }
        (Values::Words(of), _) => of(row, each),
        (Values::Restrictions, _) => {
            for restriction in row.restrictions.iter().flat_map(|_| Restriction::ALL) {
                let holds = row.restrictions.is_some_and(|set| set.has(restriction));
                each(restriction.word(), one(holds));
            }
        }
        (Values::Tags, _) => each("", 1.0),
        (Values::Source(read), Namesakes::LastWins) => {
            for source in row.last_of_each_name() {
                if let Some(value) = read(source) {
                    each(source.metric_name, value);
                }
            }
        }
        (Values::Source(read), Namesakes::Numbered) => {
            for (before, source) in row.numbered() {
                let Some(value) = read(source) else { continue };
                match before {
                    0 => each(source.metric_name, value),
                    before => each(&format!("{}#{}", source.metric_name, before + 1), value),
                }
            }
        }
    }
}

fn write(lines: &mut Lines<'_>, names: &[&str], row: &WatermarkRow<'_>, own: &str, value: f64) {
    let mut values = [""; MOST_LABELS];
    for (value, name) in values.iter_mut().zip(names) {
        *value = label(row, name, own);
    }
    lines.write(names, &values, value);
}

/// The value of a label: most are about the object, and what is none of them is the series' own.
fn label<'a>(row: &'a WatermarkRow<'_>, name: &str, own: &'a str) -> &'a str {
    match name {
        "dry_run" => flag(row.dry_run),
        "kind" => WPA,
        "name" | "wpa_name" => &row.key.name,
        "namespace" | "resource_namespace" | "wpa_namespace" => &row.key.namespace,
        "resource_kind" | "target_kind" => row.target_kind,
        "resource_name" | "target_name" => row.target_name,
        "monitor_name" => row.lifecycle.map_or("", |lifecycle| lifecycle.monitor_name),
        "monitor_namespace" => row.lifecycle.map_or("", |lifecycle| lifecycle.monitor_namespace),
        _ => own,
    }
}
