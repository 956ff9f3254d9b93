//! The differential of the webhooks: upstream's admission controller and ours on one control plane, asked about the same
//! pods. Whatever they answer differently outside of a list fails.
//!
//! `PLIMSOLL_SEED=n` replays a run, `PLIMSOLL_PEER=upstream` puts a second process of upstream's in the place of ours:
//! what then differs is the fault of this test.

mod compare;
mod scenario;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use kube::{Client, Config};
use serde_json::Value;

use self::compare::Answer;
use self::scenario::Scenario;
use crate::support::not_run::not_run;
use crate::support::ours::Ours;
use crate::support::upstream::Upstream;
use crate::support::{Bed, fleet, noise, wait};

const NAMESPACES: usize = 12;
const WORKLOADS: usize = 320;
const PODS_OF_EACH: u64 = 3;
/// Until both have read everything.
const PATIENCE: Duration = Duration::from_mins(2);
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);

/// One webhook, as the API server would reach it.
struct Webhook {
    name: &'static str,
    client: Client,
}

/// A pod that both are asked about.
struct Question {
    what: String,
    review: String,
}

#[tokio::test]
async fn upstreams_webhook_and_ours_answer_the_same_about_random_pods() {
    play(noise::seed(6), &["--feature-gates=CPUStartupBoost=true"]).await;
}

#[tokio::test]
async fn upstreams_webhook_and_ours_answer_the_same_with_a_cap_on_boosts_or_without_any() {
    let flags = ["--feature-gates=CPUStartupBoost=true", "--max-allowed-cpu-boost=1500m"];
    play(noise::seed(66), &flags).await;
    play(noise::seed(67), &[]).await;
}

#[expect(clippy::print_stdout, reason = "the seed replays what failed")]
async fn play(seed: u64, flags: &[&str]) {
    println!("{}={seed}", noise::SEED);
    let Some(bed) = Bed::private().await else { return };
    let Some(upstream) = Upstream::on(&bed).await else { return };
    let is_ours = std::env::var("PLIMSOLL_PEER").as_deref() != Ok("upstream");
    if is_ours && let Some(reason) = Ours::lacks("admission-controller") {
        not_run(reason);
        return;
    }
    let mut namespaces = Vec::new();
    for _ in 0..NAMESPACES {
        namespaces.push(bed.namespace("team").await);
    }
    fleet::end_controllers(&bed).await;
    fleet::send(&bed.client(), [fleet::create_definition()]).await;
    let scenario = Scenario::draw(seed, WORKLOADS, &namespaces);
    fleet::send(&bed.client(), scenario.surroundings()).await;
    fleet::send(&bed.client(), scenario.vpas()).await;
    fleet::send(&bed.client(), scenario.recommendations()).await;

    let first = upstream.webhook("upstream", flags);
    let second = if is_ours {
        let mut flags = flags.to_vec();
        flags.push("--compat=upstream");
        Ours::on(&bed).webhook("ours", &flags)
    } else {
        upstream.webhook("peer", flags)
    };
    let webhooks = [Webhook::at("upstream", &first), Webhook::at("peer", &second)];
    let mut open: Vec<Question> = scenario
        .subjects
        .iter()
        .flat_map(|subject| (0..PODS_OF_EACH).map(|number| Question::about(subject, number)))
        .collect();
    let asked = open.len();
    let (mut patched, mut operations, mut dropped) = (0, 0, 0);
    let begun = Instant::now();
    let mut reported = String::new();
    while !open.is_empty() {
        assert!(begun.elapsed() < PATIENCE, "seed {seed}, {} differ\n{reported}", open.len());
        reported.clear();
        let mut left = Vec::new();
        for question in open {
            let [first, second] =
                [webhooks[0].ask(&question).await, webhooks[1].ask(&question).await];
            match (&first, &second) {
                (Answer::Patch(patch), _) if first == second => {
                    patched += usize::from(!patch.is_empty());
                    operations += patch.len();
                }
                // A panic of upstream's (7 kinds are known): the API server would go on without an answer.
                (Answer::Dropped, Answer::Patch(_)) => dropped += 1,
                _ if first == second => {}
                _ => {
                    if left.len() < 3 {
                        let _ = write!(
                            reported,
                            "{}\n  {}\n  upstream {first:?}\n  ours     {second:?}\n",
                            question.what, question.review
                        );
                    }
                    left.push(question);
                }
            }
        }
        open = left;
        if !open.is_empty() {
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
    }
    println!(
        "{asked} pods, {patched} with a patch, {operations} operations, {dropped} without an answer of upstream's"
    );
    assert!(patched > asked / 2, "{patched} of {asked} got a patch");
    assert!(dropped < asked / 10, "{dropped} of {asked} were dropped");
}

// === impl Question ===

impl Question {
    fn about(subject: &scenario::Subject, number: u64) -> Self {
        let pod = subject.pod(number);
        let namespace = &subject.workload.namespace;
        let what = format!("{namespace}/{} pod {number}", subject.workload.name);
        let review: Value = compare::review(&what, namespace, &pod);
        Self { what, review: review.to_string() }
    }
}

// === impl Webhook ===

impl Webhook {
    fn at(name: &'static str, (port, certificate): &(u16, String)) -> Self {
        let address = format!("https://127.0.0.1:{port}").parse().expect("an address");
        let mut config = Config::new(address);
        config.default_retry = false;
        let roots = rustls_pem(certificate);
        config.root_cert = Some(roots);
        Self { name, client: Client::try_from(config).expect("a client") }
    }

    async fn ask(&self, question: &Question) -> Answer {
        let request = || {
            http::Request::post("/")
                .header(http::header::CONTENT_TYPE, "application/json")
                .body(question.review.clone().into_bytes())
                .expect("a request")
        };
        let first = self.client.request_text(request()).await;
        // A webhook that is not up yet refuses the connection; one that panicked drops it each time.
        let mut answer = first;
        if matches!(&answer, Err(why) if is_refused(why)) {
            answer = wait::until(&format!("{} listens", self.name), || async {
                match self.client.request_text(request()).await {
                    Err(why) if is_refused(&why) => None,
                    other => Some(other),
                }
            })
            .await;
        }
        match answer {
            Ok(text) => Answer::read(&text).in_order(),
            Err(kube::Error::Api(status)) => panic!("{}: {status:?}", self.name),
            Err(_) => Answer::Dropped,
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
        .map(|certificate| certificate.expect("a certificate").to_vec())
        .collect()
}
