//! How much containers were held back by their CPU limits: read along, and shown beside recommendations.
//!
//! One number for each container of a VPA, and no series: of all scheduling periods in which its pods wanted to run,
//! those in which they were stopped. Two queries about one moment for each batch. Series are added up: those of a
//! container that was restarted are parts of it, and copies have the same share each, so that it stays what it is.

use std::{collections::HashMap, sync::Arc, time::Duration};

use super::{batch::Batch, proof::Proof, slice::Taker};
use crate::{
    Key, Throttling, Time,
    prometheus::{
        client::Client,
        failure::Failure,
        query::{Along, Fold, Over, Query},
        schema::{Fact, Schema},
    },
};

const THROTTLED: &str = "container_cpu_cfs_throttled_periods_total";
const PERIODS: &str = "container_cpu_cfs_periods_total";

/// What the containers of a batch met within a time. A container without a limit has no periods, and one that did not
/// run has had none: nothing is known of either.
pub(super) async fn ask(
    client: &Client,
    schema: &Schema,
    mut batch: Batch,
    over: Duration,
    now: Time,
    into: &mut HashMap<Key, Throttling>,
) -> Result<(), Failure> {
    let owners: Vec<_> = batch.claims.iter().map(|claim| &claim.owner).collect();
    let span = (now.earlier(over), now);
    match Proof::ask(client, schema, &batch.namespace, &owners, span).await {
        Ok(proof) => batch.proof = proof,
        Err(failure) if failure.is_passing() => return Err(failure),
        // Names of pods decide alone, as they do for their usage.
        Err(failure) => tracing::debug!(%failure, "owners of pods cannot be asked about"),
    }
    let identity = schema.usage.identity();
    for metric in [PERIODS, THROTTLED] {
        let metric_name = Fact::assumed(metric.to_owned());
        let selector = schema.usage_of(&metric_name, &batch.namespace, batch.pattern());
        let increase = Query::over(Over::Increase, &selector, over);
        let mut taker = Taker::new(&batch, identity);
        client.instant(&increase.fold(Fold::Sum, Along::By(&identity)), now, &mut taker).await?;
        let (mut points, _) = taker.done();
        points.sort();
        let mut merged = Vec::new();
        for rows in points.groups() {
            let (claim, container, _) = rows[0].key();
            let sum: f64 = points.of(rows, &mut merged).iter().map(|(_, value)| value).sum();
            let container: Arc<str> = container.into();
            let vpas = batch.claims.get(claim).map(|claim| claim.vpas.as_slice());
            for vpa in vpas.unwrap_or_default() {
                let key = Key::new(vpa.clone(), Arc::clone(&container));
                if metric == THROTTLED {
                    if let Some(known) = into.get_mut(&key) {
                        known.throttled += sum;
                    }
                } else if sum > 0.0 {
                    let none = Throttling { throttled: 0.0, periods: 0.0, at: now };
                    into.entry(key).or_insert(none).periods += sum;
                }
            }
        }
    }
    Ok(())
}
