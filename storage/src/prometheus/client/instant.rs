//! What is so at one moment.

use super::{Client, Tally, exchange};
use crate::prometheus::{
    answer::{Reader, Series, Summary},
    failure::Failure,
    query::Query,
};
use plimsoll_core::types::Time;

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
        self.answer(query, at, visitor).await.map(|(_, tally)| tally)
    }

    /// As [`Self::instant`], with the summary of the answer that counts: what type its result has, and what the server
    /// said besides.
    pub async fn answer<S: Series + ?Sized>(
        &self,
        query: &Query,
        at: Time,
        visitor: &mut S,
    ) -> Result<(Summary, Tally), Failure> {
        let form = [("query", query.to_string()), ("time", exchange::time(at))];
        self.persist(PATH, &form, Reader::new, visitor).await
    }
}
