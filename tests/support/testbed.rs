//! Testbeds: a real control plane to test against, shared by all tests of the process or private to one test.

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

/// The testbed that all tests of this process share. It is never dropped: its process guard notices the end of the
/// process. An error is stored too, because every test that needs the testbed reports it.
static SHARED: OnceCell<Result<Arc<Inner>, String>> = OnceCell::const_new();

/// Testbeds that one test at a time uses.
static WEBHOOKS: LazyLock<ExclusiveTestbed> = LazyLock::new(ExclusiveTestbed::default);
static RIGHTS: LazyLock<ExclusiveTestbed> = LazyLock::new(ExclusiveTestbed::default);

/// If set, each test has its own testbed.
const PRIVATE: &str = "PLIMSOLL_PRIVATE";

/// A control plane to test against.
#[derive(Clone)]
pub struct Testbed {
    inner: Arc<Inner>,
    client: Client,
    exclusive_use: Option<Arc<ExclusiveUse>>,
}

struct Inner {
    // Fields are dropped in this order: the slot is released once the processes have ended.
    usage: OnceCell<Arc<metrics_server::MetricsServerTask>>,
    nodes: HollowNodes,
    plane: Arc<ControlPlane>,
    _slot: Option<TestbedSlot>,
}

/// Runs parts that outlive a test: a test's own runtime ends with the test, a shared testbed does not.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("bed").enable_all().build().expect("a runtime")
});

/// Credentials of a service account.
pub struct Account {
    /// A token that the API server issued.
    pub token: String,
    /// A kubeconfig with that token.
    pub kubeconfig: String,
    /// A client with that token.
    pub client: Client,
}

// === impl Testbed ===

impl std::fmt::Debug for Testbed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Testbed {
    /// The testbed that all tests of the process share, each in its own namespaces. Returns `None` after reporting
    /// why it is not available.
    pub async fn shared() -> Option<Self> {
        if forces_private_testbeds() {
            return Self::from_started(shared("private", true).await).await;
        }
        Self::from_started(SHARED.get_or_init(|| shared("shared", false)).await.clone()).await
    }

    /// A private testbed: for tests that act on the whole cluster, break it, or register APIs or webhooks.
    pub async fn private() -> Option<Self> {
        Self::private_with(&[], Clock::wall()).await
    }

    /// A private testbed with additional API server flags and this clock for its nodes.
    pub async fn private_with(api_server_flags: &[&str], clock: Clock) -> Option<Self> {
        let (kind, flags) = ("private", api_server_flags);
        let wanted = TestbedSpec { kind, flags, clock, controllers: true, takes_slot: true };
        Self::from_started(wanted.start().await).await
    }

    /// A private testbed without controller manager and scheduler, for tests that only need an API server.
    pub async fn api_server_only() -> Option<Self> {
        let (kind, clock) = ("bare", Clock::wall());
        let wanted = TestbedSpec { kind, flags: &[], clock, controllers: false, takes_slot: true };
        Self::from_started(wanted.start().await).await
    }

    /// A testbed for tests that register webhooks: one test at a time uses it, and its state is restored afterwards.
    pub async fn exclusive_for_webhooks() -> Option<Self> {
        Self::exclusive(&WEBHOOKS, "webhooks").await
    }

    /// The same for tests that grant cluster-wide permissions. Neither of the two has nodes; a test that adds one
    /// needs a private testbed, because pods on a removed node may remain.
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
        // Created for each test, because a client belongs to the runtime on which it was created.
        let client =
            control_plane::client(&inner.plane.kubeconfig_for(control_plane::ADMIN_TOKEN)).await;
        Some(Self { inner, client, exclusive_use: None })
    }

    /// A client with cluster-admin permissions.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// A kubeconfig with cluster-admin permissions.
    pub fn kubeconfig_path(&self) -> PathBuf {
        self.inner.plane.kubeconfig()
    }

    /// `https://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        self.inner.plane.address()
    }

    /// The hollow nodes. A shared testbed has one with 64 cores and 256 GiB; a private one has those that the test
    /// adds.
    pub fn nodes(&self) -> &HollowNodes {
        &self.inner.nodes
    }

    /// The metrics API server of a testbed that several tests use.
    pub fn usage(&self) -> &OnceCell<Arc<metrics_server::MetricsServerTask>> {
        &self.inner.usage
    }

    /// The guard of all processes of the testbed.
    pub fn process_guard(&self) -> &ProcessGuard {
        self.inner.plane.process_guard()
    }

    /// The control plane itself, to stop and restart it.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.inner.plane
    }

    /// Whether controller manager and scheduler run; reports the test as skipped if not.
    pub fn has_controllers(&self) -> bool {
        if !self.inner.plane.has_controllers {
            report_skipped(
                "KUBEBUILDER_ASSETS has no kube-controller-manager and no kube-scheduler",
            );
        }
        self.inner.plane.has_controllers
    }

    /// Creates a namespace with this prefix, ready for pods.
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
        // Pods are rejected until the namespace has its service account, which a controller usually creates.
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

    /// Credentials of a service account, which is created if it does not exist. It has the permissions that RBAC
    /// grants.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Account {
        let accounts = Api::<ServiceAccount>::namespaced(self.client(), namespace);
        if accounts.get_opt(name).await.expect("readable").is_none() {
            create_account(&accounts, name).await;
        }
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        let token = accounts
            .create_token_request(name, &PostParams::default(), &request)
            .await
            .expect("a token request")
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

/// Whether tests may not share testbeds: to find out whether a failure is caused by another test's leftovers.
fn forces_private_testbeds() -> bool {
    std::env::var_os(PRIVATE).is_some_and(|value| !value.is_empty())
}

/// Starts a testbed like the shared one.
async fn shared(kind: &'static str, in_slot: bool) -> Result<Arc<Inner>, String> {
    let clock = Clock::wall();
    let inner = TestbedSpec { kind, flags: &[], clock, controllers: true, takes_slot: in_slot }
        .start()
        .await?;
    inner.nodes.add("shared", "64", "256Gi").await;
    Ok(inner)
}

/// Runs a future on the runtime that outlives the test.
pub async fn on_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    spawn(work).await.expect("no panic")
}

/// Spawns a task on the runtime that outlives the test.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    RUNTIME.spawn(work)
}
