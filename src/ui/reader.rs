//! Keeps the data of the pages up to date in the background: watches of autoscalers, and reports at intervals. Requests read
//! only what is there, and for the page of one workload its explanation and timeline.

mod merged_report;
mod quotas;
mod watches;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use moka::future::Cache;
use parking_lot::{Mutex, RwLock};
use plimsoll_core::{
    rightsizing::survey::{Survey, Unread},
    types::{ObjectKey, Time},
};
use tokio::{
    sync::{Notify, Semaphore},
    task::spawn_blocking,
    time::{sleep, timeout},
};

use self::{
    merged_report::{MergedReport, recommended_containers},
    quotas::list_quotas,
    watches::Watches,
};
use super::{
    access::User,
    list_query::Span,
    pages::WorkloadDetails,
    quota::QuotaFacts,
    replica_timeline::ReplicaTimeline,
    server::{AccessReviewer, PageSource},
    snapshot::{Snapshot, SnapshotParts},
    timeline::Timeline,
    timeline_cache::TimelineCache,
    timeline_reader::{ReplicaSubject, TimelineReader, TimelineSubject},
};
use crate::{
    cluster::{
        clock::Clock,
        survey::survey_cluster,
        write::user_access::{self, ReviewedUser},
    },
    controllers::runtime::{
        command_client::{Cluster, ClusterConnection},
        shutdown::TaskGroup,
    },
    report::{
        collect::{
            self,
            pod::{
                ExplainPodConfig,
                preview::{NamespacePreview, preview},
            },
            vpa::ExplainConfig,
        },
        explain::VpaReport,
        recommend::{
            run::{
                Collected, EvidenceByWorkload, RecommendConfig, RecommendProgress, collect_evidence,
            },
            server::{ConnectedServer, ServerChoice},
        },
        status::{StatusReport, build_report},
    },
};

/// Workloads and their history are read this often.
const HISTORY_INTERVAL: Duration = Duration::from_mins(15);
/// One read takes at most this long.
const HISTORY_TIMEOUT: Duration = Duration::from_mins(10);
/// The updater's decisions are made this often.
const PREVIEW_INTERVAL: Duration = Duration::from_mins(5);
/// The status is read, and the data of the pages is put together, this often.
const SNAPSHOT_INTERVAL: Duration = Duration::from_mins(1);
/// The least time between two snapshots.
const MIN_SNAPSHOT_INTERVAL: Duration = Duration::from_secs(5);
/// Namespaces whose pods are previewed.
const MAX_PREVIEWED_NAMESPACES: usize = 1_000;
/// Explanations are kept this long.
const EXPLANATION_LIFETIME: Duration = Duration::from_secs(30);
/// Explanations that are kept.
const MAX_EXPLANATIONS: u64 = 64;
/// Explanations that are made at once.
const MAX_EXPLAINING: usize = 4;
/// The longest time for an explanation.
const EXPLANATION_TIMEOUT: Duration = Duration::from_secs(15);
/// The right that is reviewed: users who may list VPAs of a namespace see its pages.
const REVIEWED: (&str, &str) = ("autoscaling.k8s.io", "verticalpodautoscalers");

/// What to read.
#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// The report on workloads.
    pub recommend: RecommendConfig,
    /// The decisions of the updater. The object is ignored.
    pub pods: ExplainPodConfig,
    /// The explanation of a VPA. The object is ignored.
    pub vpas: ExplainConfig,
}

/// Reads the cluster in the background.
pub struct Reader {
    config: ReaderConfig,
    cluster: Cluster,
    connection: ClusterConnection,
    clock: Clock,
    watches: Arc<Watches>,
    read: Mutex<BackgroundReports>,
    snapshot: RwLock<Option<Arc<Snapshot>>>,
    changed: Notify,
    server: RwLock<Option<Arc<TimelineReader>>>,
    timelines: TimelineCache<TimelineSubject, Timeline>,
    replica_timelines: TimelineCache<ReplicaSubject, ReplicaTimeline>,
    explanations: Cache<ObjectKey, Result<VpaReport, String>>,
    explaining: Semaphore,
}

/// What was read at intervals.
#[derive(Default)]
struct BackgroundReports {
    collected: Option<Arc<Collected>>,
    history_at: Option<Time>,
    history_error: Option<String>,
    preview: BTreeMap<String, Arc<NamespacePreview>>,
    status: Option<StatusReport>,
    quotas: Vec<QuotaFacts>,
    quotas_error: Option<String>,
}

impl Reader {
    /// A reader of a cluster. It reads nothing before [`Self::start`].
    pub fn new(
        config: ReaderConfig,
        connection: ClusterConnection,
        clock: Clock,
    ) -> Result<Arc<Self>, crate::controllers::runtime::command_client::NoCluster> {
        let cluster = connection.cluster()?;
        // Watches are silent for minutes.
        let watches = Arc::new(Watches::new(connection.query_client()?, clock.clone()));
        Ok(Arc::new(Self {
            config,
            cluster,
            connection,
            clock,
            watches,
            read: Mutex::default(),
            snapshot: RwLock::new(None),
            changed: Notify::new(),
            server: RwLock::new(None),
            timelines: TimelineCache::new(),
            replica_timelines: TimelineCache::new(),
            explanations: Cache::builder()
                .max_capacity(MAX_EXPLANATIONS)
                .time_to_live(EXPLANATION_LIFETIME)
                .build(),
            explaining: Semaphore::new(MAX_EXPLAINING),
        }))
    }

