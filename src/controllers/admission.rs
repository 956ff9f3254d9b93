//! The admission controller process: its components, startup and shutdown.
//!
//! ```text
//!   API server ──TLS──▶ webhook ──▶ reviewers of pods, VPAs, WPAs ──▶ decide ──▶ patch
//!                          ▲            ▲
//!   certificates ──────────┤            └── watches: VPAs, LimitRanges, controllers; targets are queried
//!     │  files, or a Secret│
//!     └─▶ registration     └── self_check: connects to its own port ──▶ probes, Lease
//! ```

mod certificates;
pub(crate) mod config;
mod decide;
mod hpa_conflicts;
mod matching;
mod pod_reviewer;
mod probes;
mod self_check;
mod vpa_reviewer;
mod watches;
mod wpa_reviewer;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Result, anyhow};
use kube::Client;
use tokio::time::Instant;

use self::{
    certificates::Certificates,
    config::{AdmissionConfig, CertificateSource},
    hpa_conflicts::HpaAccess,
    pod_reviewer::PodReviewer,
    self_check::SelfCheck,
    vpa_reviewer::VpaReviewer,
    watches::{WatchStores, Watches},
    wpa_reviewer::WpaReviewer,
};
use crate::{
    cluster::{
        cache::controllers::ControllerCache,
        clock::Clock,
        leader::{Election, Fence},
        server::{
            WebhookServer,
            webhook::{ReloadableCertificate, ReviewRoutes, certified_key, server_config},
        },
        target::{
            TargetResolver,
            scale::{CacheLifetimes, request_gate},
        },
        watch::WatchFactory,
        write::{Permit, RateLimiter, WebhookConfigWriter, WriteStats},
    },
    controllers::runtime::{
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        liveness_thread::Liveness,
        loop_watchdog::LoopWatchdog,
        quotas::Quotas,
        shutdown::{ShutdownToken, Tasks},
        traffic_metrics::{export_watch_metrics, export_write_metrics},
    },
    telemetry::{AdmissionMetrics, ApiTrafficMetrics},
};

/// All components of the admission controller.
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
    webhook_address: SocketAddr,
    metrics: AdmissionMetrics,
    traffic: ApiTrafficMetrics,
    write_stats: Arc<WriteStats>,
    loop_watchdog: LoopWatchdog,
    quotas: Quotas,
    hpa_access: HpaAccess,
    draining: AtomicBool,
}

/// The certificate source: as configured, or files if they exist.
fn certificate_source(config: &AdmissionConfig) -> Result<CertificateSource> {
    let files = &config.certificates.files;
    let source = config.certificates.source.unwrap_or_else(|| {
        let files_exist = files.certificate.exists() || files.key.exists();
        let source =
            if files_exist { CertificateSource::Mounted } else { CertificateSource::SelfSigned };
        let checked = files.certificate.display();
        tracing::info!(?source, %checked, "--certificates is not set; using the default source");
        source
    });
    if source == CertificateSource::Mounted {
        // As in upstream, startup fails if the certificates are not usable.
        let usable = certificates::read_files(files).and_then(|pair| {
            certified_key(&pair.chain, &pair.key).map_err(|error| error.to_string())
        });
        usable.map_err(|error| {
            anyhow!("{error}; correct --tls-cert-file and --tls-private-key, or set --certificates=self-signed")
        })?;
    }
    Ok(source)
}

/// A running admission controller.
pub type AdmissionHandle = ControllerHandle<AdmissionController>;

impl ControllerConfig for AdmissionConfig {
    type Controller = AdmissionController;

    fn process(&self) -> &ProcessConfig {
        &self.process
    }
}

impl Controller for AdmissionController {
    type Config = AdmissionConfig;

    const USER_AGENT: &str = concat!("plimsoll-admission-controller/", env!("CARGO_PKG_VERSION"));

