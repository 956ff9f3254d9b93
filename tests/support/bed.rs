//! Owns beds: a real control plane that a test talks to, shared by all tests of the process or private to one.

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
use xtask::parts;

use super::clock::Clock;
use super::control_plane::{self, ControlPlane};
use super::keeper::Keeper;
use super::nodes::Nodes;
use super::not_run::not_run;
use super::slots::Slot;
use super::wait;

/// One for all tests of this process. Never dropped: its keeper sees the end of the process.
/// The reason why there is none is kept too, because every test that wants the bed has to give it.
static SHARED: OnceCell<Result<Arc<Inner>, String>> = OnceCell::const_new();

/// A control plane to test against.
#[derive(Clone)]
pub struct Bed {
    inner: Arc<Inner>,
    client: Client,
}

struct Inner {
    // Dropped in this order: the slot is free when the processes are gone.
    nodes: Nodes,
    plane: Arc<ControlPlane>,
    _slot: Slot,
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

impl std::fmt::Debug for Bed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bed").field("address", &self.address()).finish_non_exhaustive()
    }
}

impl Bed {
    /// The bed that all tests of the process share, each in namespaces of its own. `None` after noting why there is none.
    pub async fn shared() -> Option<Self> {
        let inner = SHARED
            .get_or_init(|| async {
                let inner = Inner::start(&[], Clock::wall()).await?;
                inner.nodes.add("shared", "64", "256Gi").await;
                Ok(inner)
            })
            .await;
        Self::on(inner.clone()).await
    }

    /// A bed of the test's own: for whatever acts on the whole cluster, breaks it, or registers APIs or webhooks.
    pub async fn private() -> Option<Self> {
        Self::private_with(&[], Clock::wall()).await
    }

    /// A bed of the test's own, whose API server takes these flags too and whose nodes have that clock.
    pub async fn private_with(api_server_flags: &[&str], clock: Clock) -> Option<Self> {
        Self::on(Inner::start(api_server_flags, clock).await).await
    }

    async fn on(started: Result<Arc<Inner>, String>) -> Option<Self> {
        let inner = started.map_err(not_run).ok()?;
        // Made for each test, because a client belongs to the runtime that it was made on.
        let client =
            control_plane::client(&inner.plane.kubeconfig_for(control_plane::ADMIN_TOKEN)).await;
        Some(Self { inner, client })
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
    pub fn nodes(&self) -> &Nodes {
        &self.inner.nodes
    }

    /// Keeps processes that shall not outlive the bed.
    pub fn keeper(&self) -> &Keeper {
        self.inner.plane.keeper()
    }

    /// The control plane itself, to break it and bring it back.
    pub fn control_plane(&self) -> &ControlPlane {
        &self.inner.plane
    }

    /// Whether controller manager and scheduler run; notes why not when they do not.
    pub fn is_complete(&self) -> bool {
        if !self.inner.plane.complete {
            not_run("KUBEBUILDER_ASSETS has no kube-controller-manager and no kube-scheduler");
        }
        self.inner.plane.complete
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
        if !self.inner.plane.complete {
            create_account(&accounts, "default").await;
        }
        wait::until("the namespace has its default service account", || async {
            accounts.get_opt("default").await.expect("readable")
        })
        .await;
        name
    }

    /// Signs in as a service account, which is created when it does not exist. It has the rights that RBAC gives it.
    pub async fn account(&self, namespace: &str, name: &str) -> Account {
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
    /// Starts one, or says why it cannot.
    async fn start(api_server_flags: &[&str], clock: Clock) -> Result<Arc<Self>, String> {
        let found = tokio::task::spawn_blocking(parts::control_plane).await.expect("no panic");
        let programs = found.map_err(|reason| format!("{reason:#}"))?;
        let slot = Slot::take().await;
        let plane = Arc::new(ControlPlane::start(&programs, api_server_flags).await);
        let nodes = on_runtime({
            let plane = Arc::clone(&plane);
            async move {
                let client =
                    control_plane::client(&plane.kubeconfig_for(control_plane::ADMIN_TOKEN)).await;
                Nodes::start(&plane, client, clock)
            }
        })
        .await;
        Ok(Arc::new(Self { nodes, plane, _slot: slot }))
    }
}

/// Runs this where it does not end with the test.
pub async fn on_runtime<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> T {
    spawn(work).await.expect("no panic")
}

/// Has this run on where it does not end with the test.
pub fn spawn<T: Send + 'static>(work: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
    RUNTIME.spawn(work)
}
