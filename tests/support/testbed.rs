//! Owns beds: a real control plane that a test talks to, shared by all tests of the process or private to one.

mod exclusive;
mod prestart;

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};

use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::Client;
use kube::api::{Api, ObjectMeta, PostParams};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

use super::clock::Clock;
use super::control_plane::{self, ControlPlane};
use super::hollow_nodes::HollowNodes;
use super::process_guard::ProcessGuard;
use super::skipped::report_skipped;
use super::testbed_lock::TestbedSlot;
use super::{metrics_server, wait};
use exclusive::{ExclusiveTestbed, ExclusiveUse};
use prestart::TestbedSpec;

/// One for all tests of this process. Never dropped: its keeper sees the end of the process.
/// The reason why there is none is kept too, because every test that wants the bed has to give it.
static SHARED: OnceCell<Result<Arc<Inner>, String>> = OnceCell::const_new();

/// The beds that are used by one test at a time.
static WEBHOOKS: LazyLock<ExclusiveTestbed> = LazyLock::new(ExclusiveTestbed::default);
static RIGHTS: LazyLock<ExclusiveTestbed> = LazyLock::new(ExclusiveTestbed::default);

/// Set for a run in which each test has beds of its own.
const PRIVATE: &str = "PLIMSOLL_PRIVATE";

/// A control plane to test against.
#[derive(Clone)]
pub struct Testbed {
    inner: Arc<Inner>,
    client: Client,
    exclusive_use: Option<Arc<ExclusiveUse>>,
}

struct Inner {
    // Dropped in this order: the slot is free when the processes are gone.
    usage: OnceCell<Arc<metrics_server::MetricsServerTask>>,
    nodes: HollowNodes,
    plane: Arc<ControlPlane>,
    _slot: Option<TestbedSlot>,
}

/// Parts that run beside the tests live here: a test's own runtime ends with the test, a shared bed does not.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("bed").enable_all().build().expect("a runtime")
});

/// What a service account is to the API server.
pub struct Account {
    /// A token that the API server signed.
    pub token: String,
    /// A kubeconfig with that token.
    pub kubeconfig: String,
    /// A client with that token.
    pub client: Client,
}

// === impl Bed ===

impl std::fmt::Debug for Testbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Testbed {
    /// The bed that all tests of the process share, each in namespaces of its own. `None` after noting why there is none.
    pub async fn shared() -> Option<Self> {
        if forces_private_testbeds() {
            return Self::from_started(shared("private", true).await).await;
        }
        Self::from_started(SHARED.get_or_init(|| shared("shared", false)).await.clone()).await
    }

    /// A bed of the test's own: for whatever acts on the whole cluster, breaks it, or registers APIs or webhooks.
    pub async fn private() -> Option<Self> {
        Self::private_with(&[], Clock::wall()).await
    }

    /// A bed of the test's own, whose API server takes these flags too and whose nodes have that clock.
    pub async fn private_with(api_server_flags: &[&str], clock: Clock) -> Option<Self> {
        let (kind, flags) = ("private", api_server_flags);
        let wanted = TestbedSpec { kind, flags, clock, controllers: true, takes_slot: true };
        Self::from_started(wanted.start().await).await
    }

    /// A bed of the test's own without controller manager and scheduler, for what only needs an API server.
    pub async fn api_server_only() -> Option<Self> {
        let (kind, clock) = ("bare", Clock::wall());
        let wanted = TestbedSpec { kind, flags: &[], clock, controllers: false, takes_slot: true };
        Self::from_started(wanted.start().await).await
    }

    /// A bed for what registers webhooks: it is no other test's until this one is over, and then as it was before.
    pub async fn exclusive_for_webhooks() -> Option<Self> {
        Self::exclusive(&WEBHOOKS, "webhooks").await
    }

    /// The same for what grants rights on the whole cluster and tries them. Neither of the two has a node, and a test that
    /// adds one has a private bed: pods on a node that is taken away may stay.
    pub async fn exclusive_for_rbac() -> Option<Self> {
        Self::exclusive(&RIGHTS, "rights").await
    }

