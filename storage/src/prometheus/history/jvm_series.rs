//! Series of Java virtual machines, by the names that libraries give them.
//!
//! They are scraped from the applications, so their labels are those of the scrape: the namespace, the pod and perhaps the
//! container, by the same names as for usage.

use std::{collections::BTreeSet, time::Duration};

use crate::prometheus::{
    promql::{Aggregation, Query, RangeFunction},
    schema::{LabelValues, Schema},
    selector::{Pattern, Selector},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::VariantArray)]
pub enum JvmFigure {
    /// Committed memory besides the heap.
    NonHeapCommitted,
    /// The least memory of the heap in use within a step.
    HeapUsed,
    Threads,
    DirectBuffers,
    /// The heap in use after the last full collection.
    LiveData,
    /// The share of time of garbage collection.
    CollectionShare,
}

/// A family of series: its name, and a label with its value.
type Family = (&'static str, Option<(&'static str, &'static str)>);

/// Labels of a single virtual machine besides those of its container.
const TARGET_LABELS: [&str; 2] = ["job", "instance"];

impl JvmFigure {
    pub const ALL: &[Self] = <Self as strum::VariantArray>::VARIANTS;

    /// The families of Micrometer, of `client_java` (the current and the earlier one), and of OpenTelemetry.
    fn families(self) -> &'static [Family] {
        match self {
            Self::NonHeapCommitted => &[
                ("jvm_memory_committed_bytes", Some(("area", "nonheap"))),
                ("jvm_memory_bytes_committed", Some(("area", "nonheap"))),
                ("jvm_memory_committed_bytes", Some(("jvm_memory_type", "non_heap"))),
            ],
            Self::HeapUsed => &[
                ("jvm_memory_used_bytes", Some(("area", "heap"))),
                ("jvm_memory_bytes_used", Some(("area", "heap"))),
                ("jvm_memory_used_bytes", Some(("jvm_memory_type", "heap"))),
            ],
            Self::Threads => &[
                ("jvm_threads_live_threads", None),
                ("jvm_threads_current", None),
                ("jvm_thread_count", None),
            ],
            Self::DirectBuffers => &[
                ("jvm_buffer_memory_used_bytes", Some(("id", "direct"))),
                ("jvm_buffer_pool_used_bytes", Some(("pool", "direct"))),
                ("jvm_buffer_memory_used_bytes", Some(("jvm_buffer_pool_name", "direct"))),
            ],
            Self::LiveData => &[("jvm_gc_live_data_size_bytes", None)],
            Self::CollectionShare => &[
                ("jvm_gc_pause_seconds_sum", None),
                ("jvm_gc_collection_seconds_sum", None),
                ("jvm_gc_duration_seconds_sum", None),
            ],
        }
    }

    pub fn is_in(self, families: &BTreeSet<String>) -> bool {
        self.families().iter().any(|(name, _)| families.contains(*name))
    }

    /// The window of a step; zero for a single sample.
    pub(super) fn window(self, step: Duration) -> Duration {
        match self {
            Self::HeapUsed | Self::CollectionShare => step,
            _ => Duration::ZERO,
        }
    }

    /// How many series a container has: one for each pool of memory or cause of a collection.
    pub(super) fn series_per_container(self) -> u32 {
        match self {
            Self::NonHeapCommitted | Self::HeapUsed | Self::CollectionShare => 6,
            Self::Threads | Self::DirectBuffers | Self::LiveData => 2,
        }
    }

    /// The query of the figure of each container. Series of one virtual machine are summed; of several in a container, the
    /// largest counts, because they are mostly one that is scraped twice.
    pub(super) fn query(
        self,
        schema: &Schema,
        namespaces: &[&str],
        pods: &Pattern,
        step: Duration,
    ) -> Query {
        let identity = schema.usage.container_labels();
        let replicas = schema.replica_labels.iter().map(|LabelValues { label, .. }| &**label);
        let target: Vec<&str> = identity.into_iter().chain(TARGET_LABELS).chain(replicas).collect();
        let [namespace, pod, _] = identity;
        let of_family = |(name, label): &Family| {
            let series = Selector::metric(*name).equals_any(namespace, namespaces);
            let series = series.matches(pod, pods.clone()).with_all(&schema.matchers);
            let series = match label {
                Some((label, value)) => series.equals(*label, *value),
                None => series,
            };
            let value = match self {
                Self::HeapUsed => Query::range_function(RangeFunction::Min, &series, step),
                Self::CollectionShare => Query::range_function(RangeFunction::Rate, &series, step),
                _ => Query::from(series),
            };
            value.aggregate(Aggregation::Sum, &target).aggregate(Aggregation::Max, &identity)
        };
        let mut queries = self.families().iter().map(of_family);
        // Every figure has a family.
        let first = queries.next().unwrap_or_else(|| Query::from(Selector::metric("jvm_info")));
        queries.fold(first, |all, next| all.or(&next))
    }
}

pub fn jvm_families() -> impl Iterator<Item = &'static str> {
    let names = JvmFigure::ALL.iter().flat_map(|figure| figure.families()).map(|(name, _)| *name);
    names.collect::<BTreeSet<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prometheus::schema::tests::schema;

    #[test]
    fn a_figure_is_read_by_any_of_its_names() {
        let schema = schema(60, 60);
        let hour = Duration::from_hours(1);
        let pods = Pattern::regex(".+");
        let text = |figure: JvmFigure| figure.query(&schema, &["shop"], &pods, hour).to_string();
        assert_eq!(
            text(JvmFigure::LiveData),
            "max by (namespace,pod,container) (sum by (namespace,pod,container,job,instance) \
             (jvm_gc_live_data_size_bytes{namespace=\"shop\",pod=~\".+\",cluster=\"qa\"}))"
        );
        let heap = text(JvmFigure::HeapUsed);
        assert_eq!(heap.matches(" or ").count(), 2, "{heap}");
        assert!(heap.contains("min_over_time(jvm_memory_bytes_used{"), "{heap}");
        assert!(heap.contains("jvm_memory_type=\"heap\"}[1h])"), "{heap}");
        let two = JvmFigure::Threads.query(&schema, &["a", "b"], &pods, hour).to_string();
        assert!(two.contains("namespace=~\"(?:a|b)\""), "{two}");
        for &figure in JvmFigure::ALL {
            let query = text(figure);
            assert!(promql_parser::parser::parse(&query).is_ok(), "{query}");
        }
    }

    #[test]
    fn every_family_has_a_figure() {
        let names: Vec<_> = jvm_families().collect();
        assert_eq!(names.len(), 13, "{names:?}");
        for name in names {
            let families = BTreeSet::from([name.to_owned()]);
            assert!(JvmFigure::ALL.iter().any(|figure| figure.is_in(&families)), "{name}");
        }
        assert!(!JvmFigure::ALL.iter().any(|figure| figure.is_in(&BTreeSet::new())));
    }
}
