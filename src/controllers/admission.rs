//! The admission controller as a process: its parts, how they start, and how they end.
//!
//! ```text
//!   API server ──TLS──▶ webhook ──▶ pods, vpas ──▶ decisions ──▶ patch
//!                          ▲            ▲
//!   certificates ──────────┤            └── feeds: VPAs, LimitRanges, controllers; targets are asked
//!     │  files, or a Secret│
//!     └─▶ registration     └── reach: calls the own port ──▶ probes, Lease
//! ```

mod certificates;
pub mod config;
mod decide;
mod hpa_conflicts;
mod matching;
mod pod_reviewer;
mod probes;
mod review_metrics;
mod self_check;
mod vpa_reviewer;
mod watches;
mod wpa_reviewer;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub(super) use self::matching::{has_startup_boost, is_off, takes_precedence};
use anyhow::{Result, anyhow};
use kube::Client;
use rustls::ServerConfig;

use self::{
    certificates::Certificates,
    config::{AdmissionConfig, CertificateSource},
    hpa_conflicts::HpaAccess,
    pod_reviewer::PodReviewer,
    review_metrics::ReviewMetrics,
    self_check::SelfCheck,
    vpa_reviewer::VpaReviewer,
    watches::{WatchStores, Watches},
    wpa_reviewer::WpaReviewer,
};
use crate::controllers::runtime::{
    client,
    context::{Controller, ControllerContext},
    liveness::{Clients, Liveness},
    loop_watchdog::LoopWatchdog,
    quotas::Quotas,
    shutdown::{ShutdownToken, Signals, TaskGroup, Tasks, run_until_signal},
    traffic_metrics::{export_watch_metrics, export_write_metrics},
};
use crate::{
    cluster::{
        cache::controllers::ControllerCache,
        clock::Clock,
        leader::Fence,
        server::{
            WebhookServer,
            webhook::{ReloadableCertificate, ReviewRoutes, certified_key, server_config},
        },
        target::TargetResolver,
        watch::WatchFactory,
        write::{Permit, RateLimiter, WebhookConfigWriter, WriteStats},
    },
    telemetry::{AdmissionMetrics, ApiTrafficMetrics},
};

/// All parts of an admission controller.
pub struct AdmissionController {
    config: AdmissionConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    watch_factory: WatchFactory,
    source: CertificateSource,
    watches: Watches,
    stores: WatchStores,
    controllers: Arc<ControllerCache>,
    targets: TargetResolver,
    permit: Permit,
    keyring: Arc<ReloadableCertificate>,
    certificates: Certificates,
    registration: Option<WebhookConfigWriter>,
    self_check: SelfCheck,
    /// Where the own port is.
    webhook_address: SocketAddr,
    metrics: AdmissionMetrics,
    traffic: ApiTrafficMetrics,
    write_stats: Arc<WriteStats>,
    loop_watchdog: LoopWatchdog,
    quotas: Quotas,
    hpa_access: HpaAccess,
    draining: AtomicBool,
}

impl fmt::Debug for AdmissionController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("webhook", &self.webhook_address).finish_non_exhaustive()
    }
}

/// An admission controller that runs.
#[derive(Debug)]
pub struct AdmissionHandle {
    role: Arc<AdmissionController>,
    address: SocketAddr,
    servers: TaskGroup,
    workers: TaskGroup,
    /// What ends last: the listener of metrics and probes.
    stopped_last: TaskGroup,
}

/// Runs until one of these signals.
pub async fn run(config: AdmissionConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    run_until_signal(signals, starting, AdmissionHandle::stop).await
}

/// Clients for the API server, by kubeconfig or from inside of the cluster.
pub async fn connect(config: &AdmissionConfig) -> Result<Clients> {
    let agent = concat!("plimsoll-admission-controller/", env!("CARGO_PKG_VERSION"));
    client::connect(config.kubeconfig.as_deref(), agent).await
}

/// Starts all parts, with time from this clock.
pub async fn start(
    config: AdmissionConfig,
    clients: impl Into<Clients>,
    clock: Clock,
) -> Result<AdmissionHandle> {
    let mut desk = ControllerContext::for_single_controller(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let mut running = prepare(config, &mut desk).await?.begin(admin.address());
    let stop = running.stopped_last.shutdown_token();
    desk.serve(vec![admin], &stop, running.stopped_last.tasks());
    Ok(running)
}

/// An admission controller that does nothing yet, but for its port.
pub(super) struct PreparedAdmission {
    role: Arc<AdmissionController>,
    webhook: WebhookServer,
    tls: ServerConfig,
}

/// Puts the parts together.
pub(super) async fn prepare(
    config: AdmissionConfig,
    desk: &mut ControllerContext,
) -> Result<PreparedAdmission> {
    // Bound where its connections are accepted: whether API servers get through decides about the Lease.
    let listen = config.listen.to_string();
    let bound = desk.liveness.runtime().spawn(async move { WebhookServer::bind(&listen).await });
    let webhook = bound.await??.with_limits(config.limits);
    let source = certificate_source(&config)?;
    let keyring = Arc::new(ReloadableCertificate::default());
    let tls = server_config(config.tls.min_version, &config.tls.ciphers, Arc::clone(&keyring))?;
    let role = Arc::new(AdmissionController::new(config, desk, source, keyring, webhook.address()));
    desk.register(Arc::clone(&role) as _);
    Ok(PreparedAdmission { role, webhook, tls })
}

impl PreparedAdmission {
    /// Starts its tasks. It is scraped and probed there.
    pub fn begin(self, address: SocketAddr) -> AdmissionHandle {
        let Self { role, webhook, tls } = self;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            %address,
            webhook = %role.webhook_address,
            certificates = ?role.source,
            "admission controller starts"
        );
        let (mut servers, mut workers, holders) =
            (TaskGroup::new(), TaskGroup::new(), TaskGroup::new());
        let (serve_stop, work_stop) = (servers.shutdown_token(), workers.shutdown_token());
        let (pods, vpas, wpas) = (
            PodReviewer(Arc::clone(&role)),
            VpaReviewer(Arc::clone(&role)),
            WpaReviewer(Arc::clone(&role)),
        );
        let reviews = ReviewRoutes::new(Arc::new(ReviewMetrics(role.metrics.clone())))
            .route("", "pods", Arc::new(pods))
            .route("autoscaling.k8s.io", "verticalpodautoscalers", Arc::new(vpas))
            .route("datadoghq.com", "watermarkpodautoscalers", Arc::new(wpas));
        let serve = webhook.serve(tls, Arc::new(reviews), serve_stop.cancelled());
        servers.tasks().spawn_on(serve, role.liveness.runtime());
        role.start_watches(&work_stop, workers.tasks());
        workers.tasks().spawn(Arc::clone(&role).run_certificate_loop(work_stop.clone()));
        let reachable = Arc::clone(&role).run_self_check_loop(work_stop.clone());
        workers.tasks().spawn_on(reachable, role.liveness.runtime());
        AdmissionHandle { role, address, servers, workers, stopped_last: holders }
    }
}

