//! Checks whether a server has series of pods at all, to distinguish an empty history from a misconfigured one.

use std::collections::HashSet;

use super::live_pods::groups;
use super::workload_batch::LONGEST_PATTERN;
use crate::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, SeriesVisitor},
    promql::{Aggregation, Grouping, Query},
    query_error::QueryError,
    schema::Schema,
};
use plimsoll_core::types::Time;

/// Returns the namespaces that have container series now.
pub(super) async fn with_series(
    client: &PrometheusClient,
    schema: &Schema,
    namespaces: &[&str],
    now: Time,
) -> Result<HashSet<Box<str>>, QueryError> {
    let label = &*schema.usage.namespace.value;
    let mut found = NamespaceCollector { label, namespaces: HashSet::new() };
    for group in groups(namespaces.iter().copied().collect(), LONGEST_PATTERN) {
        let series = schema.usage_selector_in(&schema.usage.memory, &group);
        let query = Query::from(series).aggregate(Aggregation::Group, Grouping::By(&[label]));
        client.instant(&query, now, &mut found).await?;
    }
    Ok(found.namespaces)
}

/// Collects the namespaces of series.
struct NamespaceCollector<'a> {
    label: &'a str,
    namespaces: HashSet<Box<str>>,
}

impl SeriesVisitor for NamespaceCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        if let Some(namespace) =
            labels.get(self.label).filter(|name| !self.namespaces.contains(*name))
        {
            self.namespaces.insert(namespace.into());
        }
        Interest::LabelsOnly
    }

    fn point(&mut self, _: Time, _: f64) {}
}
