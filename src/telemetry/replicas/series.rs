//! How families read their values from the state of an object.

use plimsoll_core::scaling::MetricDecision;

use super::{
    exported_state::{EmitSample, ReplicaRow},
    label_tags::{LabelTag, label_tags},
};
use crate::telemetry::definition::Definition;

/// How a family reads its values from the row of an object.
pub(in crate::telemetry) enum ReplicaSeries {
    Object(fn(&ReplicaRow<'_>) -> Option<f64>),
    Metric(fn(&MetricDecision) -> Option<f64>),
    /// A value for each value of a label.
    Labelled(fn(&ReplicaRow<'_>, &mut EmitSample<'_>)),
    /// 1 or 0 for each restriction.
    Restrictions,
    /// Always 1, with labels of the object.
    Tags,
}

/// A family under an upstream's name, with the labels of one release.
pub(in crate::telemetry) struct UpstreamFamily {
    pub definition: Definition,
    pub values: &'static ReplicaSeries,
}

/// All families under an upstream's names.
#[derive(Default)]
pub struct UpstreamSeries {
    pub(in crate::telemetry) families: Vec<UpstreamFamily>,
    /// The labels of the family that has labels of objects.
    pub(super) tags: Vec<LabelTag>,
}

impl UpstreamSeries {
    pub(in crate::telemetry) fn new(
        families: Vec<UpstreamFamily>,
        labels_as_tags: &[String],
    ) -> Self {
        let with_tags = families.iter().find(|family| matches!(family.values, ReplicaSeries::Tags));
        let own = with_tags.map_or(&[][..], |family| family.definition.labels);
        let tags = label_tags(own, labels_as_tags);
        Self { families, tags }
    }
}