    async fn new(config: AdmissionConfig, context: &mut ControllerContext) -> Result<Arc<Self>> {
        // Bound on the runtime that accepts its connections, because the Lease is renewed only while the self-check of
        // this port passes.
        let (listen, runtime) = (config.listen.to_string(), context.liveness.runtime().clone());
        let bound = runtime.spawn(async move { WebhookServer::bind(&listen).await });
        let webhook = bound.await??;
        let source = certificate_source(&config)?;
        let keyring = Arc::new(ReloadableCertificate::default());
        let tls = server_config(config.tls.min_version, &config.tls.ciphers, Arc::clone(&keyring))?;
        let controller =
            Arc::new(Self::from_context(config, context, source, keyring, webhook.address()));
        let reviews = controller.review_routes();
        context
            .tasks
            .servers
            .spawn_on(&runtime, |stop| webhook.serve(tls, reviews, stop.cancelled()));
        Ok(controller)
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let (version, webhook) = (env!("CARGO_PKG_VERSION"), self.webhook_address);
        let certificates = self.source;
        tracing::info!(version, ?addresses, %webhook, ?certificates, "starting admission controller");
    }

    /// Every replica serves, and their writes are idempotent, so there is no election.
    fn election(&self) -> Option<Election> {
        None
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let this = || Arc::clone(self);
        let workers = &mut tasks.workers;
        self.watches.start(self, &workers.shutdown_token(), workers.tasks());
        workers.spawn_cancellable(this().run_certificate_loop());
        workers.spawn_cancellable_on(self.liveness.runtime(), this().run_self_check_loop());
    }

    /// Fails the readiness probe, and waits for endpoints to be updated.
    async fn begin_shutdown(&self) {
        self.draining.store(true, Ordering::Release);
        tokio::time::sleep(self.config.shutdown_delay).await;
    }

    async fn drain(&self, _deadline: Instant) {}

    fn refresh_metrics(&self) {
        export_watch_metrics(
            &self.traffic,
            self.watches.required().chain(self.quotas.watch_status()),
        );
        self.traffic.set_watch_objects(self.watches.vpas.name(), self.stores.vpa_count());
        export_write_metrics(&self.traffic, &self.write_stats);
    }
}

impl AdmissionController {
    /// The address of the webhook.
    pub fn webhook(&self) -> SocketAddr {
        self.webhook_address
    }

    fn review_routes(self: &Arc<Self>) -> Arc<ReviewRoutes> {
        let routes = ReviewRoutes::new(Arc::new(self.metrics.clone()))
            .route("", "pods", Arc::new(PodReviewer(Arc::clone(self))))
            .route(
                "autoscaling.k8s.io",
                "verticalpodautoscalers",
                Arc::new(VpaReviewer(Arc::clone(self))),
            )
            .route(
                "datadoghq.com",
                "watermarkpodautoscalers",
                Arc::new(WpaReviewer(Arc::clone(self))),
            );
        Arc::new(routes)
    }

    fn from_context(
        config: AdmissionConfig,
        context: &mut ControllerContext,
        source: CertificateSource,
        keyring: Arc<ReloadableCertificate>,
        webhook_address: SocketAddr,
    ) -> Self {
        let metrics = AdmissionMetrics::new(&mut context.registry);
        let (client, clock) = (context.client.clone(), context.clock.clone());
        let limiter = RateLimiter::new(config.process.qps, config.process.burst);
        // All replicas serve and write at the same time, which the writes are designed for: no leader election.
        let permit = Permit::new(Fence::open(), limiter.clone());
        let controllers = Arc::new(ControllerCache::new());
        let gate = request_gate(limiter);
        let targets = TargetResolver::new(
            client.clone(),
            Arc::clone(&controllers),
            gate,
            CacheLifetimes::default(),
        );
        let stats = Arc::clone(&context.write_stats);
        let registration = config
            .registration
            .clone()
            .map(|wanted| WebhookConfigWriter::new(client.clone(), wanted, Arc::clone(&stats)));
        Self {
            config,
            clock,
            client,
            liveness: context.liveness.clone(),
            watch_factory: context.watch_factory.clone(),
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
            traffic: context.traffic.clone(),
            write_stats: stats,
            loop_watchdog: LoopWatchdog::default(),
            quotas: Quotas::default(),
            hpa_access: HpaAccess::default(),
            draining: AtomicBool::new(false),
        }
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    async fn run_certificate_loop(self: Arc<Self>) {
        loop {
            self.loop_watchdog.tick();
            self.reconcile_certificates().await;
            // Retry sooner while something is missing.
            let is_complete = self.certificates.lock().last_error.is_none();
            let interval = self.config.certificates.interval;
            let pause = if is_complete { interval } else { interval.min(Duration::from_secs(2)) };
            tokio::time::sleep(pause).await;
        }
    }
}
