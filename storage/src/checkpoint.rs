//! The backend that stores history in VerticalPodAutoscalerCheckpoint objects (`autoscaling.k8s.io/v1`), which upstream's
//! recommender can read too.

pub mod annotation;
mod api_error;
mod cache;
mod client;
mod desired;
mod fingerprint;
mod load;
mod object;
mod object_names;
mod save;

use std::fmt;

use kube::Client;

use self::{cache::CheckpointCache, client::CheckpointClient};
use plimsoll_core::types::Time;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Restricts the backend to checkpoints of this namespace.
    pub namespace: Option<String>,
    /// Whether to write the annotation. It is always read.
    pub write_annotations: bool,
    /// Maximum number of concurrent writes.
    pub concurrency: usize,
    /// Objects per page of a list.
    pub page_size: u32,
}

impl Default for CheckpointOptions {
    fn default() -> Self {
        Self { namespace: None, write_annotations: true, concurrency: 10, page_size: 200 }
    }
}

/// Stores history in checkpoint objects, as upstream does. State that does not fit into the format goes into an
/// annotation of the same object. A write is one object.
pub struct CheckpointStorage {
    calls: CheckpointClient,
    now: Box<dyn Fn() -> Time + Send + Sync>,
    options: CheckpointOptions,
    table: CheckpointCache,
}

impl CheckpointStorage {
    /// Creates a backend. It makes no calls before the first load or save.
    pub fn new(
        client: Client,
        now: impl Fn() -> Time + Send + Sync + 'static,
        options: CheckpointOptions,
    ) -> Self {
        Self {
            calls: CheckpointClient::new(client),
            now: Box::new(now),
            options,
            table: CheckpointCache::default(),
        }
    }

    pub fn cached_objects(&self) -> usize {
        self.table.len()
    }

    /// The location for errors and skipped records.
    fn location(namespace: Option<&str>) -> String {
        match namespace {
            Some(namespace) => format!("checkpoints of namespace {namespace}"),
            None => "checkpoints of all namespaces".into(),
        }
    }
}

impl fmt::Debug for CheckpointStorage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CheckpointStorage").field("options", &self.options).finish_non_exhaustive()
    }
}
