//! The webhook's listener: TLS, HTTP/2 and HTTP/1.1, and how much anybody who connects can ask of it.
//!
//! ```text
//!   connection ─ tls ─▶ answer: limits, upstream's answers to bad requests ─▶ Reviewer of the kind ─▶ review
//!       connections: who is busy, who goes                        Observer ◀─┘
//! ```

mod body_budget;
mod connection_runtimes;
mod connections;
mod handler;
mod large_reviews;
mod pinned_cert;
mod read_body;
mod response_body;
mod review;
mod review_observer;
mod self_check;
mod split_review;
mod tls;

use std::{
    convert::Infallible, future::Future, net::SocketAddr, pin::pin, sync::Arc, time::Duration,
};

use hyper::service::service_fn;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto::Builder,
};
use rustls::ServerConfig;
use tokio::{io::BufReader, net::TcpStream, sync::watch, time::timeout};
use tokio_rustls::TlsAcceptor;

use self::{
    body_budget::{BodyTimeouts, PeerBudget},
    connection_runtimes::ConnectionRuntimes,
    connections::{Activity, ConnectionCaps, Connections},
    handler::handle,
};
use super::listener::{Listener, ServeError, drain_connections};

pub use self::{
    body_budget::BodyBudget,
    handler::ReviewRoutes,
    review::{
        AdmissionDecision, AdmissionRequest, GroupVersionKind, GroupVersionResource, Reviewer,
    },
    review_observer::{CompletedReview, ReviewObserver, ReviewStatus},
    self_check::{SelfCheckError, ServerTrust, check_webhook},
    tls::{
        CipherSuites, MinVersion, ReloadableCertificate, TlsError, certified_key, server_config,
    },
};

/// What a review may weigh: more than any object that etcd takes, twice, and upstream's limit.
const MAX_BODY_BYTES: usize = 5 << 20;

/// How much of a connection is read at once: most reviews are shorter.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// What a peer may send of one request, and of all on its connection, before anybody has read it. Data that nobody has
/// read are not part of the budget of bodies.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 128 << 10;

/// What HTTP/1.1 reads ahead.
const MAX_READ_BUFFER_BYTES: usize = 64 << 10;

/// How much one connection, and all of them, may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookLimits {
    /// How many may be connected.
    pub connections: usize,
    /// How many of them from one address.
    pub connections_per_peer: usize,
    /// How many requests may be under way on one of them.
    pub streams: u32,
    /// TLS must stand by then.
    pub handshake_timeout: Duration,
    /// The first request, or the head of any other, must be there by then.
    pub request_timeout: Duration,
    /// The body of a request must be there by then.
    pub body_timeout: Duration,
    /// How long the body may be.
    pub body_bytes: usize,
    /// How many bytes of bodies may be in memory, of all requests together.
    pub body_memory: usize,
    /// How many of them from one address.
    pub body_memory_per_peer: usize,
    /// A body that is still arriving after so long gives its memory to others that wait for some.
    pub slow_body_after: Duration,
    /// A connection that asks nothing for so long is closed.
    pub idle_timeout: Duration,
    /// A connection that is closed has so long for the answers under way.
    pub drain_timeout: Duration,
}

impl Default for WebhookLimits {
    fn default() -> Self {
        Self {
            // Each API server keeps one or two.
            connections: 512,
            connections_per_peer: 64,
            streams: 64,
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(10),
            body_bytes: MAX_BODY_BYTES,
            // Of the 256 MiB that a container has where nobody says otherwise.
            body_memory: 64 << 20,
            body_memory_per_peer: 16 << 20,
            slow_body_after: Duration::from_secs(1),
            idle_timeout: Duration::from_mins(5),
            drain_timeout: Duration::from_secs(15),
        }
    }
}

/// The webhook, bound and not yet answering.
#[derive(Debug)]
pub struct WebhookServer {
    listener: Listener,
    limits: WebhookLimits,
    budget: Arc<BodyBudget>,
}

