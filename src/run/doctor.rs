//! `plimsoll doctor`: asks a Prometheus what it is good for, looks at the cluster beside it, and reports.
//!
//! ```text
//!   does it answer ──▶ cluster: VPAs and pods ──▶ what it is ──▶ names of series ──▶ how far back, at what cost
//! ```
//!
//! The first question decides whether there are others: a server that does not answer is one line. The others have a
//! time for all of them together; what it does not suffice for is reported as not known.

mod beside;
mod journal;
mod trial;

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::{
    answer::Ignore,
    client::{Client, Limits},
    detect::{Known, detect, find_recorded},
    door::{Door, DoorConfig, DoorError, Wall},
    failure::Failure,
    query::{Along, Fold, Query},
    schema::{Fact, Schema, States, THROTTLED},
    selector::{Pattern, Selector},
};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use self::{
    beside::{Pods, compare, find_pods},
    journal::{Groups, Journal},
};
use super::cluster::Reach;
use crate::{
    clock::Clock,
    doctor::{
        Facts, Report, diagnose,
        facts::{Asked, Beside, Depth, FAMILIES, Stage},
    },
    look::span,
};

/// How long the first answer may take: it counts what the server scrapes.
const HELLO: Duration = Duration::from_secs(5);
/// How often the time that has the beginning of history in it is halved.
const HALVINGS: u32 = 5;
/// Moments at which series are looked for, besides now and what is wanted.
const MOMENTS: [Duration; 5] = [
    Duration::from_hours(1),
    Duration::from_hours(24),
    Duration::from_hours(48),
    Duration::from_hours(96),
    Duration::from_hours(192),
];

/// What is examined.
#[derive(Clone, Debug)]
pub struct DoctorConfig {
    /// The server.
    pub door: DoorConfig,
    /// What was set about its series, and what goes into every query.
    pub known: Known,
    /// How far back history is wanted.
    pub wanted: Duration,
    /// How long one query may take.
    pub timeout: Duration,
    /// How long all of it may take.
    pub deadline: Duration,
    /// The cluster beside it.
    pub reach: Reach,
    /// Only VPAs and series of this namespace.
    pub namespace: Option<String>,
    /// Flags of the server as they were given, each as a shell takes it.
    pub given: Vec<String>,
    /// Given flags that hold secrets.
    pub secrets: Vec<String>,
}

/// Why there is nothing to report.
#[derive(Debug, thiserror::Error)]
pub enum DoctorError {
    /// The way to the server makes no sense.
    #[error(transparent)]
    Door(#[from] DoorError),
    /// It does not answer queries.
    #[error("{0}")]
    NoAnswer(String),
}

/// Asks everything and reports.
pub async fn examine(config: &DoctorConfig, clock: &Clock) -> Result<Report, DoctorError> {
    let begun = Instant::now();
    let now = clock.now();
    let own = clock.clone();
    let wall = Wall::new(move || own.now());
    let door = Door::new(config.door.clone(), wall.clone())?;
    let address = door.address().to_owned();
    let journal = Arc::new(Journal::default());
    let limits = Limits {
        timeout: config.timeout,
        attempts: 1,
        first_pause: Duration::from_millis(200),
        longest_pause: Duration::from_secs(2),
        ..Limits::default()
    };
    let transport = Arc::new(door);
    let client =
        |limits: Limits| Client::new(transport.clone(), limits).watched_by(journal.clone());
    let first = client(Limits { timeout: HELLO.min(config.timeout), ..limits });
    let up = Selector::metric("up").all(&config.known.matchers);
    let up = Query::from(up).fold(Fold::Count, Along::By(&[]));
    if let Err(failure) = first.instant(&up, now, &mut Ignore).await {
        return Err(DoctorError::NoAnswer(unanswered(&address, failure)));
    }
    let hello = journal.take();
    let exam = Exam { client: client(limits), journal, wall, now };

    let mut facts = Facts {
        at: now,
        address,
        wanted: config.wanted,
        stage: Stage::Cluster,
        deadline: config.deadline,
        hello,
        build: Asked::not_yet(),
        flags: Asked::not_yet(),
        runtime: Asked::not_yet(),
        schema: Asked::not_yet(),
        recorded: None,
        throttled: None,
        families: None,
        depth: Vec::new(),
        trial: None,
        beside: Beside::Empty,
        given: config.given.clone(),
        secrets: config.secrets.clone(),
    };
    let left = config.deadline.saturating_sub(begun.elapsed());
    if timeout(left, exam.fill(config, &mut facts)).await.is_ok() {
        facts.stage = Stage::Done;
    }
    Ok(diagnose(facts))
}

/// Why there is no answer. Nothing is asked again here, whatever a role would do.
fn unanswered(address: &str, failure: Failure) -> String {
    let why = match failure {
        Failure::Unavailable(why) => why,
        Failure::Busy { why, .. } => format!("the server is too busy: {why}"),
        other => other.to_string(),
    };
    if why.contains(address) { why } else { format!("{address}: {why}") }
}

/// Questions to one server, all about one moment.
#[derive(Debug)]
struct Exam {
    client: Client,
    journal: Arc<Journal>,
    wall: Wall,
    now: Time,
}

impl Exam {
    /// Asks one thing after the other. Whoever gives up on it keeps what is known by then, and at which stage it is.
    async fn fill(&self, config: &DoctorConfig, facts: &mut Facts) {
        // A cluster that does not answer leaves time to ask the server.
        let patience = config.deadline / 3;
        let pods = find_pods(&config.reach, config.namespace.as_deref());
        let pods = timeout(patience, pods).await.unwrap_or_else(|_| {
            let why = format!("its VPAs and pods could not be read within {}", span(patience));
            Pods::Not(Beside::Unreadable(why))
        });
        let mut namespaces: Vec<&str> = pods.namespaces();
        namespaces.extend(config.namespace.as_deref());
        namespaces.sort_unstable();
        namespaces.dedup();

        facts.stage = Stage::Server;
        facts.build = self.document("/api/v1/status/buildinfo").await;
        facts.flags = self.document("/api/v1/status/flags").await;
        facts.runtime = self.document("/api/v1/status/runtimeinfo").await;

        facts.stage = Stage::Names;
        let found = detect(&self.client, &config.known, &namespaces, self.now).await;
        facts.schema = self.asked(found.map_err(|error| error.to_string()));
        if let Ok(schema) = &mut facts.schema.answer {
            let span = (self.now.earlier(config.wanted), self.now);
            let recorded = find_recorded(&self.client, schema, &namespaces, span).await;
            let recorded = self.asked(recorded.map_err(|failure| failure.to_string()));
            schema.recorded = recorded.answer.clone().unwrap_or_default();
            facts.recorded = Some(recorded);
        }
        let found = facts.schema.answer.clone();
        if let Ok(schema) = &found {
            facts.stage = Stage::Others;
            self.look_at(schema, config, facts).await;
            facts.stage = Stage::Cost;
            facts.trial = self.try_history(schema, config, &pods).await;
        }

        facts.stage = Stage::Comparison;
        facts.beside = compare(self, pods, found.as_ref().ok()).await;
    }

