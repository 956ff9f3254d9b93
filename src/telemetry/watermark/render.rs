//! Prints the objects of a watermark controller: upstream's families, and those that all kinds share.

use std::{fmt, sync::Arc};

use plimsoll_core::types::ObjectKey;

use super::{
    families::{FAMILIES, WpaSeries},
    label_tags::{LabelTag, label_tags},
    rows::{EmitSample, Restrictions, WatermarkRow, WpaMetricsSource, bool_value},
};
use crate::telemetry::{
    definition::Definition,
    labels::{LabelSet, bool_label},
    objects::{Cardinality, ObjectFamily, SeenRestrictions},
    text::FamilyWriter,
};
use plimsoll_core::watermark::Restriction;

/// The `kind` of these objects.
const WPA: &str = "wpa";
/// More labels no series has, but the one with labels of objects.
const MAX_LABELS: usize = 9;

/// Prints a role's objects: all series of upstream's, and of our own as many as asked for.
pub struct WpaObjectMetrics {
    source: Arc<dyn WpaMetricsSource>,
    cardinality: Cardinality,
    families: Vec<UpstreamFamily>,
    tags: Vec<LabelTag>,
    seen_restrictions: SeenRestrictions,
}

/// A family of upstream's with the labels of one release.
pub(in crate::telemetry) struct UpstreamFamily {
    pub definition: Definition,
    values: &'static WpaSeries,
}

/// What becomes of metrics with the same name.
#[derive(Clone, Copy)]
enum DuplicateNames {
    /// The last one is shown.
    LastWins,
    /// They are numbered.
    Numbered,
}

impl fmt::Debug for WpaObjectMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatermarkObjects").field(&self.cardinality).field(&self.tags).finish()
    }
}

impl WpaObjectMetrics {
    /// Prints this state. `labels_as_tags` are keys of labels of objects that are shown.
    pub fn new(
        state: Arc<dyn WpaMetricsSource>,
        cardinality: Cardinality,
        set: LabelSet,
        labels_as_tags: &[String],
    ) -> Self {
        let families: Vec<UpstreamFamily> = FAMILIES
            .iter()
            .map(|family| UpstreamFamily {
                definition: family.definition(set),
                values: &family.values,
            })
            .collect();
        let with_tags = families.iter().find(|family| matches!(family.values, WpaSeries::Tags));
        let tags =
            label_tags(with_tags.map_or(&[], |family| family.definition.labels), labels_as_tags);
        Self {
            source: state,
            cardinality,
            families,
            tags,
            seen_restrictions: SeenRestrictions::default(),
        }
    }

    /// What upstream's families are.
    pub(in crate::telemetry) fn upstream_definitions(&self) -> impl Iterator<Item = Definition> {
        self.families.iter().map(|family| family.definition)
    }

    /// One of upstream's families, if there are as many.
    pub(in crate::telemetry) fn upstream_family(&self, place: usize) -> Option<&UpstreamFamily> {
        self.families.get(place)
    }

