//! The record of one decision about replicas, the same for all kinds of autoscalers. Status, metrics and reports are
//! rendered from it, and the next decision takes from it since when a metric is in its state.

use serde::Serialize;
use strum::{EnumString, IntoStaticStr};

use super::{metric_source::Milli, restriction::Restriction};
use crate::{
    api::scale_decision::{
        MetricDecisionStatus, ScaleDecisionStatus, from_timestamp, to_timestamp,
    },
    types::{
        Time,
        quantity::{Format, Quantity},
    },
};

/// A decision with its intermediate results.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScaleDecision {
    pub at: Time,
    /// The replicas of the workload before; `None` if the scale cannot be read.
    pub current: Option<i32>,
    /// The evaluation of each metric, in the order of the spec.
    pub metrics: Vec<MetricDecision>,
    /// The replicas proposed by the metrics, if they propose any.
    pub proposed: Option<i32>,
    /// The proposed replicas within their limits.
    pub limited: Option<i32>,
    /// The desired replicas; `None` if nothing was decided.
    pub desired: Option<i32>,
    /// Why the replicas differ from what the metrics ask for.
    pub restrictions: Vec<Restriction>,
    /// Until when replicas are not changed, if known.
    pub held_until: Option<Time>,
    /// Since when the metrics that are needed are not available.
    pub unknown_since: Option<Time>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricDecision {
    /// The name, as used in labels.
    pub label: String,
    pub name: String,
    /// The value that was compared with the bounds, in thousandths.
    pub value: Option<f64>,
    /// Whether the value is a zero that was ignored.
    pub is_ignored: bool,
    /// The bounds within which the value requires no change.
    pub bounds: Option<MetricBounds>,
    /// The position of the value; `None` if the metric is not available.
    pub position: Option<Position>,
    /// Since when it is at this position, or not available.
    pub since: Option<Time>,
    pub proposal: Option<i32>,
    pub is_chosen: bool,
    /// Why the metric is not available.
    pub unknown: Option<UnknownMetric>,
}

/// The bounds of a value, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetricBounds {
    pub low: Milli,
    pub high: Milli,
    /// The low bound minus its tolerance: replicas are removed below it.
    pub tolerated_low: Milli,
    /// The high bound plus its tolerance: replicas are added above it.
    pub tolerated_high: Milli,
}

/// Why a metric is not available.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownMetric {
    pub reason: &'static str,
    pub message: String,
}

/// The position of a value relative to its bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Position {
    /// Above the high bound plus its tolerance.
    Above,
    /// Between the bounds, or beyond one by no more than the tolerance.
    Inside,
    /// Below the low bound minus its tolerance.
    Below,
}

impl ScaleDecision {
    /// Sets since when each metric is in its state, and since when the metrics are not available, if they are not.
    pub fn set_since(&mut self, previous: &Self, is_unknown: bool) {
        for (index, metric) in self.metrics.iter_mut().enumerate() {
            let before = previous.metrics.get(index);
            let same = before
                .filter(|before| before.name == metric.name && before.position == metric.position);
            metric.since = same.and_then(|same| same.since).or(Some(self.at));
        }
        self.unknown_since = is_unknown.then(|| previous.unknown_since.unwrap_or(self.at));
    }

    /// Since when each metric that is at this position is there.
    pub fn since_at(&self, position: Position) -> impl Iterator<Item = Time> {
        let at_position =
            self.metrics.iter().filter(move |metric| metric.position == Some(position));
        at_position.filter_map(|metric| metric.since)
    }

    /// The decision for the status of its object, which is written at this time.
    pub fn status(&self, at: Time) -> ScaleDecisionStatus {
        let restrictions = self.restrictions.iter();
        ScaleDecisionStatus {
            at: Some(to_timestamp(at)),
            sources: self.metrics.iter().map(MetricDecision::status).collect(),
            from: self.current.unwrap_or_default(),
            proposal: self.proposed,
            limited: self.limited,
            unknown_since: self.unknown_since.map(to_timestamp),
            held_until: self.held_until.map(to_timestamp),
            to: self.desired.or(self.current).unwrap_or_default(),
            restrictions: restrictions.map(|reason| reason.into_str().to_owned()).collect(),
        }
    }

