//! Owns the way of one role to the API server, on which what it does can be held: before it arrives, or once it is done
//! and before the role hears of it.

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

use crate::support::{
    Testbed,
    api_proxy::{self, ApiProxy, Interception},
    wait,
};

/// What a role does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleWrite {
    /// It books a change in its Lease.
    Ledger,
    /// It notes a change on the VPA.
    VpaAnnotation,
    /// It evicts a pod.
    Eviction,
    /// It resizes a pod.
    Resize,
    /// It says so on the pod.
    PodAnnotation,
    /// A watermark controller books a change in the status of its object, or tells of it there.
    WpaStatus,
    /// It changes replicas.
    Scale,
}

/// Where it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldPoint {
    /// Nobody has heard of it yet.
    Request,
    /// It is done.
    Answer,
}

/// A moment of a role's life.
pub type HeldMoment = (RoleWrite, HoldPoint);

impl RoleWrite {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        Some(match (method.as_str(), &parts[..]) {
            ("PUT", [.., "leases", _]) | ("POST", [.., "leases"]) => Self::Ledger,
            ("PATCH", [.., "verticalpodautoscalers", _]) => Self::VpaAnnotation,
            ("POST", [.., "pods", _, "eviction"]) => Self::Eviction,
            ("PATCH", [.., "pods", _, "resize"]) => Self::Resize,
            ("PATCH", [.., "pods", _]) => Self::PodAnnotation,
            ("PATCH", [.., "watermarkpodautoscalers", _, "status"]) => Self::WpaStatus,
            ("PUT", [.., "scale"]) => Self::Scale,
            _ => return None,
        })
    }
}

#[derive(Default)]
struct HoldGate {
    held: Option<HeldMoment>,
    reached: usize,
    /// Lets those on that wait now. Another one for each time that something is held.
    release: watch::Sender<bool>,
}

/// A way that can be held.
pub struct HoldingProxy {
    proxy: ApiProxy,
    gate: Arc<Mutex<HoldGate>>,
    pod_view_frozen: Arc<AtomicBool>,
    kubeconfig: PathBuf,
}

fn intercept(gate: &Mutex<HoldGate>, method: &Method, path: &str, side: HoldPoint) -> Interception {
    let mut gate = gate.lock().expect("no panic");
    if RoleWrite::of(method, path).map(|what| (what, side)) != gate.held || gate.held.is_none() {
        return api_proxy::pass_through();
    }
    gate.reached += 1;
    let mut released = gate.release.subscribe();
    Box::pin(async move {
        // Who is never let on waits for ever, as a request of somebody who died does.
        if released.wait_for(|is| *is).await.is_err() {
            std::future::pending::<()>().await;
        }
        None
    })
}

impl HoldingProxy {
    /// A way to a bed, with a name of its own there.
    pub async fn start(bed: &Testbed, name: &str) -> Self {
        let gate: Arc<Mutex<HoldGate>> = Arc::default();
        let (before, after) = (Arc::clone(&gate), Arc::clone(&gate));
        let is_blind: Arc<AtomicBool> = Arc::default();
        let blind = Arc::clone(&is_blind);
        let proxy = ApiProxy::start_with_response_interceptor(
            bed.client(),
            move |method, path| {
                let looks = *method == Method::GET && path.ends_with("/pods");
                if looks && blind.load(Ordering::SeqCst) {
                    return api_proxy::hang();
                }
                intercept(&before, method, path, HoldPoint::Request)
            },
            move |method, path| intercept(&after, method, path, HoldPoint::Answer),
        )
        .await;
        let kubeconfig = bed.process_guard().folder().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, proxy.kubeconfig()).expect("the bed's folder is writable");
        Self { proxy, gate, pod_view_frozen: is_blind, kubeconfig }
    }

    /// For a process that goes this way.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// For an updater of this process that does.
    pub fn client(&self) -> Client {
        self.proxy.client.clone()
    }

    /// From now on it sees nothing of what becomes of pods: for it they stay as they are.
    pub fn freeze_pod_view(&self) {
        self.pod_view_frozen.store(true, Ordering::SeqCst);
        self.proxy.cut_responses();
    }

    fn lock(&self) -> MutexGuard<'_, HoldGate> {
        self.gate.lock().expect("no panic")
    }

    /// From now on whatever comes to this moment waits. What waited before waits for ever.
    pub fn hold(&self, moment: HeldMoment) {
        *self.lock() = HoldGate { held: Some(moment), ..HoldGate::default() };
    }

    /// From now on nothing waits. What waited before does for ever.
    pub fn open(&self) {
        *self.lock() = HoldGate::default();
    }

    /// The same, and what waits goes on.
    pub fn release(&self) {
        let mut gate = self.lock();
        gate.held = None;
        gate.release.send_replace(true);
    }

    /// Waits until something waits.
    pub async fn wait_until_held(&self) {
        let moment = self.lock().held;
        let what = format!("it comes to {moment:?}");
        wait::until(&what, || async { (self.lock().reached > 0).then_some(()) }).await;
    }

    /// The paths of all that was tried.
    pub fn attempted_paths(&self, what: RoleWrite) -> Vec<String> {
        let requests = self.proxy.requests().into_iter();
        let fits = requests.filter(|(method, path)| RoleWrite::of(method, path) == Some(what));
        fits.map(|(_, path)| path).collect()
    }

    /// The paths of those that the server let pass.
    pub fn completed_paths(&self, what: RoleWrite) -> Vec<String> {
        let answers = self.proxy.responses().into_iter();
        let fits = answers.filter(|(method, path, code)| {
            code.is_success() && RoleWrite::of(method, path) == Some(what)
        });
        fits.map(|(_, path, _)| path).collect()
    }

    /// How often it was tried while nobody else wrote to the same object: who comes too late has to ask again, so how
    /// often that is depends on when a kubelet writes.
    pub fn attempt_count(&self, what: RoleWrite) -> usize {
        let late =
            self.proxy.conflict_count(|method, path| RoleWrite::of(method, path) == Some(what));
        let all = self.attempted_paths(what).len();
        // Who does not read before it writes comes too late again and again until others rest; who does, once at most for
        // each write of theirs.
        assert!(late <= all / 2 + 1, "{late} of {all} came too late");
        all - late
    }

    /// The writes that were tried, those of the Lease and questions about rights left out.
    pub fn attempted_writes(&self) -> Vec<String> {
        let requests = self.proxy.requests().into_iter();
        let is_write = |(method, path): &(Method, String)| {
            let asks = path.ends_with("/selfsubjectaccessreviews");
            *method != Method::GET
                && !asks
                && RoleWrite::of(method, path) != Some(RoleWrite::Ledger)
        };
        requests.filter(is_write).map(|(_, path)| path).collect()
    }
}
