//! Node-pressure evictions, from the events that kubelets emit. Each eviction is reported once.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client};
use plimsoll_core::types::Time;

use super::object_store::ObjectStore;
use crate::cluster::watch::{
    ObjectChange, WatchOptions, maybe_object::MaybeObject, partial_objects::PartialEvent,
    status::WatchStatus, watch,
};
use plimsoll_core::recommender::eviction_notice::{self, OffendingContainer};

/// A kubelet evicted a pod, and its event names the containers that used too much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePressureEviction {
    pub namespace: Box<str>,
    pub pod: Box<str>,
    /// When the event was created.
    pub at: Time,
    /// The UID of the event, which identifies it after a restart.
    pub uid: Box<str>,
    /// The containers that exceeded their memory requests, and their usage; at least one.
    pub offending_containers: Vec<OffendingContainer>,
    /// Whether the event existed before the watch started: an earlier process may have seen it.
    pub is_preexisting: bool,
}

/// Watches for evictions until `shutdown` is ready, in one namespace or in all. Within one call each event is reported once,
/// even if the server sends it again. Events of the last hour (or as long as the server stores them) are reported at the
/// start, marked as preexisting.
pub async fn watch_evictions(
    client: &Client,
    namespace: Option<&str>,
    status: &WatchStatus,
    mut apply: impl FnMut(NodePressureEviction) + Send,
    shutdown: impl Future<Output = ()> + Send,
) {
    let api: Api<MaybeObject<PartialEvent>> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let fields = Some("reason=Evicted,involvedObject.kind=Pod".to_owned());
    let options = WatchOptions { field_selector: fields, ..WatchOptions::default() };
    let mut seen = SeenEvictions::default();
    let apply = |change| {
        if let Some(eviction) = seen.apply(change) {
            apply(eviction);
        }
    };
    watch(api, options, status, apply, shutdown).await;
}

/// The UIDs of the events that were reported, for as long as the server stores them.
#[derive(Debug, Default)]
struct SeenEvictions(ObjectStore<Box<str>, ()>);

impl SeenEvictions {
    fn apply(&mut self, change: ObjectChange<PartialEvent>) -> Option<NodePressureEviction> {
        let Self(seen) = self;
        match change {
            ObjectChange::Restart => seen.restart(),
            ObjectChange::Synced => {
                seen.finish_list();
            }
            ObjectChange::Deleted { uid, .. } => {
                uid.and_then(|uid| seen.remove(uid.as_str()));
            }
            ObjectChange::Applied(event) => {
                let uid: Box<str> = event.metadata.uid.as_deref()?.into();
                if seen.put(uid.clone(), ()).is_none() {
                    return parse_eviction(event, uid, !seen.is_synced());
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
    is_preexisting: bool,
) -> Option<NodePressureEviction> {
    let object = event.involved_object;
    let is_eviction =
        object.kind.as_deref() == Some("Pod") && event.reason.as_deref() == Some("Evicted");
    let ObjectMeta { annotations, creation_timestamp, namespace, .. } = event.metadata;
    let annotations = annotations?;
    let text = |name| annotations.get(name).map(String::as_str).unwrap_or_default();
    let offending_containers = eviction_notice::parse(
        text(eviction_notice::CONTAINERS),
        text(eviction_notice::USAGES),
        text(eviction_notice::STARVED),
    );
    if !is_eviction || offending_containers.is_empty() {
        return None;
    }
    Some(NodePressureEviction {
        namespace: object.namespace.or(namespace)?.into(),
        pod: object.name?.into(),
        at: creation_timestamp?.0.into(),
        uid,
        offending_containers,
        is_preexisting,
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
    fn an_event_is_reported_once_and_dropped_when_the_server_drops_it() {
        let mut seen = SeenEvictions::default();
        let mut apply =
            |change| seen.apply(change).map(|found| (found.uid.to_string(), found.is_preexisting));
        let eviction = |uid: &str, is_preexisting| Some((uid.to_owned(), is_preexisting));
        assert_eq!(apply(ObjectChange::Restart), None);
        assert_eq!(apply(event("a")), eviction("a", true));
        assert_eq!(apply(ObjectChange::Restart), None, "the first list was interrupted");
        assert_eq!(apply(event("a")), None);
        assert_eq!(apply(ObjectChange::Synced), None);
        assert_eq!(apply(event("b")), eviction("b", false));
        assert_eq!(apply(event("b")), None, "changed");
        assert_eq!(apply(ObjectChange::Restart), None);
        assert_eq!(apply(event("b")), None);
        assert_eq!(
            apply(event("c")),
            eviction("c", false),
            "created while the watch was disconnected"
        );
        assert_eq!(apply(ObjectChange::Synced), None);
        assert_eq!(seen.0.len(), 2, "a has expired");
    }
}
