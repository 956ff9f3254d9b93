//! State between reconciles: the position of each metric and since when, and since when no metric is available.

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

/// The metric history of an object. It is stored in the object's status, so that the next leader continues with it.
pub type MetricHistory = scaling::MetricHistory<Position>;

impl MetricHistory {
    /// Reads the history from the decision in the object's status.
    pub fn from_decision(trace: &ScaleDecision) -> Self {
        let metrics = trace.sources.iter().filter_map(|source| {
            let state = match source.position.as_str() {
                "" => MetricState::Unknown,
                word => MetricState::At(Position::from_word(word)?),
            };
            let since = from_timestamp(source.since.as_ref()?);
            Some(MetricRecord { name: source.name.clone(), state, since })
        });
        Self {
            unknown_since: trace.unknown_since.as_ref().map(from_timestamp),
            metrics: metrics.collect(),
        }
    }

    /// The history after a reconcile with these results.
    #[must_use]
    pub fn next_after(
        &self,
        rows: &[MetricEvaluation],
        combined: &Result<CombinedProposal, ProposalError>,
        now: Time,
    ) -> Self {
        // If pods are not ready, the metric was not queried, so it does not count as unavailable.
        let is_unknown = match combined {
            Err(ProposalError::Metric { why: MetricError::PodsNotReady(why), .. }) => {
                matches!(why, PodsNotReady::NoUsage)
            }
            Err(ProposalError::Metric { .. }) => true,
            Err(ProposalError::NoMetrics | ProposalError::Blocked(_)) | Ok(_) => false,
        };
        let states = rows.iter().map(|row| {
            let state = match &row.result {
                Ok(metric) => MetricState::At(metric.proposal.position),
                Err(_) => MetricState::Unknown,
            };
            (row.name.as_str(), state)
        });
        self.next(states, is_unknown, now)
    }

    /// Since when the metric that has been above its band the longest has been there.
    pub fn longest_above(&self) -> Option<StateSince> {
        let above = self.since_at(Position::Above).min();
        above.map(|at| StateSince { holds: true, at })
    }

    /// Since when all metrics that are below their bands have been there.
    pub fn all_below(&self) -> Option<StateSince> {
        let below = self.since_at(Position::Below).max();
        below.map(|at| StateSince { holds: true, at })
    }

    /// Stores the history in the decision of a status.
    pub fn write_to(&self, trace: &mut ScaleDecision) {
        trace.unknown_since = self.unknown_since.map(to_timestamp);
        for (traced, record) in trace.sources.iter_mut().zip(&self.metrics) {
            let MetricDecision { since, .. } = traced;
            *since = Some(to_timestamp(record.since));
        }
    }
}
