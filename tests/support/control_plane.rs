//! Starts etcd, API server, controller manager and scheduler on free ports of loopback.

use std::fs;
use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use xtask::test_programs::{self, Program};

use super::certificates::{CertificateAuthority, new_key};
use super::ports::Port;
use super::process_guard::{ProcessGuard, ProcessState};
use super::wait;

/// The administrator's token; the server listens on loopback and lives for minutes.
pub const ADMIN_TOKEN: &str = "administrator";
/// A server that is starting may accept a connection and never respond on it.
const REQUEST_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(10);

/// Go's default saves memory at the expense of time. A testbed has enough memory, but shares its cores.
const GO_GC_SETTINGS: &[(&str, &str)] = &[("GOGC", "400"), ("GOMEMLIMIT", "800MiB")];

/// A running control plane.
#[derive(Debug)]
pub struct ControlPlane {
    keeper: ProcessGuard,
    ports: Ports,
    api_server: (Program, Vec<String>),
    controller_manager: Option<Program>,
    /// False if only etcd and the API server run: on an API-server-only testbed, or if `KUBEBUILDER_ASSETS` has no
    /// more.
    pub has_controllers: bool,
}

#[derive(Debug)]
struct Ports {
    etcd: Port,
    peer: Port,
    api: Port,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts etcd and an API server with additional flags, and waits until it is ready.
    pub async fn start(programs: &test_programs::ControlPlane, extra: &[&str]) -> Self {
        let keeper = ProcessGuard::new("bed");
        let ports = Ports { etcd: Port::claim(), peer: Port::claim(), api: Port::claim() };
        write_keys(&keeper, &ports);

        start(&keeper, "etcd", &programs.etcd, &etcd_arguments(&ports));
        let mut arguments = api_server_arguments(&ports);
        arguments.extend(extra.iter().map(ToString::to_string));
        let api_server = (programs.api_server.clone(), resolve_paths(&keeper, &arguments));
        start(&keeper, "kube-apiserver", &api_server.0, &api_server.1);
        let plane =
            Self { keeper, ports, api_server, controller_manager: None, has_controllers: false };
        plane.ready().await;
        plane
    }

    /// Starts controller manager and scheduler, if available.
    pub fn start_controllers(&mut self, programs: &test_programs::ControlPlane) {
        let Some((manager, scheduler)) = &programs.others else { return };
        self.controller_manager = Some(manager.clone());
        self.start_manager("kube-controller-manager", CONTROLLERS);
        start(&self.keeper, "kube-scheduler", scheduler, SCHEDULER_ARGUMENTS);
        self.has_controllers = true;
    }

    /// Starts a controller manager with these controllers under this name.
    fn start_manager(&self, name: &str, controllers: &[&str]) {
        let Some(manager) = &self.controller_manager else { return };
        let mut arguments: Vec<_> = MANAGER_ARGUMENTS.iter().map(ToString::to_string).collect();
        arguments.push(format!("--controllers={}", controllers.join(",")));
        start(&self.keeper, name, manager, &arguments);
    }

    /// Restarts the controller manager without the HPA controller.
    pub async fn stop_hpa_controller(&self) {
        const NAME: &str = "kube-controller-manager";
        self.keeper.signal(NAME, "KILL");
        wait::until("the controller manager is gone", || async {
            matches!(self.keeper.state(NAME), Some(ProcessState::Exited(_))).then_some(())
        })
        .await;
        let others = CONTROLLERS.iter().filter(|name| **name != HPA_CONTROLLER);
        self.start_manager(NAME, &others.copied().collect::<Vec<_>>());
    }

    /// Starts the HPA controller again, in a controller manager of its own.
    pub fn start_hpa_controller(&self) {
        self.start_manager(HPA_CONTROLLER, &[HPA_CONTROLLER]);
    }

    /// The guard of its processes, to start others next to it.
    pub fn process_guard(&self) -> &ProcessGuard {
        &self.keeper
    }

