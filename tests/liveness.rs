//! Liveness of a busy process, and shutdown before it can do anything: Leases are renewed and probes are answered
//! even if the controllers are blocked, and SIGTERM ends a process whose API server never responds.

use std::{
    future::Future,
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use plimsoll::controllers;
use plimsoll::{
    cli::{all_in_one_config, recommender_config, updater_config, watermark_config},
    cluster::clock::Clock,
    controllers::{
        all_in_one,
        runtime::{Clients, config::ElectionConfig, controller::ControllerConfig},
    },
};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::support::{
    captured_log::assert_line, certificates::CertificateAuthority, http_get::http_get,
    in_memory_api::InMemoryApiServer, wait,
};

const NAMESPACE: &str = "kube-system";
/// Renewed often, with a long duration: the machine may stall for some seconds.
const ELECTION: [&str; 3] = [
    "--leader-elect=true",
    "--leader-elect-retry-period=100ms",
    "--leader-elect-resource-namespace=kube-system",
];

/// The controllers of a role on a runtime with a single worker thread, which the test can block.
struct SingleThreadedControllers {
    runtime: Runtime,
    api: InMemoryApiServer,
}

impl SingleThreadedControllers {
    fn new() -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        Self { runtime: runtime.expect("a runtime"), api: InMemoryApiServer::new() }
    }

    /// Runs a future on that runtime.
    async fn run<T: Send + 'static>(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let done = self.runtime.spawn(work);
        tokio::time::timeout(wait::PATIENCE, done).await.expect("in time").expect("no panic")
    }

    /// Two clients of the API server with their own tasks, as in a process.
    async fn clients(&self) -> Clients {
        let (api, again) = (self.api.clone(), self.api.clone());
        self.run(async move { Clients::new(api.client(), move || Ok(again.client())) }).await
    }

    /// Blocks the worker thread until the returned sender is dropped.
    fn block_worker(&self) -> mpsc::Sender<()> {
        let (begins, began) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        self.runtime.spawn(async move {
            begins.send(()).expect("the test waits");
            let _ = released.recv();
        });
        began.recv().expect("the worker is free");
        release
    }

    /// The number of renewals of a Lease so far.
    fn renewals(&self, lease: &str) -> usize {
        let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{lease}");
        let requests = self.api.requests();
        let renewals = requests.iter().filter(|one| {
            one.method == Method::PUT
                && one.path == path
                && one.answered.is_some_and(|(_, code)| code == StatusCode::OK)
        });
        renewals.count()
    }

    async fn wait_until_renewed(&self, lease: &str, times: usize) {
        let before = self.renewals(lease);
        wait::until(&format!("{lease} is renewed {times} times"), || async {
            (self.renewals(lease) >= before + times).then_some(())
        })
        .await;
    }

    /// Blocks the worker thread, and fails unless Leases and endpoints keep working.
    async fn assert_stays_alive(&self, leases: &[&str], addresses: &[SocketAddr]) {
        for lease in leases {
            self.wait_until_renewed(lease, 1).await;
        }
        let busy = self.block_worker();
        for lease in leases {
            self.wait_until_renewed(lease, 5).await;
        }
        for address in addresses {
            let live = http_get(&format!("http://{address}/livez")).await.expect("an answer");
            assert_eq!(live, "ok\n");
            let ready = http_get(&format!("http://{address}/readyz")).await.expect("an answer");
            assert!(!ready.is_empty());
            let page = http_get(&format!("http://{address}/metrics")).await.expect("an answer");
            assert!(String::from_utf8_lossy(&page).contains("plimsoll_build_info"));
        }
        drop(busy);
        let api = Api::<Lease>::namespaced(self.api.client(), NAMESPACE);
        for lease in leases {
            let spec = api.get(lease).await.expect("readable").spec.expect("a spec");
            assert_eq!(spec.lease_transitions.unwrap_or_default(), 0, "{lease} was never lost");
        }
    }

    fn end(self) {
        // A runtime must not be dropped on a thread of another runtime.
        self.runtime.shutdown_background();
    }
}

/// Renews the Lease of an election often; returns its name.
fn renew_often(election: &mut ElectionConfig) -> String {
    election.enabled = true;
    election.retry_period = Duration::from_millis(100);
    NAMESPACE.clone_into(&mut election.namespace);
    election.name.clone()
}

/// Starts a controller and blocks its worker thread; fails unless the Lease and the endpoints keep working.
async fn assert_survives_busy_worker<C: ControllerConfig>(config: C, lease: &str) {
    let controllers = SingleThreadedControllers::new();
    let clients = controllers.clients().await;
    let started = controllers::start(config, clients, Clock::wall());
    let running = Box::pin(controllers.run(started)).await.expect("starts");
    controllers.assert_stays_alive(&[lease], &[running.address(), running.health()]).await;
    controllers.run(running.stop()).await;
    controllers.end();
}

#[tokio::test]
async fn a_recommender_with_a_busy_worker_keeps_its_lease_and_responds_to_probes() {
    let flags = [&ELECTION[..], &["--address=127.0.0.1:0"]].concat();
    let config = recommender_config(&flags).expect("valid flags");
    assert_survives_busy_worker(config, "vpa-recommender-lease").await;
}

#[tokio::test]
async fn an_updater_with_a_busy_worker_keeps_its_lease_and_responds_to_probes() {
    let flags = [&ELECTION[..], &["--address=127.0.0.1:0"]].concat();
    let config = updater_config(&flags, |_| String::new()).expect("valid flags");
    assert_survives_busy_worker(config, "vpa-updater").await;
}

