//! The admission controller process: its components, startup and shutdown.
//!
//! ```text
//!   API server ──TLS──▶ webhook ──▶ reviewers of pods, VPAs, WPAs, HPAs ──▶ decide ──▶ patch
//!                          ▲            ▲
//!   certificates ──────────┤            └── watches: VPAs, LimitRanges, controllers; targets are queried
//!     │  files, or a Secret│
//!     └─▶ registration     └── self_check: connects to its own port ──▶ probes, Lease
//! ```

mod certificates;
pub(crate) mod config;
mod hpa_conflicts;
mod hpa_reviewer;
mod matching;
mod pod_reviewer;
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
use tokio::time::Instant;

use self::{
    certificates::{CertificateReconciler, Certificates},
    config::{AdmissionConfig, CertificateSource, LeaseConfig},
    hpa_conflicts::HpaLister,
    hpa_reviewer::HpaReviewer,
    matching::VpaMatcher,
    pod_reviewer::PodReviewer,
    self_check::SelfCheck,
    vpa_reviewer::VpaReviewer,
    watches::{VPAS, WatchStores, Watches},
    wpa_reviewer::WpaReviewer,
};
use crate::{
    cluster::{
        clock::Clock,
        leader::{Election, Fence, WebhookLease, election_rules},
        server::{
            Probes, Stalled, WebhookServer,
            webhook::{ReloadableCertificate, ReviewRoutes, certified_key, server_config},
        },
        target::{
            TargetResolver,
            scale::{CacheLifetimes, request_gate},
        },
        write::{CertificateSecret, Permit, WebhookConfigWriter, WriteStats},
    },
    controllers::runtime::{
        config::ProcessConfig,
        context::ControllerContext,
        controller::{Controller, ControllerConfig, ControllerHandle, ControllerTasks},
        liveness_thread::{self, Liveness},
        loop_watchdog::LoopWatchdog,
        traffic_metrics::{
            check_watch_loops, export_watch_metrics, export_write_metrics, unsynced_watches,
        },
    },
    telemetry::{AdmissionMetrics, ApiTrafficMetrics},
};

/// Maximum time of the requests of one iteration, in addition to the pause between iterations.
const LOOP_TIMEOUT: Duration = Duration::from_mins(2);