    /// An answer with everything that was asked since the last one.
    fn asked<T>(&self, answer: Result<T, String>) -> Asked<T> {
        Asked { evidence: self.journal.take(), answer }
    }

    async fn document<T: DeserializeOwned>(&self, path: &str) -> Asked<T> {
        let answer = self.client.document(path, &[]).await;
        self.asked(answer.map_err(|failure| failure.to_string()))
    }

    /// The groups of a query at a moment, with their values.
    async fn groups(&self, query: &Query, at: Time) -> Asked<Groups> {
        let mut groups = Groups::default();
        let answer = self.client.instant(query, at, &mut groups).await;
        self.asked(answer.map(|_| groups).map_err(|failure| failure.to_string()))
    }

    /// How many series or groups there are at a moment: a query that answers one number.
    async fn count(&self, query: &Query, at: Time) -> Asked<u64> {
        let Asked { evidence, answer } = self.groups(query, at).await;
        let first = |groups: Groups| groups.all.first().map_or(0, |group| group.value as u64);
        Asked { evidence, answer: answer.map(first) }
    }

    /// What else there is, and how far back the series go.
    async fn look_at(&self, schema: &Schema, config: &DoctorConfig, facts: &mut Facts) {
        let containers = |metric: &Fact<String>| {
            let selector = schema.usage_in(metric, config.namespace.as_deref().as_slice());
            let one_each = Query::from(selector);
            one_each.fold(Fold::Group, Along::By(&schema.usage.identity()))
        };
        let throttled = Fact::found(THROTTLED.to_owned());
        let throttled = containers(&throttled).fold(Fold::Count, Along::By(&[]));
        facts.throttled = Some(self.count(&throttled, self.now).await);
        if let Some(states) = &schema.states {
            facts.families = Some(self.families(states, schema).await);
        }

        facts.stage = Stage::Depth;
        let memory = containers(&schema.usage.memory);
        let number = memory.fold(Fold::Count, Along::By(&[]));
        let mut moments = vec![Duration::ZERO, config.wanted];
        moments.extend(MOMENTS.into_iter().filter(|moment| *moment < config.wanted));
        moments.sort_unstable();
        for back in moments {
            facts.depth.push(self.depth(&number, back).await);
        }
        for _ in 0..HALVINGS {
            let has =
                |depth: &Depth| depth.containers.answer.as_ref().is_ok_and(|count| *count > 0);
            let Some(oldest) = facts.depth.iter().rposition(has) else { break };
            let Some(before) = facts.depth.get(oldest + 1) else { break };
            let back = (facts.depth[oldest].back + before.back) / 2;
            let depth = self.depth(&number, back).await;
            facts.depth.insert(oldest + 1, depth);
        }
    }

    /// Which families of kube-state-metrics there are.
    async fn families(&self, states: &States, schema: &Schema) -> Asked<BTreeSet<String>> {
        const NAME: &str = "__name__";
        let mut selector = Selector::any().matches(NAME, Pattern::one_of(FAMILIES));
        if let Some(job) = &states.job {
            selector = selector.equals("job", job);
        }
        let query = Query::from(selector.all(&schema.matchers));
        let query = query.fold(Fold::Group, Along::By(&[NAME]));
        let Asked { evidence, answer } = self.groups(&query, self.now).await;
        let names = |groups: Groups| {
            groups.all.into_iter().filter_map(|mut group| group.labels.remove(NAME)).collect()
        };
        Asked { evidence, answer: answer.map(names) }
    }

    /// Containers that had series so long ago.
    async fn depth(&self, number: &Query, back: Duration) -> Depth {
        let mut containers = self.count(number, self.now.earlier(back)).await;
        let about = if back.is_zero() { "now".to_owned() } else { format!("{} ago", span(back)) };
        for evidence in &mut containers.evidence {
            evidence.about.clone_from(&about);
        }
        Depth { back, containers }
    }
}