    pub fn start(self: &Arc<Self>, tasks: &mut TaskGroup) {
        self.watches.start(tasks);
        let this = Arc::clone(self);
        tasks.spawn_cancellable(async move { this.keep_history().await });
        let this = Arc::clone(self);
        tasks.spawn_cancellable(async move { this.keep_preview().await });
        let this = Arc::clone(self);
        tasks.spawn_cancellable(async move { this.keep_status().await });
        let this = Arc::clone(self);
        tasks.spawn_cancellable(async move { this.keep_snapshot().await });
    }

    async fn keep_history(&self) {
        // What VPAs recommend is not computed from the history.
        self.watches.wait_for_vpas().await;
        loop {
            let mut progress = PartProgress { reader: self, survey: None };
            let (collected, error) = match self.collect(&mut progress).await {
                Ok(collected) => (collected, None),
                Err(why) => {
                    tracing::info!(%why, "history could not be read");
                    let survey = match progress.survey {
                        Some(survey) => survey,
                        None => Arc::new(self.survey().await),
                    };
                    (Collected { survey, ..Collected::default() }, Some(why))
                }
            };
            {
                let mut read = self.read.lock();
                read.collected = Some(Arc::new(collected));
                read.history_at = Some(self.clock.now());
                read.history_error = error;
            }
            self.changed.notify_one();
            sleep(HISTORY_INTERVAL).await;
        }
    }

    /// Reads workloads and history, and connects to the server for timelines.
    async fn collect(&self, progress: &mut PartProgress<'_>) -> Result<Collected, String> {
        let config = &self.config.recommend;
        let (prometheus, clock) = (&config.prometheus, &self.clock);
        let server = match &config.server {
            ServerChoice::InCluster { service, via } => {
                let choice = (service.as_ref(), *via);
                ConnectedServer::of_cluster(&self.connection, choice, prometheus, clock).await
            }
            ServerChoice::Address => ConnectedServer::at_address(prometheus, clock).await,
        };
        let server = server.map_err(|error| error.to_string())?;
        let matchers = prometheus.series_options.matchers.clone();
        *self.server.write() = Some(Arc::new(TimelineReader::new(&server, matchers)));
        let replaced = Arc::new(recommended_containers(&self.watches.vpas()));
        let earlier = self.earlier_survey();
        let config = RecommendConfig { replaced, earlier, ..config.clone() };
        let collecting = collect_evidence(&config, clock, progress);
        let collected = timeout(HISTORY_TIMEOUT, collecting).await;
        let collected = collected.map_err(|_| {
            format!("{}: reading took longer than {HISTORY_TIMEOUT:?}", server.name)
        })?;
        collected.map_err(|error| error.to_string())
    }

    /// Reads the workloads alone.
    async fn survey(&self) -> Survey {
        let earlier = self.earlier_survey();
        let scope = &self.config.recommend.scope;
        survey_cluster(&self.cluster.client, scope, earlier.as_deref()).await
    }

    fn earlier_survey(&self) -> Option<Arc<Survey>> {
        self.read.lock().collected.as_ref().map(|collected| Arc::clone(&collected.survey))
    }

    async fn keep_preview(&self) {
        self.watches.wait_for_vpas().await;
        loop {
            let namespaces = self.watches.namespaces_with_updates();
            let mut previews = BTreeMap::new();
            for namespace in namespaces.into_iter().take(MAX_PREVIEWED_NAMESPACES) {
                let now = self.clock.now();
                let decided = preview(&self.config.pods, &self.cluster, &namespace, now).await;
                let decided = decided.unwrap_or_else(|error| NamespacePreview {
                    at: now,
                    notes: vec![format!("{namespace}: {error}")],
                    ..NamespacePreview::default()
                });
                previews.insert(namespace, Arc::new(decided));
            }
            self.read.lock().preview = previews;
            self.changed.notify_one();
            sleep(PREVIEW_INTERVAL).await;
        }
    }

    async fn keep_status(&self) {
        loop {
            let facts = collect::status::collect(&self.cluster, None).await;
            let report = build_report(&facts, env!("CARGO_PKG_VERSION"), self.clock.now());
            let quotas = list_quotas(&self.cluster.client).await;
            {
                let mut read = self.read.lock();
                read.status = Some(report);
                read.quotas_error = quotas.as_ref().err().cloned();
                // Those of the last time are better than none.
                if let Ok(quotas) = quotas {
                    read.quotas = quotas;
                }
            }
            self.changed.notify_one();
            sleep(SNAPSHOT_INTERVAL).await;
        }
    }