/// The admission controller: its configuration and components.
pub struct AdmissionController {
    config: Arc<AdmissionConfig>,
    clock: Clock,
    liveness: Liveness,
    watches: Arc<Watches>,
    certificates: CertificateReconciler,
    self_check: Arc<SelfCheck>,
    loop_watchdog: LoopWatchdog,
    traffic: ApiTrafficMetrics,
    write_stats: Arc<WriteStats>,
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
        let config = Arc::new(config);
        let metrics = AdmissionMetrics::new(&mut context.registry);
        let (client, clock) = (context.client.clone(), context.clock.clone());
        let write_stats = Arc::clone(&context.write_stats);
        let limiter = config.process.rate_limiter();
        let stores = Arc::new(WatchStores::default());
        let targets = TargetResolver::new(
            client.clone(),
            Arc::clone(&stores.sizing.controllers),
            request_gate(limiter.clone()),
            CacheLifetimes::default(),
        );
        let watches = Watches::new(&config, context.watch_factory.clone(), Arc::clone(&stores));
        let watches = Arc::new(watches);
        let pods = PodReviewer {
            config: Arc::clone(&config),
            watches: Arc::clone(&watches),
            vpas: VpaMatcher { stores: Arc::clone(&stores), targets, compat: config.compat },
            clock: clock.clone(),
        };
        let vpas = VpaReviewer {
            config: Arc::clone(&config),
            stores: Arc::clone(&stores),
            hpas: HpaLister::new(client.clone()),
        };
        let wpas = WpaReviewer(Arc::clone(&stores));
        let hpas = HpaReviewer(Arc::clone(&stores));
        let (vpa_group, wpa_group) = ("autoscaling.k8s.io", "datadoghq.com");
        let reviews = ReviewRoutes::new(Arc::new(metrics.clone()))
            .route("", "pods", Arc::new(pods))
            .route(vpa_group, "verticalpodautoscalers", Arc::new(vpas))
            .route(wpa_group, "watermarkpodautoscalers", Arc::new(wpas))
            .route("autoscaling", "horizontalpodautoscalers", Arc::new(hpas));
        let certificates = Arc::new(Certificates::default());
        let self_check = SelfCheck {
            config: Arc::clone(&config),
            clock: clock.clone(),
            webhook_address: webhook.address(),
            certificates: Arc::clone(&certificates),
            metrics: metrics.clone(),
            stores,
            draining: AtomicBool::new(false),
            last: parking_lot::Mutex::default(),
        };
        let secret = &config.certificates.secret;
        let stats = || Arc::clone(&write_stats);
        let (namespace, name) = (&secret.namespace, &secret.name);
        let wanted = config.registration.clone();
        let certificates = CertificateReconciler {
            config: Arc::clone(&config),
            source,
            secret: CertificateSecret::new(client.clone(), namespace, name, stats()),
            registration: wanted.map(|wanted| WebhookConfigWriter::new(client, wanted, stats())),
            // All replicas serve and write at the same time, which the writes are designed for: no leader election.
            permit: Permit::new(Fence::open(), limiter),
            certificates,
            keyring,
            metrics,
        };
        context.tasks.servers.spawn_on(&runtime, |stop| {
            webhook.serve(tls, Arc::new(reviews), stop.cancelled_owned())
        });
        Ok(Arc::new(Self {
            config,
            clock,
            liveness: context.liveness.clone(),
            watches,
            certificates,
            self_check: Arc::new(self_check),
            loop_watchdog: LoopWatchdog::default(),
            traffic: context.traffic.clone(),
            write_stats,
        }))
    }

    fn log_start(&self, addresses: &[SocketAddr]) {
        let (version, webhook) = (env!("CARGO_PKG_VERSION"), self.webhook());
        let certificates = self.certificates.source;
        tracing::info!(version, ?addresses, %webhook, ?certificates, "starting admission controller");
    }

    /// Every replica serves, and their writes are idempotent, so there is no election.
    fn election(&self) -> Option<Election> {
        None
    }

    fn start(self: &Arc<Self>, tasks: &mut ControllerTasks) {
        let workers = &mut tasks.workers;
        self.watches.set.start(workers);
        workers.spawn_cancellable(Arc::clone(self).run_certificate_loop());
        let LeaseConfig { namespace, name, interval } = &self.config.lease;
        let (client, host) = (self.liveness.client(), election_rules::hostname());
        let stats = Arc::clone(&self.write_stats);
        let lease = WebhookLease::new(client, namespace, name, &host, *interval, stats);
        let permit = liveness_thread::without_rate_limit(&self.certificates.permit);
        let checks = Arc::clone(&self.self_check).run(lease, permit);
        workers.spawn_cancellable_on(self.liveness.runtime(), checks);
    }

    /// Fails the readiness probe, and waits for endpoints to be updated.
    async fn begin_shutdown(&self) {
        self.self_check.draining.store(true, Ordering::Release);
        tokio::time::sleep(self.config.shutdown_delay).await;
    }

    async fn drain(&self, _deadline: Instant) {}

    fn refresh_metrics(&self) {
        let (watches, stores) = (&self.watches, &self.watches.stores);
        export_watch_metrics(&self.traffic, watches.required().chain(stores.sizing.quota_watch()));
        self.traffic.set_watch_objects(VPAS, stores.vpa_count());
        export_write_metrics(&self.traffic, &self.write_stats);
    }
}

impl AdmissionController {
    pub fn webhook(&self) -> SocketAddr {
        self.self_check.webhook_address
    }

    async fn run_certificate_loop(self: Arc<Self>) {
        loop {
            self.loop_watchdog.tick();
            self.certificates.reconcile(self.clock.now()).await;
            // Retry sooner while something is missing.
            let is_complete = self.certificates.certificates.lock().last_error.is_none();
            let interval = self.config.certificates.interval;
            let pause = if is_complete { interval } else { interval.min(Duration::from_secs(2)) };
            tokio::time::sleep(pause).await;
        }
    }
}

impl Probes for AdmissionController {
    fn check_liveness(&self) -> Result<(), Stalled> {
        check_watch_loops(self.watches.required())?;
        let limit =
            self.config.certificates.interval.saturating_mul(5).saturating_add(LOOP_TIMEOUT);
        self.loop_watchdog.check(limit, "the admission controller's loop")
    }

    fn check_readiness(&self) -> Result<(), Vec<String>> {
        let mut missing = unsynced_watches(self.watches.required());
        if self.self_check.is_draining() {
            missing.push("shutting down".to_owned());
        }
        missing.extend(self.self_check.recent().err());
        // Unreadable mounted files do not affect readiness while the previous certificate is still served.
        let certificates = self.certificates.certificates.lock();
        if certificates.serving.is_none() {
            missing.extend(certificates.last_error.clone());
        }
        if missing.is_empty() { Ok(()) } else { Err(missing) }
    }
}
