//! A visitor that collects series, and clients with short timeouts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{FutureExt as _, stream};
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::client::{PrometheusClient, QueryLimits};
use plimsoll_storage::prometheus::decode::{
    DecodeError, Interest, Labels, ResponseKind, ResponseSummary, SeriesVisitor, decode_response,
};
use plimsoll_storage::prometheus::transport::{
    HttpTransport, Transport, TransportConfig, WallClock,
};

use crate::support::clock::wall_now;

/// Decodes a response that arrives in these pieces.
pub fn decode<'a>(
    pieces: impl IntoIterator<Item = &'a [u8]>,
    kind: ResponseKind,
    visitor: &mut impl SeriesVisitor,
) -> Result<ResponseSummary, DecodeError> {
    let pieces = pieces.into_iter().map(|piece| Ok(Bytes::copy_from_slice(piece)));
    let decoded = decode_response(stream::iter(pieces), kind, visitor, |_, _| Ok(()));
    decoded.now_or_never().expect("all pieces have arrived")
}

/// Series by their labels as text; values as bits, so that NaN equals itself.
pub type SeriesByLabels = BTreeMap<String, Vec<(Time, u64)>>;

/// Keeps completed samples apart from incomplete ones.
#[derive(Debug, Default)]
pub struct SeriesCollector {
    /// Completed samples.
    pub complete: SeriesByLabels,
    /// Samples since the last completion.
    pub incomplete: Vec<(String, Vec<(Time, u64)>)>,
    /// Number of series that ended.
    pub ends: usize,
    pub finishes: usize,
    pub discards: usize,
}

impl SeriesVisitor for SeriesCollector {
    fn begin(&mut self, labels: Labels<'_>) -> Interest {
        let labels: BTreeMap<_, _> = labels.iter().collect();
        self.incomplete.push((format!("{labels:?}"), Vec::new()));
        Interest::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        let series = self.incomplete.last_mut().expect("series has started");
        assert!(series.1.last().is_none_or(|(before, _)| *before < at), "points are in order");
        series.1.push((at, value.to_bits()));
    }

    fn end(&mut self) {
        self.ends += 1;
        assert_eq!(self.ends, self.incomplete.len(), "each series ends before the next begins");
    }

    fn finish(&mut self) {
        assert_eq!(self.ends, self.incomplete.len(), "all series ended");
        for (labels, points) in std::mem::take(&mut self.incomplete) {
            self.complete.entry(labels).or_default().extend(points);
        }
        self.ends = 0;
        self.finishes += 1;
    }

    fn discard(&mut self) {
        self.incomplete.clear();
        self.ends = 0;
        self.discards += 1;
    }
}

/// Limits that let a test fail quickly.
pub fn short_limits() -> QueryLimits {
    QueryLimits {
        timeout: Duration::from_secs(30),
        max_attempts: 3,
        initial_backoff: Duration::from_millis(10),
        max_backoff: Duration::from_millis(50),
        ..QueryLimits::default()
    }
}

/// A transport without authentication.
pub fn transport(url: &str) -> Arc<dyn Transport> {
    let config = TransportConfig { address: url.to_owned(), ..TransportConfig::default() };
    Arc::new(HttpTransport::new(config, WallClock::new(|| wall_now().into())).expect("an address"))
}

/// A client without authentication.
pub fn client(url: &str, limits: QueryLimits) -> PrometheusClient {
    PrometheusClient::new(transport(url), limits)
}