    async fn exclusive(place: &ExclusiveTestbed, kind: &'static str) -> Option<Self> {
        if forces_private_testbeds() {
            return Self::private().await;
        }
        let turn = place.acquire(kind).await.map_err(report_skipped).ok()?;
        let bed = Self::from_started(Ok(Arc::clone(turn.inner()))).await?;
        Some(Self { exclusive_use: Some(Arc::new(turn)), ..bed })
    }

    async fn from_started(started: Result<Arc<Inner>, String>) -> Option<Self> {
        let inner = started.map_err(report_skipped).ok()?;
        // Made for each test, because a client belongs to the runtime that it was made on.
        let client =
            control_plane::client(&inner.plane.kubeconfig_for(control_plane::ADMIN_TOKEN)).await;
        Some(Self { inner, client, exclusive_use: None })
    }

    /// A client that may do everything.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig that may do everything.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.inner.plane.kubeconfig()
    }

    /// `https://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.inner.plane.address()
    }

    /// The hollow nodes. A shared bed has one of 64 cores and 256 GiB, a private one has those that the test adds.
    pub fn nodes(&self) -> &HollowNodes {
        &self.inner.nodes
    }

    /// The metrics API server of a bed on which several tests use it.
    pub fn usage(&self) -> &OnceCell<Arc<metrics_server::MetricsServerTask>> {
        &self.inner.usage
    }

    /// Keeps processes that shall not outlive the bed.
    pub fn process_guard(&self) -> &ProcessGuard {
        self.inner.plane.process_guard()
    }

    /// The control plane itself, to break it and bring it back.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.inner.plane
    }

    /// Whether controller manager and scheduler run; notes why not when they do not.
    pub fn has_controllers(&self) -> bool {
        if !self.inner.plane.has_controllers {
            report_skipped(
                "KUBEBUILDER_ASSETS has no kube-controller-manager and no kube-scheduler",
            );
        }
        self.inner.plane.has_controllers
    }

    /// A new namespace that begins with `name`, ready for pods.
    pub async fn namespace(&self, name: &str) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let namespace = Namespace {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            ..Namespace::default()
        };
        Api::<Namespace>::all(self.client())
            .create(&PostParams::default(), &namespace)
            .await
            .expect("a new namespace");
        // Pods are refused before their service account exists, which otherwise a controller creates.
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), &name);
        if !self.inner.plane.has_controllers {
            create_account(&accounts, "default").await;
        }
        wait::until("the namespace has its default service account", || async {
            accounts.get_opt("default").await.expect("readable")
        })
        .await;
        name
    }

    /// Signs in as a service account, which is created when it does not exist. It has the rights that RBAC gives it.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Account {
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        if accounts.get_opt(name).await.expect("readable").is_none() {
            create_account(&accounts, name).await;
        }
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .expect("a token")
            .status
            .expect("the server signs it")
            .token;
        let kubeconfig = self.inner.plane.kubeconfig_for(&token);
        let client = control_plane::client(&kubeconfig).await;
        Account { token, kubeconfig, client }
    }
}

async fn create_account(accounts: &Api<ServiceAccount>, name: &str) {
    let account = ServiceAccount {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ServiceAccount::default()
    };
    accounts.create(&PostParams::default(), &account).await.expect("a service account");
}

// === impl Inner ===

impl Inner {
    fn new(nodes: HollowNodes, plane: Arc<ControlPlane>, slot: Option<TestbedSlot>) -> Self {
        Self { usage: OnceCell::new(), nodes, plane, _slot: slot }
    }
}

/// Whether no test is to share a bed with others, to tell what another one left from what is wrong.
fn forces_private_testbeds() -> bool {
    std::env::var_os(PRIVATE).is_some_and(|value| !value.is_empty())
}

/// A bed as the shared one is.
async fn shared(kind: &'static str, in_slot: bool) -> Result<Arc<Inner>, String> {
    let clock = Clock::wall();
    let inner = TestbedSpec { kind, flags: &[], clock, controllers: true, takes_slot: in_slot }
        .start()
        .await?;
    inner.nodes.add("shared", "64", "256Gi").await;
    Ok(inner)
}

/// Runs this where it does not end with the test.
pub async fn on_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    spawn(work).await.expect("no panic")
}

/// Has this run on where it does not end with the test.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    RUNTIME.spawn(work)
}
