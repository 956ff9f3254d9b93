//! The state of the metrics API server: usage by container and time, faults and readers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::prerendered::PrerenderedUsage;
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::NodeView;

/// The usage of a container.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageValue {
    /// Cores.
    pub cpu: f64,
    /// Bytes.
    pub memory: u64,
}

/// Usage over time.
#[derive(Clone)]
pub struct UsageCurve(Arc<dyn Fn(Timestamp) -> UsageValue + Send + Sync>);

/// One of the three APIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricsApi {
    /// metrics.k8s.io.
    Resource,
    /// custom.metrics.k8s.io.
    Custom,
    /// external.metrics.k8s.io.
    External,
}

/// A fault of an API. Its discovery still works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Responds with this status.
    Status(u16),
    /// Accepts the request and never responds.
    Hang,
    /// Responds with invalid JSON.
    Malformed,
    /// Truncates the response.
    Truncated,
    /// Omits every other item.
    Partial,
    /// Amounts are not quantities.
    NotANumber,
    /// Amounts are negative.
    Negative,
}

/// Usage of one container at a time.
#[derive(Clone, Debug)]
pub struct UsageLine {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub pod: String,
    /// Name of the container.
    pub container: String,
    /// The usage.
    pub used: UsageValue,
    /// The served time of its namespace.
    pub at: Timestamp,
    /// The pod, if it exists.
    pub object: Option<Pod>,
}

/// The state that the test and the server share.
pub struct State {
    view: NodeView,
    known: Mutex<ConfiguredUsage>,
}

/// A read of one of the APIs.
#[derive(Clone, Copy, Debug)]
pub struct ApiRead<'a> {
    /// The user agent of the reader.
    pub agent: &'a str,
    /// The path.
    pub path: &'a str,
    /// The query, still encoded.
    pub query: &'a str,
}

/// The response to a read that the test answers itself.
#[derive(Clone, Debug)]
pub enum ApiResponse {
    /// This JSON.
    Json(Bytes),
    /// None, ever.
    Hang,
}