    /// `https://127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports.api)
    }

    /// Path of the administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.keeper.folder().join("kubeconfig")
    }

    /// A kubeconfig with this token.
    pub fn kubeconfig_for(&self, token: &str) -> String {
        kubeconfig(&self.keeper, &self.ports, token)
    }

    /// Waits until the API server is ready; panics with the log tails if it is not.
    pub async fn ready(&self) {
        let client = client(&self.kubeconfig_for(ADMIN_TOKEN)).await;
        let logs = || {
            ["etcd", "kube-apiserver"]
                .map(|name| format!("--- {name}\n{}", self.keeper.log_tail(name, 15)))
                .join("\n")
        };
        let start = std::time::Instant::now();
        loop {
            let request = http::Request::get("/readyz").body(Vec::new()).expect("a request");
            let answer = tokio::time::timeout(REQUEST_TIMEOUT, client.request_text(request)).await;
            if matches!(answer, Ok(Ok(text)) if text == "ok") {
                return;
            }
            for name in ["etcd", "kube-apiserver"] {
                if let Some(ProcessState::Exited(code)) = self.keeper.state(name) {
                    panic!("{name} ended with {code}\n{}", logs());
                }
            }
            assert!(start.elapsed() < wait::PATIENCE, "no control plane in time\n{}", logs());
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
    }

    /// Kills the API server.
    pub async fn kill_api_server(&self) {
        self.keeper.signal("kube-apiserver", "KILL");
        wait::until("the API server is gone", || async {
            matches!(self.keeper.state("kube-apiserver"), Some(ProcessState::Exited(_)))
                .then_some(())
        })
        .await;
    }

    /// Restarts the API server on the same port, with the same data.
    pub async fn restart_api_server(&self) {
        start(&self.keeper, "kube-apiserver", &self.api_server.0, &self.api_server.1);
        self.ready().await;
    }
}

/// A client for a kubeconfig, without kube's own retries, which would retry a rejected eviction for minutes.
pub async fn client(kubeconfig: &str) -> Client {
    // Fails if another test was first, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let parsed = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let mut config = Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .expect("a usable kubeconfig");
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}

fn start<A: AsRef<str>>(keeper: &ProcessGuard, name: &str, program: &Program, arguments: &[A]) {
    let first = program.first.iter().map(|word| word.to_str().expect("text").to_owned());
    let rest = arguments.iter().map(|word| word.as_ref().to_owned());
    let words: Vec<_> = first.chain(resolve_paths(keeper, &rest.collect::<Vec<_>>())).collect();
    keeper.start(name, &program.path, &words, GO_GC_SETTINGS);
}

/// Arguments with `@name` refer to files in the guard's folder.
fn resolve_paths(keeper: &ProcessGuard, arguments: &[String]) -> Vec<String> {
    let folder = format!("={}/", keeper.folder().display());
    arguments.iter().map(|argument| argument.replace("=@", &folder)).collect()
}

fn write_keys(keeper: &ProcessGuard, ports: &Ports) {
    let write = |name: &str, content: String| {
        fs::write(keeper.folder().join(name), content).expect("the testbed's folder is writable");
    };
    let authority = CertificateAuthority::new("plimsoll-bed");
    let server = authority.sign("kube-apiserver");
    write("ca.crt", authority.certificate());
    write("server.crt", server.certificate);
    write("server.key", server.key);
    // Aggregated API servers verify the API server by this CA.
    let front = CertificateAuthority::new("plimsoll-front");
    let proxy = front.sign("front-proxy");
    write("front-ca.crt", front.certificate());
    write("front.crt", proxy.certificate);
    write("front.key", proxy.key);
    let accounts = new_key();
    write("accounts.key", accounts.serialize_pem());
    write("accounts.pub", accounts.public_key_pem());
    write("tokens.csv", format!("{ADMIN_TOKEN},admin,admin,system:masters\n"));
    write("kubeconfig", kubeconfig(keeper, ports, ADMIN_TOKEN));
}

