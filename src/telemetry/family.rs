//! A metric family: the series of one name by label values, with a limit on their number.

use std::{any::Any, sync::Arc};

use super::{definition::Definition, exposition::write_labels, instruments::Instrument};
use parking_lot::RwLock;

/// The value of all labels of the series that counts whatever exceeds the limit.
pub const OVERFLOW_LABEL: &str = "other";

#[derive(Debug)]
pub struct Family<V, const LABELS: usize = 0> {
    definition: Definition,
    limit: usize,
    /// Sorted by label values, as client libraries print them.
    series: RwLock<Vec<Entry<V, LABELS>>>,
}

#[derive(Debug)]
struct Entry<V, const LABELS: usize> {
    values: [Box<str>; LABELS],
    rendered_labels: Arc<str>,
    value: Arc<V>,
}

#[derive(Clone)]
pub struct Series {
    /// The rendered labels: `name="value",...`.
    pub labels: Arc<str>,
    pub value: Arc<dyn Instrument>,
}

/// A family with its value type erased.
pub trait Collector: Any + Send + Sync {
    fn definition(&self) -> &Definition;

    fn series(&self) -> Vec<Series>;
}

impl<V: Instrument, const LABELS: usize> Family<V, LABELS> {
    /// Creates a family of at most `limit` series. Further label values count into a series whose labels are all `other`,
    /// so that labels from user input cannot grow without bounds.
    pub fn new(definition: Definition, limit: usize) -> Self {
        debug_assert_eq!(definition.labels.len(), LABELS, "{}", definition.name);
        Self { definition, limit, series: RwLock::default() }
    }

    pub fn find(&self, labels: [&str; LABELS]) -> Option<Arc<V>> {
        let series = self.series.read();
        position(&series, &labels).ok().map(|found| series[found].value.clone())
    }

    /// Returns the value of the series with these labels, and creates it if needed.
    pub fn with_labels(&self, labels: [&str; LABELS]) -> Arc<V> {
        if let Some(found) = self.find(labels) {
            return found;
        }
        let mut series = self.series.write();
        let labels =
            if series.len() < self.limit.max(1) { labels } else { [OVERFLOW_LABEL; LABELS] };
        match position(&series, &labels) {
            Ok(found) => series[found].value.clone(),
            Err(index) => {
                let mut rendered = String::new();
                write_labels(&mut rendered, self.definition.labels, &labels);
                let value = Arc::new(V::new(&self.definition));
                let values = labels.map(Box::from);
                series.insert(
                    index,
                    Entry { values, rendered_labels: rendered.into(), value: value.clone() },
                );
                value
            }
        }
    }

    pub fn retain(&self, keep: impl Fn(&[Box<str>; LABELS]) -> bool) {
        let mut series = self.series.write();
        series.retain(|entry| keep(&entry.values));
    }

    pub fn for_each(&self, visit: impl Fn(&V)) {
        self.series.read().iter().for_each(|entry| visit(&entry.value));
    }
}

impl<V: Instrument + 'static, const LABELS: usize> Collector for Family<V, LABELS> {
    fn definition(&self) -> &Definition {
        &self.definition
    }

    fn series(&self) -> Vec<Series> {
        let series = self.series.read();
        let copied = series.iter().map(|Entry { rendered_labels, value, .. }| Series {
            labels: rendered_labels.clone(),
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
    fn a_family_stays_within_its_series_limit_and_loses_no_count() {
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
