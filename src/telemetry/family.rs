//! The series of one name, by the values of their labels; never more of them than the family allows.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::{definition::Definition, instruments::Instrument, text::write_labels};

/// The value of every label of the series that takes what there is no room for.
pub const OVERFLOW_LABEL: &str = "other";

/// The series of one name.
#[derive(Debug)]
pub struct Family<V, const LABELS: usize = 0> {
    definition: Definition,
    limit: usize,
    /// In order of labels, as client libraries print them.
    series: RwLock<Vec<Entry<V, LABELS>>>,
}

#[derive(Debug)]
struct Entry<V, const LABELS: usize> {
    values: [Box<str>; LABELS],
    rendered_labels: Arc<str>,
    value: Arc<V>,
}

/// One series, ready to be written.
#[derive(Clone)]
pub struct Series {
    /// `name="value",...`
    pub labels: Arc<str>,
    /// Its value.
    pub value: Arc<dyn Instrument>,
}

/// A family without the type of its values.
pub trait Collector: Send + Sync {
    /// What it is.
    fn definition(&self) -> &Definition;

    /// Its series as of now.
    fn series(&self) -> Vec<Series>;
}

impl<V: Instrument, const LABELS: usize> Family<V, LABELS> {
    /// A family of at most `limit` series. What comes on top of that counts into one whose labels all say `other`:
    /// labels that somebody else chooses must not grow without bounds.
    pub fn new(definition: Definition, limit: usize) -> Self {
        debug_assert_eq!(definition.labels.len(), LABELS, "{}", definition.name);
        Self { definition, limit, series: RwLock::default() }
    }

    /// The value of the series with these labels, if there is one.
    pub fn find(&self, labels: [&str; LABELS]) -> Option<Arc<V>> {
        let series = self.read();
        position(&series, &labels).ok().map(|found| series[found].value.clone())
    }

    /// The value of the series with these labels, which exists from now on.
    pub fn with_labels(&self, labels: [&str; LABELS]) -> Arc<V> {
        if let Some(found) = self.find(labels) {
            return found;
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let labels =
            if series.len() < self.limit.max(1) { labels } else { [OVERFLOW_LABEL; LABELS] };
        match position(&series, &labels) {
            Ok(found) => series[found].value.clone(),
            Err(place) => {
                let mut written = String::new();
                write_labels(&mut written, self.definition.labels, &labels);
                let value = Arc::new(V::new(&self.definition));
                let values = labels.map(Box::from);
                series.insert(
                    place,
                    Entry { values, rendered_labels: written.into(), value: value.clone() },
                );
                value
            }
        }
    }

    /// Ends the series whose labels are not to be kept.
    pub fn retain(&self, keep: impl Fn(&[Box<str>; LABELS]) -> bool) {
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        series.retain(|entry| keep(&entry.values));
    }

    /// Visits the values of all series that there are.
    pub fn for_each(&self, visit: impl Fn(&V)) {
        self.read().iter().for_each(|entry| visit(&entry.value));
    }

    fn read(&self) -> RwLockReadGuard<'_, Vec<Entry<V, LABELS>>> {
        self.series.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<V: Instrument + 'static, const LABELS: usize> Collector for Family<V, LABELS> {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn series(&self) -> Vec<Series> {
        let series = self.read();
        let copied = series.iter().map(|Entry { rendered_labels: written, value, .. }| Series {
            labels: written.clone(),
            value: value.clone(),
        });
        copied.collect()
    }
}

fn position<V, const LABELS: usize>(
    series: &[Entry<V, LABELS>],
    labels: &[&str; LABELS],
) -> Result<usize, usize> {
    series.binary_search_by(|entry| {
        entry.values.iter().map(AsRef::as_ref).cmp(labels.iter().copied())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::{definition::counter, instruments::Counter};

    #[test]
    fn a_family_has_no_more_series_than_it_may_and_loses_no_count() {
        let definition = counter("x", "").labels(&["a"], "2");
        let family = Family::<Counter, 1>::new(definition, 2);
        for label in ["q", "p", "r", "s", "q"] {
            family.with_labels([label]).increment();
        }
        let series = family.series();
        let labels: Vec<_> = series.iter().map(|series| &*series.labels).collect();
        assert_eq!(labels, [r#"a="other""#, r#"a="p""#, r#"a="q""#]);
        let counts = ["other", "p", "q"].map(|label| family.with_labels([label]).get());
        assert_eq!(counts, [2, 1, 2]);
    }
}
