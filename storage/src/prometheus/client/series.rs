//! Lists series by their labels.

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
    /// Streams the labels of the series that existed within a time range. The server reads them from its index and reads no
    /// samples. Jobs that run every minute create many series, so none is held in memory.
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
            .map(|(_, stats)| stats)
    }
}
