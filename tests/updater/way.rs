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
    Bed,
    proxy::{self, Meddle, Proxy},
    wait,
};

/// What a role does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It books a change in its Lease.
    Ledger,
    /// It notes a change on the VPA.
    Note,
    /// It evicts a pod.
    Eviction,
    /// It resizes a pod.
    Resize,
    /// It says so on the pod.
    PodNote,
    /// A watermark controller books a change in the status of its object, or tells of it there.
    Told,
    /// It changes replicas.
    Scale,
}

/// Where it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Nobody has heard of it yet.
    Request,
    /// It is done.
    Answer,
}

/// A moment of a role's life.
pub type Moment = (What, Side);

impl What {
    fn of(method: &Method, path: &str) -> Option<Self> {
        let parts: Vec<&str> = path.split('/').collect();
        Some(match (method.as_str(), &parts[..]) {
            ("PUT", [.., "leases", _]) | ("POST", [.., "leases"]) => Self::Ledger,
            ("PATCH", [.., "verticalpodautoscalers", _]) => Self::Note,
            ("POST", [.., "pods", _, "eviction"]) => Self::Eviction,
            ("PATCH", [.., "pods", _, "resize"]) => Self::Resize,
            ("PATCH", [.., "pods", _]) => Self::PodNote,
            ("PATCH", [.., "watermarkpodautoscalers", _, "status"]) => Self::Told,
            ("PUT", [.., "scale"]) => Self::Scale,
            _ => return None,
        })
    }
}

#[derive(Default)]
struct Gate {
    held: Option<Moment>,
    reached: usize,
    /// Lets those on that wait now. Another one for each time that something is held.
    release: watch::Sender<bool>,
}

/// A way that can be held.
pub struct Way {
    proxy: Proxy,
    gate: Arc<Mutex<Gate>>,
    is_blind: Arc<AtomicBool>,
    kubeconfig: PathBuf,
}

fn meddle(gate: &Mutex<Gate>, method: &Method, path: &str, side: Side) -> Meddle {
    let mut gate = gate.lock().expect("no panic");
    if What::of(method, path).map(|what| (what, side)) != gate.held || gate.held.is_none() {
        return proxy::pass();
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

impl Way {
    /// A way to a bed, with a name of its own there.
    pub async fn to(bed: &Bed, name: &str) -> Self {
        let gate: Arc<Mutex<Gate>> = Arc::default();
        let (before, after) = (Arc::clone(&gate), Arc::clone(&gate));
        let is_blind: Arc<AtomicBool> = Arc::default();
        let blind = Arc::clone(&is_blind);
        let proxy = Proxy::start_both(
            bed.client(),
            move |method, path| {
                let looks = *method == Method::GET && path.ends_with("/pods");
                if looks && blind.load(Ordering::SeqCst) {
                    return proxy::hang();
                }
                meddle(&before, method, path, Side::Request)
            },
            move |method, path| meddle(&after, method, path, Side::Answer),
        )
        .await;
        let kubeconfig = bed.keeper().folder().join(format!("{name}.kubeconfig"));
        std::fs::write(&kubeconfig, proxy.kubeconfig()).expect("the bed's folder is writable");
        Self { proxy, gate, is_blind, kubeconfig }
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
    pub fn blind(&self) {
        self.is_blind.store(true, Ordering::SeqCst);
        self.proxy.cut();
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().expect("no panic")
    }

    /// From now on whatever comes to this moment waits. What waited before waits for ever.
    pub fn hold(&self, moment: Moment) {
        *self.lock() = Gate { held: Some(moment), ..Gate::default() };
    }

    /// From now on nothing waits. What waited before does for ever.
    pub fn open(&self) {
        *self.lock() = Gate::default();
    }

    /// The same, and what waits goes on.
    pub fn release(&self) {
        let mut gate = self.lock();
        gate.held = None;
        gate.release.send_replace(true);
    }

    /// Waits until something waits.
    pub async fn reached(&self) {
        let moment = self.lock().held;
        let what = format!("it comes to {moment:?}");
        wait::until(&what, || async { (self.lock().reached > 0).then_some(()) }).await;
    }

    /// The paths of all that was tried.
    pub fn tried(&self, what: What) -> Vec<String> {
        let requests = self.proxy.requests().into_iter();
        let fits = requests.filter(|(method, path)| What::of(method, path) == Some(what));
        fits.map(|(_, path)| path).collect()
    }

    /// The paths of those that the server let pass.
    pub fn done(&self, what: What) -> Vec<String> {
        let answers = self.proxy.answers().into_iter();
        let fits = answers.filter(|(method, path, code)| {
            code.is_success() && What::of(method, path) == Some(what)
        });
        fits.map(|(_, path, _)| path).collect()
    }

    /// How often it was tried while nobody else wrote to the same object: who comes too late has to ask again, so how
    /// often that is depends on when a kubelet writes.
    pub fn asked(&self, what: What) -> usize {
        let late = self.proxy.late(|method, path| What::of(method, path) == Some(what));
        let all = self.tried(what).len();
        // Who does not read before it writes comes too late again and again until others rest; who does, once at most for
        // each write of theirs.
        assert!(late <= all / 2 + 1, "{late} of {all} came too late");
        all - late
    }

    /// The writes that were tried, those of the Lease and questions about rights left out.
    pub fn writes(&self) -> Vec<String> {
        let requests = self.proxy.requests().into_iter();
        let is_write = |(method, path): &(Method, String)| {
            let asks = path.ends_with("/selfsubjectaccessreviews");
            *method != Method::GET && !asks && What::of(method, path) != Some(What::Ledger)
        };
        requests.filter(is_write).map(|(_, path)| path).collect()
    }
}
