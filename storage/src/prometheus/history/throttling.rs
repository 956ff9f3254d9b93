//! CPU throttling of containers, which is shown next to recommendations.
//!
//! One ratio for each container of a VPA: throttled periods of all scheduling periods in which its pods wanted to run.
//! Series are summed: those of a restarted container add up, and replicas do not change the ratio. In addition, it
//! queries which containers run now and which of them have periods: a running container without periods has no CPU
//! limit, whatever was measured before.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    batch_group::BatchGroup,
    pod_values::{PodQueries, PodQuery, PodValue},
};
use crate::prometheus::{query_error::QueryError, schema::THROTTLED_PERIODS_METRIC};
use plimsoll_core::{
    history::Throttling,
    types::{ContainerKey, ObjectKey},
};

const PERIODS: &str = "container_cpu_cfs_periods_total";
/// The queries for each container.
pub(super) const QUERIES: [PodQuery; 4] = [
    PodQuery::Increase { metric: PERIODS },
    PodQuery::Increase { metric: THROTTLED_PERIODS_METRIC },
    PodQuery::HasMemory,
    PodQuery::HasSeries { metric: PERIODS },
];

/// Throttling of containers. A container in neither set is unknown: it did not run, or used no CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThrottlingReport {
    pub measured: HashMap<ContainerKey, Throttling>,
    /// Running containers without a CPU limit, which are not throttled.
    pub unlimited: HashSet<ContainerKey>,
    /// The VPAs whose containers could not be queried.
    pub failed_vpas: HashSet<ObjectKey>,
    /// The namespace and the cause of the first failure.
    pub failure: Option<(Arc<str>, QueryError)>,
}

impl ThrottlingReport {
    /// Queries throttling in a time range that ends now, with [`QUERIES`].
    pub(super) async fn query(queries: PodQueries<'_>, groups: Vec<BatchGroup>) -> Self {
        let at = queries.span.1;
        let none = Throttling { throttled: 0.0, periods: 0.0, at };
        let mut measured: HashMap<ContainerKey, Throttling> = HashMap::new();
        let (mut running, mut limited) = (HashSet::new(), HashSet::new());
        let mut accept = |found: PodValue<'_>| {
            let key = ContainerKey::new(found.vpa.clone(), found.container);
            match found.query {
                0 => measured.entry(key).or_insert(none).periods += found.value,
                1 => measured.entry(key).or_insert(none).throttled += found.value,
                2 => drop(running.insert(key)),
                _ => drop(limited.insert(key)),
            }
        };
        let report = queries.query(groups, &mut accept).await;
        running.retain(|key| !limited.contains(key));
        measured.retain(|key, of| of.periods > 0.0 && !running.contains(key));
        let (failed_vpas, failure) = (report.failed_vpas, report.failure);
        Self { measured, unlimited: running, failed_vpas, failure }
    }
}
