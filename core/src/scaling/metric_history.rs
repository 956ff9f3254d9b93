//! What is remembered from look to look: how each source was found, and since when; since when no number is known.

use crate::types::Time;

/// How a source was found. `P` is a role's own word for what its value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricState<P> {
    /// What its value meant.
    At(P),
    /// It said nothing.
    Unknown,
}

/// One source, as it was found last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricRecord<P> {
    /// Its name, with its selector.
    pub name: String,
    /// How it was found.
    pub state: MetricState<P>,
    /// Since when it is found so.
    pub since: Time,
}

/// What is remembered of an object. It is told in the object itself, so that whoever leads next goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricHistory<P> {
    /// Since when no number of replicas is known.
    pub unknown_since: Option<Time>,
    /// Its sources, in their order.
    pub metrics: Vec<MetricRecord<P>>,
}

impl<P> Default for MetricHistory<P> {
    fn default() -> Self {
        Self { unknown_since: None, metrics: Vec::new() }
    }
}

impl<P: Copy + PartialEq> MetricHistory<P> {
    /// What is to be remembered after a look that found these, by their names and in their order.
    #[must_use]
    pub fn next<'a>(
        &self,
        found: impl Iterator<Item = (&'a str, MetricState<P>)>,
        is_unknown: bool,
        now: Time,
    ) -> Self {
        let sources = found.enumerate().map(|(place, (name, found))| {
            let before = self.metrics.get(place);
            let same = before.filter(|before| before.name == name && before.state == found);
            MetricRecord {
                name: name.to_owned(),
                state: found,
                since: same.map_or(now, |same| same.since),
            }
        });
        Self {
            unknown_since: is_unknown.then(|| self.unknown_since.unwrap_or(now)),
            metrics: sources.collect(),
        }
    }

    /// Since when each source is found so that is.
    pub fn since_at(&self, position: P) -> impl Iterator<Item = Time> {
        let there = self.metrics.iter().filter(move |one| one.state == MetricState::At(position));
        there.map(|one| one.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_as_before_keeps_its_time_and_all_else_begins_now() {
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
        let since: Vec<Time> = second.metrics.iter().map(|one| one.since).collect();
        assert_eq!((second.unknown_since, since), (Some(at(10)), vec![at(10), at(20), at(20)]));
        let third = second.next([("a", MetricState::Unknown)].into_iter(), false, at(30));
        assert_eq!((third.unknown_since, third.metrics[0].since), (None, at(30)));
    }
}
