//! Evictions by nodes under memory pressure, from the events that the nodes send: each is told once.

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use plimsoll_core::types::Time;

use crate::cluster::watch::{
    ObjectChange, WatchOptions, maybe_object::MaybeObject, partial_objects::PartialEvent,
    status::WatchStatus, watch,
};
use plimsoll_core::recommender::eviction_notice::{self, OffendingContainer};

/// A node has evicted a pod, and says which containers used too much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePressureEviction {
    /// Where the pod was.
    pub namespace: Box<str>,
    /// The pod.
    pub pod: Box<str>,
    /// When the event was created.
    pub at: Time,
    /// The event's own uid, by which it is known again after a restart.
    pub uid: Box<str>,
    /// The containers that were blamed for memory, and what they used; at least one.
    pub offending_containers: Vec<OffendingContainer>,
    /// Whether the event was there before the watch was: an earlier run may have seen it.
    pub is_preexisting: bool,
}

/// Watches for evictions until `shutdown` is ready, in one namespace or in all. Within one call an event is told once,
/// however often the server repeats it; events of the last hour (or as long as the server keeps them) are told at the
/// start, marked as such.
pub async fn watch_evictions(
    client: &Client,
    namespace: Option<&str>,
    feed: &WatchStatus,
    mut apply: impl FnMut(NodePressureEviction) + Send,
    shutdown: impl Future<Output = ()> + Send,
) {
    let api: Api<MaybeObject<PartialEvent>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let fields = Some("reason=Evicted,involvedObject.kind=Pod".to_owned());
    let options = WatchOptions { field_selector: fields, ..WatchOptions::default() };
    let mut told = SeenEvictions::default();
    let apply = |change| {
        if let Some(eviction) = told.apply(change) {
            apply(eviction);
        }
    };
    watch(api, options, feed, apply, shutdown).await;
}

/// The events that have been told, as long as the server knows them.
#[derive(Debug, Default)]
struct SeenEvictions {
    /// In which list they were last seen, by uid.
    seen: HashMap<Box<str>, u64>,
    list: u64,
    is_synced: bool,
}

impl SeenEvictions {
    /// An eviction, if the change is a new one.
    fn apply(&mut self, change: ObjectChange<PartialEvent>) -> Option<NodePressureEviction> {
        match change {
            ObjectChange::Restart => self.list += 1,
            ObjectChange::Synced => {
                let list = self.list;
                self.seen.retain(|_, seen| *seen == list);
                self.is_synced = true;
            }
            ObjectChange::Deleted { uid, .. } => {
                uid.and_then(|uid| self.seen.remove(uid.as_str()));
            }
            ObjectChange::Applied(event) => {
                let uid: Box<str> = event.metadata.uid.as_deref()?.into();
                if self.seen.insert(uid.clone(), self.list).is_none() {
                    return parse_eviction(event, uid, !self.is_synced);
                }
            }
            ObjectChange::Invalid { .. } => {}
        }
        None
    }
}

fn parse_eviction(
    event: PartialEvent,
    uid: Box<str>,
    was_there: bool,
) -> Option<NodePressureEviction> {
    let about = event.involved_object;
    let is_eviction =
        about.kind.as_deref() == Some("Pod") && event.reason.as_deref() == Some("Evicted");
    let ObjectMeta { annotations, creation_timestamp, namespace, .. } = event.metadata;
    let annotations = annotations?;
    let text = |name| annotations.get(name).map(String::as_str).unwrap_or_default();
    let blamed = eviction_notice::parse(
        text(eviction_notice::CONTAINERS),
        text(eviction_notice::USAGES),
        text(eviction_notice::STARVED),
    );
    if !is_eviction || blamed.is_empty() {
        return None;
    }
    Some(NodePressureEviction {
        namespace: about.namespace.or_else(|| namespace.map(Into::into))?,
        pod: about.name?,
        at: creation_timestamp?.0.into(),
        uid,
        offending_containers: blamed,
        is_preexisting: was_there,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn event(uid: &str) -> ObjectChange<PartialEvent> {
        let event = json!({
            "metadata": {
                "name": uid, "namespace": "n", "uid": uid, "creationTimestamp": "2026-03-01T00:00:00Z",
                "annotations": {
                    "offending_containers": "main", "offending_containers_usage": "1Gi",
                    "starved_resource": "memory",
                },
            },
            "involvedObject": { "kind": "Pod", "namespace": "n", "name": "p" }, "reason": "Evicted",
        });
        ObjectChange::Applied(serde_json::from_value(event).expect("an event"))
    }

    #[test]
    fn an_event_is_told_once_and_forgotten_with_the_server() {
        let mut told = SeenEvictions::default();
        let mut hear =
            |change| told.apply(change).map(|told| (told.uid.to_string(), told.is_preexisting));
        let told_as = |uid: &str, was_there| Some((uid.to_owned(), was_there));
        assert_eq!(hear(ObjectChange::Restart), None);
        assert_eq!(hear(event("a")), told_as("a", true));
        assert_eq!(hear(ObjectChange::Restart), None, "the first list broke off");
        assert_eq!(hear(event("a")), None);
        assert_eq!(hear(ObjectChange::Synced), None);
        assert_eq!(hear(event("b")), told_as("b", false));
        assert_eq!(hear(event("b")), None, "changed");
        assert_eq!(hear(ObjectChange::Restart), None);
        assert_eq!(hear(event("b")), None);
        assert_eq!(hear(event("c")), told_as("c", false), "happened while nobody looked");
        assert_eq!(hear(ObjectChange::Synced), None);
        assert_eq!(told.seen.len(), 2, "a has expired");
    }
}
