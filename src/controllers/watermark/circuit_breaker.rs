//! Bounds how many requests wait for a service that does not answer: for each service in total, and for each namespace. A few
//! requests go on and find out when it is back; the others fail at once.

use std::{
    collections::HashMap,
    future::Future,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, timeout};

use plimsoll_core::scaling::MetricError;

/// Above this number of entries, those of services that do not answer are forgotten as soon as nobody waits.
const MAX_ENTRIES: usize = 1_000;
/// A request that takes longer is slow. The worker that started it has gone on with another object by then, and there is
/// room for a limited number of those.
const SLOW_AFTER: Duration = Duration::from_secs(1);
/// A namespace may have as many requests waiting for services that do not answer as this part of what all may have.
const NAMESPACE_SHARE_DIVISOR: usize = 4;
/// At least so many slow requests of a namespace are let through, however few workers there are.
const MIN_SLOW_PER_NAMESPACE: usize = 8;

/// What is asked, and for whom.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServiceCall<'a> {
    /// The service: its name, or its address.
    pub service: &'a str,
    /// What services like it are called. Those of one kind are counted together for a namespace, whatever their addresses.
    pub kind: &'a str,
    /// The namespace of the object that needs the answer.
    pub namespace: &'a str,
}

impl ServiceCall<'_> {
    /// The key of the namespace's requests to services of this kind; no service is called like that.
    fn tenant(&self) -> Box<str> {
        format!("{}\n{}", self.namespace, self.kind).into()
    }
}

/// Requests under way to one service, or of one namespace.
#[derive(Clone, Copy, Debug, Default)]
struct EndpointState {
    in_flight: usize,
    /// How many of those have waited for longer than [`SLOW_AFTER`].
    slow: usize,
    /// Requests in a row that were given up without an answer.
    consecutive_timeouts: usize,
}

impl EndpointState {
    /// Whether requests only add to those that wait, where `most` may.
    const fn is_open(self, most: usize) -> bool {
        self.in_flight >= most && self.consecutive_timeouts >= most
    }
}

/// All requests under way.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    /// How many may wait for a service that does not answer.
    max_in_flight: usize,
    entries: Mutex<HashMap<Box<str>, EndpointState>>,
}

/// A request under way, until it is dropped.
struct InFlightCall<'a> {
    breaker: &'a CircuitBreaker,
    service: &'a str,
    tenant: Box<str>,
    is_slow: bool,
}

