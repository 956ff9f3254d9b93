//! How much containers were held back by their CPU limits: read along, and shown beside recommendations.
//!
//! One number for each container of a VPA, and no series: of all scheduling periods in which its pods wanted to run,
//! those in which they were stopped. Series are added up: those of a container that was restarted are parts of it, and
//! copies have the same share each, so that it stays what it is. Besides it is asked which containers run now, and
//! which of them have periods: one that runs without has no limit, whatever was measured of it before.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    batch::Batch,
    load::ENOUGH,
    proof::Proof,
    slice::{Points, Taker},
};
use crate::prometheus::{
    client::Client,
    failure::Failure,
    query::{Along, Fold, Over, Query},
    schema::{Fact, Schema, THROTTLED},
    selector::{Pattern, Selector},
};
use plimsoll_core::{
    history::Throttling,
    types::{Key, Time, VpaKey},
};

const PERIODS: &str = "container_cpu_cfs_periods_total";

/// What was learned of throttling. What is in neither is not known: it did not run, or wanted nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Throttles {
    /// How much containers were held back.
    pub measured: HashMap<Key, Throttling>,
    /// Containers that run, none of them with a CPU limit: nothing holds them back any more.
    pub unlimited: HashSet<Key>,
    /// The VPAs whose containers could not be asked about.
    pub unanswered: HashSet<VpaKey>,
    /// Why, of the first: its namespace, and what happened.
    pub failure: Option<(Arc<str>, Failure)>,
}

impl Throttles {
    /// Asks about one batch after the other. One that fails does not take the others along.
    pub(super) async fn ask(
        client: &Client,
        schema: &Schema,
        batches: Vec<Batch>,
        (over, budget): (Duration, u64),
        now: impl Fn() -> Time,
    ) -> Self {
        let mut all = Self::default();
        let mut in_a_row = 0;
        let mut left = VecDeque::from(batches);
        while let Some(batch) = left.pop_front() {
            if in_a_row >= ENOUGH {
                all.unanswered.extend(batch.vpas().cloned());
                continue;
            }
            let question = Question { client, schema, over, budget, now: now() };
            let asked = question.ask(batch.clone()).await;
            // More pods than may be held are asked about in smaller parts.
            if let (Err(Failure::Full), Some([first, second])) = (&asked, batch.halves()) {
                left.push_front(second);
                left.push_front(first);
                continue;
            }
            match asked {
                Ok((measured, unlimited)) => {
                    in_a_row = 0;
                    all.measured.extend(measured);
                    all.unlimited.extend(unlimited);
                }
                Err(failure) => {
                    // Too much for the server in one place is none of the other places' concern.
                    in_a_row += u32::from(!failure.is_about_query());
                    all.unanswered.extend(batch.vpas().cloned());
                    all.failure.get_or_insert((Arc::clone(&batch.namespace), failure));
                }
            }
        }
        all
    }
}

/// What is asked about each batch.
struct Question<'a> {
    client: &'a Client,
    schema: &'a Schema,
    over: Duration,
    /// Points that may be held of a batch.
    budget: u64,
    now: Time,
}

impl Question<'_> {
    /// What the containers of a batch met, and those that run without a limit. A container without a limit has no periods,
    /// and one that did not run has had none: nothing is known of either.
    async fn ask(
        &self,
        mut batch: Batch,
    ) -> Result<(HashMap<Key, Throttling>, HashSet<Key>), Failure> {
        let Self { client, schema, over, budget, now } = *self;
        let owners: Vec<_> = batch.claims.iter().map(|claim| &claim.owner).collect();
        let span = (now.earlier(over), now);
        if batch.labelled.is_none() {
            let asked = Proof::ask(
                client,
                schema,
                &batch.namespace,
                &owners,
                &batch.live,
                span,
                budget / 2,
            );
            match asked.await {
                Ok(proof) => batch.proof = proof,
                Err(failure) if failure.is_passing() => return Err(failure),
                Err(Failure::Full) if batch.claims.len() > 1 => return Err(Failure::Full),
                // Names of pods decide alone, as they do for their usage.
                Err(failure) => tracing::debug!(%failure, "owners of pods cannot be asked about"),
            }
        }
        let patterns = batch.patterns();
        let of = |metric: &Fact<String>| -> Vec<Selector> {
            let of = |pods: &Pattern| schema.usage_of(metric, &batch.namespace, pods.clone());
            patterns.iter().map(of).collect()
        };
        let [periods, throttled] =
            [PERIODS, THROTTLED].map(|metric| of(&Fact::assumed(metric.to_owned())));
        let increase = |selectors: &[Selector]| -> Vec<Query> {
            selectors.iter().map(|one| Query::over(Over::Increase, one, over)).collect()
        };
        let there =
            |selectors: Vec<Selector>| selectors.into_iter().map(Query::from).collect::<Vec<_>>();
        let mut measured = HashMap::new();
        for (key, periods) in self.sums(&batch, increase(&periods), Fold::Sum).await? {
            if periods > 0.0 {
                measured.insert(key, Throttling { throttled: 0.0, periods, at: now });
            }
        }
        for (key, throttled) in self.sums(&batch, increase(&throttled), Fold::Sum).await? {
            if let Some(known) = measured.get_mut(&key) {
                known.throttled = throttled;
            }
        }
        let running = self.sums(&batch, there(of(&schema.usage.memory)), Fold::Group).await?;
        let limited = self.sums(&batch, there(periods), Fold::Group).await?;
        let unlimited: HashSet<_> =
            running.into_keys().filter(|key| !limited.contains_key(key)).collect();
        measured.retain(|key, _| !unlimited.contains(key));
        Ok((measured, unlimited))
    }

    /// What queries about now come to for each container of each VPA, over all pods.
    async fn sums(
        &self,
        batch: &Batch,
        queries: Vec<Query>,
        fold: Fold,
    ) -> Result<HashMap<Key, f64>, Failure> {
        let identity = self.schema.usage.identity();
        let most = self.budget.saturating_sub(batch.proof.held());
        let mut taker = Taker::new(batch, identity, most);
        for query in queries {
            let query = query.fold(fold, Along::By(&identity));
            self.client.instant(&query, self.now, &mut taker).await?;
        }
        let (mut points, _) = taker.done();
        points.sort();
        Ok(by_container(batch, &points))
    }
}

fn by_container(batch: &Batch, points: &Points) -> HashMap<Key, f64> {
    let mut sums = HashMap::new();
    let mut merged = Vec::new();
    for rows in points.groups() {
        let (claim, container, _) = rows[0].key();
        let sum: f64 = points.of(rows, &mut merged).iter().map(|(_, value)| value).sum();
        let container: Arc<str> = container.into();
        let vpas = batch.claims.get(claim).map(|claim| claim.vpas.as_slice());
        for vpa in vpas.unwrap_or_default() {
            let key = Key::new(vpa.clone(), Arc::clone(&container));
            *sums.entry(key).or_insert(0.0) += sum;
        }
    }
    sums
}
