//! Limits how many requests wait for an unresponsive service: for each service in total, and for each namespace. A few
//! requests continue and detect when the service recovers; the others fail at once.

use std::{collections::HashMap, future::Future, pin::pin, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use plimsoll_core::scaling::MetricError;

/// Above this number of entries, those of unresponsive services are removed as soon as no request is in flight.
const MAX_ENTRIES: usize = 1_000;
/// A request that takes longer is slow. The worker that started it has gone on with another object by then, and there is
/// room for a limited number of those.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// A namespace may have this fraction of all requests that wait for unresponsive services.
const NAMESPACE_SHARE_DIVISOR: usize = 4;
/// The minimum number of slow requests that a namespace may have, however few workers there are.
const MIN_SLOW_PER_NAMESPACE: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceCall<'a> {
    pub service: &'a str,
    /// Kind of the service. For each namespace, services of one kind are counted together, whatever their addresses.
    pub kind: &'a str,
    /// Namespace of the object that needs the response.
    pub namespace: &'a str,
}

/// Requests in flight to one service, or of one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct EndpointState {
    in_flight: usize,
    /// Requests in flight for longer than [`SLOW_AFTER`].
    slow: usize,
    consecutive_timeouts: usize,
}

impl EndpointState {
    /// Whether the circuit is open: `most` requests are in flight and as many have timed out.
    const fn is_open(self, most: usize) -> bool {
        self.in_flight >= most && self.consecutive_timeouts >= most
    }
}

#[derive(Debug)]
pub(super) struct CircuitBreaker {
    /// How many requests may wait for an unresponsive service.
    max_in_flight: usize,
    entries: Mutex<HashMap<Box<str>, EndpointState>>,
}

/// A request in flight, until it is dropped.
struct InFlightCall<'a> {
    breaker: &'a CircuitBreaker,
    service: &'a str,
    tenant: Box<str>,
    is_slow: bool,
}

impl CircuitBreaker {
    /// Creates a circuit breaker that lets at most `most` requests wait for an unresponsive service.
    pub fn new(most: usize) -> Self {
        Self { max_in_flight: most.max(1), entries: Mutex::default() }
    }

    /// Makes a request that takes `limit` at most. Fails at once if too many requests of its service or of its namespace are
    /// already waiting.
    pub async fn call<T>(
        &self,
        call: ServiceCall<'_>,
        limit: Duration,
        request: impl Future<Output = Result<T, MetricError>>,
    ) -> Result<T, MetricError> {
        let mut in_flight = self.admit(call)?;
        let began = Instant::now();
        let mut request = pin!(request);
        let response = if let Ok(response) = timeout(SLOW_AFTER, &mut request).await {
            response
        } else {
            in_flight.mark_slow();
            request.await
        };
        // The request enforces the limit itself, to within a few milliseconds.
        let timed_out = response.is_err() && began.elapsed() >= limit.mul_f64(0.95);
        in_flight.update_entries(|entry| {
            entry.consecutive_timeouts =
                if timed_out { entry.consecutive_timeouts.saturating_add(1) } else { 0 };
        });
        response
    }

    fn admit<'a>(&'a self, call: ServiceCall<'a>) -> Result<InFlightCall<'a>, MetricError> {
        let ServiceCall { service, kind, namespace } = call;
        // The key of the namespace's requests to services of this kind, which is no valid service name.
        let tenant: Box<str> = format!("{namespace}\n{kind}").into();
        let mut entries = self.entries.lock();
        let of = |key: &str| entries.get(key).copied().unwrap_or_default();
        let (of_service, of_tenant) = (of(service), of(&tenant));
        let EndpointState { in_flight, consecutive_timeouts: timeouts, .. } = of_service;
        if of_service.is_open(self.max_in_flight) {
            return Err(MetricError::Failed(format!(
                "{service}: circuit open after {timeouts} timeouts ({in_flight} requests in flight)"
            )));
        }
        let EndpointState { in_flight, consecutive_timeouts: timeouts, slow } = of_tenant;
        if of_tenant.is_open(self.max_in_flight.div_ceil(NAMESPACE_SHARE_DIVISOR)) {
            return Err(MetricError::Failed(format!(
                "{kind}: circuit open for namespace {namespace} after {timeouts} timeouts ({in_flight} requests in flight)"
            )));
        }
        if slow >= (2 * self.max_in_flight).max(MIN_SLOW_PER_NAMESPACE) {
            return Err(MetricError::Failed(format!(
                "{slow} requests of namespace {namespace} to {kind} have been waiting for more than {SLOW_AFTER:?}: no \
                 more requests until one of them completes"
            )));
        }
        for key in [service, &tenant] {
            entries.entry(key.into()).or_default().in_flight += 1;
        }
        drop(entries);
        Ok(InFlightCall { breaker: self, service, tenant, is_slow: false })
    }
}

impl InFlightCall<'_> {
    fn update_entries(&self, change: impl Fn(&mut EndpointState)) {
        let mut entries = self.breaker.entries.lock();
        for key in [self.service, &self.tenant] {
            if let Some(entry) = entries.get_mut(key) {
                change(entry);
            }
        }
    }

    fn mark_slow(&mut self) {
        self.is_slow = true;
        self.update_entries(|entry| entry.slow += 1);
    }
}