fn kubeconfig(keeper: &ProcessGuard, ports: &Ports, token: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: bed\n\
         clusters: [{{name: bed, cluster: {{server: 'https://127.0.0.1:{}', certificate-authority: '{}'}}}}]\n\
         users: [{{name: bed, user: {{token: '{token}'}}}}]\n\
         contexts: [{{name: bed, context: {{cluster: bed, user: bed}}}}]\n",
        ports.api,
        keeper.folder().join("ca.crt").display(),
    )
}

fn etcd_arguments(ports: &Ports) -> Vec<String> {
    let (client, peer) =
        (format!("http://127.0.0.1:{}", ports.etcd), format!("http://127.0.0.1:{}", ports.peer));
    vec![
        "--data-dir=@etcd".to_owned(),
        format!("--listen-client-urls={client}"),
        format!("--advertise-client-urls={client}"),
        format!("--listen-peer-urls={peer}"),
        format!("--initial-advertise-peer-urls={peer}"),
        format!("--initial-cluster=default={peer}"),
        // Data need not survive a crash of the machine.
        "--unsafe-no-fsync".to_owned(),
        "--quota-backend-bytes=8589934592".to_owned(),
        "--log-level=warn".to_owned(),
    ]
}

fn api_server_arguments(ports: &Ports) -> Vec<String> {
    let mut arguments = vec![
        format!("--etcd-servers=http://127.0.0.1:{}", ports.etcd),
        format!("--secure-port={}", ports.api),
    ];
    arguments.extend(API_SERVER_ARGUMENTS.iter().map(ToString::to_string));
    arguments
}

const API_SERVER_ARGUMENTS: &[&str] = &[
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--cert-dir=@certificates",
    "--tls-cert-file=@server.crt",
    "--tls-private-key-file=@server.key",
    "--service-cluster-ip-range=10.96.0.0/16",
    "--service-account-key-file=@accounts.pub",
    "--service-account-signing-key-file=@accounts.key",
    "--service-account-issuer=https://kubernetes.default.svc",
    "--token-auth-file=@tokens.csv",
    "--authorization-mode=RBAC",
    "--allow-privileged",
    "--requestheader-client-ca-file=@front-ca.crt",
    "--proxy-client-cert-file=@front.crt",
    "--proxy-client-key-file=@front.key",
    "--requestheader-allowed-names=front-proxy",
    "--requestheader-username-headers=X-Remote-User",
    "--requestheader-group-headers=X-Remote-Group",
    "--requestheader-extra-headers-prefix=X-Remote-Extra-",
    // Tests of scale would otherwise hit the server's own limits.
    "--max-requests-inflight=2000",
    "--max-mutating-requests-inflight=1000",
];

const MANAGER_ARGUMENTS: &[&str] = &[
    "--kubeconfig=@kubeconfig",
    "--service-account-private-key-file=@accounts.key",
    "--root-ca-file=@ca.crt",
    "--leader-elect=false",
    "--horizontal-pod-autoscaler-sync-period=1s",
    "--use-service-account-credentials=false",
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
    "--secure-port=0",
];

/// The controllers whose results tests observe; the others would only read and watch. Hollow nodes stay ready without
/// one, and a test that stops its nodes does not want its pods evicted.
const CONTROLLERS: &[&str] = &[
    "clusterrole-aggregation-controller",
    "cronjob-controller",
    "daemonset-controller",
    "deployment-controller",
    "disruption-controller",
    "endpoints-controller",
    "endpointslice-controller",
    "garbage-collector-controller",
    HPA_CONTROLLER,
    "job-controller",
    "namespace-controller",
    "replicaset-controller",
    "replicationcontroller-controller",
    "resourcequota-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "statefulset-controller",
    "validatingadmissionpolicy-status-controller",
];

const HPA_CONTROLLER: &str = "horizontal-pod-autoscaler-controller";

const SCHEDULER_ARGUMENTS: &[&str] = &[
    "--kubeconfig=@kubeconfig",
    "--leader-elect=false",
    "--kube-api-qps=500",
    "--kube-api-burst=1000",
    "--secure-port=0",
];
