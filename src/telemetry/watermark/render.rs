//! Renders the objects of a watermark controller: upstream's families, and the families shared by all kinds.

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

/// The label `kind` of these objects.
const WPA: &str = "wpa";
/// The maximum number of labels, except for the series with labels of objects.
const MAX_LABELS: usize = 9;

/// Renders the objects of a controller: all of upstream's series, and our own with the configured cardinality.
pub struct WpaObjectMetrics {
    source: Arc<dyn WpaMetricsSource>,
    cardinality: Cardinality,
    families: Vec<UpstreamFamily>,
    tags: Vec<LabelTag>,
    seen_restrictions: SeenRestrictions,
}

/// A family of upstream with the labels of one release.
pub(in crate::telemetry) struct UpstreamFamily {
    pub definition: Definition,
    values: &'static WpaSeries,
}

/// How metrics with the same name are rendered.
#[derive(Clone, Copy)]
enum DuplicateNames {
    /// Only the last one is rendered.
    LastWins,
    /// Their names are numbered.
    Numbered,
}

impl fmt::Debug for WpaObjectMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatermarkObjects").field(&self.cardinality).field(&self.tags).finish()
    }
}

impl WpaObjectMetrics {
    /// Renders the objects of `source`. `labels_as_tags` are the keys of the labels of objects to expose.
    pub fn new(
        source: Arc<dyn WpaMetricsSource>,
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
        Self { source, cardinality, families, tags, seen_restrictions: SeenRestrictions::default() }
    }

    /// The definitions of upstream's families.
    pub(in crate::telemetry) fn upstream_definitions(&self) -> impl Iterator<Item = Definition> {
        self.families.iter().map(|family| family.definition)
    }

    /// One of upstream's families by index.
    pub(in crate::telemetry) fn upstream_family(&self, index: usize) -> Option<&UpstreamFamily> {
        self.families.get(index)
    }

    /// Whether a shared family has series of these objects.
    pub(in crate::telemetry) fn prints(&self, family: &ObjectFamily) -> bool {
        family.wpa_series.as_ref().is_some_and(|(_, values)| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(values, WpaSeries::Metric(_)),
            Cardinality::Off => false,
        })
    }

    /// Renders a page of a shared family.
    pub(in crate::telemetry) fn write(
        &self,
        family: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        let &(names, ref values) = family.wpa_series.as_ref().filter(|_| self.prints(family))?;
        if matches!(values, WpaSeries::Restrictions) && self.cardinality != Cardinality::All {
            let mut page = self.seen_restrictions.page();
            let next = self.source.visit(after, &mut |row| {
                let Some(now) = row.restrictions else { return };
                let so_far = Restrictions::from_bits(page.record(row.key, "", now.bits()));
                for restriction in
                    Restriction::ALL.into_iter().filter(|restriction| so_far.has(*restriction))
                {
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
            emit_row(values, &row, DuplicateNames::Numbered, &mut |extra_label, value| {
                write_row(lines, names, &row, extra_label, value);
            });
        })
    }

    /// Renders a page of one of upstream's families.
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
            emit_row(family.values, &row, DuplicateNames::LastWins, &mut |extra_label, value| {
                write_row(lines, names, &row, extra_label, value);
            });
        })
    }
}

/// Emits the values that a family reads from a row.
fn emit_row(
    values: &WpaSeries,
    row: &WatermarkRow<'_>,
    duplicates: DuplicateNames,
    emit: &mut EmitSample<'_>,
) {
    match (values, duplicates) {
        (WpaSeries::Object(read), _) => {
            if let Some(value) = read(row) {
                emit("", value);
            }
        }
        (WpaSeries::Labelled(read), _) => read(row, emit),
        (WpaSeries::Restrictions, _) => {
            for restriction in row.restrictions.iter().flat_map(|_| Restriction::ALL) {
                let holds = row.restrictions.is_some_and(|set| set.has(restriction));
                emit(restriction.as_str(), bool_value(holds));
            }
        }
        (WpaSeries::Tags, _) => emit("", 1.0),
        (WpaSeries::Metric(read), DuplicateNames::LastWins) => {
            for source in row.last_source_by_name() {
                if let Some(value) = read(source) {
                    emit(source.metric_name, value);
                }
            }
        }
        (WpaSeries::Metric(read), DuplicateNames::Numbered) => {
            for (preceding, source) in row.numbered_sources() {
                let Some(value) = read(source) else { continue };
                match preceding {
                    0 => emit(source.metric_name, value),
                    preceding => emit(&format!("{}#{}", source.metric_name, preceding + 1), value),
                }
            }
        }
    }
}

fn write_row(
    lines: &mut FamilyWriter<'_>,
    names: &[&str],
    row: &WatermarkRow<'_>,
    extra_label: &str,
    value: f64,
) {
    let mut values = [""; MAX_LABELS];
    for (value, name) in values.iter_mut().zip(names) {
        *value = label_value(row, name, extra_label);
    }
    lines.write(names, &values, value);
}

/// The value of a label. Any name that is not a label of the object is the additional label of the series.
fn label_value<'a>(row: &'a WatermarkRow<'_>, name: &str, extra_label: &'a str) -> &'a str {
    match name {
        "dry_run" => bool_label(row.dry_run),
        "kind" => WPA,
        "name" | "wpa_name" => &row.key.name,
        "namespace" | "resource_namespace" | "wpa_namespace" => &row.key.namespace,
        "resource_kind" | "target_kind" => row.target_kind,
        "resource_name" | "target_name" => row.target_name,
        "monitor_name" => row.monitor_gate.map_or("", |gate| gate.monitor_name),
        "monitor_namespace" => row.monitor_gate.map_or("", |gate| gate.monitor_namespace),
        _ => extra_label,
    }
}
