//! Differential test of the webhooks: upstream's admission controller and Plimsoll's review the same pods. Any difference
//! that is not in the list of expected differences fails the test.
//!
//! By default Plimsoll is tested on the objects that a real API server had when upstream's responses were recorded. A deep
//! run tests both on one control plane, with other pods and those of the recording: `PLIMSOLL_SEED=n` replays a run, and
//! `PLIMSOLL_PEER=upstream` replaces Plimsoll with a second upstream process, so that any difference is an error of this
//! test.

mod compare;
mod deep;
mod recorded;
mod scenario;

use std::collections::BTreeMap;

use kube::{Client, Config};
use plimsoll::controllers;
use plimsoll::{
    cli::admission_config, cluster::clock::Clock, controllers::admission::AdmissionHandle,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use self::compare::{ComparisonCounts, WebhookResponse};
use self::recorded::RecordedCluster;
use self::scenario::Scenario;
use crate::support::certificates::CertificateAuthority;
use crate::support::ports::Port;
use crate::support::upstream_recording::UpstreamRecording;
use crate::support::wait;

const WORKLOADS: usize = 320;
const PODS_OF_EACH: u64 = 3;

/// The flags and seeds of the recordings.
const RUNS: [DifferentialRun; 3] = [
    DifferentialRun { seed: 6, flags: &[BOOSTS] },
    DifferentialRun { seed: 66, flags: &[BOOSTS, "--max-allowed-cpu-boost=1500m"] },
    DifferentialRun { seed: 67, flags: &[] },
];
const BOOSTS: &str = "--feature-gates=CPUStartupBoost=true";

/// Scenario and flags of a run.
#[derive(Clone, Copy)]
struct DifferentialRun {
    seed: u64,
    flags: &'static [&'static str],
}

/// The recording of one run.
#[derive(Serialize, Deserialize)]
struct RecordedRun {
    /// Responses of a real API server, by path.
    objects: BTreeMap<String, Value>,
    /// Upstream's response to each review, in order.
    answers: Vec<WebhookResponse>,
}

/// A webhook, as the API server would call it.
struct WebhookUnderTest {
    name: &'static str,
    client: Client,
}

/// A pod that both review.
struct ReviewedPod {
    name: String,
    review: String,
}

// === impl DifferentialRun ===

impl DifferentialRun {
    fn scenario(self) -> Scenario {
        Scenario::draw(self.seed, WORKLOADS)
    }
}

/// Returns the recorded scenarios and their recording.
fn recorded() -> ([Scenario; 3], UpstreamRecording) {
    let scenarios = RUNS.map(DifferentialRun::scenario);
    let inputs = scenarios.each_ref().map(Scenario::inputs);
    let golden = UpstreamRecording::new("webhook", RUNS[0].seed, &inputs);
    (scenarios, golden)
}

/// Plimsoll's admission controller in this process, on an API server that replays recorded responses.
struct PlimsollWebhook {
    running: AdmissionHandle,
    webhook: WebhookUnderTest,
    _files: tempfile::TempDir,
    _port: Port,
}

impl PlimsollWebhook {
    async fn start(cluster: &RecordedCluster, flags: &[&str]) -> Self {
        let files = tempfile::tempdir().expect("temporary directory");
        let authority = CertificateAuthority::new("ours");
        let identity =
            authority.sign_with_alternative_names("vpa-webhook", &["vpa-webhook.kube-system.svc"]);
        let write = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).expect("the folder is writable");
            path.display().to_string()
        };
        let port = Port::claim();
        let needed = [
            "--address=127.0.0.1:0".to_owned(),
            format!("--port={port}"),
            format!("--client-ca-file={}", write("ca.crt", &authority.certificate())),
            format!("--tls-cert-file={}", write("tls.crt", &identity.certificate)),
            format!("--tls-private-key={}", write("tls.key", &identity.key)),
            "--register-webhook=false".to_owned(),
            "--shutdown-delay=0".to_owned(),
            "--compat=upstream".to_owned(),
        ];
        let arguments: Vec<&str> =
            needed.iter().map(String::as_str).chain(flags.iter().copied()).collect();
        let mut config = admission_config(&arguments, |_| String::new()).expect("valid flags");
        "127.0.0.1".clone_into(&mut config.listen.host);
        let running =
            controllers::start(config, cluster.client(), Clock::wall()).await.expect("starts");
        wait::until_ok("Plimsoll has read everything", || async {
            running.ready().map_err(|missing| missing.join("; "))
        })
        .await;
        let webhook = WebhookUnderTest::at("ours", port.number(), &authority.certificate());
        Self { running, webhook, _files: files, _port: port }
    }
}

