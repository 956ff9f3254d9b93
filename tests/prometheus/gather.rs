//! A visitor that keeps what counts, and clients with little patience.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::answer::{Labels, Series, Wants};
use plimsoll_storage::prometheus::client::{Client, Limits};
use plimsoll_storage::prometheus::door::{Door, DoorConfig, Transport, Wall};

use crate::support::clock::wall_now;

/// Series by their labels as text; values by their bits, so that NaN equals itself.
pub type Gathered = BTreeMap<String, Vec<(Time, u64)>>;

/// Keeps what has been declared whole apart from what has not.
#[derive(Debug, Default)]
pub struct Gather {
    /// What counts.
    pub whole: Gathered,
    /// What came since.
    pub part: Vec<(String, Vec<(Time, u64)>)>,
    /// Series that ended.
    pub ends: usize,
    pub finishes: usize,
    pub discards: usize,
}

impl Series for Gather {
    fn begin(&mut self, labels: Labels<'_>) -> Wants {
        let labels: BTreeMap<_, _> = labels.iter().collect();
        self.part.push((format!("{labels:?}"), Vec::new()));
        Wants::Points
    }

    fn point(&mut self, at: Time, value: f64) {
        let series = self.part.last_mut().expect("a series began");
        assert!(series.1.last().is_none_or(|(before, _)| *before < at), "points are in order");
        series.1.push((at, value.to_bits()));
    }

    fn end(&mut self) {
        self.ends += 1;
        assert_eq!(self.ends, self.part.len(), "each series ends before the next begins");
    }

    fn finish(&mut self) {
        assert_eq!(self.ends, self.part.len(), "all series ended");
        for (labels, points) in std::mem::take(&mut self.part) {
            self.whole.entry(labels).or_default().extend(points);
        }
        self.ends = 0;
        self.finishes += 1;
    }

    fn discard(&mut self) {
        self.part.clear();
        self.ends = 0;
        self.discards += 1;
    }
}

/// Limits that let a test fail soon.
pub fn hasty() -> Limits {
    Limits {
        timeout: Duration::from_secs(30),
        attempts: 3,
        first_pause: Duration::from_millis(10),
        longest_pause: Duration::from_millis(50),
        ..Limits::default()
    }
}

/// The way to a server without any sign-in.
pub fn door(url: &str) -> Arc<dyn Transport> {
    let config = DoorConfig { address: url.to_owned(), ..DoorConfig::default() };
    Arc::new(Door::new(config, Wall::new(|| wall_now().into())).expect("an address"))
}

/// A client without any sign-in.
pub fn client(url: &str, limits: Limits) -> Client {
    Client::new(door(url), limits)
}