impl WebhookServer {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 is any free one.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        let socket = Listener::bind(address, "--port").await?;
        let limits = WebhookLimits::default();
        Ok(Self { listener: socket, limits, budget: budget(&limits) })
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: WebhookLimits) -> Self {
        Self { limits, budget: budget(&limits), ..self }
    }

    /// The memory that bodies of requests take.
    pub fn body_budget(&self) -> Arc<BodyBudget> {
        Arc::clone(&self.budget)
    }

    /// What it listens on, with the port that was picked.
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Answers until `shutdown`, and then finishes the answers under way.
    pub async fn serve(
        self,
        tls: ServerConfig,
        reviews: Arc<ReviewRoutes>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let (leave, left) = watch::channel(());
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let most = ConnectionCaps {
            total: self.limits.connections,
            per_peer: self.limits.connections_per_peer,
        };
        let mut connections = Connections::new(most, self.budget);
        let mut loops = ConnectionRuntimes::start();
        let attend = |stream: TcpStream| {
            // It moves from the loop that listens to the one that it will live on.
            let Ok(stream) = stream.into_std() else { return };
            // One that has no address any more is gone already.
            let Ok(peer) = stream.peer_addr().map(|peer| peer.ip().to_canonical()) else { return };
            let Some(share) = connections.make_room(peer) else {
                return reviews.observer().on_rejected("crowded");
            };
            let activity = Arc::new(Activity::default());
            let connection = Connection {
                acceptor: acceptor.clone(),
                reviews: Arc::clone(&reviews),
                activity: Arc::clone(&activity),
                peer_budget: share.clone(),
                limits: self.limits,
            };
            let task = connection.serve(stream, left.clone());
            connections.add(peer, share, &activity, loops.next(), task);
        };
        self.listener.accept_until(shutdown, attend).await;
        drop(leave);
        drain_connections(connections.tasks, self.limits.drain_timeout).await;
    }
}

fn budget(limits: &WebhookLimits) -> Arc<BodyBudget> {
    BodyBudget::new(limits.body_memory, limits.body_memory_per_peer)
}

struct Connection {
    acceptor: TlsAcceptor,
    reviews: Arc<ReviewRoutes>,
    activity: Arc<Activity>,
    peer_budget: PeerBudget,
    limits: WebhookLimits,
}

impl Connection {
    async fn serve(self, stream: std::net::TcpStream, mut left: watch::Receiver<()>) {
        let Self { acceptor, reviews, activity, peer_budget: share, limits } = self;
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        // Answers are small, and nobody should wait for them to be filled up.
        let _ = stream.set_nodelay(true);
        // TLS reads a few kilobytes at a time: a review is taken from the kernel in one piece all the same.
        let stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        let stream = match timeout(limits.handshake_timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                return reviews.observer().on_rejected("handshake");
            }
            Err(_) => return reviews.observer().on_rejected("slow_handshake"),
        };
        let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let times =
            BodyTimeouts { slow_after: limits.slow_body_after, timeout: limits.body_timeout };
        let asked = Arc::clone(&activity);
        let service = service_fn(move |request| {
            let (busy, lease) = (Arc::clone(&asked).begin(), share.reserve(times));
            let response = handle(request, Arc::clone(&reviews), limits.body_bytes, lease, busy);
            async { Ok::<_, Infallible>(response.await) }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.request_timeout)
            .max_buf_size(MAX_READ_BUFFER_BYTES);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // A peer that is gone without a word is noticed, and room is made.
            .keep_alive_interval(limits.request_timeout)
            .keep_alive_timeout(limits.handshake_timeout);
        // What was agreed on is spoken: there is no time in which nobody knows what will come.
        let builder = if speaks_h2 { builder.http2_only() } else { builder.http1_only() };
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        // How a connection ends is the business of whoever has opened it.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = activity.wait_until_idle(limits.request_timeout, limits.idle_timeout) => {}
            _ = left.changed() => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(limits.drain_timeout, connection).await;
    }
}
