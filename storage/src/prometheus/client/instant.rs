//! Instant queries.

use super::{PrometheusClient, QueryStats, request};
use crate::prometheus::{
    decode::{ResponseDecoder, ResponseSummary, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
};
use plimsoll_core::types::Time;

const PATH: &str = "/api/v1/query";

impl PrometheusClient {
    /// Streams the result of an instant query. Retries while the server is busy or unavailable, up to the maximum number of
    /// attempts.
    pub async fn instant<S: SeriesVisitor + ?Sized>(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut S,
    ) -> Result<QueryStats, QueryError> {
        self.instant_with_summary(query, at, visitor).await.map(|(_, stats)| stats)
    }

    /// Like [`Self::instant`], but also returns the summary of the response: the type of the result, and the server's
    /// warnings.
    pub async fn instant_with_summary<S: SeriesVisitor + ?Sized>(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut S,
    ) -> Result<(ResponseSummary, QueryStats), QueryError> {
        let form = [("query", query.to_string()), ("time", request::time(at))];
        self.query_with_retries(PATH, &form, ResponseDecoder::new, visitor).await
    }
}
