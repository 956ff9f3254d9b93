//! The order in which the controller sends the writes that the API server accepts, recorded by a proxy in front of it.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::PathBuf,
    time::Instant,
};

use http::Method;

use super::support::{
    Testbed,
    api_proxy::{ApiProxy, pass_through},
    clock::wall_now,
};

/// A recorded write.
#[derive(Clone, Debug)]
struct Record {
    at: Instant,
    is_scale: bool,
    /// Namespace and name, which object and target share.
    object: (String, String),
}

/// A proxy that records the writes of scales and statuses that the API server accepts.
pub struct RecordedWrites {
    proxy: ApiProxy,
    kubeconfig: PathBuf,
}

/// Statistics of the order of writes.
#[derive(Clone, Copy, Debug)]
pub struct WriteOrder {
    pub scales: usize,
    /// Statuses, without the records of scales that are about to be written.
    pub statuses: usize,
    /// Scales that were sent after a status of the same second, although their metric was read before it was sent.
    pub late_scales: usize,
}

impl RecordedWrites {
    /// Starts the proxy.
    pub async fn start(bed: &Testbed) -> Self {
        let proxy = ApiProxy::start(bed.client(), |_, _| pass_through()).await;
        let kubeconfig =
            std::env::temp_dir().join(format!("plimsoll-bench-{}.yaml", std::process::id()));
        std::fs::write(&kubeconfig, proxy.kubeconfig()).expect("written");
        Self { proxy, kubeconfig }
    }

    /// The flag that makes the controller use the proxy.
    pub fn flag(&self) -> String {
        format!("--kubeconfig={}", self.kubeconfig.display())
    }

    /// The order of the writes since `start`. `reads` are the times at which the metric of each object was read.
    pub fn order(
        &self,
        start: Instant,
        reads: &HashMap<(String, String), Vec<jiff::Timestamp>>,
    ) -> WriteOrder {
        let wall = |at: Instant| wall_now() - at.elapsed();
        let was_read_before = |record: &Record, status: Instant| {
            let read = reads
                .get(&record.object)
                .and_then(|times| times.iter().rev().find(|read| **read < wall(record.at)));
            read.is_some_and(|read| *read < wall(status))
        };
        let accepted = self.proxy.accepted().into_iter().filter(|(.., at)| *at >= start);
        let records: Vec<Record> = accepted
            .filter_map(|(method, path, at)| {
                let (is_scale, object) = parse(&method, &path)?;
                Some(Record { at, is_scale, object })
            })
            .collect();
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
        let mut last_status_at = None;
        for (index, record) in records.iter().enumerate() {
            let second = (record.at - start).as_secs();
            if record.is_scale {
                order.scales += 1;
                let status: Option<Instant> = last_status_at;
                let status = status.filter(|at| (*at - start).as_secs() == second);
                let is_late = status.is_some_and(|status| was_read_before(record, status));
                order.late_scales += usize::from(is_late);
            } else if !pending.contains(&index)
                && end.is_some_and(|end| (end - start).as_secs() != second)
            {
                order.statuses += 1;
                last_status_at = Some(record.at);
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
