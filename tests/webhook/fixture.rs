//! Runs a webhook without a cluster, with a reviewer that adds an annotation and counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use plimsoll::cluster::server::{
    WebhookServer,
    certificate::{CaBundle, CertificateSpec, IssuedCertificate, issue},
    webhook::{
        AdmissionDecision, AdmissionRequest, BodyBudget, CipherSuites, CompletedReview, MinVersion,
        ReloadableCertificate, ReviewObserver, ReviewRoutes, Reviewer, WebhookLimits,
        certified_key, server_config,
    },
};
use serde_json::json;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::webhook_client::NAME;
use crate::support::clock::wall_now;

/// Counts by word.
#[derive(Debug, Default)]
pub struct ReviewCounts(Mutex<BTreeMap<String, usize>>);

impl ReviewCounts {
    fn add(&self, word: &str) {
        *self.0.lock().expect("no panic").entry(word.to_owned()).or_default() += 1;
    }

    /// Returns the count of a word.
    pub fn of(&self, word: &str) -> usize {
        self.0.lock().expect("no panic").get(word).copied().unwrap_or_default()
    }
}

impl ReviewObserver for ReviewCounts {
    fn on_review(&self, answered: &CompletedReview) {
        self.add(answered.outcome);
    }

    fn on_rejected(&self, reason: &'static str) {
        self.add(reason);
    }
}

/// Where a review of the pod `slow` waits.
#[derive(Debug, Default)]
pub struct ReviewGate {
    /// Notified when the review has arrived.
    pub entered: Notify,
    /// Lets the review continue.
    pub open: Notify,
}

struct AnnotatingReviewer(Arc<ReviewGate>);

#[async_trait]
impl Reviewer for AnnotatingReviewer {
    fn resource(&self) -> &'static str {
        "Pod"
    }

    async fn review(&self, request: &AdmissionRequest<'_>) -> AdmissionDecision {
        if request.name == "slow" {
            self.0.entered.notify_one();
            self.0.open.notified().await;
        }
        let operation = json!({"op": "add", "path": "/metadata/annotations", "value": {}});
        AdmissionDecision::patch(&[operation]).expect("JSON")
    }
}

/// A running webhook.
pub struct WebhookFixture {
    /// Its port.
    pub port: u16,
    /// The certificate that it serves.
    pub keyring: Arc<ReloadableCertificate>,
    /// Counts of the metrics.
    pub counts: Arc<ReviewCounts>,
    /// The memory for bodies.
    pub budget: Arc<BodyBudget>,
    /// Where slow reviews wait.
    pub gate: Arc<ReviewGate>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl WebhookFixture {
    /// Serves another certificate from now on.
    pub fn set_certificate(&self, pair: &IssuedCertificate) {
        self.keyring.set(certified_key(&pair.chain, &pair.key).expect("certificate and key match"));
    }

    /// Stops the webhook.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.task.await.expect("no panic");
    }
}

/// Returns a certificate for the usual name, with its CA bundle.
pub fn certificate() -> (IssuedCertificate, CaBundle) {
    certificate_for(NAME)
}

/// Like [`certificate`], for another name.
pub fn certificate_for(name: &str) -> (IssuedCertificate, CaBundle) {
    let wanted =
        CertificateSpec { names: vec![name.to_owned()], lifetime: Duration::from_hours(1) };
    let pair = issue(&wanted, wall_now().into()).expect("created");
    let trusts = CaBundle::parse(&pair.authority);
    (pair, trusts)
}

/// Serves with this certificate.
pub async fn serve(
    pair: &IssuedCertificate,
    limits: WebhookLimits,
    minimum: MinVersion,
) -> WebhookFixture {
    let gate = Arc::<ReviewGate>::default();
    let reviewer = Arc::new(AnnotatingReviewer(Arc::clone(&gate)));
    WebhookFixture { gate, ..serve_reviewer(pair, limits, minimum, reviewer).await }
}

/// Like [`serve`], with another reviewer.
pub async fn serve_reviewer(
    pair: &IssuedCertificate,
    limits: WebhookLimits,
    minimum: MinVersion,
    reviewer: Arc<dyn Reviewer>,
) -> WebhookFixture {
    let webhook =
        WebhookServer::bind("127.0.0.1:0").await.expect("a free port").with_limits(limits);
    let (port, budget) = (webhook.address().port(), webhook.body_budget());
    let (keyring, counts) =
        (Arc::new(ReloadableCertificate::default()), Arc::new(ReviewCounts::default()));
    let tls =
        server_config(minimum, &CipherSuites::default(), Arc::clone(&keyring)).expect("settings");
    let reviews = ReviewRoutes::new(Arc::clone(&counts) as _).route("", "pods", reviewer);
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let task = tokio::spawn(webhook.serve(tls, Arc::new(reviews), shutdown));
    let served = WebhookFixture { port, keyring, counts, budget, gate: Arc::default(), stop, task };
    served.set_certificate(pair);
    served
}
