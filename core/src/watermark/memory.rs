//! What is remembered from look to look: where each metric lay, and since when; since when nothing is known.

use crate::types::Time;

use super::{
    band::Position,
    combine::{Combined, Row, Uncomputable},
    conditions::{stamp, time},
    gate::Since,
};
use crate::{
    api::trace::{Trace, TracedSource},
    scaling::{
        self, Unknown, Unready,
        memory::{Found, Remembered},
    },
};

/// What is remembered of an object. It is told in the object's status, so that whoever leads next goes on with it.
pub type Memory = scaling::Memory<Position>;

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
        // Pods that are not ready are no silence of a metric: nobody asked for it.
        let is_unknown = match combined {
            Err(Uncomputable::Source { why: Unknown::Unready(why), .. }) => {
                matches!(why, Unready::NoUsage)
            }
            Err(Uncomputable::Source { .. }) => true,
            Err(Uncomputable::NoSource | Uncomputable::Blocked(_)) | Ok(_) => false,
        };
        let found = rows.iter().map(|row| {
            let found = match &row.outcome {
                Ok(asked) => Found::At(asked.proposal.position),
                Err(_) => Found::Unknown,
            };
            (row.name.as_str(), found)
        });
        self.then(found, is_unknown, now)
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

    /// Tells it in a status.
    pub fn tell(&self, trace: &mut Trace) {
        trace.unknown_since = self.unknown.map(stamp);
        for (traced, one) in trace.sources.iter_mut().zip(&self.sources) {
            let TracedSource { since, .. } = traced;
            *since = Some(stamp(one.since));
        }
    }
}
