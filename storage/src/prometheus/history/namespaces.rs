//! Whether a server has series of pods at all, to tell a history that is empty from one that was not found.

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

/// Which of these namespaces have containers with series now.
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

/// Takes the namespaces of series.
struct NamespaceCollector<'a> {
    label: &'a str,
    namespaces: HashSet<Box<str>>,
}

impl SeriesVisitor for NamespaceCollector<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        if let Some(namespace) = labels.get(self.label).filter(|it| !self.namespaces.contains(*it))
        {
            self.namespaces.insert(namespace.into());
        }
        Interest::LabelsOnly
    }

    fn point(&mut self, _: Time, _: f64) {}
}
