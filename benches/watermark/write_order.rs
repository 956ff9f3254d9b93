//! The order of the controller's writes, recorded by a proxy in front of the API server.

use std::{
    collections::{BTreeMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Instant,
};

use http::Method;

use super::support::{
    Testbed,
    api_proxy::{ApiProxy, pass_through},
};

/// A recorded write.
#[derive(Clone, Debug)]
struct Record {
    at: Instant,
    is_scale: bool,
    /// Namespace and name, which object and target share.
    object: (String, String),
}

/// A proxy that records writes of scales and statuses.
pub struct RecordedWrites {
    records: Arc<Mutex<Vec<Record>>>,
    kubeconfig: PathBuf,
    _proxy: ApiProxy,
}

/// Statistics of the order of writes.
#[derive(Clone, Copy, Debug)]
pub struct WriteOrder {
    pub scales: usize,
    /// Statuses, without the records of scales that are about to be written.
    pub statuses: usize,
    /// Scales that were written after a status of the same second.
    pub late_scales: usize,
}

impl RecordedWrites {
    /// Starts the proxy.
    pub async fn start(bed: &Testbed) -> Self {
        let records: Arc<Mutex<Vec<Record>>> = Arc::default();
        let proxy = ApiProxy::start(bed.client(), {
            let records = Arc::clone(&records);
            move |method, path| {
                if let Some((is_scale, object)) = parse(method, path) {
                    let record = Record { at: Instant::now(), is_scale, object };
                    records.lock().expect("no panic").push(record);
                }
                pass_through()
            }
        })
        .await;
        let kubeconfig =
            std::env::temp_dir().join(format!("plimsoll-bench-{}.yaml", std::process::id()));
        std::fs::write(&kubeconfig, proxy.kubeconfig()).expect("written");
        Self { records, kubeconfig, _proxy: proxy }
    }

    /// The flag that makes the controller use the proxy.
    pub fn flag(&self) -> String {
        format!("--kubeconfig={}", self.kubeconfig.display())
    }

    /// The order of the writes since `start`.
    pub fn order(&self, start: Instant) -> WriteOrder {
        let mut records = self.records.lock().expect("no panic").clone();
        records.retain(|record| record.at >= start);
        records.sort_by_key(|record| record.at);
        let mut last_status: BTreeMap<&(String, String), usize> = BTreeMap::new();
        let mut pending = HashSet::new();
        for (index, record) in records.iter().enumerate() {
            if record.is_scale {
                pending.extend(last_status.remove(&record.object));
            } else {
                last_status.insert(&record.object, index);
            }
        }
        // What was just recorded may be followed by a scale after the end.
        let end = records.last().map(|last| last.at);
        let mut order = WriteOrder { scales: 0, statuses: 0, late_scales: 0 };
        let mut status_second = None;
        for (index, record) in records.iter().enumerate() {
            let second = (record.at - start).as_secs();
            if record.is_scale {
                order.scales += 1;
                order.late_scales += usize::from(status_second == Some(second));
            } else if !pending.contains(&index)
                && end.is_some_and(|end| (end - start).as_secs() != second)
            {
                order.statuses += 1;
                status_second = Some(second);
            }
        }
        order
    }
}

impl Drop for RecordedWrites {
    fn drop(&mut self) {
        // The file is in a temporary folder.
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Whether a request writes a scale or a status, and of which object.
fn parse(method: &Method, path: &str) -> Option<(bool, (String, String))> {
    let words: Vec<&str> = path.trim_matches('/').split('/').collect();
    let [.., "namespaces", namespace, resource, name, part] = words.as_slice() else { return None };
    let is_scale = match (method, *resource, *part) {
        (&Method::PUT, "deployments", "scale") => true,
        (&Method::PATCH, "watermarkpodautoscalers", "status") => false,
        _ => return None,
    };
    Some((is_scale, ((*namespace).to_owned(), (*name).to_owned())))
}
