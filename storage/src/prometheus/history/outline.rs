//! The queries by which a history is read, without reading one: for whoever wonders what they cost.

use std::time::Duration;

use super::{batch::Batch, plan::Plan, plan::Weighting};
use crate::prometheus::{query::Query, schema::Schema, selector::Pattern};

/// A query that is asked over and over.
#[derive(Clone, Debug)]
pub struct Outline {
    /// What it is about.
    pub about: &'static str,
    /// The query.
    pub query: Query,
    /// The time from one of its moments to the next.
    pub step: Duration,
}

/// Those about what all pods of a namespace use. A history of VPAs asks for their pods alone.
pub fn outline(weighting: Weighting, schema: &Schema, namespace: &str) -> [Outline; 2] {
    let plan = Plan::new(weighting, schema);
    let batch = Batch::new(namespace.into(), Vec::new());
    let pods = || Pattern::regex(".+");
    [
        Outline { about: "CPU", query: plan.cpu(schema, &batch, pods()), step: plan.cpu },
        Outline { about: "memory", query: plan.memory(schema, &batch, pods()), step: plan.memory },
    ]
}
