//! The queries of a history load, to estimate their cost without reading a history.

use std::time::Duration;

use super::{query_plan::QueryPlan, query_plan::Weighting, workload_batch::WorkloadBatch};
use crate::prometheus::{promql::Query, schema::Schema, selector::Pattern};

/// A query of a history load.
#[derive(Clone, Debug)]
pub struct QueryPreview {
    /// The queried resource.
    pub resource: &'static str,
    /// The query.
    pub query: Query,
    /// The step of the query.
    pub step: Duration,
}

/// The usage queries for all pods of a namespace. A history load restricts them to the pods of VPAs.
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
