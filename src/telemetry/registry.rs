//! All families of a process, and a scrape of them in chunks, each rendered when the client is ready to receive it.

use std::{any::Any, sync::Arc, vec};

use bytes::Bytes;

use super::{
    definition::{Definition, gauge},
    exposition::write_header,
    family::{Collector, Family, Series},
    instruments::{Gauge, Instrument},
    objects::{self, ObjectMetrics, ObjectScrape},
    process,
    replicas::ReplicaObjectMetrics,
};

/// A chunk is sent once it has this many bytes. It may exceed this by one series or one page of objects.
pub const CHUNK_BYTES: usize = 32 * 1024;

const BUILD_INFO: Definition =
    gauge("plimsoll_build_info", "Always 1; the label is the version of the program.")
        .labels(&["version"], "1");

/// Defines a struct of metric families, and the function that adds them to a registry. A family has a limit on its series
/// in brackets; a metric without a limit has no labels, and is exposed from the start. After `..` come other fields.
macro_rules! metric_families {
    (@add $registry:ident [$limit:expr] $definition:expr) => {
        $registry.family($definition, $limit)
    };
    (@add $registry:ident $definition:expr) => {
        $registry.single($definition)
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $name:ident via $new_visibility:vis $new:ident {
            $(
                $field:ident: $type:ty $([$limit:expr])? =
                    $kind:ident($metric:expr, $help:literal $(, $buckets:expr)? $(,)?)
                    $(.$method:ident($($argument:expr),*))*;
            )*
            $(.. $($(#[$other_attribute:meta])* $other:ident: $other_type:ty = $make:expr;)*)?
        }
    ) => {
        $(#[$attribute])*
        $visibility struct $name {
            $(#[doc = $help] pub $field: std::sync::Arc<$type>,)*
            $($($(#[$other_attribute])* pub $other: $other_type,)*)?
        }

        impl $name {
            /// Adds the families to a registry.
            $new_visibility fn $new(registry: &mut $crate::telemetry::registry::Registry) -> Self {
                Self {
                    $($field: $crate::telemetry::registry::metric_families!(
                        @add registry $([$limit])?
                        $kind($metric, $help $(, $buckets)?)$(.$method($($argument),*))*
                    ),)*
                    $($($other: $make(registry),)*)?
                }
            }
        }
    };
}

pub(super) use metric_families;

/// All families of a process. They are added before it is shared.
pub struct Registry {
    /// Sorted by name.
    families: Vec<Arc<dyn Collector>>,
    objects: Option<Arc<ObjectMetrics>>,
    /// For each kind of replica autoscaler.
    replicas: Vec<Arc<ReplicaObjectMetrics>>,
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Registry {
    /// Creates a registry with the metrics of the process and its version.
    pub fn new() -> Self {
        let mut registry = Self { families: Vec::new(), objects: None, replicas: Vec::new() };
        for family in process::families() {
            registry.add(family);
        }
        let build: Arc<Family<Gauge, 1>> = registry.family(BUILD_INFO, 1);
        build.with_labels([env!("CARGO_PKG_VERSION")]).set(1.0);
        registry
    }

    /// Returns a family of at most `limit` series, shared by all components that request it. It is not exposed while it has
    /// no series.
    pub fn family<V: Instrument + 'static, const LABELS: usize>(
        &mut self,
        definition: Definition,
        limit: usize,
    ) -> Arc<Family<V, LABELS>> {
        let name = definition.name;
        let known = self.families.iter().find(|family| family.definition().name == name);
        let known =
            known.and_then(|known| (known.clone() as Arc<dyn Any + Send + Sync>).downcast().ok());
        known.unwrap_or_else(|| {
            let family = Arc::new(Family::new(definition, limit));
            self.add(family.clone());
            family
        })
    }

    /// Adds a metric without labels, which is exposed from the start.
    pub fn single<V: Instrument + 'static>(&mut self, definition: Definition) -> Arc<V> {
        self.family(definition, 1).with_labels([])
    }

    pub fn add_objects(&mut self, objects: ObjectMetrics) {
        let merged = match &self.objects {
            Some(before) => objects.merged_with(before),
            None => objects,
        };
        self.objects = Some(Arc::new(merged));
    }

    /// Adds the metrics of a kind of replica autoscaler to every scrape.
    pub fn add_replica_autoscalers(&mut self, objects: ReplicaObjectMetrics) {
        self.replicas.push(Arc::new(objects));
    }

    /// The definitions of all families, in the order in which they are rendered.
    pub fn definitions(&self) -> Vec<Definition> {
        let mut definitions: Vec<_> =
            self.families.iter().map(|family| *family.definition()).collect();
        definitions.extend(objects::definitions(self.objects.as_deref(), &self.replicas));
        definitions
    }

    pub fn scrape(self: &Arc<Self>) -> Scrape {
        Scrape {
            registry: self.clone(),
            next: 0,
            current_family: None,
            objects: ObjectScrape::new(self.objects.clone(), self.replicas.clone()),
        }
    }

    fn add(&mut self, family: Arc<dyn Collector>) {
        let name = family.definition().name;
        let index = self.families.partition_point(|other| other.definition().name < name);
        self.families.insert(index, family);
    }
}

/// A scrape in progress. Chunks are rendered on demand, so a client that does not read costs one chunk.
pub struct Scrape {
    registry: Arc<Registry>,
    next: usize,
    /// The family before `next`, with its remaining series.
    current_family: Option<(Arc<dyn Collector>, vec::IntoIter<Series>)>,
    objects: ObjectScrape,
}

impl Iterator for Scrape {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let mut text = String::with_capacity(CHUNK_BYTES + CHUNK_BYTES / 4);
        while text.len() < CHUNK_BYTES && self.write(&mut text) {}
        (!text.is_empty()).then(|| text.into())
    }
}

impl Scrape {
    /// Renders the next series or page. Returns `false` if there is none.
    fn write(&mut self, text: &mut String) -> bool {
        if let Some((family, series)) = &mut self.current_family {
            match series.next() {
                Some(Series { labels, value }) => value.write(family.definition(), &labels, text),
                None => self.current_family = None,
            }
            return true;
        }
        if let Some(family) = self.registry.families.get(self.next) {
            self.next += 1;
            let series = family.series();
            if !series.is_empty() {
                write_header(text, family.definition());
                self.current_family = Some((family.clone(), series.into_iter()));
            }
            return true;
        }
        self.objects.write(text)
    }
}
