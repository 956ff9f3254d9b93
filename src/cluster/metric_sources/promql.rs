//! Prometheus queries that return one number. Concurrent callers share one request, and a result is valid for one period
//! for callers that have not used it yet.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, ResultType, SeriesVisitor},
    promql::Query,
    selector::{LabelMatcher, LabelMatchers, MatchOperator},
};
use tokio::sync::{Mutex as Turns, Semaphore};

use plimsoll_core::{
    scaling::{MetricError, MetricValue},
    types::quantity::Quantity,
};

/// A namespace may use at most one of this many parts of the queries in flight.
const NAMESPACE_SHARE: usize = 4;

/// Which series the queries of a namespace may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantScope {
    /// The label whose value is the namespace that a series belongs to.
    pub label: String,
    /// Namespaces whose queries read all series; `*` is every namespace.
    pub unrestricted: Vec<String>,
}

impl TenantScope {
    /// The matcher that is added to each selector of the namespace's queries; `None` if it may read all series.
    pub fn matcher(&self, namespace: &str) -> Option<LabelMatcher> {
        let is_unrestricted = self.unrestricted.iter().any(|name| name == "*" || name == namespace);
        (!is_unrestricted).then(|| LabelMatcher::new(&self.label, MatchOperator::Equals, namespace))
    }
}

/// A result that is not read for this many periods is removed.
const EVICT_AFTER_PERIODS: u32 = 4;
/// A caller that used a result already gets it again for this fraction of a period: a retry after a failure sends at most
/// this many requests per period.
const RETRY_REUSE_FRACTION: u32 = 4;

#[derive(Debug)]
pub struct PromqlCache {
    client: PrometheusClient,
    period: Duration,
    /// Matchers that are added to each query.
    pub matchers: LabelMatchers,
    /// Restricts the queries of a namespace to its own series. Without it they read all series.
    pub scope: Option<TenantScope>,
    /// For a query that is a plain selector, whether to also query when its samples were taken: the oldest is the timestamp
    /// of the sum. All other queries are evaluated by the server at the requested time.
    pub include_sample_age: bool,
    cache: Mutex<CacheState>,
    in_flight: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

#[derive(Debug, Default)]
struct CacheState {
    slots: HashMap<Box<str>, Slot>,
    last_sweep: Option<Time>,
}

/// The first caller that needs a result fetches it; the others wait for it.
type Slot = Arc<Turns<Option<CachedResult>>>;

#[derive(Clone, Debug)]
struct CachedResult {
    at: Time,
    result: Result<MetricValue, MetricError>,
}

impl PromqlCache {
    /// Queries with this client, which limits the number of queries in flight. A result is valid for one period. Partial
    /// responses are errors, as a sum over half of the series would be too little. Failed queries are not retried: the next
    /// period does that.
    pub fn new(client: PrometheusClient, period: Duration) -> Self {
        let client = client.rejecting_partial().with_max_attempts(1);
        Self {
            client,
            period,
            matchers: LabelMatchers::default(),
            scope: None,
            include_sample_age: false,
            cache: Mutex::default(),
            in_flight: Mutex::default(),
        }
    }

    pub fn timeout(&self) -> Duration {
        self.client.limits().timeout
    }

    /// The sum of the result of a query, of an object in this namespace, at `at`. A failure is cached too: the query is sent
    /// again in the next period.
    ///
    /// The caller has used all results up to `used_until`. Reconciles are rarely a period apart to the millisecond; without
    /// this a late one would make the next one reuse the same result.
    pub async fn get(
        &self,
        namespace: &str,
        query: &str,
        at: Time,
        used_until: Option<Time>,
    ) -> Result<MetricValue, MetricError> {
        // Results are shared by the text that is sent, which contains the matcher of the namespace.
        let query = self.query(namespace, query)?;
        let slot = self.slot(query.as_str(), at);
        let mut cached = slot.lock().await;
        let is_valid = |result: &&CachedResult| {
            let is_unused = used_until.is_none_or(|last| result.at > last);
            is_less_apart(
                result.at,
                at,
                if is_unused { self.period } else { self.period / RETRY_REUSE_FRACTION },
            )
        };
        if let Some(result) = cached.as_ref().filter(is_valid) {
            return result.result.clone();
        }
        let result = self.fetch(namespace, &query, at).await;
        *cached = Some(CachedResult { at, result: result.clone() });
        result
    }

    fn query(&self, namespace: &str, text: &str) -> Result<Query, MetricError> {
        let tenant = self.scope.as_ref().and_then(|scope| scope.matcher(namespace));
        let query = match tenant {
            Some(tenant) => Query::from_tenant(text, &self.matchers, &tenant),
            None => Query::from_user(text, &self.matchers),
        };
        query.map_err(failed)
    }

    fn slot(&self, query: &str, now: Time) -> Slot {
        let mut cache = self.cache.lock();
        let CacheState { slots, last_sweep } = &mut *cache;
        if last_sweep.is_none_or(|swept| !is_less_apart(swept, now, self.period)) {
            *last_sweep = Some(now);
            slots.retain(|_, slot| {
                let is_in_use = Arc::strong_count(slot) > 1;
                is_in_use
                    || slot.try_lock().is_ok_and(|cached| {
                        cached.as_ref().is_some_and(|result| {
                            is_less_apart(result.at, now, self.period * EVICT_AFTER_PERIODS)
                        })
                    })
            });
        }
        if let Some(slot) = slots.get(query) {
            return Arc::clone(slot);
        }
        let slot = Slot::default();
        slots.insert(query.into(), Arc::clone(&slot));
        slot
    }

