//! A proxy between a role and the API server that can hold a write: before it reaches the server, or after it succeeded and
//! before the role gets the response.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
};

use http::Method;
use kube::Client;
use tokio::sync::watch;

use super::{
    api_proxy::{self, ApiProxy, Interception},
    testbed::Testbed,
    wait,
};

/// A write of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleWrite {
    /// Writes its Lease: the election, or a recorded disruption.
    Lease,
    /// Writes the annotation of the VPA.
    VpaAnnotation,
    /// Evicts a pod.
    Eviction,
    /// Resizes a pod.
    Resize,
    /// Writes the annotation of the pod.
    PodAnnotation,
    /// A watermark controller writes the status of its object, before or after a scale update.
    WpaStatus,
    /// A horizontal controller writes the record of an adopted object, before or after a scale update.
    HpaRecord,
    /// Updates the scale.
    Scale,
    /// A recommender writes the status of a VPA.
    VpaStatus,
    /// Saves a checkpoint.
    Checkpoint,
    /// An admission controller creates or changes the Secret of its certificate.
    Certificate,
    /// Registers the webhook.
    WebhookConfig,
}

/// Where a write is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPoint {
    /// Before it reaches the server.
    Request,
    /// After the server processed it.
    Answer,
}

/// A write, and where to hold it.
pub type HeldMoment = (RoleWrite, HoldPoint);

impl RoleWrite {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        Some(match (method.as_str(), &parts[..]) {
            ("PUT", [.., "leases", _]) | ("POST", [.., "leases"]) => Self::Lease,
            ("PATCH", [.., "verticalpodautoscalers", _]) => Self::VpaAnnotation,
            ("PATCH", [.., "verticalpodautoscalers", _, "status"]) => Self::VpaStatus,
            ("POST", [.., "verticalpodautoscalercheckpoints"])
            | ("PATCH", [.., "verticalpodautoscalercheckpoints", _]) => Self::Checkpoint,
            ("POST", [.., "secrets"]) | ("PATCH", [.., "secrets", _]) => Self::Certificate,
            ("POST", [.., "mutatingwebhookconfigurations"])
            | ("PATCH", [.., "mutatingwebhookconfigurations", _]) => Self::WebhookConfig,
            ("POST", [.., "pods", _, "eviction"]) => Self::Eviction,
            ("PATCH", [.., "pods", _, "resize"]) => Self::Resize,
            ("PATCH", [.., "pods", _]) => Self::PodAnnotation,
            ("PATCH", [.., "watermarkpodautoscalers", _, "status"]) => Self::WpaStatus,
            ("PATCH", [.., "horizontalpodautoscalers", _]) => Self::HpaRecord,
            ("PUT", [.., "scale"]) => Self::Scale,
            _ => return None,
        })
    }
}

#[derive(Default)]
struct HoldGate {
    held: Option<HeldMoment>,
    /// How many writes still pass before one is held.
    skipped: usize,
    reached: usize,
    /// Releases the writes held now. There is a new channel for each call of `hold`.
    release: watch::Sender<bool>,
}

/// A proxy that can hold writes.
pub struct HoldingProxy {
    proxy: ApiProxy,
    gate: Arc<Mutex<HoldGate>>,
    pod_view_frozen: Arc<AtomicBool>,
    leases_refused: Arc<AtomicBool>,
    kubeconfig: PathBuf,
}

fn intercept(gate: &Mutex<HoldGate>, method: &Method, path: &str, side: HoldPoint) -> Interception {
    let mut gate = gate.lock().expect("no panic");
    if RoleWrite::of(method, path).map(|write| (write, side)) != gate.held || gate.held.is_none() {
        return api_proxy::pass_through();
    }
    if gate.skipped > 0 {
        gate.skipped -= 1;
        return api_proxy::pass_through();
    }
    gate.reached += 1;
    let mut released = gate.release.subscribe();
    Box::pin(async move {
        // A write that is never released waits forever, as does a request of a dead process.
        if released.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
        None
    })
}

