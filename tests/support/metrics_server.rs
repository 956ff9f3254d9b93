//! Owns usage: a metrics API server that a test fills with values or curves, registered with the bed's API server the way
//! metrics-server and metric adapters are, and the same pods as series for a Prometheus to scrape.
//!
//! ```text
//!   reader ──▶ API server ──▶ this server: metrics.k8s.io, custom.metrics.k8s.io, external.metrics.k8s.io
//!   Prometheus ─────────────▶ this server: /metrics/cadvisor, /metrics/kube-state
//! ```

mod api_service;
mod exposition;
mod https_server;
mod prerendered;
mod request_query;
mod responses;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard};

use jiff::Timestamp;
use tokio::task::JoinHandle;

use super::ports::Port;
use super::testbed::{Testbed, on_runtime, spawn};
use super::wait;
use prerendered::PrerenderedUsage;
pub use prerendered::Sample;
use state::{ConfiguredUsage, Scope, State};
pub use state::{Fault, MetricsApi, UsageCurve, UsageValue};

/// What a test decides about the metrics API server of a bed, of which there is one.
#[derive(Debug)]
pub struct MetricsServer {
    server: Arc<MetricsServerTask>,
    namespace: Option<String>,
}

/// The server, which runs until it is dropped.
#[derive(Debug)]
pub struct MetricsServerTask {
    state: Arc<State>,
    port: Port,
    task: JoinHandle<()>,
}

// === impl Usage ===

impl MetricsServer {
    /// Serves usage of a private bed's pods, and waits until the bed's API server passes it on.
    pub async fn serve(bed: &Testbed) -> Self {
        Self { server: Arc::new(MetricsServerTask::start(bed).await), namespace: None }
    }

    /// The same on a bed that others may share: the time that is served, what is broken and who reads are those of one
    /// namespace. A read of the whole cluster sees this namespace too, without its faults.
    pub async fn shared(bed: &Testbed, namespace: &str) -> Self {
        let server = bed
            .usage()
            .get_or_init(|| async { Arc::new(MetricsServerTask::start(bed).await) })
            .await;
        server.state.lock().separate(namespace);
        Self { server: Arc::clone(server), namespace: Some(namespace.to_owned()) }
    }

    fn known(&self) -> MutexGuard<'_, ConfiguredUsage> {
        self.server.state.lock()
    }

    fn scope<T>(&self, of: impl FnOnce(&mut Scope) -> T) -> T {
        of(self.known().scope(self.namespace.as_deref()))
    }

    /// What a container uses, from now on: a value, or a curve over time. The pod need not exist.
    pub fn set(&self, namespace: &str, pod: &str, container: &str, curve: impl Into<UsageCurve>) {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.known().exact.insert(key, curve.into());
    }

    /// What a container of every pod uses that runs on the bed's nodes and whose name begins with `prefix`.
    pub fn set_all(
        &self,
        namespace: &str,
        prefix: &str,
        container: &str,
        curve: impl Into<UsageCurve>,
    ) {
        let key = (namespace.to_owned(), prefix.to_owned(), container.to_owned());
        self.known().rules.insert(key, curve.into());
    }

    /// A metric of an object, as custom.metrics.k8s.io tells it: `resource` is plural, `pods` or `deployments.apps`.
    pub fn set_custom(
        &self,
        namespace: &str,
        resource: &str,
        object: &str,
        metric: &str,
        value: f64,
    ) {
        let key = [namespace, resource, object, metric].map(str::to_owned);
        self.known().custom.insert(key, value);
    }

    /// A metric of something outside the cluster, as external.metrics.k8s.io tells it.
    pub fn set_external(&self, namespace: &str, metric: &str, labels: &[(&str, &str)], value: f64) {
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let key = (namespace.to_owned(), metric.to_owned(), labels);
        self.known().external.insert(key, value);
    }

    /// From now on each read of the external API is noted.
    pub fn record_external_queries(&self) {
        self.scope(|scope| {
            scope.noted.get_or_insert_default();
        });
    }

    /// What was noted: path and query, and when.
    pub fn recorded_external_queries(&self) -> Vec<(String, Timestamp)> {
        self.scope(|scope| scope.noted.clone().unwrap_or_default())
    }

    /// Serves the usage of that time, under that time, until the next call; before the first, of the wall's time. What
    /// was counted of readers is forgotten.
    pub fn at(&self, time: Timestamp) {
        self.scope(|scope| {
            scope.time = Some(time);
            scope.rendered = None;
            scope.turn();
        });
    }

    /// Serves exactly these samples under that time, until the next call: written once, so that tens of thousands are
    /// answered at once. They are in order of namespace and pod. Label selectors are not looked at. What was counted of
    /// readers is forgotten.
    pub fn show<'a>(&self, time: Timestamp, samples: impl IntoIterator<Item = Sample<'a>>) {
        let rendered = PrerenderedUsage::new(time, samples);
        self.scope(|scope| {
            scope.time = Some(time);
            scope.rendered = Some(rendered);
            scope.turn();
        });
    }

    /// How often a reader whose user agent begins like this has read what is served now.
    pub fn read_count(&self, agent: &str) -> usize {
        let readers = self.readers();
        let of_agent = readers.iter().filter(|(reader, _)| reader.starts_with(agent));
        of_agent.map(|(_, count)| count).sum()
    }

    /// How often who has read the usage of pods at this time; readers are told apart by their user agent.
    pub fn readers(&self) -> BTreeMap<String, usize> {
        self.scope(|scope| scope.readers.clone())
    }

    /// Waits until somebody whose user agent contains this has read the usage of pods at this time.
    pub async fn read_by(&self, agent: &str) {
        wait::until(&format!("{agent} reads the usage"), || async {
            self.readers().keys().any(|reader| reader.contains(agent)).then_some(())
        })
        .await;
    }

    /// Breaks an API, or mends it.
    pub fn set_fault(&self, api: MetricsApi, fault: Option<Fault>) {
        self.scope(|scope| scope.faults.insert(api, fault));
    }

    /// `127.0.0.1:PORT`, for a scrape of `/metrics/cadvisor` and `/metrics/kube-state` over HTTPS. At
    /// `/metrics/cadvisor/stamped` samples carry the time that is served, as those of a kubelet carry theirs.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.server.port)
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        if let Some(namespace) = &self.namespace {
            self.known().forget(namespace);
        }
    }
}

// === impl Server ===

impl MetricsServerTask {
    async fn start(bed: &Testbed) -> Self {
        let state = Arc::new(State::new(bed.nodes().view()));
        let port = Port::claim();
        let listener = on_runtime(https_server::listen(port.number())).await;
        let task = spawn(https_server::serve(listener, Arc::clone(&state)));
        api_service::register(&bed.client(), port.number()).await;
        Self { state, port, task }
    }
}

impl Drop for MetricsServerTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}
