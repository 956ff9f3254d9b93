//! The metrics APIs: the values of all objects, near their targets, and who read which of them when.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use serde_json::{Value, json};

use super::{
    cluster::{METRIC, Object},
    poll_periods::QueryTimes,
    support::{
        Testbed,
        clock::wall_now,
        metrics_server::{ApiRead, ApiResponse, MetricsServer},
    },
};

const MEBIBYTE: u64 = 1 << 20;

/// What does not respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hanging {
    /// `custom.metrics.k8s.io` and `external.metrics.k8s.io`, which one adapter serves.
    Adapter,
    /// `metrics.k8s.io` for the pods of one namespace.
    Usage,
}

impl Hanging {
    /// Whether the metric of an object hangs. `namespace` is the one whose usage does.
    pub fn affects(self, object: &Object, namespace: &str) -> bool {
        match self {
            Self::Adapter => object.source.is_adapter(),
            Self::Usage => object.namespace == namespace && !object.source.is_adapter(),
        }
    }
}

/// Values, reads and faults.
struct State {
    by_namespace: BTreeMap<String, Vec<Object>>,
    by_name: HashMap<String, Object>,
    tick: AtomicU32,
    /// Whether the values of objects that ours drives, or those of all others, are twice as high.
    doubled: [AtomicBool; 2],
    hanging: Mutex<Option<Hanging>>,
    /// When kube-controller-manager read the metric of each object, in seconds.
    reads: Mutex<HashMap<String, Vec<f64>>>,
}

/// The metrics APIs of a testbed.
pub struct MetricsApi {
    state: Arc<State>,
    _server: MetricsServer,
}

impl MetricsApi {
    /// Serves the metrics of these objects.
    pub async fn serve(bed: &Testbed, objects: &[Object]) -> Self {
        let mut by_namespace = BTreeMap::<_, Vec<_>>::new();
        for object in objects {
            by_namespace.entry(object.namespace.clone()).or_default().push(object.clone());
        }
        let by_name = objects.iter().map(|object| (object.name.clone(), object.clone())).collect();
        let state = Arc::new(State {
            by_namespace,
            by_name,
            tick: AtomicU32::new(0),
            doubled: Default::default(),
            hanging: Mutex::new(None),
            reads: Mutex::default(),
        });
        let server = MetricsServer::serve(bed).await;
        let responder = Arc::clone(&state);
        server.respond_with(move |read| responder.respond(read));
        Self { state, _server: server }
    }

    /// Changes all values a little: too little for another number of replicas.
    pub fn tick(&self) {
        self.state.tick.fetch_add(1, Ordering::Relaxed);
    }

    /// Doubles the values of the objects that ours drives, or of all others.
    pub fn double(&self, driven: bool) {
        self.state.doubled[usize::from(driven)].store(true, Ordering::Relaxed);
    }

    /// Lets a part hang from now on, or nothing.
    pub fn hang(&self, hanging: Option<Hanging>) {
        *self.state.hanging.lock().expect("no panic") = hanging;
    }

    /// The namespace whose usage hangs.
    pub fn hanging_namespace(&self) -> &str {
        self.state.hanging_namespace()
    }

    /// When kube-controller-manager read the metrics of these objects.
    pub fn upstream_reads(&self, names: &HashSet<&str>) -> QueryTimes {
        let reads = self.state.reads.lock().expect("no panic");
        let of_names = reads.iter().filter(|(name, _)| names.contains(&***name));
        let mut times: HashMap<_, _> =
            of_names.map(|(name, times)| (name.clone(), times.clone())).collect();
        for times in times.values_mut() {
            times.sort_unstable_by(f64::total_cmp);
        }
        QueryTimes(times)
    }
}

impl State {
    fn hanging_namespace(&self) -> &str {
        self.by_namespace.keys().next().expect("there are objects")
    }

