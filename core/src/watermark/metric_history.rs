//! What is remembered from look to look: where each metric lay, and since when; since when nothing is known.

use crate::types::Time;

use super::{
    band::Position,
    combine::{CombinedProposal, MetricEvaluation, ProposalError},
    conditions::{from_timestamp, to_timestamp},
    cooldown::StateSince,
};
use crate::{
    api::scale_decision::{MetricDecision, ScaleDecision},
    scaling::{
        self, MetricError, PodsNotReady,
        metric_history::{MetricRecord, MetricState},
    },
};

/// What is remembered of an object. It is told in the object's status, so that whoever leads next goes on with it.
pub type MetricHistory = scaling::MetricHistory<Position>;

impl MetricHistory {
    /// What the status of an object tells.
    pub fn from_decision(trace: &ScaleDecision) -> Self {
        let sources = trace.sources.iter().filter_map(|source| {
            let found = match source.position.as_str() {
                "" => MetricState::Unknown,
                word => MetricState::At(Position::from_word(word)?),
            };
            let since = from_timestamp(source.since.as_ref()?);
            Some(MetricRecord { name: source.name.clone(), state: found, since })
        });
        Self {
            unknown_since: trace.unknown_since.as_ref().map(from_timestamp),
            metrics: sources.collect(),
        }
    }

    /// What is to be remembered after a look that found this.
    #[must_use]
    pub fn next_after(
        &self,
        rows: &[MetricEvaluation],
        combined: &Result<CombinedProposal, ProposalError>,
        now: Time,
    ) -> Self {
        // Pods that are not ready are no silence of a metric: nobody asked for it.
        let is_unknown = match combined {
            Err(ProposalError::Metric { why: MetricError::PodsNotReady(why), .. }) => {
                matches!(why, PodsNotReady::NoUsage)
            }
            Err(ProposalError::Metric { .. }) => true,
            Err(ProposalError::NoMetrics | ProposalError::Blocked(_)) | Ok(_) => false,
        };
        let found = rows.iter().map(|row| {
            let found = match &row.result {
                Ok(asked) => MetricState::At(asked.proposal.position),
                Err(_) => MetricState::Unknown,
            };
            (row.name.as_str(), found)
        });
        self.next(found, is_unknown, now)
    }

    /// Since when one and the same metric is above its band: that which is for the longest.
    pub fn longest_above(&self) -> Option<StateSince> {
        let above = self.since_at(Position::Above).min();
        above.map(|at| StateSince { holds: true, at })
    }

    /// Since when every metric that is below its band is there: the last that came.
    pub fn all_below(&self) -> Option<StateSince> {
        let below = self.since_at(Position::Below).max();
        below.map(|at| StateSince { holds: true, at })
    }

    /// Tells it in a status.
    pub fn write_to(&self, trace: &mut ScaleDecision) {
        trace.unknown_since = self.unknown_since.map(to_timestamp);
        for (traced, one) in trace.sources.iter_mut().zip(&self.metrics) {
            let MetricDecision { since, .. } = traced;
            *since = Some(to_timestamp(one.since));
        }
    }
}
