//! What is remembered from look to look: how each source was found, and since when; since when no number is known.

use crate::types::Time;

/// How a source was found. `P` is a role's own word for what its value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<P> {
    /// What its value meant.
    At(P),
    /// It said nothing.
    Unknown,
}

/// One source, as it was found last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remembered<P> {
    /// Its name, with its selector.
    pub name: String,
    /// How it was found.
    pub found: Found<P>,
    /// Since when it is found so.
    pub since: Time,
}

/// What is remembered of an object. It is told in the object itself, so that whoever leads next goes on with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Memory<P> {
    /// Since when no number of replicas is known.
    pub unknown: Option<Time>,
    /// Its sources, in their order.
    pub sources: Vec<Remembered<P>>,
}

impl<P> Default for Memory<P> {
    fn default() -> Self {
        Self { unknown: None, sources: Vec::new() }
    }
}

impl<P: Copy + PartialEq> Memory<P> {
    /// What is to be remembered after a look that found these, by their names and in their order.
    #[must_use]
    pub fn then<'a>(
        &self,
        found: impl Iterator<Item = (&'a str, Found<P>)>,
        is_unknown: bool,
        now: Time,
    ) -> Self {
        let sources = found.enumerate().map(|(place, (name, found))| {
            let before = self.sources.get(place);
            let same = before.filter(|before| before.name == name && before.found == found);
            Remembered { name: name.to_owned(), found, since: same.map_or(now, |same| same.since) }
        });
        Self {
            unknown: is_unknown.then(|| self.unknown.unwrap_or(now)),
            sources: sources.collect(),
        }
    }

    /// Since when each source is found so that is.
    pub fn at(&self, position: P) -> impl Iterator<Item = Time> {
        let there = self.sources.iter().filter(move |one| one.found == Found::At(position));
        there.map(|one| one.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_as_before_keeps_its_time_and_all_else_begins_now() {
        let at = Time::from_secs;
        let first = Memory::default().then(
            [("a", Found::At('x')), ("b", Found::At('x')), ("c", Found::Unknown)].into_iter(),
            true,
            at(10),
        );
        assert_eq!((first.unknown, first.at('x').count()), (Some(at(10)), 2));
        let second = first.then(
            [("a", Found::At('x')), ("b", Found::At('y')), ("d", Found::Unknown)].into_iter(),
            true,
            at(20),
        );
        let since: Vec<Time> = second.sources.iter().map(|one| one.since).collect();
        assert_eq!((second.unknown, since), (Some(at(10)), vec![at(10), at(20), at(20)]));
        let third = second.then([("a", Found::Unknown)].into_iter(), false, at(30));
        assert_eq!((third.unknown, third.sources[0].since), (None, at(30)));
    }
}
