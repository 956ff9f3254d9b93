//! Tracks which pods are missing from usage fetches.

use std::{collections::HashMap, sync::Arc};

use super::namespace::NamespaceIndex;

/// A pod that is missing from a single fetch may be terminating or new on its node.
const MISSED_FETCHES: u32 = 2;

/// Pods that earlier fetches contained, and the latest ones do not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MissingUsage {
    pub pods: u64,
    /// Namespace and name of the first of them, ordered by name.
    pub example: Option<(Arc<str>, Arc<str>)>,
}

/// The running pods with a VPA that the last complete fetches do not contain; this is their number.
pub(super) fn missing_usage(
    namespaces: &HashMap<Arc<str>, NamespaceIndex>,
    complete: u32,
) -> MissingUsage {
    let mut missing = MissingUsage::default();
    for (namespace, index) in namespaces {
        for (name, entry) in index.pods.iter() {
            let is_due =
                entry.last_usage_fetch > 0 && complete - entry.last_usage_fetch >= MISSED_FETCHES;
            if !is_due || entry.pod.is_finished || entry.vpas.is_empty() {
                continue;
            }
            missing.pods += 1;
            let id = (namespace, name);
            if missing.example.as_ref().is_none_or(|(namespace, name)| id < (namespace, name)) {
                missing.example = Some((Arc::clone(namespace), Arc::clone(name)));
            }
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::ObjectKey;
    use serde_json::json;

    use crate::cluster::{
        cache::{
            selector::Selector,
            vpa_index::{TargetState, VpaIndex},
        },
        watch::partial_objects::PartialPod,
    };
    use plimsoll_core::recommender::NamespaceScope;

    fn put(index: &mut VpaIndex, name: &str, uid: &str, phase: &str) {
        let pod: PartialPod = serde_json::from_value(json!({
            "metadata": {"namespace": "web", "name": name, "uid": uid, "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": phase},
        }))
        .expect("a pod");
        index.put_pod(&pod);
    }

    fn key() -> ObjectKey {
        ObjectKey::new("web", "a")
    }

    fn watched() -> VpaIndex {
        let mut index = VpaIndex::new(NamespaceScope::default(), "default");
        let vpa = serde_json::from_value(json!({
            "metadata": {"namespace": "web", "name": "a", "uid": "1"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
        }));
        index.put_vpa(&vpa.expect("a VPA"));
        index.set_target(
            &key(),
            TargetState::Found,
            Some(Selector::parse("app=a").expect("a selector")),
        );
        index
    }

    fn reading(index: &mut VpaIndex, pods: &[&str]) -> (u64, Option<String>) {
        for pod in pods {
            index.record_pod_usage("web", pod);
        }
        let lacking = index.finish_usage_fetch();
        (lacking.pods, lacking.example.map(|(namespace, name)| format!("{namespace}/{name}")))
    }

    #[test]
    fn a_pod_missing_in_two_complete_readings_counts_as_missing_until_it_returns() {
        let mut index = watched();
        for name in ["a-1", "a-2", "a-3"] {
            put(&mut index, name, name, "Running");
        }
        assert_eq!(reading(&mut index, &["a-1", "a-2"]), (0, None), "a-3 has no usage yet");
        assert_eq!(reading(&mut index, &["a-1"]), (0, None), "a single miss does not count");
        assert_eq!(reading(&mut index, &[]), (1, Some("web/a-2".into())));
        assert_eq!(reading(&mut index, &[]), (2, Some("web/a-1".into())));
        assert_eq!(reading(&mut index, &["a-1", "a-2"]), (0, None), "usage is back");
    }

    #[test]
    fn a_finished_replaced_or_unmatched_pod_does_not_count_as_missing() {
        let mut index = watched();
        for name in ["a-1", "a-2"] {
            put(&mut index, name, name, "Running");
        }
        assert_eq!(reading(&mut index, &["a-1", "a-2"]), (0, None));
        put(&mut index, "a-1", "a-1", "Succeeded");
        put(&mut index, "a-2", "another", "Running");
        assert_eq!(reading(&mut index, &[]), (0, None));
        assert_eq!(reading(&mut index, &[]), (0, None));
        assert_eq!(reading(&mut index, &["a-2"]), (0, None));
        index.remove_vpa(&key());
        assert_eq!(reading(&mut index, &[]), (0, None));
        assert_eq!(reading(&mut index, &[]), (0, None));
    }
}