impl CircuitBreaker {
    /// Lets at most so many requests wait for a service that does not answer.
    pub fn new(most: usize) -> Self {
        Self { max_in_flight: most.max(1), entries: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, EndpointState>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a request that takes `limit` at most, unless too many of its service or of its namespace wait already.
    pub async fn call<T>(
        &self,
        call: ServiceCall<'_>,
        limit: Duration,
        request: impl Future<Output = Result<T, MetricError>>,
    ) -> Result<T, MetricError> {
        let mut waiting = self.admit(call)?;
        let began = Instant::now();
        let mut request = pin!(request);
        let answer = if let Ok(answer) = timeout(SLOW_AFTER, &mut request).await {
            answer
        } else {
            waiting.mark_slow();
            request.await
        };
        // The request keeps the limit itself, to the millisecond or so.
        let is_in_vain = answer.is_err() && began.elapsed() >= limit.mul_f64(0.95);
        waiting.update_entries(|entry| {
            entry.consecutive_timeouts =
                if is_in_vain { entry.consecutive_timeouts.saturating_add(1) } else { 0 };
        });
        answer
    }

    fn admit<'a>(&'a self, call: ServiceCall<'a>) -> Result<InFlightCall<'a>, MetricError> {
        let ServiceCall { service, kind, namespace } = call;
        let tenant = call.tenant();
        let mut entries = self.lock();
        let of = |key: &str| entries.get(key).copied().unwrap_or_default();
        let (of_service, of_tenant) = (of(service), of(&tenant));
        let EndpointState { in_flight: waiting, consecutive_timeouts: in_vain, .. } = of_service;
        if of_service.is_open(self.max_in_flight) {
            return Err(MetricError::Failed(format!(
                "{service} gave no answer in time to the last {in_vain} questions, and {waiting} others wait for one"
            )));
        }
        let EndpointState { in_flight: waiting, consecutive_timeouts: in_vain, slow } = of_tenant;
        if of_tenant.is_open(self.max_in_flight.div_ceil(NAMESPACE_SHARE_DIVISOR)) {
            return Err(MetricError::Failed(format!(
                "the last {in_vain} requests of namespace {namespace} to {kind} got no answer in time, and {waiting} \
                 others wait for one"
            )));
        }
        if slow >= (2 * self.max_in_flight).max(MIN_SLOW_PER_NAMESPACE) {
            return Err(MetricError::Failed(format!(
                "{slow} requests of namespace {namespace} to {kind} have been waiting for more than {SLOW_AFTER:?}: no \
                 more are made until one of them ends"
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
        let mut entries = self.breaker.lock();
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
        let mut entries = self.breaker.lock();
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
    async fn those_who_would_wait_for_one_who_does_not_answer_are_told_at_once_while_a_few_go_on() {
        let waits = Arc::new(CircuitBreaker::new(2));
        let wait = |namespace| {
            let waits = Arc::clone(&waits);
            tokio::spawn(async move { waits.call(to("a", namespace), LIMIT, forever()).await })
        };
        let standing = [wait("one"), wait("two")];
        tokio::task::yield_now().await;
        // Nobody has waited in vain yet: a third may try.
        assert_eq!(waits.call(to("a", "five"), LIMIT, async { Ok(1) }).await, Ok(1));
        for namespace in ["three", "four"] {
            let failed = waits.call(to("a", namespace), LIMIT, silence()).await;
            assert_eq!(failed, Err(MetricError::Failed("no answer".into())));
        }
        let told =
            waits.call(to("a", "five"), LIMIT, async { Ok(1) }).await.expect_err("not asked");
        let text = "a gave no answer in time to the last 2 questions, and 2 others wait for one";
        assert_eq!(told.to_string(), text);
        assert_eq!(
            waits.call(to("b", "five"), LIMIT, async { Ok(1) }).await,
            Ok(1),
            "others are asked"
        );
        // One of those that wait gives up, and so another may ask; an answer, whatever it is, opens the place to all.
        standing[0].abort();
        wait_until_gone(&standing[0]).await;
        let refused = async { Err::<i32, _>(MetricError::Failed("503".into())) };
        let soon = waits.call(to("a", "five"), Duration::from_mins(1), refused).await;
        assert_eq!(soon, Err(MetricError::Failed("503".into())));
        let again = wait("three");
        tokio::task::yield_now().await;
        assert_eq!(waits.call(to("a", "five"), LIMIT, async { Ok(1) }).await, Ok(1));
        again.abort();
        standing[1].abort();
    }

    async fn wait_until_gone<T>(task: &tokio::task::JoinHandle<T>) {
        while !task.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Starts so many requests without an end, and waits until they are under way.
    async fn stuck(
        waits: &Arc<CircuitBreaker>,
        namespace: &'static str,
        count: usize,
    ) -> Vec<tokio::task::JoinHandle<Result<i32, MetricError>>> {
        let start = |number: usize| {
            let waits = Arc::clone(waits);
            tokio::spawn(async move {
                let service = format!("http://{namespace}/{number}");
                let call = ServiceCall { service: &service, kind: "recommenders", namespace };
                waits.call(call, Duration::from_mins(1), forever()).await
            })
        };
        let started: Vec<_> = (0..count).map(start).collect();
        tokio::time::sleep(SLOW_AFTER * 2).await;
        started
    }

    #[tokio::test(start_paused = true)]
    async fn recommenders_of_one_namespace_share_a_bound_whatever_their_addresses() {
        let waits = Arc::new(CircuitBreaker::new(4));
        let fine = |namespace| {
            let call = ServiceCall { service: "http://fine", kind: "recommenders", namespace };
            waits.call(call, LIMIT, async { Ok(1) })
        };
        let first = stuck(&waits, "a", 7).await;
        assert_eq!(fine("a").await, Ok(1), "there is room for one more slow request");
        let last = stuck(&waits, "a", 1).await;
        let told = fine("a").await.expect_err("not asked").to_string();
        assert!(
            told.contains("8 requests of namespace a to recommenders have been waiting"),
            "{told}"
        );
        assert_eq!(fine("b").await, Ok(1), "another namespace is not held up");
        let call = ServiceCall { service: "Prometheus", kind: "the Prometheus", namespace: "a" };
        assert_eq!(waits.call(call, LIMIT, async { Ok(1) }).await, Ok(1), "nor are other services");
        for task in first.iter().chain(&last) {
            task.abort();
            wait_until_gone(task).await;
        }
        assert_eq!(fine("a").await, Ok(1));
        assert!(waits.lock().is_empty(), "nothing is left of requests that have ended");
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_requests_time_out_does_not_keep_those_of_others_from_the_service() {
        let waits = Arc::new(CircuitBreaker::new(8));
        let of =
            |namespace| ServiceCall { service: "Prometheus", kind: "the Prometheus", namespace };
        for _ in 0..20 {
            waits.call(of("a"), LIMIT, silence()).await.expect_err("no answer");
        }
        let held: Vec<_> = (0..2)
            .map(|_| {
                let waits = Arc::clone(&waits);
                tokio::spawn(async move { waits.call(of("a"), LIMIT, forever()).await })
            })
            .collect();
        tokio::task::yield_now().await;
        let told = waits.call(of("a"), LIMIT, async { Ok(1) }).await.expect_err("not asked");
        assert!(told.to_string().contains("requests of namespace a to the Prometheus"), "{told}");
        assert_eq!(waits.call(of("b"), LIMIT, async { Ok(1) }).await, Ok(1));
        held.iter().for_each(tokio::task::JoinHandle::abort);
    }
}
