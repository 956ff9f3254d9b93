//! State between reconciles: the state of each metric and since when, and since when no replica count is available.

use crate::types::Time;

/// The state of a metric. `P` is the controller's own type for the position of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricState<P> {
    /// The value is at this position.
    At(P),
    /// The metric was not available.
    Unknown,
}

/// The last state of one metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRecord<P> {
    /// The metric name with its selector.
    pub name: String,
    /// The last state.
    pub state: MetricState<P>,
    /// When it entered that state.
    pub since: Time,
}

/// The metric history of an object. It is stored in the object itself, so that the next leader continues with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricHistory<P> {
    /// Since when no replica count is available.
    pub unknown_since: Option<Time>,
    /// The metrics, in the order of the spec.
    pub metrics: Vec<MetricRecord<P>>,
}

impl<P> Default for MetricHistory<P> {
    fn default() -> Self {
        Self { unknown_since: None, metrics: Vec::new() }
    }
}

impl<P: Copy + PartialEq> MetricHistory<P> {
    /// The history after a reconcile that observed these states, given by metric name and in the order of the spec.
    #[must_use]
    pub fn next<'a>(
        &self,
        found: impl Iterator<Item = (&'a str, MetricState<P>)>,
        is_unknown: bool,
        now: Time,
    ) -> Self {
        let metrics = found.enumerate().map(|(index, (name, state))| {
            let before = self.metrics.get(index);
            let same = before.filter(|before| before.name == name && before.state == state);
            MetricRecord {
                name: name.to_owned(),
                state,
                since: same.map_or(now, |same| same.since),
            }
        });
        Self {
            unknown_since: is_unknown.then(|| self.unknown_since.unwrap_or(now)),
            metrics: metrics.collect(),
        }
    }

    /// When each metric entered the given position, for those that are there.
    pub fn since_at(&self, position: P) -> impl Iterator<Item = Time> {
        let at_position =
            self.metrics.iter().filter(move |record| record.state == MetricState::At(position));
        at_position.map(|record| record.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unchanged_finding_keeps_its_time_and_others_start_now() {
        let at = Time::from_secs;
        let first = MetricHistory::default().next(
            [("a", MetricState::At('x')), ("b", MetricState::At('x')), ("c", MetricState::Unknown)]
                .into_iter(),
            true,
            at(10),
        );
        assert_eq!((first.unknown_since, first.since_at('x').count()), (Some(at(10)), 2));
        let second = first.next(
            [("a", MetricState::At('x')), ("b", MetricState::At('y')), ("d", MetricState::Unknown)]
                .into_iter(),
            true,
            at(20),
        );
        let since: Vec<Time> = second.metrics.iter().map(|record| record.since).collect();
        assert_eq!((second.unknown_since, since), (Some(at(10)), vec![at(10), at(20), at(20)]));
        let third = second.next([("a", MetricState::Unknown)].into_iter(), false, at(30));
        assert_eq!((third.unknown_since, third.metrics[0].since), (None, at(30)));
    }
}