#[tokio::test]
async fn responses_for_random_pods_match_the_recording_of_upstream() {
    let (scenarios, golden) = recorded();
    let recording: Vec<RecordedRun> = golden.read();
    assert_eq!(recording.len(), RUNS.len());
    for ((settings, scenario), RecordedRun { objects, answers }) in
        RUNS.iter().zip(scenarios).zip(recording)
    {
        let ours = PlimsollWebhook::start(&RecordedCluster::of(objects), settings.flags).await;
        let questions = ReviewedPod::all(&scenario);
        assert_eq!(questions.len(), answers.len());
        let (mut tally, mut differences) = (ComparisonCounts::default(), Vec::new());
        for (question, theirs) in questions.iter().zip(&answers) {
            let answer = ours.webhook.ask(question).await;
            differences.extend(tally.compare(question, theirs, &answer));
        }
        assert!(
            differences.is_empty(),
            "seed {}, {} differ\n{}",
            settings.seed,
            differences.len(),
            differences[..differences.len().min(3)].join("\n")
        );
        tally.check();
        assert_alterations_are_found(&questions[0], &answers);
        ours.running.stop().await;
    }
}

/// Asserts that an altered version of each recorded patch would count as a difference.
fn assert_alterations_are_found(question: &ReviewedPod, answers: &[WebhookResponse]) {
    let mut altered = 0;
    for answer in answers {
        let WebhookResponse::Patch(operations) = answer else { continue };
        let mut operations = operations.clone();
        let Some(last) = operations.last_mut() else { continue };
        last["value"] = "1234567".into();
        let found = ComparisonCounts::default().compare(
            question,
            &WebhookResponse::Patch(operations),
            answer,
        );
        assert!(found.is_some(), "{answer:?}");
        altered += 1;
    }
    assert!(altered > answers.len() / 3, "only {altered} responses are patches");
}

// === impl ReviewedPod ===

impl ReviewedPod {
    /// Returns this many pods of each workload.
    fn all(scenario: &Scenario) -> Vec<Self> {
        let each = |subject| (0..PODS_OF_EACH).map(move |number| Self::about(subject, number));
        scenario.subjects.iter().flat_map(each).collect()
    }

    fn about(subject: &scenario::ScenarioWorkload, number: u64) -> Self {
        let pod = subject.pod(number);
        let namespace = &subject.workload.namespace;
        let name = format!("{namespace}/{} pod {number}", subject.workload.name);
        let review: Value = compare::review(&name, namespace, &pod);
        Self { name, review: review.to_string() }
    }
}

// === impl WebhookUnderTest ===

impl WebhookUnderTest {
    fn at(name: &'static str, port: u16, certificate: &str) -> Self {
        let address = format!("https://127.0.0.1:{port}").parse().expect("valid address");
        let mut config = Config::new(address);
        config.default_retry = false;
        let roots = rustls_pem(certificate);
        config.root_cert = Some(roots);
        Self { name, client: Client::try_from(config).expect("valid client") }
    }

    async fn ask(&self, question: &ReviewedPod) -> WebhookResponse {
        let request = || {
            http::Request::post("/")
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(question.review.clone().into_bytes())
                .expect("valid request")
        };
        let first = self.client.request_text(request()).await;
        // A webhook that is not up yet refuses the connection; one that panicked closes it each time.
        let mut answer = first;
        if matches!(&answer, Err(why) if is_refused(why)) {
            answer = wait::until(&format!("{} accepts connections", self.name), || async {
                match self.client.request_text(request()).await {
                    Err(why) if is_refused(&why) => None,
                    other => Some(other),
                }
            })
            .await;
        }
        match answer {
            Ok(text) => WebhookResponse::read(&text).normalize_order(),
            Err(kube::Error::Api(status)) => panic!("{}: {status:?}", self.name),
            Err(_) => WebhookResponse::Dropped,
        }
    }
}

fn is_refused(error: &kube::Error) -> bool {
    let text = format!("{error:?}");
    text.contains("ConnectionRefused")
}

fn rustls_pem(text: &str) -> Vec<Vec<u8>> {
    use rustls::pki_types::{CertificateDer, pem::PemObject as _};
    CertificateDer::pem_slice_iter(text.as_bytes())
        .map(|certificate| certificate.expect("valid certificate").to_vec())
        .collect()
}
