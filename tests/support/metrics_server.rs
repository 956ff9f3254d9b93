//! A metrics API server whose values a test sets. It is registered with the testbed's API server like metrics-server
//! and metrics adapters, and exports the same pods as series for a Prometheus to scrape.
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
pub use state::{ApiRead, ApiResponse, Fault, MetricsApi, UsageCurve, UsageValue};
use state::{ConfiguredUsage, Scope, State};

/// The settings of a testbed's metrics API server.
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

// === impl MetricsServer ===

impl MetricsServer {
    /// Serves usage of a private testbed's pods, and waits until the API server proxies it.
    pub async fn serve(bed: &Testbed) -> Self {
        Self { server: Arc::new(MetricsServerTask::start(bed).await), namespace: None }
    }

    /// The same on a testbed that others may share: time, faults and readers are those of one namespace. A read of
    /// the whole cluster includes this namespace too, without its faults.
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

    /// Sets the usage of a container from now on: a value, or a curve over time. The pod need not exist.
    pub fn set(&self, namespace: &str, pod: &str, container: &str, curve: impl Into<UsageCurve>) {
        let key = (namespace.to_owned(), pod.to_owned(), container.to_owned());
        self.known().exact.insert(key, curve.into());
    }

    /// Sets the usage of a container in all pods on the testbed's nodes whose name starts with `prefix`.
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

    /// Sets a metric of custom.metrics.k8s.io: `resource` is plural, `pods` or `deployments.apps`.
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

    /// Sets a metric of external.metrics.k8s.io.
    pub fn set_external(&self, namespace: &str, metric: &str, labels: &[(&str, &str)], value: f64) {
        let labels: BTreeMap<_, _> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let key = (namespace.to_owned(), metric.to_owned(), labels);
        self.known().external.insert(key, value);
    }

    /// Starts recording reads of the external API.
    pub fn record_external_queries(&self) {
        self.scope(|scope| {
            scope.noted.get_or_insert_default();
        });
    }

    /// Recorded reads: path and query, and time.
    pub fn recorded_external_queries(&self) -> Vec<(String, Timestamp)> {
        self.scope(|scope| scope.noted.clone().unwrap_or_default())
    }

    /// Serves the usage at this time, with this timestamp, until the next call; before the first call it is real
    /// time. Resets the read counts.
    pub fn at(&self, time: Timestamp) {
        self.scope(|scope| {
            scope.time = Some(time);
            scope.rendered = None;
            scope.turn();
        });
    }

    /// Serves exactly these samples with this timestamp until the next call: rendered once, so that tens of thousands
    /// are served fast. They must be ordered by namespace and pod. Label selectors are ignored. Resets the read
    /// counts.
    pub fn show<'a>(&self, time: Timestamp, samples: impl IntoIterator<Item = Sample<'a>>) {
        let rendered = PrerenderedUsage::new(time, samples);
        self.scope(|scope| {
            scope.time = Some(time);
            scope.rendered = Some(rendered);
            scope.turn();
        });
    }

    /// Lets this function respond to reads first: it returns `None` for those that the server is to answer, such as
    /// discovery.
    pub fn respond_with(
        &self,
        responder: impl Fn(ApiRead<'_>) -> Option<ApiResponse> + Send + Sync + 'static,
    ) {
        self.known().responder = Some(Arc::new(responder));
    }

    /// How often a reader whose user agent starts with `agent` has read the current usage.
    pub fn read_count(&self, agent: &str) -> usize {
        let readers = self.readers();
        let of_agent = readers.iter().filter(|(reader, _)| reader.starts_with(agent));
        of_agent.map(|(_, count)| count).sum()
    }

    /// The number of reads of pod usage at this time, by user agent.
    pub fn readers(&self) -> BTreeMap<String, usize> {
        self.scope(|scope| scope.readers.clone())
    }

    /// Waits until a reader whose user agent contains `agent` has read the pod usage at this time.
    pub async fn read_by(&self, agent: &str) {
        wait::until(&format!("{agent} reads the usage"), || async {
            self.readers().keys().any(|reader| reader.contains(agent)).then_some(())
        })
        .await;
    }

    /// Sets or clears a fault of an API.
    pub fn set_fault(&self, api: MetricsApi, fault: Option<Fault>) {
        self.scope(|scope| scope.faults.insert(api, fault));
    }

    /// `127.0.0.1:PORT`, to scrape `/metrics/cadvisor` and `/metrics/kube-state` over HTTPS. At
    /// `/metrics/cadvisor/stamped` samples have timestamps, like those of a kubelet.
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

// === impl MetricsServerTask ===

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