    /// What the next decision needs of one in a status: the states of the metrics, so that the next leader continues with
    /// them.
    pub fn from_status(status: &ScaleDecisionStatus) -> Self {
        let metrics = status.sources.iter().map(|source| {
            let position = source.position.parse::<Position>().ok();
            let is_known = position.is_some() || source.position.is_empty();
            let since = source.since.as_ref().filter(|_| is_known).map(from_timestamp);
            MetricDecision {
                name: source.name.clone(),
                position,
                since,
                ..MetricDecision::default()
            }
        });
        Self {
            metrics: metrics.collect(),
            unknown_since: status.unknown_since.as_ref().map(from_timestamp),
            ..Self::default()
        }
    }
}

impl MetricDecision {
    /// The value, unless it is ignored.
    pub fn counted_value(&self) -> Option<f64> {
        self.value.filter(|_| !self.is_ignored)
    }

    fn status(&self) -> MetricDecisionStatus {
        let quantity = |milli| Quantity::from_milli(milli, Format::DecimalSi);
        let unknown = self.unknown.as_ref();
        let (reason, message) = unknown.map_or(("", ""), |why| (why.reason, &*why.message));
        MetricDecisionStatus {
            name: self.name.clone(),
            value: self.value.map(|value| quantity(value as Milli)),
            low: self.bounds.map(|bounds| quantity(bounds.tolerated_low)),
            high: self.bounds.map(|bounds| quantity(bounds.tolerated_high)),
            position: self.position.map_or("", Into::into).to_owned(),
            since: self.since.map(to_timestamp),
            proposal: self.proposal,
            chosen: self.is_chosen,
            unknown: reason.to_owned(),
            message: message.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decision(at: u32, states: &[(&str, Option<Position>)]) -> ScaleDecision {
        let metrics = states.iter().map(|(name, position)| MetricDecision {
            name: (*name).to_owned(),
            position: *position,
            ..MetricDecision::default()
        });
        let (at, metrics) = (Time::from_secs(at.into()), metrics.collect());
        ScaleDecision { at, metrics, ..ScaleDecision::default() }
    }

    #[test]
    fn an_unchanged_state_keeps_its_time_and_others_start_now() {
        let at = |second| Some(Time::from_secs(second));
        let (above, below) = (Some(Position::Above), Some(Position::Below));
        let since = |decision: &ScaleDecision| -> Vec<Option<Time>> {
            decision.metrics.iter().map(|metric| metric.since).collect()
        };
        let mut first = decision(10, &[("a", above), ("b", above), ("c", None)]);
        first.set_since(&ScaleDecision::default(), true);
        assert_eq!((first.unknown_since, since(&first)), (at(10), vec![at(10); 3]));
        assert_eq!(first.since_at(Position::Above).count(), 2);
        let mut second = decision(20, &[("a", above), ("b", below), ("d", None)]);
        second.set_since(&first, true);
        let found = (second.unknown_since, since(&second));
        assert_eq!(found, (at(10), vec![at(10), at(20), at(20)]));
        let mut third = decision(30, &[("a", None)]);
        third.set_since(&second, false);
        assert_eq!((third.unknown_since, since(&third)), (None, vec![at(30)]));
        // The next leader continues with what is in the status, but not with a word that it does not know.
        let mut status = second.status(second.at);
        status.sources[1].position = "elsewhere".to_owned();
        let mut restored = decision(40, &[("a", above), ("b", None), ("d", None)]);
        restored.set_since(&ScaleDecision::from_status(&status), true);
        let found = (restored.unknown_since, since(&restored));
        assert_eq!(found, (at(10), vec![at(10), at(40), at(20)]));
    }
}