impl HoldingProxy {
    /// Starts a proxy to a testbed, with a unique name there.
    pub async fn start(bed: &Testbed, name: &str) -> Self {
        let gate: Arc<Mutex<HoldGate>> = Arc::default();
        let (before, after) = (Arc::clone(&gate), Arc::clone(&gate));
        let is_blind: Arc<AtomicBool> = Arc::default();
        let blind = Arc::clone(&is_blind);
        let leases_refused: Arc<AtomicBool> = Arc::default();
        let refused = Arc::clone(&leases_refused);
        let proxy = ApiProxy::start_with_response_interceptor(
            bed.client(),
            move |method, path| {
                let is_pod_watch = *method == Method::GET && path.ends_with("/pods");
                if is_pod_watch && blind.load(Ordering::SeqCst) {
                    return api_proxy::hang();
                }
                let is_lease = RoleWrite::of(method, path) == Some(RoleWrite::Lease);
                if is_lease && refused.load(Ordering::SeqCst) {
                    return api_proxy::respond_with(503, None);
                }
                intercept(&before, method, path, HoldPoint::Request)
            },
            move |method, path| intercept(&after, method, path, HoldPoint::Answer),
        )
        .await;
        let kubeconfig = bed.process_guard().folder().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, proxy.kubeconfig()).expect("testbed directory is writable");
        Self { proxy, gate, pod_view_frozen: is_blind, leases_refused, kubeconfig }
    }

    /// Returns the kubeconfig for a process behind this proxy.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Returns a client for an updater in this process.
    pub fn client(&self) -> Client {
        self.proxy.client.clone()
    }

    /// From now on the role gets no updates about pods: they stay as they are in its view.
    pub fn freeze_pod_view(&self) {
        self.pod_view_frozen.store(true, Ordering::SeqCst);
        self.proxy.cut_responses();
    }

    /// Whether the role can write no Lease, while all of its other requests succeed.
    pub fn refuse_leases(&self, refused: bool) {
        self.leases_refused.store(refused, Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, HoldGate> {
        self.gate.lock().expect("no panic")
    }

    /// From now on all writes at this point wait. Those that waited before wait forever.
    pub fn hold(&self, moment: HeldMoment) {
        self.hold_after(0, moment);
    }

    /// Like [`hold`](Self::hold), after this many more writes have passed.
    pub fn hold_after(&self, skipped: usize, moment: HeldMoment) {
        *self.lock() = HoldGate { held: Some(moment), skipped, ..HoldGate::default() };
    }

    /// From now on no write waits. Those that waited before wait forever.
    pub fn open(&self) {
        *self.lock() = HoldGate::default();
    }

    /// Like [`open`](Self::open), but also lets the waiting writes continue.
    pub fn release(&self) {
        let mut gate = self.lock();
        gate.held = None;
        gate.release.send_replace(true);
    }

    /// Waits until a write is held.
    pub async fn wait_until_held(&self) {
        let moment = self.lock().held;
        let description = format!("a write is held at {moment:?}");
        wait::until(&description, || async { (self.lock().reached > 0).then_some(()) }).await;
    }

    /// Returns the paths of all attempts.
    pub fn attempted_paths(&self, write: RoleWrite) -> Vec<String> {
        let requests = self.proxy.requests().into_iter();
        let fits = requests.filter(|(method, path)| RoleWrite::of(method, path) == Some(write));
        fits.map(|(_, path)| path).collect()
    }

    /// Returns the paths of all writes that the server accepted.
    pub fn completed_paths(&self, write: RoleWrite) -> Vec<String> {
        let answers = self.proxy.responses().into_iter();
        let fits = answers.filter(|(method, path, code)| {
            code.is_success() && RoleWrite::of(method, path) == Some(write)
        });
        fits.map(|(_, path, _)| path).collect()
    }

    /// Returns how many of these writes the server responded to, whatever the response.
    pub fn response_count(&self, write: RoleWrite) -> usize {
        let is_one = |method: &Method, path: &str| RoleWrite::of(method, path) == Some(write);
        self.proxy.responses().iter().filter(|(method, path, _)| is_one(method, path)).count()
    }

    /// Returns how many attempts there were, without conflicts: a writer that lost to another one has to retry, and how
    /// often depends on when a kubelet writes.
    pub fn attempt_count(&self, write: RoleWrite) -> usize {
        let late =
            self.proxy.conflict_count(|method, path| RoleWrite::of(method, path) == Some(write));
        let attempts = self.attempted_paths(write).len();
        // A writer that does not read before it writes conflicts repeatedly until the others stop; one that does conflicts
        // at most once for each of their writes.
        assert!(late <= attempts / 2 + 1, "{late} conflicts in {attempts} attempts");
        attempts - late
    }

    /// Returns the attempted writes, except for Lease writes and access reviews.
    pub fn attempted_writes(&self) -> Vec<String> {
        let requests = self.proxy.requests().into_iter();
        let is_write = |(method, path): &(Method, String)| {
            let is_access_review = path.ends_with("/selfsubjectaccessreviews");
            *method != Method::GET
                && !is_access_review
                && RoleWrite::of(method, path) != Some(RoleWrite::Lease)
        };
        requests.filter(is_write).map(|(_, path)| path).collect()
    }
}
