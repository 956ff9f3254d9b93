//! Owns a webhook without a cluster: a reviewer who adds an annotation, and counts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use plimsoll::{
    certificate::{Bundle, Pair, Wanted, make},
    serve::{
        Webhook,
        webhook::{
            Answered, BodyBudget, Ciphers, Keyring, MinVersion, Observer, Request, Reviewer,
            Reviews, Verdict, WebhookLimits, certified, server_config,
        },
    },
};
use serde_json::json;
use tokio::{
    sync::{Notify, oneshot},
    task::JoinHandle,
};

use super::caller::NAME;
use crate::support::clock::wall_now;

/// What was counted.
#[derive(Debug, Default)]
pub struct Counts(Mutex<BTreeMap<String, usize>>);

impl Counts {
    fn add(&self, word: &str) {
        *self.0.lock().expect("no panic").entry(word.to_owned()).or_default() += 1;
    }

    /// How often.
    pub fn of(&self, word: &str) -> usize {
        self.0.lock().expect("no panic").get(word).copied().unwrap_or_default()
    }
}

impl Observer for Counts {
    fn answered(&self, answered: &Answered) {
        self.add(answered.outcome);
    }

    fn turned_away(&self, reason: &'static str) {
        self.add(reason);
    }
}

/// Where a review of the pod `slow` waits.
#[derive(Debug, Default)]
pub struct Gate {
    /// Told when it is there.
    pub entered: Notify,
    /// Lets it on.
    pub open: Notify,
}

struct Annotates(Arc<Gate>);

#[async_trait]
impl Reviewer for Annotates {
    fn resource(&self) -> &'static str {
        "Pod"
    }

    async fn review(&self, request: &Request<'_>) -> Verdict {
        if request.name == "slow" {
            self.0.entered.notify_one();
            self.0.open.notified().await;
        }
        let operation = json!({"op": "add", "path": "/metadata/annotations", "value": {}});
        Verdict::patch(&[operation]).expect("JSON")
    }
}

/// A webhook that serves.
pub struct Served {
    /// Where.
    pub port: u16,
    /// What it shows.
    pub keyring: Arc<Keyring>,
    /// What was counted.
    pub counts: Arc<Counts>,
    /// The memory that bodies take.
    pub budget: Arc<BodyBudget>,
    /// Where slow reviews wait.
    pub gate: Arc<Gate>,
    stop: oneshot::Sender<()>,
    done: JoinHandle<()>,
}

impl Served {
    /// Shows another certificate from now on.
    pub fn show(&self, pair: &Pair) {
        self.keyring.show(certified(&pair.chain, &pair.key).expect("they belong together"));
    }

    /// Ends it.
    pub async fn stop(self) {
        let _ = self.stop.send(());
        self.done.await.expect("no panic");
    }
}

/// A certificate for the name that is called, with those who trust it.
pub fn certificate() -> (Pair, Bundle) {
    certificate_for(NAME)
}

/// The same for another name.
pub fn certificate_for(name: &str) -> (Pair, Bundle) {
    let wanted = Wanted { names: vec![name.to_owned()], lifetime: Duration::from_hours(1) };
    let pair = make(&wanted, wall_now().into()).expect("made");
    let trusts = Bundle::read(&pair.authority);
    (pair, trusts)
}

/// Serves this certificate.
pub async fn serve(pair: &Pair, limits: WebhookLimits, minimum: MinVersion) -> Served {
    let gate = Arc::<Gate>::default();
    let reviewer = Arc::new(Annotates(Arc::clone(&gate)));
    Served { gate, ..serve_reviewer(pair, limits, minimum, reviewer).await }
}

/// The same, with somebody else who decides about pods.
pub async fn serve_reviewer(
    pair: &Pair,
    limits: WebhookLimits,
    minimum: MinVersion,
    reviewer: Arc<dyn Reviewer>,
) -> Served {
    let webhook = Webhook::bind("127.0.0.1:0").await.expect("a free port").with_limits(limits);
    let (port, budget) = (webhook.address().port(), webhook.body_budget());
    let (keyring, counts) = (Arc::new(Keyring::default()), Arc::new(Counts::default()));
    let tls = server_config(minimum, &Ciphers::default(), Arc::clone(&keyring)).expect("settings");
    let reviews = Reviews::new(Arc::clone(&counts) as _).route("", "pods", reviewer);
    let (stop, stopped) = oneshot::channel::<()>();
    let shutdown = async { stopped.await.unwrap_or(()) };
    let done = tokio::spawn(webhook.serve(tls, Arc::new(reviews), shutdown));
    let served = Served { port, keyring, counts, budget, gate: Arc::default(), stop, done };
    served.show(pair);
    served
}
