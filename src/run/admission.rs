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
mod decisions;
mod feeds;
mod matching;
mod observer;
mod overlap;
mod pods;
mod probes;
mod reach;
mod vpas;
mod wpas;

use std::{
    fmt,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

pub(super) use self::matching::{goes_before, has_boost, is_off};
use anyhow::{Result, anyhow};
use kube::Client;
use rustls::ServerConfig;

use self::{
    certificates::Certificates,
    config::{AdmissionConfig, CertificateSource},
    feeds::{Feeds, Seen},
    observer::Counting,
    overlap::Reading,
    pods::Pods,
    reach::Reached,
    vpas::Vpas,
    wpas::Wpas,
};
use super::{
    client,
    desk::{Desk, Member},
    liveness::{Clients, Liveness},
    pulse::Pulse,
    quotas::Quotas,
    shown::{show_feeds, show_writes},
    tasks::{Group, Signals, Stop, Tasks, until_told},
};
use crate::{
    act::{Fence, Limiter, Permit, Registration, WriteStats},
    clock::Clock,
    metrics::{AdmissionMetrics, Traffic},
    observe::{controllers::Controllers, target::Targets, watch::Reader},
    serve::{
        Webhook,
        webhook::{Keyring, Reviews, certified, server_config},
    },
};

/// All parts of an admission controller.
pub struct Role {
    config: AdmissionConfig,
    clock: Clock,
    client: Client,
    liveness: Liveness,
    reader: Reader,
    source: CertificateSource,
    feeds: Feeds,
    seen: Seen,
    controllers: Arc<Controllers>,
    targets: Targets,
    permit: Permit,
    keyring: Arc<Keyring>,
    certificates: Certificates,
    registration: Option<Registration>,
    reached: Reached,
    /// Where the own port is.
    webhook_address: SocketAddr,
    metrics: AdmissionMetrics,
    traffic: Traffic,
    stats: Arc<WriteStats>,
    pulse: Pulse,
    quotas: Quotas,
    reading: Reading,
    draining: AtomicBool,
}

impl fmt::Debug for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Role").field("webhook", &self.webhook_address).finish_non_exhaustive()
    }
}

/// An admission controller that runs.
#[derive(Debug)]
pub struct Running {
    role: Arc<Role>,
    address: SocketAddr,
    servers: Group,
    workers: Group,
    /// What ends last: the listener of metrics and probes.
    holders: Group,
}

/// Runs until one of these signals.
pub async fn run(config: AdmissionConfig, signals: Signals) -> Result<()> {
    let starting = async {
        let clients = connect(&config).await?;
        start(config, clients, Clock::wall()).await
    };
    until_told(signals, starting, Running::stop).await
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
) -> Result<Running> {
    let mut desk = Desk::alone(clients.into(), clock)?;
    let admin = desk.liveness.bind(&config.address).await?;
    let mut running = prepare(config, &mut desk).await?.begin(admin.address());
    let stop = running.holders.stop();
    desk.serve(vec![admin], &stop, running.holders.tasks());
    Ok(running)
}

/// An admission controller that does nothing yet, but for its port.
pub(super) struct Prepared {
    role: Arc<Role>,
    webhook: Webhook,
    tls: ServerConfig,
}

/// Puts the parts together.
pub(super) async fn prepare(config: AdmissionConfig, desk: &mut Desk) -> Result<Prepared> {
    // Bound where its connections are accepted: whether API servers get through decides about the Lease.
    let listen = config.listen.to_string();
    let bound = desk.liveness.runtime().spawn(async move { Webhook::bind(&listen).await });
    let webhook = bound.await??.with_limits(config.limits);
    let source = source(&config)?;
    let keyring = Arc::new(Keyring::default());
    let tls = server_config(config.tls.minimum, &config.tls.ciphers, Arc::clone(&keyring))?;
    let role = Arc::new(Role::new(config, desk, source, keyring, webhook.address()));
    desk.add(Arc::clone(&role) as _);
    Ok(Prepared { role, webhook, tls })
}

