//! Runs this project's controllers as processes on a testbed, like the upstream ones that they replace.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use super::ports::Port;
use super::process_guard::ProcessState;
use super::testbed::Testbed;
use super::upstream_process::write_certificates;

/// The settings of the allocator of `deploy/Dockerfile`.
const ALLOCATOR: &str = "glibc.malloc.arena_max=1:glibc.malloc.mmap_threshold=131072:glibc.malloc.trim_threshold=131072";

/// The namespace of the controllers, and the settings of the allocator.
pub const ENVIRONMENT: [(&str, &str); 2] =
    [("NAMESPACE", "kube-system"), ("GLIBC_TUNABLES", ALLOCATOR)];

/// Our binary on a testbed.
#[derive(Debug)]
pub struct PlimsollProcesses {
    bed: Testbed,
    ports: Mutex<Vec<Port>>,
}

// === impl PlimsollProcesses ===

impl PlimsollProcesses {
    /// For a testbed that has the CRDs.
    pub fn new(bed: &Testbed) -> Self {
        Self { bed: bed.clone(), ports: Mutex::default() }
    }

    /// Why this build lacks a role, if it does.
    pub fn missing_role(role: &str) -> Option<String> {
        let help = Command::new(program()).args([role, "--help"]).output();
        let known = help.is_ok_and(|output| output.status.success());
        (!known).then(|| format!("this build has no `plimsoll {role}`"))
    }

    /// Starts the recommender under this name with additional flags, and returns its metrics port.
    pub fn start(&self, name: &str, flags: &[&str]) -> u16 {
        self.start_role("recommender", name, flags)
    }

    fn start_role(&self, role: &str, name: &str, flags: &[&str]) -> u16 {
        let port = Port::claim();
        let mut arguments = vec![
            role.to_owned(),
            format!("--kubeconfig={}", self.bed.kubeconfig_path().display()),
            format!("--address=127.0.0.1:{port}"),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        self.bed.process_guard().start(name, program(), &arguments, &ENVIRONMENT);
        let number = port.number();
        self.ports.lock().expect("no panic").push(port);
        number
    }

    /// Starts the updater under this name with additional flags, and returns its metrics port. A kubeconfig in the
    /// flags overrides that of the testbed.
    pub fn updater(&self, name: &str, flags: &[&str]) -> u16 {
        self.start_role("updater", name, flags)
    }

    /// Starts the watermark controller under this name with additional flags, and returns its metrics port.
    pub fn watermark(&self, name: &str, flags: &[&str]) -> u16 {
        let (metrics, health) = (Port::claim(), Port::claim());
        let mut arguments = vec![
            "watermark".to_owned(),
            format!("--kubeconfig={}", self.bed.kubeconfig_path().display()),
            format!("--metrics-addr=127.0.0.1:{metrics}"),
            format!("--health-port={health}"),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        self.bed.process_guard().start(name, program(), &arguments, &ENVIRONMENT);
        let number = metrics.number();
        self.ports.lock().expect("no panic").extend([metrics, health]);
        number
    }

    /// Starts the horizontal controller under this name with additional flags, and returns its metrics port.
    pub fn horizontal(&self, name: &str, flags: &[&str]) -> u16 {
        self.start_role("horizontal", name, flags)
    }

    /// Starts the web page alone under this name, with its address among the flags.
    pub fn ui(&self, name: &str, flags: &[&str]) {
        let mut arguments =
            vec!["ui".to_owned(), format!("--kubeconfig={}", self.bed.kubeconfig_path().display())];
        arguments.extend(flags.iter().map(ToString::to_string));
        self.bed.process_guard().start(name, program(), &arguments, &[]);
    }

    /// Starts several roles in one process under this name with additional flags, and returns its metrics port.
    pub fn all_in_one(&self, name: &str, roles: &str, flags: &[&str]) -> u16 {
        let roles = format!("--roles={roles}");
        self.start_role("run", name, &[&[&*roles], flags].concat())
    }

    /// Starts the admission controller under this name, without registering it, and returns its port and its CA
    /// certificate.
    pub fn webhook(&self, name: &str, flags: &[&str]) -> (u16, String) {
        let (metrics, webhook) = (Port::claim(), Port::claim());
        let file = write_certificates(&self.bed, name);
        let mut arguments = vec![
            "admission-controller".to_owned(),
            format!("--kubeconfig={}", self.bed.kubeconfig_path().display()),
            format!("--address=127.0.0.1:{metrics}"),
            format!("--port={webhook}"),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--tls-cert-file={}", file("tls.crt")),
            format!("--tls-private-key={}", file("tls.key")),
            "--register-webhook=false".to_owned(),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        self.bed.process_guard().start(name, program(), &arguments, &ENVIRONMENT);
        let number = webhook.number();
        self.ports.lock().expect("no panic").extend([metrics, webhook]);
        (number, std::fs::read_to_string(file("ca.crt")).expect("it was just written"))
    }

    /// Panics with the log tail if the process has ended.
    pub fn assert_running(&self, name: &str) {
        let keeper = self.bed.process_guard();
        if let Some(ProcessState::Exited(code)) = keeper.state(name) {
            panic!("{name} ended with {code}\n{}", keeper.log_tail(name, 15));
        }
    }
}

fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_plimsoll"))
}