    /// Whether a family that kinds share has series of these objects.
    pub(in crate::telemetry) fn prints(&self, pass: &ObjectFamily) -> bool {
        pass.wpa_series.as_ref().is_some_and(|(_, values)| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(values, WpaSeries::Metric(_)),
            Cardinality::Off => false,
        })
    }

    /// Writes a page of a family that kinds share.
    pub(in crate::telemetry) fn write(
        &self,
        pass: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        let &(names, ref values) = pass.wpa_series.as_ref().filter(|_| self.prints(pass))?;
        if matches!(values, WpaSeries::Restrictions) && self.cardinality != Cardinality::All {
            let mut page = self.seen_restrictions.page();
            let next = self.source.visit(after, &mut |row| {
                let Some(now) = row.restrictions else { return };
                let so_far = Restrictions::from_bits(page.record(row.key, "", now.bits()));
                for restriction in Restriction::ALL.into_iter().filter(|it| so_far.has(*it)) {
                    write_row(
                        lines,
                        names,
                        &row,
                        restriction.as_str(),
                        bool_value(now.has(restriction)),
                    );
                }
            });
            page.end(after, next.as_ref());
            return next;
        }
        self.source.visit(after, &mut |row| {
            emit_row(values, &row, DuplicateNames::Numbered, &mut |own, value| {
                write_row(lines, names, &row, own, value);
            });
        })
    }

    /// Writes a page of a family of upstream's.
    pub(in crate::telemetry) fn write_upstream(
        &self,
        family: &UpstreamFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        if matches!(family.values, WpaSeries::Tags) {
            let names: Vec<&str> = self.tags.iter().map(|tag| tag.name.as_str()).collect();
            return self.source.visit(after, &mut |row| {
                let values = self.tags.iter().map(|tag| match &tag.key {
                    Some(key) => (row.label)(key).unwrap_or_default(),
                    None => label_value(&row, &tag.name, ""),
                });
                let values: Vec<&str> = values.collect();
                lines.write(&names, &values, 1.0);
            });
        }
        let names = family.definition.labels;
        self.source.visit(after, &mut |row| {
            emit_row(family.values, &row, DuplicateNames::LastWins, &mut |own, value| {
                write_row(lines, names, &row, own, value);
            });
        })
    }
}

/// Hands out what a family takes from a row.
fn emit_row(
    values: &WpaSeries,
    row: &WatermarkRow<'_>,
    namesakes: DuplicateNames,
    each: &mut EmitSample<'_>,
) {
    match (values, namesakes) {
        (WpaSeries::Object(read), _) => {
            if let Some(value) = read(row) {
                each("", value);
            }
        }
        (WpaSeries::Labelled(of), _) => of(row, each),
        (WpaSeries::Restrictions, _) => {
            for restriction in row.restrictions.iter().flat_map(|_| Restriction::ALL) {
                let holds = row.restrictions.is_some_and(|set| set.has(restriction));
                each(restriction.as_str(), bool_value(holds));
            }
        }
        (WpaSeries::Tags, _) => each("", 1.0),
        (WpaSeries::Metric(read), DuplicateNames::LastWins) => {
            for source in row.last_source_by_name() {
                if let Some(value) = read(source) {
                    each(source.metric_name, value);
                }
            }
        }
        (WpaSeries::Metric(read), DuplicateNames::Numbered) => {
            for (before, source) in row.numbered_sources() {
                let Some(value) = read(source) else { continue };
                match before {
                    0 => each(source.metric_name, value),
                    before => each(&format!("{}#{}", source.metric_name, before + 1), value),
                }
            }
        }
    }
}

fn write_row(
    lines: &mut FamilyWriter<'_>,
    names: &[&str],
    row: &WatermarkRow<'_>,
    own: &str,
    value: f64,
) {
    let mut values = [""; MAX_LABELS];
    for (value, name) in values.iter_mut().zip(names) {
        *value = label_value(row, name, own);
    }
    lines.write(names, &values, value);
}

/// The value of a label: most are about the object, and what is none of them is the series' own.
fn label_value<'a>(row: &'a WatermarkRow<'_>, name: &str, own: &'a str) -> &'a str {
    match name {
        "dry_run" => bool_label(row.dry_run),
        "kind" => WPA,
        "name" | "wpa_name" => &row.key.name,
        "namespace" | "resource_namespace" | "wpa_namespace" => &row.key.namespace,
        "resource_kind" | "target_kind" => row.target_kind,
        "resource_name" | "target_name" => row.target_name,
        "monitor_name" => row.monitor_gate.map_or("", |lifecycle| lifecycle.monitor_name),
        "monitor_namespace" => row.monitor_gate.map_or("", |lifecycle| lifecycle.monitor_namespace),
        _ => own,
    }
}
