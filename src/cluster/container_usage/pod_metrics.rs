//! Usage of pods from `metrics.k8s.io`, delivered pod by pod while the response arrives.

use std::{borrow::Cow, time::Duration};

use jiff::Timestamp;
use kube::Client;
use plimsoll_core::types::Time;
use serde::Deserialize;
use serde_json::Value;

pub use crate::cluster::list_stream::UsageError;
use crate::cluster::list_stream::{Deadline, encode_query, read_items};
use plimsoll_core::types::{
    quantity::Quantity,
    units::{Bytes, MilliCpu},
};

/// The number of malformed items and failed requests that are reported in full; the rest are only counted.
const MAX_EXAMPLES: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodUsage {
    pub namespace: Box<str>,
    pub pod: Box<str>,
    /// The end of the measurement window.
    pub at: Time,
    /// The usage of each container that could be parsed.
    pub containers: Vec<ContainerUsage>,
    /// Whether a request for this pod failed or an item was malformed. A missing value is then unknown, and never zero.
    pub is_incomplete: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerUsage {
    pub name: Box<str>,
    /// CPU, rounded up to a millicore; `None` if the response has none.
    pub cpu: Option<MilliCpu>,
    /// Memory; `None` if the response has none.
    pub memory: Option<Bytes>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageReport {
    pub pods: u64,
    pub containers: u64,
    /// The number of malformed items that were skipped: whole pods, or single containers.
    pub malformed: u64,
    /// The first of them, with the error.
    pub malformed_examples: Vec<String>,
    /// The number of requests that failed or were truncated.
    pub failed: u64,
    pub failures: Vec<UsageError>,
}

impl UsageReport {
    /// Whether every request got a complete response. Malformed items do not count here.
    pub const fn is_complete(&self) -> bool {
        self.failed == 0
    }

    pub(super) fn emit(&mut self, usage: PodUsage, sink: &mut (dyn FnMut(PodUsage) + Send)) {
        self.pods += 1;
        self.containers += usage.containers.len() as u64;
        sink(usage);
    }

    pub(super) fn record_malformed(&mut self, describe: impl FnOnce() -> String) {
        self.malformed += 1;
        if self.malformed_examples.len() < MAX_EXAMPLES {
            self.malformed_examples.push(describe());
        }
    }

    /// A mark to return to with [`Self::rewind_malformed`].
    pub(super) fn malformed_mark(&self) -> (u64, usize) {
        (self.malformed, self.malformed_examples.len())
    }

    /// Drops the malformed items since the mark.
    pub(super) fn rewind_malformed(&mut self, (malformed, examples): (u64, usize)) {
        self.malformed = malformed;
        self.malformed_examples.truncate(examples);
    }

    pub(super) fn record_failure(&mut self, error: UsageError) {
        self.failed += 1;
        if self.failures.len() < MAX_EXAMPLES {
            self.failures.push(error);
        }
    }

    /// Returns an error only if every request failed.
    pub(super) fn into_result(mut self, has_response: bool) -> Result<Self, UsageError> {
        if has_response || self.pods > 0 || self.failures.is_empty() {
            return Ok(self);
        }
        Err(self.failures.swap_remove(0))
    }
}

/// Fetches the usage of all pods, of the cluster or of these namespaces one after the other, within `timeout` in total.
/// Returns an error only if every request failed. A truncated response or a failed namespace is recorded in the report;
/// pods that arrived before were delivered.
pub async fn fetch_usage(
    client: &Client,
    namespaces: Option<&[&str]>,
    sink: &mut (dyn FnMut(PodUsage) + Send),
    timeout: Duration,
) -> Result<UsageReport, UsageError> {
    let deadline = Deadline::after(timeout);
    let paths = namespaces.map_or_else(
        || vec![format!("{API}/pods")],
        |namespaces| {
            let path =
                |namespace: &&str| format!("{API}/namespaces/{}/pods", encode_query(namespace));
            namespaces.iter().map(path).collect()
        },
    );
    let mut report = UsageReport::default();
    let mut has_response = false;
    for path in &paths {
        let request = read_items(client, path, deadline, |item| {
            // An item that is not valid JSON ends the response.
            match serde_json::from_slice::<Item<'_>>(item) {
                Ok(item) => read_pod(&item, &mut report, sink),
                Err(why) if !why.is_data() => return Err(why),
                Err(why) => report.record_malformed(|| format!("{}: {why}", item_name(item))),
            }
            Ok(())
        });
        match request.await {
            Ok(()) => has_response = true,
            Err(error) => {
                // Requests for other namespaces would fail in the same way.
                let affects_all =
                    matches!(error, UsageError::NotServed { .. } | UsageError::Timeout { .. });
                report.record_failure(error);
                if affects_all {
                    break;
                }
            }
        }
    }
    report.into_result(has_response)
}

const API: &str = "/apis/metrics.k8s.io/v1beta1";

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow)]
    metadata: Metadata<'a>,
    #[serde(borrow)]
    timestamp: Cow<'a, str>,
    #[serde(borrow, default)]
    containers: Option<Vec<Container<'a>>>,
}