/// Where certificates come from: as it was said, or from files where there are any.
fn certificate_source(config: &AdmissionConfig) -> Result<CertificateSource> {
    let files = &config.certificates.files;
    let source = config.certificates.source.unwrap_or_else(|| {
        let found = files.certificate.exists() || files.key.exists();
        let source = if found { CertificateSource::Mounted } else { CertificateSource::SelfSigned };
        let looked_at = files.certificate.display();
        tracing::info!(?source, %looked_at, "where certificates come from was not said, and is so");
        source
    });
    if source == CertificateSource::Mounted {
        // As with upstream, nothing starts on certificates that cannot be used.
        let usable = certificates::read_files(files)
            .and_then(|pair| certified_key(&pair.chain, &pair.key).map_err(|why| why.to_string()));
        usable.map_err(|why| {
            anyhow!("{why}; correct --tls-cert-file and --tls-private-key, or set --certificates=self-signed")
        })?;
    }
    Ok(source)
}

impl AdmissionHandle {
    /// Where it serves metrics and health.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where it serves the webhook.
    pub fn webhook(&self) -> SocketAddr {
        self.role.webhook_address
    }

    /// Whether it is ready, or what is missing.
    pub fn ready(&self) -> Result<(), Vec<String>> {
        crate::cluster::server::Probes::check_readiness(&*self.role)
    }

    /// Ends it in order: first nobody new is sent here, then the answers under way are finished, then all else ends.
    pub async fn stop(mut self) {
        self.role.draining.store(true, Ordering::Release);
        tokio::time::sleep(self.role.config.shutdown_delay).await;
        self.servers.shut_down().await;
        self.workers.shut_down().await;
        self.stopped_last.shut_down().await;
    }
}

impl AdmissionController {
    fn new(
        config: AdmissionConfig,
        desk: &mut ControllerContext,
        source: CertificateSource,
        keyring: Arc<ReloadableCertificate>,
        webhook_address: SocketAddr,
    ) -> Self {
        let metrics = AdmissionMetrics::new(&mut desk.registry);
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = RateLimiter::new(config.qps, config.burst);
        // Every replica serves, and what they write together is made for that: there is no election.
        let permit = Permit::new(Fence::open(), limiter.clone());
        let controllers = Arc::new(ControllerCache::new());
        let gate = Arc::new(move || {
            let limiter = limiter.clone();
            Box::pin(async move { limiter.acquire().await }) as _
        });
        let targets = TargetResolver::new(
            client.clone(),
            Arc::clone(&controllers),
            gate,
            crate::cluster::target::scale::CacheLifetimes::default(),
        );
        let stats = Arc::clone(&desk.write_stats);
        let registration = config.registration.clone().map(|wanted| {
            WebhookConfigWriter::new(client.clone(), wanted).with_stats(Arc::clone(&stats))
        });
        Self {
            config,
            clock,
            client,
            liveness: desk.liveness.clone(),
            watch_factory: desk.watch_factory.clone(),
            source,
            watches: Watches::new(),
            stores: WatchStores::default(),
            controllers,
            targets,
            permit,
            keyring,
            certificates: Certificates::default(),
            registration,
            self_check: SelfCheck::default(),
            webhook_address,
            metrics,
            traffic: desk.traffic.clone(),
            write_stats: stats,
            loop_watchdog: LoopWatchdog::default(),
            quotas: Quotas::default(),
            hpa_access: HpaAccess::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// Whether it was told to end.
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Looks after certificates and the registration until told to stop.
    async fn run_certificate_loop(self: Arc<Self>, stop: ShutdownToken) {
        loop {
            self.loop_watchdog.tick();
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.reconcile_certificates() => {}
            }
            // What is missing at the start is looked for more often.
            let pause = match self.certificates.last_error() {
                Some(_) => self.config.certificates.interval.min(Duration::from_secs(2)),
                None => self.config.certificates.interval,
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

impl Controller for AdmissionController {
    fn refresh_metrics(&self) {
        export_watch_metrics(
            &self.traffic,
            self.watches.required().chain(self.quotas.watch_status()),
        );
        self.traffic.set_watch_objects(self.watches.vpas.name(), self.stores.vpa_count());
        export_write_metrics(&self.traffic, &self.write_stats);
    }
}
