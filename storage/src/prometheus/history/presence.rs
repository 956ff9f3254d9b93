//! Whether a server has series of pods at all, to tell a history that is empty from one that was not found.

use std::collections::HashSet;

use super::batch::LONGEST_PATTERN;
use super::live::groups;
use crate::prometheus::{
    answer::{Labels, Series, Wants},
    client::Client,
    failure::Failure,
    query::{Along, Fold, Query},
    schema::Schema,
};
use plimsoll_core::types::Time;

/// Which of these namespaces have containers with series now.
pub(super) async fn with_series(
    client: &Client,
    schema: &Schema,
    namespaces: &[&str],
    now: Time,
) -> Result<HashSet<Box<str>>, Failure> {
    let label = &*schema.usage.namespace.value;
    let mut found = Found { label, namespaces: HashSet::new() };
    for group in groups(namespaces.iter().copied().collect(), LONGEST_PATTERN) {
        let series = schema.usage_in(&schema.usage.memory, &group);
        let query = Query::from(series).fold(Fold::Group, Along::By(&[label]));
        client.instant(&query, now, &mut found).await?;
    }
    Ok(found.namespaces)
}

/// Takes the namespaces of series.
struct Found<'a> {
    label: &'a str,
    namespaces: HashSet<Box<str>>,
}

impl Series for Found<'_> {
    fn begin(&mut self, labels: Labels<'_>) -> Wants {
        if let Some(namespace) = labels.get(self.label).filter(|it| !self.namespaces.contains(*it))
        {
            self.namespaces.insert(namespace.into());
        }
        Wants::Nothing
    }

    fn point(&mut self, _: Time, _: f64) {}
}