#[tokio::test]
async fn a_watermark_controller_with_a_busy_worker_keeps_its_lease_and_responds_to_probes() {
    let flags = ["--metrics-addr=127.0.0.1:0"];
    let mut config = watermark_config(&flags, |_| String::new()).expect("valid flags");
    config.settings.process.addresses[1] = "127.0.0.1:0".parse().expect("an address");
    let lease = renew_often(&mut config.settings.election);
    assert_survives_busy_worker(config, &lease).await;
}

#[tokio::test]
async fn several_roles_with_a_busy_worker_keep_their_leases_and_respond_to_probes() {
    let controllers = SingleThreadedControllers::new();
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("can be written");
        path.display().to_string()
    };
    let authority = CertificateAuthority::new("liveness");
    let identity =
        authority.sign_with_alternative_names("vpa-webhook", &["vpa-webhook.kube-system.svc"]);
    let own = [
        "--roles=recommender,updater,admission-controller,watermark".to_owned(),
        "--address=127.0.0.1:0".to_owned(),
        "--port=0".to_owned(),
        "--register-webhook=false".to_owned(),
        format!(
            "--admission-controller.client-ca-file={}",
            write("ca.crt", &authority.certificate())
        ),
        format!("--admission-controller.tls-cert-file={}", write("tls.crt", &identity.certificate)),
        format!("--admission-controller.tls-private-key={}", write("tls.key", &identity.key)),
    ];
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let flags = [&own[..], &ELECTION[..]].concat();
    let mut config = all_in_one_config(&flags, |_| String::new()).expect("valid flags");
    let (mut leases, mut webhook) = (Vec::new(), String::new());
    if let Some(admission) = &mut config.admission {
        // The same Lease, renewed more often.
        admission.lease.interval = Duration::from_millis(200);
        webhook.clone_from(&admission.lease.name);
    }
    leases.extend(
        config.watermark.as_mut().map(|watermark| renew_often(&mut watermark.settings.election)),
    );
    leases.extend(["vpa-recommender-lease", "vpa-updater", &*webhook].map(str::to_owned));
    let clients = controllers.clients().await;
    let started = all_in_one::start(config, clients, Clock::wall());
    let running = Box::pin(controllers.run(started)).await.expect("starts");
    let names: Vec<&str> = leases.iter().map(String::as_str).collect();
    controllers.assert_stays_alive(&names, &running.addresses).await;
    controllers.run(running.stop()).await;
    controllers.end();
}

/// A server that accepts connections and never responds.
struct SilentServer {
    address: SocketAddr,
    held: Arc<Mutex<Vec<TcpStream>>>,
}

impl SilentServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let held: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let streams = Arc::clone(&held);
        // The thread ends with the process, because it cannot be stopped earlier.
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                streams.lock().expect("no panic").push(stream);
            }
        });
        Self { address, held }
    }

    fn kubeconfig(&self) -> String {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
             clusters: [{{name: a, cluster: {{server: 'http://{}'}}}}]\n\
             users: [{{name: a, user: {{}}}}]\n\
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]\n",
            self.address
        )
    }
}

/// A process that is killed with its test.
struct ProcessGuard(Child);

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ends_on_sigterm(
    arguments: &[&str],
    when: &str,
    is_time: impl Fn(&SilentServer, &str) -> bool,
) {
    let silent = SilentServer::start();
    let folder = TempDir::new().expect("a folder");
    let (kubeconfig, log) = (folder.path().join("kubeconfig"), folder.path().join("log"));
    std::fs::write(&kubeconfig, silent.kubeconfig()).expect("can be written");
    let child = Command::new(env!("CARGO_BIN_EXE_plimsoll"))
        .args(arguments)
        .arg(format!("--kubeconfig={}", kubeconfig.display()))
        .env("NAMESPACE", NAMESPACE)
        .stdin(Stdio::null())
        .stderr(std::fs::File::create(&log).expect("can be made"))
        .spawn();
    let mut role = ProcessGuard(child.expect("it starts"));
    let read_log = || std::fs::read_to_string(&log).expect("a log");
    wait::until(when, || async { is_time(&silent, &read_log()).then_some(()) }).await;
    let id = role.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().expect("kill runs").success());
    let status = wait::until("it ends", || {
        let ended = role.0.try_wait().expect("it is ours");
        async move { ended }
    })
    .await;
    assert_eq!(status.code(), Some(0), "{arguments:?}: {}", read_log());
    assert_line(&read_log(), &["received shutdown signal"]);
}

const PROGRAMS: [&[&str]; 5] = [
    &["recommender", "--address=127.0.0.1:0"],
    &["updater", "--address=127.0.0.1:0"],
    &["admission-controller", "--address=127.0.0.1:0", "--port=0", "--register-webhook=false"],
    &["watermark", "--metrics-addr=127.0.0.1:0", "--health-port=0"],
    &["run", "--roles=recommender,updater", "--address=127.0.0.1:0"],
];

#[tokio::test]
async fn sigterm_right_after_start_ends_a_role_cleanly() {
    for arguments in PROGRAMS {
        ends_on_sigterm(arguments, "it starts", |_, log| log.contains("starting ")).await;
    }
}

#[tokio::test]
async fn sigterm_ends_a_role_cleanly_while_the_api_server_does_not_respond() {
    for arguments in PROGRAMS {
        let waits =
            |silent: &SilentServer, _: &str| !silent.held.lock().expect("no panic").is_empty();
        ends_on_sigterm(arguments, "it waits for an answer", waits).await;
    }
}
