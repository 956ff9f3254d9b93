//! What is remembered from look to look: where each metric lay, and since when; since when nothing is known.

use plimsoll_storage::Time;

use super::{
    band::Position,
    combine::{Combined, Row, Uncomputable},
    conditions::{stamp, time},
    gate::Since,
};
use crate::api::trace::{Trace, TracedSource};

/// How a metric was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Where it lay.
    At(Position),
    /// It said nothing.
    Unknown,
}

/// One metric, as it was found last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered {
    /// Its name, with its selector.
    pub name: String,
    /// How it was found.
    pub found: Found,
    /// Since when it is found so.
    pub since: Time,
}

/// What is remembered of an object. It is told in the object's status, so that whoever leads next goes on with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Since when no number of replicas is known.
    pub unknown: Option<Time>,
    /// Its metrics, in their order.
    pub sources: Vec<Remembered>,
}

impl Memory {
    /// What the status of an object tells.
    pub fn of(trace: &Trace) -> Self {
        let sources = trace.sources.iter().filter_map(|source| {
            let found = match source.position.as_str() {
                "" => Found::Unknown,
                word => Found::At(Position::of(word)?),
            };
            let since = time(source.since.as_ref()?);
            Some(Remembered { name: source.name.clone(), found, since })
        });
        Self { unknown: trace.unknown_since.as_ref().map(time), sources: sources.collect() }
    }

    /// What is to be remembered after a look that found this.
    #[must_use]
    pub fn after(
        &self,
        rows: &[Row],
        combined: &Result<Combined, Uncomputable>,
        now: Time,
    ) -> Self {
        let is_unknown = matches!(combined, Err(Uncomputable::Source { .. }));
        let sources = rows.iter().enumerate().map(|(place, row)| {
            let found = match &row.outcome {
                Ok(asked) => Found::At(asked.proposal.position),
                Err(_) => Found::Unknown,
            };
            let before = self.sources.get(place);
            let same = before.filter(|before| before.name == row.name && before.found == found);
            Remembered { name: row.name.clone(), found, since: same.map_or(now, |same| same.since) }
        });
        Self {
            unknown: is_unknown.then(|| self.unknown.unwrap_or(now)),
            sources: sources.collect(),
        }
    }

    /// Since when one and the same metric is above its band: that which is for the longest.
    pub fn longest_above(&self) -> Option<Since> {
        let above = self.at(Position::Above).min();
        above.map(|at| Since { holds: true, at })
    }

    /// Since when every metric that is below its band is there: the last that came.
    pub fn all_below(&self) -> Option<Since> {
        let below = self.at(Position::Below).max();
        below.map(|at| Since { holds: true, at })
    }

    fn at(&self, position: Position) -> impl Iterator<Item = Time> {
        let there = self.sources.iter().filter(move |one| one.found == Found::At(position));
        there.map(|one| one.since)
    }

    /// Tells it in a status.
    pub fn tell(&self, trace: &mut Trace) {
        trace.unknown_since = self.unknown.map(stamp);
        for (traced, one) in trace.sources.iter_mut().zip(&self.sources) {
            let TracedSource { since, .. } = traced;
            *since = Some(stamp(one.since));
        }
    }
}
