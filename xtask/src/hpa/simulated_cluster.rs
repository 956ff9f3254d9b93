//! The cluster of a scenario, as the controller sees it: scales, pods, metrics APIs and their failures.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerStatus,
};
use k8s_openapi::jiff::Timestamp;
use plimsoll_core::hpa::defaults;
use plimsoll_core::hpa::samples::{PodMetrics, PodValue};
use plimsoll_core::hpa::{Answer, Fetched, MetricRequest, Pod, ScaleValues, Selector, Spec};
use plimsoll_core::types::{Quantity, Time};

use super::go_duration;
use super::scenario::{self, CustomValue, ExternalValue, Fault, Step};
use super::simulated_workload::SimulatedWorkload;

/// 2000-01-01T00:00:00Z, in nanoseconds since the Unix epoch.
const EPOCH_NANOS: i64 = 946_684_800_000_000_000;

/// Converts a time of the scenario to an API time.
pub fn time(nanos: i64) -> Time {
    Time::from_nanos(EPOCH_NANOS + nanos)
}

/// Formats a time of the scenario as RFC 3339.
pub fn rfc3339(nanos: i64) -> String {
    let seconds = (EPOCH_NANOS + nanos).div_euclid(1_000_000_000);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

/// A stored HorizontalPodAutoscaler.
#[derive(Clone, Debug)]
pub struct StoredHpa {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: Option<String>,
    /// Its scale target.
    pub target: CrossVersionObjectReference,
    /// Its spec.
    pub spec: Spec,
    /// Its status.
    pub status: HorizontalPodAutoscalerStatus,
}

/// A scale.
#[derive(Clone, Debug)]
struct StoredScale {
    name: String,
    values: ScaleValues,
}

/// The whole cluster.
#[derive(Debug, Default)]
pub struct SimulatedCluster {
    /// Objects by namespace/name.
    pub objects: BTreeMap<String, StoredHpa>,
    scales: BTreeMap<String, StoredScale>,
    /// Pods with their namespaces.
    pods: Vec<(String, Pod)>,
    pod_metrics: Vec<scenario::PodMetrics>,
    custom: Vec<CustomValue>,
    external: Vec<ExternalValue>,
    faults: BTreeMap<String, Fault>,
    fleets: BTreeMap<String, SimulatedWorkload>,
}

/// A failed call.
#[derive(Clone, Debug)]
pub struct CallError {
    /// The message, as the client reports it.
    pub message: String,
    /// Whether it is a conflict, which is retried.
    pub is_conflict: bool,
}

impl SimulatedCluster {
    /// Applies a step; returns the objects that it created or updated, and those that it deleted.
    pub fn apply(
        &mut self,
        step: &Step,
        no_defaults: bool,
        now: i64,
    ) -> Result<(Vec<String>, Vec<String>)> {
        for (key, scale) in &step.scales {
            let values = ScaleValues {
                replicas: scale.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0),
                status_replicas: scale.status.as_ref().map_or(0, |status| status.replicas),
                selector: scale
                    .status
                    .as_ref()
                    .and_then(|status| status.selector.clone())
                    .unwrap_or_default(),
            };
            let name = scale.metadata.name.clone().unwrap_or_default();
            self.scales.insert(key.clone(), StoredScale { name, values });
        }
        if let Some(pods) = &step.pods {
            let read = |pod: &k8s_openapi::api::core::v1::Pod| {
                (pod.metadata.namespace.clone().unwrap_or_default(), Pod::read(pod))
            };
            self.pods = pods.iter().map(read).collect();
        }
        if let Some(metrics) = &step.pod_metrics {
            self.pod_metrics.clone_from(metrics);
        }
        if let Some(custom) = &step.custom {
            self.custom.clone_from(custom);
        }
        if let Some(external) = &step.external {
            self.external.clone_from(external);
        }
        if let Some(faults) = &step.faults {
            self.faults.clone_from(faults);
        }
        for (key, settings) in &step.fleets {
            let wanted = self.scales.get(key).map_or(0, |scale| scale.values.replicas);
            if let Some(living) = self.fleets.get_mut(key) {
                living.settings = settings.clone();
                living.scale_to(wanted, now);
            } else {
                // Pods that exist from the start are an hour old.
                let mut living = SimulatedWorkload::new(key, settings.clone());
                living.scale_to(wanted, now - 3_600_000_000_000);
                self.fleets.insert(key.clone(), living);
            }
        }
        let mut applied = Vec::new();
        for object in &step.apply {
            applied.push(self.store(object, no_defaults)?);
        }
        let exists = |key: &&String| self.objects.contains_key(*key);
        let deleted: Vec<_> = step.delete.iter().filter(exists).cloned().collect();
        for key in &deleted {
            self.objects.remove(key);
        }
        Ok((applied, deleted))
    }

    fn store(&mut self, object: &HorizontalPodAutoscaler, no_defaults: bool) -> Result<String> {
        let mut spec = object.spec.clone().unwrap_or_default();
        if !no_defaults {
            defaults::complete(&mut spec);
        }
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let name = object.metadata.name.clone().unwrap_or_default();
        let key = format!("{namespace}/{name}");
        let stored = StoredHpa {
            status: self
                .objects
                .get(&key)
                .map(|old| old.status.clone())
                .or_else(|| object.status.clone())
                .unwrap_or_default(),
            uid: object.metadata.uid.clone(),
            target: spec.scale_target_ref.clone(),
            spec: Spec::read(&spec).with_context(|| key.clone())?,
            namespace,
            name,
        };
        self.objects.insert(key.clone(), stored);
        Ok(key)
    }

    /// Updates the pods and samples of all workloads to this time.
    pub fn observe(&mut self, now: i64) {
        for (key, living) in &self.fleets {
            let (pods, samples) = living.observe(now);
            let read = |pod: &k8s_openapi::api::core::v1::Pod| {
                (pod.metadata.namespace.clone().unwrap_or_default(), Pod::read(pod))
            };
            self.pods = pods.iter().map(read).collect();
            self.pod_metrics = samples;
            if let Some(scale) = self.scales.get_mut(key) {
                scale.values.status_replicas = living.count() as i32;
            }
        }
    }

    /// The pods of a namespace.
    pub fn pods(&self, namespace: &str) -> Vec<Pod> {
        let of = self.pods.iter().filter(|(own, _)| own == namespace);
        of.map(|(_, pod)| pod.clone()).collect()
    }

    /// The failure that this call has to return, if any.
    pub fn fault(&mut self, call: &str, name: &str) -> Result<(), CallError> {
        let Some(fault) = self.faults.get_mut(call) else { return Ok(()) };
        let message = if fault.conflict {
            format!("Operation cannot be fulfilled on scales {name:?}: {}", fault.message)
        } else {
            fault.message.clone()
        };
        let error = CallError { message, is_conflict: fault.conflict };
        match fault.times {
            1 => {
                self.faults.remove(call);
            }
            times if times > 1 => fault.times -= 1,
            _ => {}
        }
        Err(error)
    }

    /// GET of a scale.
    pub fn scale(
        &mut self,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<ScaleValues, String> {
        self.fault("scale.get", name).map_err(|error| error.message)?;
        let found = self.scales.get(&format!("{resource}/{namespace}/{name}"));
        found
            .map(|scale| scale.values.clone())
            .ok_or_else(|| format!("{resource} {name:?} not found"))
    }

    /// The name in the scale object.
    pub fn scale_name(&self, resource: &str, namespace: &str, name: &str) -> String {
        let found = self.scales.get(&format!("{resource}/{namespace}/{name}"));
        found.map(|scale| scale.name.clone()).unwrap_or_default()
    }

    /// PUT of a scale.
    pub fn update_scale(
        &mut self,
        resource: &str,
        namespace: &str,
        name: &str,
        replicas: i32,
        now: i64,
    ) -> Result<(), CallError> {
        let shown = self.scale_name(resource, namespace, name);
        self.fault("scale.update", &shown)?;
        let key = format!("{resource}/{namespace}/{name}");
        let Some(scale) = self.scales.get_mut(&key) else {
            return Err(CallError {
                message: format!("{resource} {name:?} not found"),
                is_conflict: false,
            });
        };
        scale.values.replicas = replicas;
        if let Some(living) = self.fleets.get_mut(&key) {
            living.scale_to(replicas, now);
        }
        Ok(())
    }

    /// The response of a metrics API, and the call for the record.
    pub fn fetch(
        &mut self,
        request: &MetricRequest,
        namespace: &str,
        now: i64,
    ) -> (String, Fetched) {
        match request {
            MetricRequest::Resource { selector } => {
                let fetched = self.fault("resource", "").map_err(|error| error.message);
                let fetched = fetched.and_then(|()| self.resource(selector, namespace));
                (format!("metrics.resource {selector}"), fetched)
            }
            MetricRequest::Pods { selector, metric, metric_selector } => {
                let fetched = self.fault("pods", "").map_err(|error| error.message);
                let fetched = fetched.and_then(|()| {
                    let found = self.custom("", "Pod", metric, metric_selector);
                    let found = found.filter(|one| {
                        one.namespace == namespace
                            && (one.labels.is_empty() || selector.matches(&one.labels))
                    });
                    found
                        .map(|one| pod_value(one, now))
                        .collect::<Result<_, String>>()
                        .map(Answer::Pods)
                });
                (format!("metrics.pods {selector} {metric} {metric_selector}"), fetched)
            }
            MetricRequest::Object { group, kind, name, is_namespaced, metric, metric_selector } => {
                let scope = if *is_namespaced { namespace } else { "-" };
                let dot = if group.is_empty() { "" } else { "." };
                let call = format!(
                    "metrics.object {scope}/{kind}{dot}{group}/{name} {metric} {metric_selector}"
                );
                let fetched = self.fault("object", "").map_err(|error| error.message);
                let fetched = fetched.and_then(|()| {
                    let found = self.custom(group, kind, metric, metric_selector);
                    let found = found.filter(|one| {
                        one.name == *name && (!is_namespaced || one.namespace == namespace)
                    });
                    match found.collect::<Vec<_>>()[..] {
                        [one] => Ok(Answer::Object(quantity(&one.value)?)),
                        ref other => Err(format!(
                            "the custom metrics API server returned {} results when we asked for exactly one",
                            other.len()
                        )),
                    }
                });
                (call, fetched)
            }
            MetricRequest::External { metric, metric_selector } => {
                let fetched = self.fault("external", "").map_err(|error| error.message);
                let fetched = fetched.and_then(|()| {
                    let sent = sent(metric_selector);
                    let found = self.external.iter().filter(|one| {
                        one.metric == *metric
                            && one.namespace == namespace
                            && sent.matches(&one.labels)
                    });
                    found
                        .map(|one| quantity(&one.value))
                        .collect::<Result<_, String>>()
                        .map(Answer::External)
                });
                (format!("metrics.external {metric} {metric_selector}"), fetched)
            }
            // Only annotations add queries, which the controller of upstream does not read.
            MetricRequest::Prometheus { query } => {
                (format!("prometheus {query}"), Err("there is no Prometheus".to_owned()))
            }
        }
    }

    fn resource(&self, selector: &Selector, namespace: &str) -> Fetched {
        let found = self.pod_metrics.iter().filter(|one| {
            let of = &one.metadata;
            (of.namespace.is_empty() || of.namespace == namespace)
                && (of.labels.is_empty() || selector.matches(&of.labels))
        });
        let read = |one: &scenario::PodMetrics| {
            let containers = one.containers.iter().map(|container| {
                let usage =
                    container.usage.iter().map(|(name, text)| Ok((name.clone(), quantity(text)?)));
                Ok((container.name.clone(), usage.collect::<Result<_, String>>()?))
            });
            Ok(PodMetrics {
                pod: one.metadata.name.clone(),
                timestamp: stamp(&one.timestamp)?,
                window: go_duration::parse(&one.window),
                containers: containers.collect::<Result<_, String>>()?,
            })
        };
        found.map(read).collect::<Result<_, String>>().map(Answer::Resource)
    }

    fn custom<'a>(
        &'a self,
        group: &'a str,
        kind: &'a str,
        metric: &'a str,
        selector: &Selector,
    ) -> impl Iterator<Item = &'a CustomValue> + use<'a> {
        let sent = sent(selector);
        self.custom.iter().filter(move |one| {
            one.metric == metric
                && one.kind == kind
                && one.group == group
                && sent.matches(&one.metric_labels)
        })
    }
}

/// A selector as it is sent to a server: as text, in which a selector that matches nothing is empty and so matches
/// everything.
fn sent(selector: &Selector) -> Selector {
    Selector::parse(&selector.to_string()).unwrap_or_default()
}

fn quantity(text: &str) -> Result<Quantity, String> {
    text.parse().map_err(|error: plimsoll_core::types::quantity::ParseError| error.to_string())
}

fn stamp(text: &str) -> Result<Time, String> {
    text.parse::<Timestamp>().map(Time::from).map_err(|error| error.to_string())
}

fn pod_value(one: &CustomValue, now: i64) -> Result<PodValue, String> {
    let timestamp = if one.timestamp.is_empty() { time(now) } else { stamp(&one.timestamp)? };
    let value = quantity(&one.value)?;
    Ok(PodValue { pod: one.name.clone(), value, timestamp, window_seconds: one.window_seconds })
}