impl Prepared {
    /// Starts its tasks. It is scraped and probed there.
    pub fn begin(self, address: SocketAddr) -> Running {
        let Self { role, webhook, tls } = self;
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            %address,
            webhook = %role.webhook_address,
            certificates = ?role.source,
            "admission controller starts"
        );
        let (mut servers, mut workers, holders) = (Group::new(), Group::new(), Group::new());
        let (serve_stop, work_stop) = (servers.stop(), workers.stop());
        let (pods, vpas, wpas) =
            (Pods(Arc::clone(&role)), Vpas(Arc::clone(&role)), Wpas(Arc::clone(&role)));
        let reviews = Reviews::new(Arc::new(Counting(role.metrics.clone())))
            .route("", "pods", Arc::new(pods))
            .route("autoscaling.k8s.io", "verticalpodautoscalers", Arc::new(vpas))
            .route("datadoghq.com", "watermarkpodautoscalers", Arc::new(wpas));
        let serve = webhook.serve(tls, Arc::new(reviews), serve_stop.stopped());
        servers.tasks().spawn_on(serve, role.liveness.runtime());
        role.start_feeds(&work_stop, workers.tasks());
        workers.tasks().spawn(Arc::clone(&role).keep_certificates(work_stop.clone()));
        let reachable = Arc::clone(&role).keep_reachable(work_stop.clone());
        workers.tasks().spawn_on(reachable, role.liveness.runtime());
        Running { role, address, servers, workers, holders }
    }
}

/// Where certificates come from: as it was said, or from files where there are any.
fn source(config: &AdmissionConfig) -> Result<CertificateSource> {
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
            .and_then(|pair| certified(&pair.chain, &pair.key).map_err(|why| why.to_string()));
        usable.map_err(|why| {
            anyhow!("{why}; correct --tls-cert-file and --tls-private-key, or set --certificates=self-signed")
        })?;
    }
    Ok(source)
}

impl Running {
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
        crate::serve::Probes::ready(&*self.role)
    }

    /// Ends it in order: first nobody new is sent here, then the answers under way are finished, then all else ends.
    pub async fn stop(mut self) {
        self.role.draining.store(true, Ordering::Release);
        tokio::time::sleep(self.role.config.shutdown_delay).await;
        self.servers.end().await;
        self.workers.end().await;
        self.holders.end().await;
    }
}

impl Role {
    fn new(
        config: AdmissionConfig,
        desk: &mut Desk,
        source: CertificateSource,
        keyring: Arc<Keyring>,
        webhook_address: SocketAddr,
    ) -> Self {
        let metrics = AdmissionMetrics::new(&mut desk.registry);
        let (client, clock) = (desk.client.clone(), desk.clock.clone());
        let limiter = Limiter::new(config.qps, config.burst);
        // Every replica serves, and what they write together is made for that: there is no election.
        let permit = Permit::new(Fence::open(), limiter.clone());
        let controllers = Arc::new(Controllers::new());
        let gate = Arc::new(move || {
            let limiter = limiter.clone();
            Box::pin(async move { limiter.acquire().await }) as _
        });
        let targets = Targets::new(
            client.clone(),
            Arc::clone(&controllers),
            gate,
            crate::observe::scale::Lifetimes::default(),
        );
        let stats = Arc::clone(&desk.stats);
        let registration = config
            .registration
            .clone()
            .map(|wanted| Registration::new(client.clone(), wanted).with_stats(Arc::clone(&stats)));
        Self {
            config,
            clock,
            client,
            liveness: desk.liveness.clone(),
            reader: desk.reader.clone(),
            source,
            feeds: Feeds::new(),
            seen: Seen::default(),
            controllers,
            targets,
            permit,
            keyring,
            certificates: Certificates::default(),
            registration,
            reached: Reached::default(),
            webhook_address,
            metrics,
            traffic: desk.traffic.clone(),
            stats,
            pulse: Pulse::default(),
            quotas: Quotas::default(),
            reading: Reading::default(),
            draining: AtomicBool::new(false),
        }
    }

    /// Whether it was told to end.
    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
    }

    /// Looks after certificates and the registration until told to stop.
    async fn keep_certificates(self: Arc<Self>, stop: Stop) {
        loop {
            self.pulse.beat();
            tokio::select! {
                () = stop.stopped() => return,
                () = self.look_after_certificates() => {}
            }
            // What is missing at the start is looked for more often.
            let pause = match self.certificates.trouble() {
                Some(_) => self.config.certificates.interval.min(Duration::from_secs(2)),
                None => self.config.certificates.interval,
            };
            tokio::select! {
                () = stop.stopped() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }
}

impl Member for Role {
    fn refresh(&self) {
        show_feeds(&self.traffic, self.feeds.needed().chain(self.quotas.feed()));
        self.traffic.set_feed_objects(self.feeds.vpas.name(), self.seen.vpa_count());
        show_writes(&self.traffic, &self.stats);
    }
}