#[derive(Deserialize)]
struct Metadata<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Container<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    usage: Usage,
}

/// Accepts any JSON, so that one invalid amount does not invalidate the pod.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    cpu: Option<Value>,
    memory: Option<Value>,
}

fn read_pod(item: &Item<'_>, report: &mut UsageReport, sink: &mut (dyn FnMut(PodUsage) + Send)) {
    let Metadata { name: pod, namespace } = &item.metadata;
    let at = match item.timestamp.parse::<Timestamp>() {
        Ok(at) => at.into(),
        Err(why) => {
            report.record_malformed(|| {
                format!("{namespace}/{pod}: timestamp {:?}: {why}", item.timestamp)
            });
            return;
        }
    };
    let items = item.containers.as_deref().unwrap_or_default();
    let mut containers = Vec::with_capacity(items.len());
    let mut is_incomplete = false;
    for container in items {
        let cpu = parse_amount(container.usage.cpu.as_ref());
        let memory = parse_amount(container.usage.memory.as_ref());
        match (cpu, memory) {
            (Ok(cpu), Ok(memory)) => containers.push(ContainerUsage {
                name: container.name.as_ref().into(),
                cpu: cpu.map(Quantity::to_cpu),
                memory: memory.map(Quantity::to_memory),
            }),
            (cpu, memory) => {
                is_incomplete = true;
                report.record_malformed(|| {
                    let why = cpu
                        .err()
                        .map(|why| format!("cpu {why}"))
                        .or_else(|| memory.err().map(|why| format!("memory {why}")));
                    format!("{namespace}/{pod}/{}: {}", container.name, why.unwrap_or_default())
                });
            }
        }
    }
    let usage = PodUsage {
        namespace: namespace.as_ref().into(),
        pod: pod.as_ref().into(),
        at,
        containers,
        is_incomplete,
    };
    report.emit(usage, sink);
}

/// Parses an amount of usage; negative amounts are errors.
pub(super) fn parse_amount(value: Option<&Value>) -> Result<Option<Quantity>, String> {
    let Some(value) = value else { return Ok(None) };
    let amount = Quantity::deserialize(value).map_err(|why| format!("{value}: {why}"))?;
    if amount.is_negative() {
        return Err(format!("{value}: must not be negative"));
    }
    Ok(Some(amount))
}

fn item_name(item: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Named<'a> {
        #[serde(borrow)]
        metadata: Metadata<'a>,
    }
    serde_json::from_slice::<Named<'_>>(item).map_or_else(
        |_| "unnamed item".to_owned(),
        |named| format!("{}/{}", named.metadata.namespace, named.metadata.name),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(item: &str) -> (UsageReport, Option<PodUsage>) {
        let (mut report, mut usage) = (UsageReport::default(), None);
        let item = serde_json::from_str(item).expect("an item");
        read_pod(&item, &mut report, &mut |read| usage = Some(read));
        (report, usage)
    }

    fn item(usage: &str) -> String {
        format!(
            r#"{{"metadata":{{"name":"p","namespace":"n"}},"timestamp":"2026-03-01T12:00:00Z",
               "window":"15s","containers":[{{"name":"c","usage":{usage}}}]}}"#
        )
    }

    #[test]
    fn amounts_are_rounded_up_and_missing_ones_stay_missing() {
        for (usage, cpu, memory) in [
            (r#"{"cpu":"250123456n","memory":"1024Ki"}"#, Some(251), Some(1 << 20)),
            (r#"{"cpu":"0","memory":"1500m"}"#, Some(0), Some(2)),
            (r#"{"cpu":2}"#, Some(2000), None),
            (r#"{"memory":null}"#, None, None),
            ("{}", None, None),
        ] {
            let (report, pod) = read(&item(usage));
            let container = pod.expect("a pod").containers.remove(0);
            assert_eq!(
                (container.cpu, container.memory),
                (cpu.map(MilliCpu), memory.map(Bytes)),
                "{usage}"
            );
            assert_eq!(report.malformed, 0, "{usage}");
        }
    }

    #[test]
    fn a_container_with_an_invalid_amount_is_skipped_and_named() {
        for (usage, why) in [
            (r#"{"cpu":"NaN","memory":"1Mi"}"#, r#"n/p/c: cpu "NaN": "NaN" is not a quantity"#),
            (r#"{"cpu":"1m","memory":"-1"}"#, r#"n/p/c: memory "-1": must not be negative"#),
            (r#"{"cpu":[]}"#, "n/p/c: cpu []: invalid type: sequence"),
        ] {
            let (report, pod) = read(&item(usage));
            let pod = pod.expect("the pod is delivered");
            assert_eq!((pod.containers, pod.is_incomplete), (Vec::new(), true), "{usage}");
            let message = &report.malformed_examples[0];
            assert!(message.starts_with(why), "{message}");
        }
    }
}
