//! Prerendered responses of metrics.k8s.io, for clusters with tens of thousands of containers, where rendering each
//! response would dominate the measurement.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use jiff::Timestamp;

const HEAD: &str =
    r#"{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":["#;

/// Usage of one container.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Namespace of the pod.
    pub namespace: &'a str,
    /// Name of the pod.
    pub pod: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// CPU in nanocores.
    pub cpu: u64,
    /// Memory in bytes.
    pub memory: u64,
}

/// The responses for one time.
#[derive(Debug)]
pub struct PrerenderedUsage {
    all_namespaces: Bytes,
    by_namespace: BTreeMap<String, Bytes>,
}

// === impl PrerenderedUsage ===

impl PrerenderedUsage {
    pub fn new<'a>(time: Timestamp, samples: impl IntoIterator<Item = Sample<'a>>) -> Self {
        let time = time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let mut parts: BTreeMap<&str, String> = BTreeMap::new();
        let mut previous = ("", "");
        for Sample { namespace, pod, container, cpu, memory } in samples {
            let text = parts.entry(namespace).or_default();
            if previous == (namespace, pod) {
                text.truncate(text.len() - "]}".len());
                text.push(',');
            } else {
                let comma = if text.is_empty() { "" } else { "," };
                let _ = write!(
                    text,
                    r#"{comma}{{"metadata":{{"name":"{pod}","namespace":"{namespace}","creationTimestamp":"{time}"}},"timestamp":"{time}","window":"15s","containers":["#
                );
                previous = (namespace, pod);
            }
            let _ = write!(
                text,
                r#"{{"name":"{container}","usage":{{"cpu":"{cpu}n","memory":"{memory}"}}}}]}}"#
            );
        }
        let list = |items: &str| Bytes::from(format!("{HEAD}{items}]}}"));
        let all: Vec<_> = parts.values().map(String::as_str).collect();
        Self {
            all_namespaces: list(&all.join(",")),
            by_namespace: parts.iter().map(|(of, text)| ((*of).to_owned(), list(text))).collect(),
        }
    }

    /// The response to a request for the pods of all namespaces or of one.
    pub fn answer(&self, path: &str) -> Option<Bytes> {
        let pieces: Vec<_> = path.trim_matches('/').split('/').collect();
        match pieces[..] {
            ["apis", _, _, "pods"] => Some(self.all_namespaces.clone()),
            ["apis", _, _, "namespaces", namespace, "pods"] => {
                let known = self.by_namespace.get(namespace).cloned();
                Some(known.unwrap_or_else(|| Bytes::from(format!("{HEAD}]}}"))))
            }
            _ => None,
        }
    }
}