    async fn fetch(
        &self,
        namespace: &str,
        query: &Query,
        at: Time,
    ) -> Result<MetricValue, MetricError> {
        // The client's timeout starts when the query is sent; an unresponsive server could keep it queued for long before.
        let limit = self.timeout();
        let permits = self.namespace_permits(namespace);
        let result = tokio::time::timeout(limit, async {
            // The semaphore is never closed, so this cannot fail.
            let _permit = permits.acquire().await;
            self.sum(query, at).await
        });
        result.await.unwrap_or_else(|_| {
            Err(failed(format!("timed out after {limit:?}, including the time in the queue")))
        })
    }

    /// Limits the queries in flight of a namespace: slow ones of one namespace leave capacity for the others.
    fn namespace_permits(&self, namespace: &str) -> Arc<Semaphore> {
        let mut by_namespace = self.in_flight.lock();
        if let Some(permits) = by_namespace.get(namespace) {
            return Arc::clone(permits);
        }
        // Waiting and running queries hold a clone; a namespace without any gets a new semaphore later.
        by_namespace.retain(|_, permits| Arc::strong_count(permits) > 1);
        let max_in_flight = self.client.limits().max_in_flight.div_ceil(NAMESPACE_SHARE).max(1);
        let permits = Arc::new(Semaphore::new(max_in_flight));
        by_namespace.insert(namespace.into(), Arc::clone(&permits));
        permits
    }

    async fn sum(&self, query: &Query, at: Time) -> Result<MetricValue, MetricError> {
        let mut sum = Sum::default();
        let summary = self.client.instant(query, at, &mut sum).await.map_err(failed)?;
        match summary.kind {
            Some(ResultType::Matrix) => {
                let why = "the query returns a range instead of a number: wrap it in a function such as rate()";
                return Err(failed(why));
            }
            Some(ResultType::String) => {
                return Err(failed("the query returns a string instead of a number"));
            }
            _ => {}
        }
        if sum.series == 0 {
            return Err(MetricError::Empty("Prometheus"));
        }
        // A histogram is not a number, and without it the sum would be too little.
        if sum.is_no_number || summary.histograms > 0 {
            return Err(MetricError::NotANumber);
        }
        let mut sampled_at = sum.at;
        if self.include_sample_age && query.is_selector() {
            let mut timestamps = Sum::default();
            self.client.instant(&query.timestamps(), at, &mut timestamps).await.map_err(failed)?;
            let oldest =
                timestamps.smallest.map(|seconds| Time::from_nanos((seconds * 1e9) as i64));
            sampled_at = oldest.or(sampled_at);
        }
        Ok(MetricValue::Sum { sum: sum.total.milli_value(), at: sampled_at })
    }
}

/// Whether two times are less than this apart. A concurrent caller may use a slightly earlier time.
fn is_less_apart(a: Time, b: Time, limit: Duration) -> bool {
    u128::from(a.nanos_since(b).unsigned_abs()) < limit.as_nanos()
}

fn failed(why: impl std::fmt::Display) -> MetricError {
    MetricError::Failed(format!("unable to query Prometheus: {why}"))
}

/// The sum of all samples, exact to a billionth.
#[derive(Default)]
struct Sum {
    series: u64,
    total: Quantity,
    smallest: Option<f64>,
    at: Option<Time>,
    is_no_number: bool,
}

impl SeriesVisitor for Sum {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        self.series += 1;
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        self.at = Some(self.at.map_or(at, |oldest| oldest.min(at)));
        self.smallest = Some(self.smallest.map_or(value, |smallest| smallest.min(value)));
        match amount(value) {
            Some(value) => self.total = self.total + value,
            None => self.is_no_number = true,
        }
    }

    fn discard(&mut self) {
        *self = Self::default();
    }
}

/// A sample as an amount. Truncates it after nine decimals: a computed value has noise after them, which must not round up
/// to another thousandth. A value that would become zero keeps all digits.
fn amount(value: f64) -> Option<Quantity> {
    if !value.is_finite() {
        return None;
    }
    let digits = value.to_string();
    let end = digits.find('.').map_or(digits.len(), |point| digits.len().min(point + 10));
    let amount: Quantity = digits.get(..end)?.parse().ok()?;
    if amount.is_zero() { digits.parse().ok() } else { Some(amount) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> Option<i64> {
        let mut sum = Sum::default();
        for value in values {
            sum.point(Time::EPOCH, *value);
        }
        (!sum.is_no_number).then(|| sum.total.milli_value())
    }

    #[test]
    fn samples_are_summed_exactly_and_rounded_away_from_zero_once() {
        for (values, milli) in [
            (&[42.0][..], 42_000),
            (&[0.0, -0.0], 0),
            (&[0.0001, 0.0001], 1),
            (&[-0.0001], -1),
            (&[0.1 + 0.2], 300),
            (&[0.1; 3], 300),
            (&[0.7 + 0.1], 800),
            (&[1e-12], 1),
            (&[-5e-324], -1),
            (&[123_456_789_012.3], 123_456_789_012_300),
            (&[1e300], i64::MAX),
            (&[-1e300], i64::MIN),
            (&[1e300, 1e300], i64::MAX),
            (&[f64::MAX, 1.5], i64::MAX),
        ] {
            assert_eq!(sum(values), Some(milli), "{values:?}");
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(sum(&[1.0, value]), None, "{value}");
        }
    }
}
