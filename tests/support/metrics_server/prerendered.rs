//! Owns answers of metrics.k8s.io that are written once and served as they are: for clusters of tens of thousands of
//! containers, where making an answer for each request would be what is measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use bytes::Bytes;
use jiff::Timestamp;

const HEAD: &str =
    r#"{"kind":"PodMetricsList","apiVersion":"metrics.k8s.io/v1beta1","metadata":{},"items":["#;

/// What one container used.
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// Where.
    pub namespace: &'a str,
    /// Which pod.
    pub pod: &'a str,
    /// Which container.
    pub container: &'a str,
    /// Billionths of a core.
    pub cpu: u64,
    /// Bytes.
    pub memory: u64,
}

/// The answers for one time.
#[derive(Debug)]
pub struct PrerenderedUsage {
    whole: Bytes,
    by_namespace: BTreeMap<String, Bytes>,
}

// === impl Rendered ===

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
            whole: list(&all.join(",")),
            by_namespace: parts.iter().map(|(of, text)| ((*of).to_owned(), list(text))).collect(),
        }
    }

    /// The answer to a request for pods, all or those of a namespace.
    pub fn answer(&self, path: &str) -> Option<Bytes> {
        let pieces: Vec<_> = path.trim_matches('/').split('/').collect();
        match pieces[..] {
            ["apis", _, _, "pods"] => Some(self.whole.clone()),
            ["apis", _, _, "namespaces", namespace, "pods"] => {
                let known = self.by_namespace.get(namespace).cloned();
                Some(known.unwrap_or_else(|| Bytes::from(format!("{HEAD}]}}"))))
            }
            _ => None,
        }
    }
}
