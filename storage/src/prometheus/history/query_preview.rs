//! The queries by which a history is read, without reading one: for whoever wonders what they cost.

use std::time::Duration;

use super::{query_plan::QueryPlan, query_plan::Weighting, workload_batch::WorkloadBatch};
use crate::prometheus::{promql::Query, schema::Schema, selector::Pattern};

/// A query that is asked over and over.
#[derive(Clone, Debug)]
pub struct QueryPreview {
    /// What it is about.
    pub resource: &'static str,
    /// The query.
    pub query: Query,
    /// The time from one of its moments to the next.
    pub step: Duration,
}

/// Those about what all pods of a namespace use. A history of VPAs asks for their pods alone.
pub fn preview_queries(
    weighting: Weighting,
    schema: &Schema,
    namespace: &str,
) -> [QueryPreview; 2] {
    let plan = QueryPlan::new(weighting, schema);
    let batch = WorkloadBatch::new(namespace.into(), Vec::new());
    let pods = || Pattern::regex(".+");
    [
        QueryPreview { resource: "CPU", query: plan.cpu(schema, &batch, pods()), step: plan.cpu },
        QueryPreview {
            resource: "memory",
            query: plan.memory(schema, &batch, pods()),
            step: plan.memory,
        },
    ]
}
