//! Which series there were, by their labels alone.

use std::time::Duration;

use super::{Client, Tally, exchange};
use crate::prometheus::{
    answer::{Reader, Series},
    failure::Failure,
    selector::Selector,
};
use plimsoll_core::types::Time;

pub(super) const PATH: &str = "/api/v1/series";

impl Client {
    /// Streams the labels of the series that were there within a time. The index of the server has them, so no sample
    /// is read. Of jobs that run each minute these are many, so none is held.
    pub async fn series<S: Series + ?Sized>(
        &self,
        selector: &Selector,
        (from, to): (Time, Time),
        visitor: &mut S,
    ) -> Result<Tally, Failure> {
        let form = [
            ("match[]", selector.to_string()),
            ("start", exchange::time(from)),
            ("end", exchange::time(to.later(Duration::from_secs(1)))),
        ];
        self.persist(PATH, &form, Reader::of_series, visitor).await.map(|(_, tally)| tally)
    }
}
