//! Renders the objects of a kind of replica autoscaler: upstream's families, and the families shared by all kinds.

use std::sync::Arc;

use plimsoll_core::{hpa, scaling::Restriction, types::ObjectKey, watermark};

use super::{
    exported_state::{EmitSample, ReplicaMetricsSource, ReplicaRow, bool_value},
    series::{ReplicaSeries, UpstreamFamily, UpstreamSeries},
};
use crate::telemetry::{
    exposition::FamilyWriter,
    labels::bool_label,
    objects::{Cardinality, LabelledSeries, ObjectFamily, SeenRestrictions},
};

/// The maximum number of labels, except for the series with labels of objects.
const MAX_LABELS: usize = 9;

/// A kind of replica autoscaler.
#[derive(Clone, Copy)]
pub struct ReplicaKind {
    /// The label `kind`.
    name: &'static str,
    restrictions: &'static [Restriction],
    /// The labels and values of a family for this kind, if any.
    series: fn(&ObjectFamily) -> Option<&LabelledSeries>,
}

impl ReplicaKind {
    pub const WATERMARK: Self = Self {
        name: "wpa",
        restrictions: &watermark::RESTRICTIONS,
        series: |family| family.wpa_series.as_ref(),
    };
    pub const HORIZONTAL: Self = Self {
        name: "hpa",
        restrictions: &hpa::RESTRICTIONS,
        series: |family| family.hpa_series.as_ref(),
    };
}

/// Renders the objects of a controller: all of upstream's series, and our own with the configured cardinality.
pub struct ReplicaObjectMetrics {
    kind: ReplicaKind,
    source: Arc<dyn ReplicaMetricsSource>,
    cardinality: Cardinality,
    pub(in crate::telemetry) upstream: UpstreamSeries,
    seen_restrictions: SeenRestrictions,
}

#[derive(Clone, Copy)]
enum DuplicateNames {
    /// Only the last one is rendered.
    LastWins,
    Numbered,
}

impl ReplicaObjectMetrics {
    /// HorizontalPodAutoscalers have none of the series with upstream's names, which the HPA controller of the cluster
    /// exports.
    pub fn new(
        kind: ReplicaKind,
        source: Arc<dyn ReplicaMetricsSource>,
        cardinality: Cardinality,
        upstream: UpstreamSeries,
    ) -> Self {
        let seen_restrictions = SeenRestrictions::default();
        Self { kind, source, cardinality, upstream, seen_restrictions }
    }

    pub(in crate::telemetry) fn prints(&self, family: &ObjectFamily) -> bool {
        (self.kind.series)(family).is_some_and(|(_, values)| match self.cardinality {
            Cardinality::Standard | Cardinality::All => true,
            Cardinality::Restricted => !matches!(values, ReplicaSeries::Metric(_)),
            Cardinality::Off => false,
        })
    }

    pub(in crate::telemetry) fn write(
        &self,
        family: &ObjectFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        let &(names, ref values) = (self.kind.series)(family).filter(|_| self.prints(family))?;
        if matches!(values, ReplicaSeries::Restrictions) && self.cardinality != Cardinality::All {
            let mut page = self.seen_restrictions.page();
            let next = self.source.visit(after, &mut |row| {
                let so_far = page.record(row.key, "", row.state.restriction_bits());
                for &restriction in self.kind.restrictions {
                    if so_far & (1 << restriction as u64) != 0 {
                        let holds = bool_value(row.state.restrictions().contains(&restriction));
                        self.write_row(lines, names, &row, restriction.into_str(), holds);
                    }
                }
            });
            page.end(after, next.as_ref());
            return next;
        }
        self.source.visit(after, &mut |row| {
            self.emit_row(*values, &row, DuplicateNames::Numbered, &mut |extra_label, value| {
                self.write_row(lines, names, &row, extra_label, value);
            });
        })
    }

    pub(in crate::telemetry) fn write_upstream(
        &self,
        family: &UpstreamFamily,
        after: Option<&ObjectKey>,
        lines: &mut FamilyWriter<'_>,
    ) -> Option<ObjectKey> {
        if matches!(family.values, ReplicaSeries::Tags) {
            let names: Vec<&str> = self.upstream.tags.iter().map(|tag| tag.name.as_str()).collect();
            return self.source.visit(after, &mut |row| {
                let values = self.upstream.tags.iter().map(|tag| match &tag.key {
                    Some(key) => row.state.label(key).unwrap_or_default(),
                    None => self.label_value(&row, &tag.name, ""),
                });
                let values: Vec<&str> = values.collect();
                lines.write(&names, &values, 1.0);
            });
        }
        let names = family.definition.labels;
        self.source.visit(after, &mut |row| {
            self.emit_row(
                family.values,
                &row,
                DuplicateNames::LastWins,
                &mut |extra_label, value| {
                    self.write_row(lines, names, &row, extra_label, value);
                },
            );
        })
    }

    /// Emits the values that a family reads from a row.
    fn emit_row(
        &self,
        values: ReplicaSeries,
        row: &ReplicaRow<'_>,
        duplicates: DuplicateNames,
        emit: &mut EmitSample<'_>,
    ) {
        match (values, duplicates) {
            (ReplicaSeries::Object(read), _) => {
                if let Some(value) = read(row) {
                    emit("", value);
                }
            }
            (ReplicaSeries::Labelled(read), _) => read(row, emit),
            (ReplicaSeries::Restrictions, _) => {
                for &restriction in self.kind.restrictions {
                    let holds = row.state.restrictions().contains(&restriction);
                    emit(restriction.into_str(), bool_value(holds));
                }
            }
            (ReplicaSeries::Tags, _) => emit("", 1.0),
            (ReplicaSeries::Metric(read), DuplicateNames::LastWins) => {
                for metric in row.state.last_metric_by_name() {
                    if let Some(value) = read(metric) {
                        emit(&metric.label, value);
                    }
                }
            }
            (ReplicaSeries::Metric(read), DuplicateNames::Numbered) => {
                for (preceding, metric) in row.state.numbered_metrics() {
                    let Some(value) = read(metric) else { continue };
                    match preceding {
                        0 => emit(&metric.label, value),
                        preceding => emit(&format!("{}#{}", metric.label, preceding + 1), value),
                    }
                }
            }
        }
    }

    fn write_row(
        &self,
        lines: &mut FamilyWriter<'_>,
        names: &[&str],
        row: &ReplicaRow<'_>,
        extra_label: &str,
        value: f64,
    ) {
        let mut values = [""; MAX_LABELS];
        for (value, name) in values.iter_mut().zip(names) {
            *value = self.label_value(row, name, extra_label);
        }
        lines.write(names, &values, value);
    }

    /// The value of a label. Any name that is not a label of the object is the additional label of the series.
    fn label_value<'a>(
        &self,
        row: &'a ReplicaRow<'_>,
        name: &str,
        extra_label: &'a str,
    ) -> &'a str {
        match name {
            "dry_run" => bool_label(row.state.dry_run),
            "kind" => self.kind.name,
            "update_mode" => row.state.update_mode,
            "name" | "wpa_name" => &row.key.name,
            "namespace" | "resource_namespace" | "wpa_namespace" | "monitor_namespace" => {
                &row.key.namespace
            }
            "resource_kind" | "target_kind" => &row.state.target.0,
            "resource_name" | "target_name" => &row.state.target.1,
            "monitor_name" => row.state.monitor.as_ref().map_or("", |monitor| &monitor.name),
            _ => extra_label,
        }
    }
}
