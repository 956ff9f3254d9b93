//! Queries to a Prometheus, each answered by one number: asked once by whoever needs it at the same time, and good until its
//! period is over for everybody who has not had it.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    client::PrometheusClient,
    decode::{Interest, Labels, ResultType, SeriesVisitor},
    promql::Query,
    schema::Dialect,
    selector::{LabelMatcher, LabelMatchers, MatchOperator},
};
use tokio::sync::{Mutex as Turns, Semaphore};

use plimsoll_core::{
    scaling::{MetricError, MetricValue},
    types::quantity::Quantity,
};

/// Whether a text can be a query for [`Queries::ask`]; otherwise why not, in one line. What only the server can know,
/// such as functions of a newer one, passes.
pub fn check_query(text: &str) -> Result<(), String> {
    check_query_in(text, Dialect::PromQl)
}

/// The same for a server that is known to speak this dialect.
pub fn check_query_in(text: &str, dialect: Dialect) -> Result<(), String> {
    Query::validate(text, dialect).map_err(|why| why.to_string())
}

/// Whether each selector of a query has a matcher for this label.
pub fn requires_label(query: &str, label: &str) -> bool {
    Query::every_selector_has_label(query, label)
}

/// A namespace has at most one in so many of the queries that may be in flight at once.
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
    /// The matcher that each selector of the namespace's queries gets; `None` where it may read everything.
    pub fn matcher(&self, namespace: &str) -> Option<LabelMatcher> {
        let is_free = self.unrestricted.iter().any(|free| free == "*" || free == namespace);
        (!is_free).then(|| LabelMatcher::new(&self.label, MatchOperator::Equals, namespace))
    }
}

/// An answer that nobody asked for in so many periods is forgotten.
const EVICT_AFTER_PERIODS: u32 = 4;
/// Whoever had an answer takes it again for so long a part of a period: who tries again after a failure asks nobody for more
/// than that.
const RETRY_REUSE_FRACTION: u32 = 4;

/// Asks a Prometheus.
#[derive(Debug)]
pub struct PromqlCache {
    client: PrometheusClient,
    period: Duration,
    matchers: LabelMatchers,
    scope: Option<TenantScope>,
    include_sample_age: bool,
    cache: Mutex<CacheState>,
    in_flight: Mutex<HashMap<Box<str>, Arc<Semaphore>>>,
}

#[derive(Debug, Default)]
struct CacheState {
    slots: HashMap<Box<str>, Slot>,
    last_sweep: Option<Time>,
}

/// Whoever needs an answer that is not there asks for it, and the others wait for that.
type Slot = Arc<Turns<Option<CachedResult>>>;

#[derive(Clone, Debug)]
struct CachedResult {
    at: Time,
    result: Result<MetricValue, MetricError>,
}

impl PromqlCache {
    /// Asks through this client, by whose limits no more than so many queries are under way at once. An answer is good
    /// for one period. Half an answer is none, as a sum over half of the series would be too little; and
    /// nobody waits for another attempt, as the next period is one.
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

