//! What is so at one moment.

use super::{PrometheusClient, QueryStats, request};
use crate::prometheus::{
    decode::{ResponseDecoder, ResponseSummary, SeriesVisitor},
    promql::Query,
    query_error::QueryError,
};
use plimsoll_core::types::Time;

const PATH: &str = "/api/v1/query";

impl PrometheusClient {
    /// Streams what a query answers at a moment. Asks again when the server is busy or away, until the attempts are
    /// used up.
    pub async fn instant<S: SeriesVisitor + ?Sized>(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut S,
    ) -> Result<QueryStats, QueryError> {
        self.instant_with_summary(query, at, visitor).await.map(|(_, tally)| tally)
    }

    /// As [`Self::instant`], with the summary of the answer that counts: what type its result has, and what the server
    /// said besides.
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
