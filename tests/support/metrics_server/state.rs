//! Owns what the metrics API server knows: who uses what when, and what is broken.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

use super::prerendered::PrerenderedUsage;
use crate::support::clock::wall_now;
use crate::support::hollow_nodes::NodeView;

/// What a container uses.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct UsageValue {
    /// Cores.
    pub cpu: f64,
    /// Bytes.
    pub memory: u64,
}

/// Use over time.
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

/// What is wrong with an API. Its discovery stays whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It answers with this status.
    Status(u16),
    /// It takes the request and never answers.
    Hang,
    /// Its answer is no JSON.
    Malformed,
    /// Its answer breaks off in the middle.
    Truncated,
    /// Every other item is missing.
    Partial,
    /// Amounts are no quantities.
    NotANumber,
    /// Amounts are below zero.
    Negative,
}

/// What one container uses at a time.
#[derive(Clone, Debug)]
pub struct UsageLine {
    /// Where.
    pub namespace: String,
    /// Which pod.
    pub pod: String,
    /// Which container.
    pub container: String,
    /// How much.
    pub used: UsageValue,
    /// The time that is served of its namespace.
    pub at: Timestamp,
    /// The pod, if there is one.
    pub object: Option<Pod>,
}

/// Everything, shared by the test and the server.
pub struct State {
    view: NodeView,
    known: Mutex<ConfiguredUsage>,
}

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
    /// Of the namespaces that have one of their own.
    scopes: BTreeMap<String, Scope>,
    /// Of all other namespaces, and of what is asked of the whole cluster.
    rest: Scope,
}

/// What a test decides about the answers: of a namespace, or of all there is.
#[derive(Default)]
pub struct Scope {
    pub time: Option<Timestamp>,
    /// Answers that are written already, in place of `exact` and `rules`.
    pub rendered: Option<PrerenderedUsage>,
    pub readers: BTreeMap<String, usize>,
    /// Reads of the external API with their times, where somebody wants to know.
    pub noted: Option<Vec<(String, Timestamp)>>,
    /// Grows whenever another time is served: who was answered before has not read it.
    pub turn: u64,
    pub faults: HashMap<MetricsApi, Option<Fault>>,
}

// === impl Curve ===

impl UsageCurve {
    /// A curve that is calculated.
    pub fn new(of: impl Fn(Timestamp) -> UsageValue + Send + Sync + 'static) -> Self {
        Self(Arc::new(of))
    }

    /// Its value at a time.
    pub fn at(&self, time: Timestamp) -> UsageValue {
        (self.0)(time)
    }
}

impl From<UsageValue> for UsageCurve {
    fn from(always: UsageValue) -> Self {
        Self::new(move |_| always)
    }
}

// === impl Known ===

impl ConfiguredUsage {
    /// Gives a namespace a scope of its own.
    pub fn separate(&mut self, namespace: &str) {
        self.scopes.entry(namespace.to_owned()).or_default();
    }

    /// Nothing is used in a namespace any more, and it has no scope of its own.
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
    /// Something else is served from here on.
    pub fn turn(&mut self) {
        self.turn += 1;
        self.readers.clear();
    }

    /// Somebody has read what was served at that turn.
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

    /// The time that is served of a namespace, or of the whole cluster.
    pub fn now(&self, namespace: Option<&str>) -> Timestamp {
        self.lock().scope(namespace).time.unwrap_or_else(wall_now)
    }

    /// The pods on the nodes, of a namespace or of all.
    pub fn pods(&self, namespace: Option<&str>) -> Vec<Pod> {
        namespace.map_or_else(|| self.view.pods(), |namespace| self.view.pods_of(namespace))
    }

    /// What everything in a namespace uses, or in all, in order of namespace, pod and container.
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