/// Responds to reads in place of the server. Returns `None` for those that the server is to answer.
pub type Responder = dyn Fn(ApiRead<'_>) -> Option<ApiResponse> + Send + Sync;

/// Namespace, pod or prefix, container.
type Key = (String, String, String);

#[derive(Default)]
pub struct ConfiguredUsage {
    pub exact: BTreeMap<Key, UsageCurve>,
    pub rules: BTreeMap<Key, UsageCurve>,
    /// By namespace, resource, object and metric.
    pub custom: BTreeMap<[String; 4], f64>,
    pub external: BTreeMap<(String, String, BTreeMap<String, String>), f64>,
    /// CPU seconds of each container up to a time, for counters.
    pub counted: BTreeMap<Key, (Timestamp, f64)>,
    /// Responds first, if it is set.
    pub responder: Option<Arc<Responder>>,
    /// Scopes of namespaces that have their own.
    scopes: BTreeMap<String, Scope>,
    /// The scope of all other namespaces, and of cluster-wide requests.
    rest: Scope,
}

/// Settings of a namespace or of the whole cluster.
#[derive(Default)]
pub struct Scope {
    pub time: Option<Timestamp>,
    /// Prerendered responses, which replace `exact` and `rules`.
    pub rendered: Option<PrerenderedUsage>,
    pub readers: BTreeMap<String, usize>,
    /// Reads of the external API with their times, if they are recorded.
    pub noted: Option<Vec<(String, Timestamp)>>,
    /// Incremented whenever another time is served: responses from before do not count as reads.
    pub turn: u64,
    pub faults: HashMap<MetricsApi, Option<Fault>>,
}

// === impl UsageCurve ===

impl UsageCurve {
    /// A computed curve.
    pub fn new(of: impl Fn(Timestamp) -> UsageValue + Send + Sync + 'static) -> Self {
        Self(Arc::new(of))
    }

    /// The usage at a time.
    pub fn at(&self, time: Timestamp) -> UsageValue {
        (self.0)(time)
    }
}

impl From<UsageValue> for UsageCurve {
    fn from(always: UsageValue) -> Self {
        Self::new(move |_| always)
    }
}

// === impl ConfiguredUsage ===

impl ConfiguredUsage {
    /// Creates a scope for a namespace.
    pub fn separate(&mut self, namespace: &str) {
        self.scopes.entry(namespace.to_owned()).or_default();
    }

    /// Removes the usage and the scope of a namespace.
    pub fn forget(&mut self, namespace: &str) {
        self.exact.retain(|(of, ..), _| of != namespace);
        self.rules.retain(|(of, ..), _| of != namespace);
        self.custom.retain(|[of, ..], _| of != namespace);
        self.external.retain(|(of, ..), _| of != namespace);
        self.scopes.remove(namespace);
    }

    /// The scope of a namespace, or of the whole cluster.
    pub fn scope(&mut self, namespace: Option<&str>) -> &mut Scope {
        let own = namespace.and_then(|namespace| self.scopes.get_mut(namespace));
        own.unwrap_or(&mut self.rest)
    }
}

// === impl Scope ===

impl Scope {
    /// Starts a new set of served values.
    pub fn turn(&mut self) {
        self.turn += 1;
        self.readers.clear();
    }

    /// Counts a read of the values of this `turn`.
    pub fn count(&mut self, reader: String, turn: u64) {
        if turn == self.turn {
            *self.readers.entry(reader).or_default() += 1;
        }
    }
}

// === impl State ===

impl State {
    pub fn new(view: NodeView) -> Self {
        Self { view, known: Mutex::default() }
    }

    pub fn lock(&self) -> MutexGuard<'_, ConfiguredUsage> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The served time of a namespace, or of the whole cluster.
    pub fn now(&self, namespace: Option<&str>) -> Timestamp {
        self.lock().scope(namespace).time.unwrap_or_else(wall_now)
    }

    /// The pods on the nodes, of one namespace or all.
    pub fn pods(&self, namespace: Option<&str>) -> Vec<Pod> {
        namespace.map_or_else(|| self.view.pods(), |namespace| self.view.pods_of(namespace))
    }

    /// Usage of all containers, in one namespace or all, ordered by namespace, pod and container.
    pub fn lines(&self, wanted: Option<&str>) -> Vec<UsageLine> {
        let is_wanted = |namespace: &str| wanted.is_none_or(|wanted| wanted == namespace);
        let wall = wall_now();
        let mut running: BTreeMap<_, _> = self
            .pods(wanted)
            .into_iter()
            .filter(|pod| {
                pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
            })
            .map(|pod| ((pod.namespace().unwrap_or_default(), pod.name_any()), pod))
            .collect();
        let known = self.lock();
        let ConfiguredUsage { exact, rules, scopes, rest, .. } = &*known;
        let at = |namespace: &String| scopes.get(namespace).unwrap_or(rest).time.unwrap_or(wall);
        let mut uses: BTreeMap<Key, UsageValue> = BTreeMap::new();
        for ((namespace, prefix, container), curve) in rules {
            if !is_wanted(namespace) {
                continue;
            }
            let now = at(namespace);
            let of_rule = running.iter().filter(|((of, name), pod)| {
                of == namespace && name.starts_with(prefix) && has_container(pod, container)
            });
            for ((_, name), _) in of_rule {
                uses.insert((namespace.clone(), name.clone(), container.clone()), curve.at(now));
            }
        }
        for (key, curve) in exact.iter().filter(|(key, _)| is_wanted(&key.0)) {
            uses.insert(key.clone(), curve.at(at(&key.0)));
        }
        let line = |((namespace, pod, container), used): (Key, UsageValue)| {
            let object = running.get_mut(&(namespace.clone(), pod.clone())).cloned();
            let at = at(&namespace);
            UsageLine { namespace, pod, container, used, at, object }
        };
        uses.into_iter().map(line).collect()
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").finish_non_exhaustive()
    }
}

fn has_container(pod: &Pod, container: &str) -> bool {
    let spec = pod.spec.iter();
    let mut all =
        spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    all.any(|found| found.name == container)
}
