//! PromQL queries of objects, through a circuit breaker: a server that does not respond keeps few callers waiting.

use super::{
    circuit_breaker::{CircuitBreaker, ServiceCall},
    promql::PromqlCache,
};
use plimsoll_core::{
    scaling::{MetricError, MetricValue},
    types::Time,
};

const PROMETHEUS: &str = "Prometheus";

/// Sends the queries of objects to the configured Prometheus server.
#[derive(Debug)]
pub struct QueryClient {
    /// `None` if no server is configured.
    pub(super) promql: Option<PromqlCache>,
    circuit_breaker: CircuitBreaker,
}

impl QueryClient {
    /// At most `max_in_flight` queries wait for an unresponsive server.
    pub fn new(promql: Option<PromqlCache>, max_in_flight: usize) -> Self {
        Self { promql, circuit_breaker: CircuitBreaker::new(max_in_flight) }
    }

    /// The sum of the result of a query of an object in this namespace, which has used all results up to `used_until`.
    pub async fn fetch(
        &self,
        namespace: &str,
        query: &str,
        now: Time,
        used_until: Option<Time>,
    ) -> Result<MetricValue, MetricError> {
        let Some(promql) = &self.promql else {
            let why = "no Prometheus server is configured: set --prometheus-address";
            return Err(MetricError::Failed(why.to_owned()));
        };
        let call = ServiceCall { service: PROMETHEUS, kind: PROMETHEUS, namespace };
        let request = promql.get(namespace, query, now, used_until);
        self.circuit_breaker.call(call, promql.timeout(), request).await
    }
}
