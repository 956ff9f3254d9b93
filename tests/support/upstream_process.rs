//! Upstream's vertical pod autoscaler, release 1.8.1, on a testbed: its CRDs and its three programs.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use xtask::test_programs::{self, Autoscaler};

use super::certificates::CertificateAuthority;
use super::manifests;
use super::ports::Port;
use super::process_guard::ProcessState;
use super::skipped::report_skipped;
use super::testbed::Testbed;
use super::wait;

/// Upstream's autoscaler on a testbed.
#[derive(Debug)]
pub struct UpstreamProcesses {
    programs: Autoscaler,
    bed: Testbed,
    ports: std::sync::Mutex<Vec<Port>>,
}

/// One of its programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Writes recommendations.
    Recommender,
    /// Evicts and resizes; does nothing until the admission controller's Lease is fresh.
    Updater,
    /// The webhook. It does not register itself: the test creates the webhook configuration.
    AdmissionController,
}

// === impl UpstreamProcesses ===

impl UpstreamProcesses {
    /// Creates upstream's CRDs on a private testbed. Returns `None` after reporting why upstream is not available.
    pub async fn new(bed: &Testbed) -> Option<Self> {
        let found = || {
            test_programs::autoscaler()
                .and_then(|programs| Ok((programs, test_programs::autoscaler_crds()?)))
        };
        let found = tokio::task::spawn_blocking(found).await.expect("no panic");
        let (programs, definitions) = found.map_err(report_skipped).ok()?;
        create_definitions(bed, definitions).await;
        Some(Self { programs, bed: bed.clone(), ports: std::sync::Mutex::default() })
    }

    /// Starts a program with additional flags and returns its port: metrics for recommender and updater, the webhook
    /// for the admission controller.
    pub fn start(&self, role: Role, flags: &[&str]) -> u16 {
        let name = match role {
            Role::Recommender => "recommender",
            Role::Updater => "updater",
            Role::AdmissionController => "admission-controller",
        };
        self.start_as(name, role, flags)
    }

    /// Starts an admission controller under this name, and returns its port and its CA certificate.
    pub fn webhook(&self, name: &str, flags: &[&str]) -> (u16, String) {
        let port = self.start_as(name, Role::AdmissionController, flags);
        let folder = self.bed.process_guard().folder().join(name);
        (port, fs::read_to_string(folder.join("ca.crt")).expect("it was just written"))
    }

    /// Like [`start`](Self::start), under another name, which is also the prefix of its user agent.
    pub fn start_as(&self, name: &str, role: Role, flags: &[&str]) -> u16 {
        let (metrics, webhook) = (Port::claim(), Port::claim());
        let mut arguments = vec![
            format!("--kubeconfig={}", self.bed.kubeconfig_path().display()),
            format!("--address=127.0.0.1:{metrics}"),
        ];
        let mut port = metrics.number();
        if role == Role::AdmissionController {
            port = webhook.number();
            let file = write_certificates(&self.bed, name);
            arguments.extend([
                format!("--port={webhook}"),
                format!("--client-ca-file={}", file("ca.crt")),
                format!("--tls-cert-file={}", file("tls.crt")),
                format!("--tls-private-key={}", file("tls.key")),
                "--register-webhook=false".to_owned(),
            ]);
        }
        arguments.extend(flags.iter().map(ToString::to_string));
        let program = match role {
            Role::Recommender => &self.programs.recommender,
            Role::Updater => &self.programs.updater,
            Role::AdmissionController => &self.programs.admission_controller,
        };
        let program = self.process_name(name, program);
        self.bed.process_guard().start(name, &program, &arguments, &[("NAMESPACE", "kube-system")]);
        self.ports.lock().expect("no panic").extend([metrics, webhook]);
        port
    }

    /// Panics with the log tail if a program has ended.
    pub fn assert_running(&self, name: &str) {
        let keeper = self.bed.process_guard();
        if let Some(ProcessState::Exited(code)) = keeper.state(name) {
            panic!("upstream's {name} ended with {code}\n{}", keeper.log_tail(name, 15));
        }
    }

    /// A link to the program with this name: client-go uses the executable's name as user agent.
    fn process_name(&self, name: &str, program: &Path) -> PathBuf {
        let folder = self.bed.process_guard().folder().join("programs");
        fs::create_dir_all(&folder).expect("the testbed's folder is writable");
        let link = folder.join(name);
        // A link from an earlier start is the same.
        let _ = std::os::unix::fs::symlink(program, &link);
        link
    }
}

/// Certificates for a webhook, on loopback or behind upstream's Service, in their own folder.
pub fn write_certificates(bed: &Testbed, name: &str) -> impl Fn(&str) -> String + use<> {
    let folder = bed.process_guard().folder().join(name);
    fs::create_dir_all(&folder).expect("the testbed's folder is writable");
    let authority = CertificateAuthority::new(name);
    let identity =
        authority.sign_with_alternative_names("vpa-webhook", &["vpa-webhook.kube-system.svc"]);
    for (name, content) in [
        ("ca.crt", authority.certificate()),
        ("tls.crt", identity.certificate),
        ("tls.key", identity.key),
    ] {
        fs::write(folder.join(name), content).expect("the testbed's folder is writable");
    }
    move |name| folder.join(name).display().to_string()
}

async fn create_definitions(bed: &Testbed, file: PathBuf) {
    let text = fs::read_to_string(file).expect("the module has its definitions");
    for document in text.split("\n---").filter(|document| document.contains("kind:")) {
        let definition: CustomResourceDefinition =
            serde_saphyr::from_str(document).expect("upstream's definitions are well formed");
        manifests::create_definition(bed.client(), &definition).await;
    }
}
