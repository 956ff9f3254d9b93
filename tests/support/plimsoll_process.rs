//! Owns this project's own roles as processes on a bed, beside those of upstream that they replace.

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use super::ports::Port;
use super::process_guard::ProcessState;
use super::testbed::Testbed;
use super::upstream_process::write_certificates;

/// Our binary, ready to be started on a bed.
#[derive(Debug)]
pub struct PlimsollProcesses {
    bed: Testbed,
    ports: Mutex<Vec<Port>>,
}

// === impl Ours ===

impl PlimsollProcesses {
    /// For a bed that has the definitions.
    pub fn new(bed: &Testbed) -> Self {
        Self { bed: bed.clone(), ports: Mutex::default() }
    }

    /// Why there is no such role, if there is none in this build.
    pub fn missing_role(role: &str) -> Option<String> {
        let help = Command::new(program()).args([role, "--help"]).output();
        let known = help.is_ok_and(|output| output.status.success());
        (!known).then(|| format!("this build has no `plimsoll {role}`"))
    }

    /// Starts the recommender under this name with these flags beside those that it needs here, and says on which port
    /// it serves.
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
        self.bed.process_guard().start(
            name,
            program(),
            &arguments,
            &[("NAMESPACE", "kube-system")],
        );
        let number = port.number();
        self.ports.lock().expect("no panic").push(port);
        number
    }

    /// Starts the updater under this name with these flags beside those that it needs here, and says on which port it
    /// serves. A kubeconfig among the flags goes before that of the bed.
    pub fn updater(&self, name: &str, flags: &[&str]) -> u16 {
        self.start_role("updater", name, flags)
    }

    /// Starts the watermark controller under this name with these flags beside those that it needs here, and says on which
    /// port it serves metrics.
    pub fn watermark(&self, name: &str, flags: &[&str]) -> u16 {
        let (metrics, health) = (Port::claim(), Port::claim());
        let mut arguments = vec![
            "watermark".to_owned(),
            format!("--kubeconfig={}", self.bed.kubeconfig_path().display()),
            format!("--metrics-addr=127.0.0.1:{metrics}"),
            format!("--health-port={health}"),
        ];
        arguments.extend(flags.iter().map(ToString::to_string));
        self.bed.process_guard().start(
            name,
            program(),
            &arguments,
            &[("NAMESPACE", "kube-system")],
        );
        let number = metrics.number();
        self.ports.lock().expect("no panic").extend([metrics, health]);
        number
    }

    /// Starts several roles in one process under this name with these flags beside those that they need here, and says on
    /// which port it serves.
    pub fn all_in_one(&self, name: &str, roles: &str, flags: &[&str]) -> u16 {
        let roles = format!("--roles={roles}");
        self.start_role("run", name, &[&[&*roles], flags].concat())
    }

    /// Starts the admission controller under this name, without registering it, and says on which port it serves, and
    /// which certificate vouches for it.
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
        self.bed.process_guard().start(
            name,
            program(),
            &arguments,
            &[("NAMESPACE", "kube-system")],
        );
        let number = webhook.number();
        self.ports.lock().expect("no panic").extend([metrics, webhook]);
        (number, std::fs::read_to_string(file("ca.crt")).expect("it was just written"))
    }

    /// Panics with the end of its log when the process has ended.
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