    fn respond(&self, read: ApiRead<'_>) -> Option<ApiResponse> {
        let words: Vec<&str> = read.path.trim_matches('/').split('/').collect();
        let ["apis", group, version, "namespaces", namespace, rest @ ..] = words.as_slice() else {
            return None;
        };
        let object = object_name(read.path, read.query).and_then(|name| self.by_name.get(name));
        if let Some(object) = object.filter(|_| !read.agent.starts_with("plimsoll")) {
            let seconds = wall_now().as_millisecond() as f64 / 1e3;
            let mut reads = self.reads.lock().expect("no panic");
            reads.entry(object.name.clone()).or_default().push(seconds);
        }
        let is_usage = *group == "metrics.k8s.io";
        let hangs = match *self.hanging.lock().expect("no panic") {
            Some(Hanging::Adapter) => !is_usage,
            Some(Hanging::Usage) => is_usage && *namespace == self.hanging_namespace(),
            None => false,
        };
        if hangs {
            return Some(ApiResponse::Hang);
        }
        let body = match (*group, rest) {
            ("metrics.k8s.io", ["pods"]) => {
                let all = self.by_namespace.get(*namespace).map_or(&[][..], Vec::as_slice);
                let objects = object.map_or(all, std::slice::from_ref);
                self.list("PodMetricsList", group, version, objects, |pod, level| {
                    json!({"metadata": {"name": pod, "namespace": namespace}, "timestamp": now(),
                        "window": "15s", "containers": [{"name": "main", "usage": {
                            "cpu": format!("{}n", level * 500_000),
                            "memory": (level * MEBIBYTE).to_string()}}]})
                })
            }
            ("custom.metrics.k8s.io", ["pods", ..]) => {
                let objects = std::slice::from_ref(object?);
                self.list("MetricValueList", group, version, objects, |pod, level| {
                    value(
                        version,
                        &json!({"kind": "Pod", "namespace": namespace, "name": pod}),
                        level,
                    )
                })
            }
            ("custom.metrics.k8s.io", [_, name, _]) => {
                let described = json!({"kind": "Service", "namespace": namespace, "name": name});
                list(
                    "MetricValueList",
                    group,
                    version,
                    &[value(version, &described, self.level(object?))],
                )
            }
            ("external.metrics.k8s.io", [_]) => {
                let item = json!({"metricName": METRIC, "metricLabels": {"app": object?.name},
                    "timestamp": now(), "value": self.level(object?).to_string()});
                list("ExternalMetricValueList", group, version, &[item])
            }
            _ => return None,
        };
        Some(ApiResponse::Json(body.to_string().into()))
    }

    /// An item for each pod of the objects.
    fn list(
        &self,
        kind: &str,
        group: &str,
        version: &str,
        objects: &[Object],
        item: impl Fn(&str, u64) -> Value,
    ) -> Value {
        let items = objects.iter().flat_map(|object| {
            let level = self.level(object);
            object.pods().map(|pod| item(&pod, level)).collect::<Vec<_>>()
        });
        list(kind, group, version, &items.collect::<Vec<_>>())
    }

    /// The value of an object relative to its target in percent, within the tolerance of a tenth unless it is doubled.
    fn level(&self, object: &Object) -> u64 {
        let tick = u64::from(self.tick.load(Ordering::Relaxed));
        let number = object.name.rsplit('-').next().and_then(|text| text.parse::<u64>().ok());
        let level = 96 + (number.unwrap_or_default() * 5 + tick * 3) % 9;
        let is_doubled = self.doubled[usize::from(object.is_driven)].load(Ordering::Relaxed);
        if is_doubled { 2 * level } else { level }
    }
}

fn now() -> String {
    wall_now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn list(kind: &str, group: &str, version: &str, items: &[Value]) -> Value {
    json!({"kind": kind, "apiVersion": format!("{group}/{version}"), "metadata": {}, "items": items})
}

/// An item of `custom.metrics.k8s.io`.
fn value(version: &str, described: &Value, level: u64) -> Value {
    let mut item =
        json!({"describedObject": described, "timestamp": now(), "value": level.to_string()});
    if version == "v1beta1" {
        item["metricName"] = METRIC.into();
    } else {
        item["metric"] = json!({"name": METRIC, "selector": null});
    }
    item
}

/// The name of the object that a read is about: in its label selector, or the described object.
fn object_name<'a>(path: &'a str, query: &'a str) -> Option<&'a str> {
    let start = |text: &'a str| Some(&text[text.find("workload-")?..]);
    let text = start(query).or_else(|| start(path))?;
    Some(text.split(['&', '/', '%', ',']).next().unwrap_or(text))
}
