//! Which series there were, by their labels alone.

use std::time::Duration;

use super::{PrometheusClient, QueryStats, request};
use crate::prometheus::{
    decode::{ResponseDecoder, SeriesVisitor},
    query_error::QueryError,
    selector::Selector,
};
use plimsoll_core::types::Time;

pub(super) const PATH: &str = "/api/v1/series";

impl PrometheusClient {
    /// Streams the labels of the series that were there within a time. The index of the server has them, so no sample
    /// is read. Of jobs that run each minute these are many, so none is held.
    pub async fn series<S: SeriesVisitor + ?Sized>(
        &self,
        selector: &Selector,
        (from, to): (Time, Time),
        visitor: &mut S,
    ) -> Result<QueryStats, QueryError> {
        let form = [
            ("match[]", selector.to_string()),
            ("start", request::time(from)),
            ("end", request::time(to.later(Duration::from_secs(1)))),
        ];
        self.query_with_retries(PATH, &form, ResponseDecoder::for_series_list, visitor)
            .await
            .map(|(_, tally)| tally)
    }
}
