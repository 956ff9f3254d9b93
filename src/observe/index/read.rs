//! Which pods a reading of usage had, and which it should have had.

use std::sync::Arc;

use super::Index;

/// A pod that one whole reading does not have may be on its way out, or new on its node.
const IN_A_ROW: u32 = 2;

/// Pods that earlier readings had, and the last ones lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lacking {
    /// How many.
    pub pods: u64,
    /// Namespace and name of the first of them, by name.
    pub example: Option<(Arc<str>, Arc<str>)>,
}

impl Index {
    /// A reading under way has this pod.
    pub fn note_read(&mut self, namespace: &str, pod: &str) {
        let known = self.namespaces.get_mut(namespace);
        if let Some(entry) = known.and_then(|known| known.pods.get_mut(pod)) {
            entry.read = self.readings + 1;
        }
    }

    /// A reading came whole: what VPAs are about, runs, and was in none of the last ones though there was usage of it
    /// before. Readings that came in part do not count, they say nothing of what they lack.
    pub fn end_reading(&mut self) -> Lacking {
        self.readings = self.readings.saturating_add(1);
        let mut lacking = Lacking::default();
        for (namespace, known) in &self.namespaces {
            for (name, entry) in &known.pods {
                let is_due = entry.read > 0 && self.readings - entry.read >= IN_A_ROW;
                if !is_due || entry.pod.is_finished || entry.vpas.is_empty() {
                    continue;
                }
                lacking.pods += 1;
                let place = (namespace, name);
                if lacking.example.as_ref().is_none_or(|(of, first)| place < (of, first)) {
                    lacking.example = Some((Arc::clone(namespace), Arc::clone(name)));
                }
            }
        }
        lacking
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_core::types::VpaKey;
    use serde_json::json;

    use crate::observe::{
        index::{Index, Target},
        selector::Selector,
        slim::SlimPod,
    };
    use plimsoll_core::recommender::Scope;

    fn put(index: &mut Index, name: &str, uid: &str, phase: &str) {
        let pod: SlimPod = serde_json::from_value(json!({
            "metadata": {"namespace": "web", "name": name, "uid": uid, "labels": {"app": "a"}},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": phase},
        }))
        .expect("a pod");
        index.put_pod(&pod);
    }

    fn key() -> VpaKey {
        VpaKey::new("web", "a")
    }

    fn watched() -> Index {
        let mut index = Index::new(Scope::default(), "default");
        let vpa = serde_json::from_value(json!({
            "metadata": {"namespace": "web", "name": "a", "uid": "1"},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}},
        }));
        index.put_vpa(&vpa.expect("a VPA"));
        index.set_target(
            &key(),
            Target::Found,
            Some(Selector::parse("app=a").expect("a selector")),
        );
        index
    }

    fn reading(index: &mut Index, pods: &[&str]) -> (u64, Option<String>) {
        for pod in pods {
            index.note_read("web", pod);
        }
        let lacking = index.end_reading();
        (lacking.pods, lacking.example.map(|(namespace, name)| format!("{namespace}/{name}")))
    }

    #[test]
    fn a_pod_that_two_whole_readings_in_a_row_lack_is_missed_until_it_is_there_again() {
        let mut index = watched();
        for name in ["a-1", "a-2", "a-3"] {
            put(&mut index, name, name, "Running");
        }
        assert_eq!(reading(&mut index, &["a-1", "a-2"]), (0, None), "one has no usage yet");
        assert_eq!(reading(&mut index, &["a-1"]), (0, None), "once may be chance");
        assert_eq!(reading(&mut index, &[]), (1, Some("web/a-2".into())));
        assert_eq!(reading(&mut index, &[]), (2, Some("web/a-1".into())));
        assert_eq!(reading(&mut index, &["a-1", "a-2"]), (0, None), "they are there again");
    }

    #[test]
    fn who_ended_was_replaced_or_has_no_vpa_is_not_missed() {
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