impl Drop for InFlightCall<'_> {
    fn drop(&mut self) {
        let was_slow = usize::from(self.is_slow);
        self.update_entries(|entry| {
            entry.in_flight = entry.in_flight.saturating_sub(1);
            entry.slow = entry.slow.saturating_sub(was_slow);
        });
        let mut entries = self.breaker.entries.lock();
        let is_full = entries.len() > MAX_ENTRIES;
        for key in [self.service, &self.tenant] {
            let idle = entries.get(key).is_some_and(|entry| {
                entry.in_flight == 0 && (entry.consecutive_timeouts == 0 || is_full)
            });
            if idle {
                entries.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{future::pending, sync::Arc};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(20);

    async fn silence() -> Result<i32, MetricError> {
        let answered = tokio::time::timeout(LIMIT, pending()).await;
        answered.unwrap_or_else(|_| Err(MetricError::Failed("no answer".into())))
    }

    async fn forever() -> Result<i32, MetricError> {
        pending().await
    }

    fn to(service: &'static str, namespace: &'static str) -> ServiceCall<'static> {
        ServiceCall { service, kind: "services", namespace }
    }

    #[tokio::test(start_paused = true)]
    async fn a_circuit_opens_after_timeouts_and_rejects_further_requests_at_once() {
        let breaker = Arc::new(CircuitBreaker::new(2));
        let wait = |namespace| {
            let breaker = Arc::clone(&breaker);
            tokio::spawn(async move { breaker.call(to("a", namespace), LIMIT, forever()).await })
        };
        let waiting = [wait("one"), wait("two")];
        tokio::task::yield_now().await;
        // No request has timed out yet, so a third one may try.
        assert_eq!(breaker.call(to("a", "five"), LIMIT, async { Ok(1) }).await, Ok(1));
        for namespace in ["three", "four"] {
            let failed = breaker.call(to("a", namespace), LIMIT, silence()).await;
            assert_eq!(failed, Err(MetricError::Failed("no answer".into())));
        }
        let error = breaker
            .call(to("a", "five"), LIMIT, async { Ok(1) })
            .await
            .expect_err("the circuit is open");
        let text = "a: circuit open after 2 timeouts (2 requests in flight)";
        assert_eq!(error.to_string(), text);
        assert_eq!(
            breaker.call(to("b", "five"), LIMIT, async { Ok(1) }).await,
            Ok(1),
            "other services are not affected"
        );
        // One of the waiting requests ends, so another may try; any response, even an error, closes the circuit.
        waiting[0].abort();
        wait_until_gone(&waiting[0]).await;
        let refused = async { Err::<i32, _>(MetricError::Failed("503".into())) };
        let response = breaker.call(to("a", "five"), Duration::from_mins(1), refused).await;
        assert_eq!(response, Err(MetricError::Failed("503".into())));
        let again = wait("three");
        tokio::task::yield_now().await;
        assert_eq!(breaker.call(to("a", "five"), LIMIT, async { Ok(1) }).await, Ok(1));
        again.abort();
        waiting[1].abort();
    }

    async fn wait_until_gone<T>(task: &tokio::task::JoinHandle<T>) {
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Starts requests that never end, and waits until they are slow.
    async fn stuck(
        breaker: &Arc<CircuitBreaker>,
        namespace: &'static str,
        count: usize,
    ) -> Vec<tokio::task::JoinHandle<Result<i32, MetricError>>> {
        let start = |number: usize| {
            let breaker = Arc::clone(breaker);
            tokio::spawn(async move {
                let service = format!("http://{namespace}/{number}");
                let call = ServiceCall { service: &service, kind: "recommenders", namespace };
                breaker.call(call, Duration::from_mins(1), forever()).await
            })
        };
        let started: Vec<_> = (0..count).map(start).collect();
        tokio::time::sleep(SLOW_AFTER * 2).await;
        started
    }

    #[tokio::test(start_paused = true)]
    async fn recommenders_of_one_namespace_share_a_circuit() {
        let breaker = Arc::new(CircuitBreaker::new(4));
        let fine = |namespace| {
            let call = ServiceCall { service: "http://fine", kind: "recommenders", namespace };
            breaker.call(call, LIMIT, async { Ok(1) })
        };
        let first = stuck(&breaker, "a", 7).await;
        assert_eq!(fine("a").await, Ok(1), "there is room for one more slow request");
        let last = stuck(&breaker, "a", 1).await;
        let error = fine("a").await.expect_err("the circuit is open").to_string();
        assert!(
            error.contains("8 requests of namespace a to recommenders have been waiting"),
            "{error}"
        );
        assert_eq!(fine("b").await, Ok(1), "another namespace is not blocked");
        let call = ServiceCall { service: "Prometheus", kind: "Prometheus", namespace: "a" };
        assert_eq!(
            breaker.call(call, LIMIT, async { Ok(1) }).await,
            Ok(1),
            "nor are other services"
        );
        for task in first.iter().chain(&last) {
            task.abort();
            wait_until_gone(task).await;
        }
        assert_eq!(fine("a").await, Ok(1));
        assert!(breaker.entries.lock().is_empty(), "nothing is left of requests that have ended");
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_of_one_namespace_do_not_block_other_namespaces() {
        let breaker = Arc::new(CircuitBreaker::new(8));
        let of = |namespace| ServiceCall { service: "Prometheus", kind: "Prometheus", namespace };
        for _ in 0..20 {
            breaker.call(of("a"), LIMIT, silence()).await.expect_err("no answer");
        }
        let hanging: Vec<_> = (0..2)
            .map(|_| {
                let breaker = Arc::clone(&breaker);
                tokio::spawn(async move { breaker.call(of("a"), LIMIT, forever()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let error =
            breaker.call(of("a"), LIMIT, async { Ok(1) }).await.expect_err("the circuit is open");
        assert!(error.to_string().contains("circuit open for namespace a"), "{error}");
        assert_eq!(breaker.call(of("b"), LIMIT, async { Ok(1) }).await, Ok(1));
        hanging.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
