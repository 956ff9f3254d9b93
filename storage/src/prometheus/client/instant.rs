//! What is so at one moment.

use super::{Client, Tally, exchange, pace};
use crate::{
    Time,
    prometheus::{
        answer::{Series, Summary},
        failure::Failure,
        query::Query,
    },
};

const PATH: &str = "/api/v1/query";

impl Client {
    /// Streams what a query answers at a moment. Asks again when the server is busy or away, until the attempts are
    /// used up.
    pub async fn instant<S: Series + ?Sized>(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut S,
    ) -> Result<Tally, Failure> {
        self.ask(query, at, visitor).await.map(|(_, tally)| tally)
    }

    /// As [`Self::instant`], with the summary of the answer that counts.
    pub(super) async fn ask<S: Series + ?Sized>(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut S,
    ) -> Result<(Summary, Tally), Failure> {
        let form = [("query", query.to_string()), ("time", exchange::time(at))];
        let mut tally = Tally::default();
        let mut failures = 0;
        loop {
            let failure = match self.exchange(PATH, &form, visitor).await {
                Ok((summary, time)) => {
                    tally.add(summary.clone(), time);
                    return Ok((summary, tally));
                }
                Err(failure) => failure,
            };
            failures += 1;
            if !failure.is_passing() || failures >= self.limits.attempts {
                return Err(failure);
            }
            tally.retries += 1;
            let wait = pace::pause(&self.limits, failures, &failure);
            tracing::debug!(%failure, ?wait, "a query is asked again");
            tokio::time::sleep(wait).await;
        }
    }
}