    async fn keep_snapshot(self: Arc<Self>) {
        self.watches.wait_for_vpas().await;
        loop {
            let this = Arc::clone(&self);
            // The report of a large cluster takes long enough to delay requests.
            if let Ok(snapshot) = spawn_blocking(move || this.make_snapshot()).await {
                *self.snapshot.write() = Some(Arc::new(snapshot));
            }
            sleep(MIN_SNAPSHOT_INTERVAL).await;
            let rest = SNAPSHOT_INTERVAL.saturating_sub(MIN_SNAPSHOT_INTERVAL);
            // Ready with either.
            let _ = timeout(rest, self.changed.notified()).await;
        }
    }

    fn make_snapshot(&self) -> Snapshot {
        let now = self.clock.now();
        let vpas = self.watches.vpas();
        let collected = self.read.lock().collected.clone().unwrap_or_default();
        let merged = MergedReport::new(&self.config.recommend, collected, now);
        let (report, rows) = merged.rows(&vpas);
        let read = self.read.lock();
        let quotas = read.quotas_error.clone();
        let quotas = quotas.map(|why| Unread { what: "resourcequotas".to_owned(), why });
        let unread = self.watches.unread().into_iter().chain(quotas).collect();
        let parts = SnapshotParts {
            cluster: self.cluster.address.clone(),
            at: now,
            report,
            history_at: read.history_at,
            history_error: read.history_error.clone(),
            vpas,
            autoscalers: self.watches.autoscalers(),
            preview: read.preview.clone(),
            status: read.status.clone(),
            quotas: read.quotas.clone(),
            unread,
        };
        drop(read);
        Snapshot::with_rows(parts, rows, Arc::new(merged))
    }

    async fn explain(&self, subject: &TimelineSubject) -> Option<Result<VpaReport, String>> {
        let name = subject.vpa.clone()?;
        let key = ObjectKey::new(&*subject.namespace, &*name);
        let explaining = async {
            // The semaphore is never closed.
            let _permit = self.explaining.acquire().await;
            let namespace = Some(subject.namespace.clone());
            let config = ExplainConfig { namespace, name, ..self.config.vpas.clone() };
            let explaining = collect::vpa::explain(&config, &self.cluster, self.clock.now());
            match timeout(EXPLANATION_TIMEOUT, explaining).await {
                Ok(explained) => explained.map_err(|error| error.to_string()),
                Err(_) => Err(format!("reading took longer than {EXPLANATION_TIMEOUT:?}")),
            }
        };
        Some(Box::pin(self.explanations.get_with(key, explaining)).await)
    }
}

/// Replaces what was read before part by part, so that not all of both is in memory.
struct PartProgress<'a> {
    reader: &'a Reader,
    survey: Option<Arc<Survey>>,
}

impl RecommendProgress for PartProgress<'_> {
    fn stage(&mut self, _: &str) {}

    fn histories(&mut self, _: usize, _: usize) {}

    fn evidence(&mut self, survey: &Arc<Survey>, part: &EvidenceByWorkload) {
        self.survey = Some(Arc::clone(survey));
        let mut read = self.reader.read.lock();
        let Some(known) = read.collected.take() else { return };
        read.collected = Some(Arc::new(known.with_part(survey, part)));
        drop(read);
        self.reader.changed.notify_one();
    }
}

#[async_trait]
impl PageSource for Reader {
    fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.snapshot.read().clone()
    }

    async fn details(&self, subject: &TimelineSubject, span: Span) -> WorkloadDetails {
        let timeline = async {
            let server = self.server.read().clone()?;
            let now = self.clock.now();
            let reading = server.read(subject, span, now);
            Some(self.timelines.read(subject, span, reading).await)
        };
        let (explanation, timeline) = tokio::join!(self.explain(subject), Box::pin(timeline));
        WorkloadDetails { explanation, timeline }
    }

    async fn replica_timeline(
        &self,
        subject: &ReplicaSubject,
        span: Span,
    ) -> Option<Result<ReplicaTimeline, String>> {
        let server = self.server.read().clone()?;
        let now = self.clock.now();
        let reading = server.read_replicas(subject, span, now);
        Some(Box::pin(self.replica_timelines.read(subject, span, reading)).await)
    }
}

/// Reviews users with the API server of the cluster.
#[async_trait]
impl AccessReviewer for Reader {
    async fn user_of_token(&self, token: &str) -> Result<Option<User>, String> {
        let user = user_access::review_token(&self.cluster.client, token).await?;
        Ok(user.map(|user| User {
            name: user.name,
            groups: user.groups,
            uid: user.uid,
            extra: user.extra.into_iter().collect(),
        }))
    }

    async fn may_list(&self, user: &User, namespace: Option<&str>) -> Result<bool, String> {
        let user = ReviewedUser {
            name: user.name.clone(),
            groups: user.groups.clone(),
            uid: user.uid.clone(),
            extra: user.extra.iter().cloned().collect(),
        };
        user_access::may_list(&self.cluster.client, &user, REVIEWED, namespace).await
    }
}