    /// Lets the queries of a namespace read its own series only. Without a scope they read everything.
    #[must_use]
    pub fn with_tenant_scope(mut self, scope: TenantScope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Puts these into every query.
    #[must_use]
    pub fn with_matchers(mut self, matchers: LabelMatchers) -> Self {
        self.matchers = matchers;
        self
    }

    /// Asks of a query that is one selector and nothing else also when its samples were taken: the oldest tells the
    /// time of the sum. All others are worked out by the server at the moment that is asked about, from what it finds.
    #[must_use]
    pub fn with_sample_age(mut self) -> Self {
        self.include_sample_age = true;
        self
    }

    /// The sum of what a query of an object in this namespace answers at a moment. A failure is an answer too: it is asked
    /// again in the next period.
    ///
    /// Who asks has `had` all answers up to then. Turns are seldom a period apart to the millisecond, and one that comes
    /// late must not have the next one told the same: it counts for no period of its own then.
    pub async fn get(
        &self,
        namespace: &str,
        query: &str,
        at: Time,
        had: Option<Time>,
    ) -> Result<MetricValue, MetricError> {
        // Answers are shared by the text that is sent, which has the matcher of the namespace in it.
        let query = self.query(namespace, query)?;
        let slot = self.slot(query.as_str(), at);
        let mut told = slot.lock().await;
        let is_good = |told: &&CachedResult| {
            let is_new = had.is_none_or(|had| told.at > had);
            is_less_apart(
                told.at,
                at,
                if is_new { self.period } else { self.period / RETRY_REUSE_FRACTION },
            )
        };
        if let Some(told) = told.as_ref().filter(is_good) {
            return told.result.clone();
        }
        let answer = self.fetch(namespace, &query, at).await;
        *told = Some(CachedResult { at, result: answer.clone() });
        answer
    }

    fn query(&self, namespace: &str, text: &str) -> Result<Query, MetricError> {
        let tenant = self.scope.as_ref().and_then(|scope| scope.matcher(namespace));
        let query = match tenant {
            Some(tenant) => Query::from_tenant(text, &self.matchers, &tenant),
            None => Query::from_user(text, &self.matchers),
        };
        query.map_err(failed)
    }

    /// Whether less than so many periods are between two moments.
    fn is_within(&self, one: Time, other: Time, periods: u32) -> bool {
        is_less_apart(one, other, self.period * periods)
    }

    fn slot(&self, query: &str, now: Time) -> Slot {
        let mut known = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        let CacheState { slots, last_sweep: swept } = &mut *known;
        if swept.is_none_or(|swept| !self.is_within(swept, now, 1)) {
            *swept = Some(now);
            slots.retain(|_, slot| {
                let asked = Arc::strong_count(slot) > 1;
                asked
                    || slot.try_lock().is_ok_and(|told| {
                        told.as_ref()
                            .is_some_and(|told| self.is_within(told.at, now, EVICT_AFTER_PERIODS))
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
        // The client counts from when it is a query's turn, and a deaf server may keep all turns for long.
        let limit = self.client.limits().timeout;
        let share = self.namespace_permits(namespace);
        let answered = tokio::time::timeout(limit, async {
            // Never closed, so that there is always a permit to come.
            let _permit = share.acquire().await;
            self.sum(query, at).await
        });
        answered.await.unwrap_or_else(|_| {
            Err(failed(format!("no answer within {limit:?}, the waiting for a turn included")))
        })
    }

    /// What the queries of a namespace take turns by: slow ones of one namespace leave room for those of the others.
    fn namespace_permits(&self, namespace: &str) -> Arc<Semaphore> {
        let mut shares = self.in_flight.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = shares.get(namespace) {
            return Arc::clone(share);
        }
        // Whoever waits or asks holds a share; without one the namespace starts anew.
        shares.retain(|_, share| Arc::strong_count(share) > 1);
        let most = self.client.limits().max_in_flight.div_ceil(NAMESPACE_SHARE).max(1);
        let share = Arc::new(Semaphore::new(most));
        shares.insert(namespace.into(), Arc::clone(&share));
        share
    }

    async fn sum(&self, query: &Query, at: Time) -> Result<MetricValue, MetricError> {
        let mut sum = Sum::default();
        let (summary, _) =
            self.client.instant_with_summary(query, at, &mut sum).await.map_err(failed)?;
        match summary.kind {
            Some(ResultType::Matrix) => {
                let why = "the query answers a range and no number: put a function such as rate() around it";
                return Err(failed(why));
            }
            Some(ResultType::String) => {
                return Err(failed("the query answers a text and no number"));
            }
            _ => {}
        }
        if sum.series == 0 {
            return Err(MetricError::Empty("Prometheus"));
        }
        // A histogram is no number, and without it the sum would be too little.
        if sum.is_no_number || summary.histograms > 0 {
            return Err(MetricError::NotANumber);
        }
        let mut taken = sum.at;
        if self.include_sample_age && query.is_selector() {
            let mut ages = Oldest::default();
            self.client
                .instant_with_summary(&query.timestamps(), at, &mut ages)
                .await
                .map_err(failed)?;
            taken = ages.at.or(taken);
        }
        Ok(MetricValue::Sum { sum: sum.total.milli_value(), at: taken })
    }
}

/// Whether less time than this is between two moments. Whoever asks at the same time may do so a little earlier.
fn is_less_apart(one: Time, other: Time, less_than: Duration) -> bool {
    u128::from(one.nanos_since(other).unsigned_abs()) < less_than.as_nanos()
}

fn failed(why: impl std::fmt::Display) -> MetricError {
    MetricError::Failed(format!("unable to ask the Prometheus: {why}"))
}

/// The sum of all samples, exact to a billionth.
#[derive(Default)]
struct Sum {
    series: u64,
    total: Quantity,
    at: Option<Time>,
    is_no_number: bool,
}

impl SeriesVisitor for Sum {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        self.series += 1;
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
        match amount(value) {
            Some(value) => self.total = self.total + value,
            None => self.is_no_number = true,
        }
    }

    fn discard(&mut self) {
        *self = Self::default();
    }
}

/// A sample as an amount. Of its digits those from the tenth after the point on are left out: whatever was computed
/// has noise there, which must not make a thousandth more of it. What has no others is still not nothing.
fn amount(value: f64) -> Option<Quantity> {
    if !value.is_finite() {
        return None;
    }
    let digits = value.to_string();
    let end = digits.find('.').map_or(digits.len(), |point| digits.len().min(point + 10));
    let amount: Quantity = digits.get(..end)?.parse().ok()?;
    if amount.is_zero() { digits.parse().ok() } else { Some(amount) }
}

/// When the oldest of all samples was taken, of values that are times.
#[derive(Default)]
struct Oldest {
    at: Option<Time>,
}

impl SeriesVisitor for Oldest {
    fn begin(&mut self, _: Labels<'_>) -> Interest {
        Interest::Points
    }

    fn point(&mut self, _: Time, seconds: f64) {
        let at = Time::from_nanos((seconds * 1e9) as i64);
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    fn discard(&mut self) {
        *self = Self::default();
    }
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
    fn samples_are_added_up_exactly_and_rounded_away_from_zero_once() {
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
