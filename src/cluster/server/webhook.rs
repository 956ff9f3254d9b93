//! The admission webhook server: TLS, HTTP/2 and HTTP/1.1, and resource limits per client.
//!
//! ```text
//!   connection ─ tls ─▶ handler: limits, upstream's responses to bad requests ─▶ Reviewer of the kind ─▶ review
//!       connections: activity and eviction                               ReviewObserver ◀─┘
//! ```

mod body_budget;
mod connections;
mod handler;
mod large_reviews;
mod observed_body;
mod read_body;
mod review;
mod review_observer;
mod review_runtime;
mod self_check;
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
    body_budget::PeerBudget,
    connections::{Activity, Connections},
    handler::handle,
    review_runtime::ReviewRuntime,
};
use super::listener::{Listener, ServeError, drain_connections};

pub(crate) use self::self_check::ServerTrust;
pub use self::{
    body_budget::BodyBudget,
    handler::ReviewRoutes,
    review::{AdmissionDecision, AdmissionRequest, Reviewer},
    review_observer::{CompletedReview, ReviewObserver, ReviewStatus},
    self_check::{SelfCheckError, check_webhook},
    tls::{CipherSuites, MinVersion, ReloadableCertificate, certified_key, server_config},
};

/// Maximum size of a review: twice the largest object that etcd accepts and more, and upstream's limit.
const MAX_BODY_BYTES: usize = 5 << 20;

/// Bytes read from the socket at once: most reviews are shorter.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// HTTP/2 flow control windows: data that a client may send per stream, and per connection, before it is read. Unread
/// data does not count towards the body budget.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 128 << 10;

/// Buffer size of HTTP/1.1.
const MAX_READ_BUFFER_BYTES: usize = 64 << 10;

/// Limits per connection and in total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebhookLimits {
    pub connections: usize,
    pub connections_per_peer: usize,
    /// Maximum number of concurrent requests per connection.
    pub streams: u32,
    pub handshake_timeout: Duration,
    /// Time to receive the first request, and the headers of any other.
    pub request_timeout: Duration,
    pub body_timeout: Duration,
    pub body_bytes: usize,
    /// Total memory for the bodies of all requests.
    pub body_memory: usize,
    /// Memory for bodies per client address.
    pub body_memory_per_peer: usize,
    /// A body that is still arriving after this time releases its memory if other requests wait for some.
    pub slow_body_after: Duration,
    /// Connections without requests are closed after this time.
    pub idle_timeout: Duration,
    /// A connection that is closed has this long to finish the requests in progress.
    pub drain_timeout: Duration,
}

impl Default for WebhookLimits {
    fn default() -> Self {
        Self {
            // An API server keeps one or two connections.
            connections: 512,
            connections_per_peer: 64,
            streams: 64,
            handshake_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(10),
            body_bytes: MAX_BODY_BYTES,
            // The default memory limit of the container is 256 MiB.
            body_memory: 64 << 20,
            body_memory_per_peer: 16 << 20,
            slow_body_after: Duration::from_secs(1),
            idle_timeout: Duration::from_mins(5),
            drain_timeout: Duration::from_secs(15),
        }
    }
}

/// A bound webhook server that does not accept connections yet.
#[derive(Debug)]
pub struct WebhookServer {
    listener: Listener,
    limits: WebhookLimits,
    budget: Arc<BodyBudget>,
}

impl WebhookServer {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 picks a free port.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        let listener = Listener::bind(address, "--port").await?;
        let limits = WebhookLimits::default();
        Ok(Self { listener, limits, budget: BodyBudget::new(limits) })
    }

    #[must_use]
    pub fn with_limits(self, limits: WebhookLimits) -> Self {
        Self { limits, budget: BodyBudget::new(limits), ..self }
    }

    pub fn body_budget(&self) -> Arc<BodyBudget> {
        Arc::clone(&self.budget)
    }

    /// The bound address, with the actual port.
    pub const fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// Serves until `shutdown`, then finishes the requests in progress.
    pub async fn serve(
        self,
        tls: ServerConfig,
        reviews: Arc<ReviewRoutes>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let (shutdown_sender, closing) = watch::channel(());
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let mut connections = Connections::new(self.limits, self.budget);
        let runtime = ReviewRuntime::start();
        let handle = runtime.handle();
        let on_connection = |stream: TcpStream| {
            // It moves from the runtime of the listener to that of connections.
            let Ok(stream) = stream.into_std() else { return };
            // A socket without a peer address is already closed.
            let Ok(peer) = stream.peer_addr().map(|peer| peer.ip().to_canonical()) else { return };
            let Some(peer_budget) = connections.make_room(peer) else {
                return reviews.observer().on_rejected("crowded");
            };
            let activity = Arc::new(Activity::default());
            let connection = Connection {
                acceptor: acceptor.clone(),
                reviews: Arc::clone(&reviews),
                activity: Arc::clone(&activity),
                peer_budget: peer_budget.clone(),
                limits: self.limits,
            };
            let task = connection.serve(stream, closing.clone());
            connections.add(peer, peer_budget, &activity, &handle, task);
        };
        self.listener.accept_until(shutdown, on_connection).await;
        drop(shutdown_sender);
        drain_connections(connections.tasks, self.limits.drain_timeout).await;
    }
}

struct Connection {
    acceptor: TlsAcceptor,
    reviews: Arc<ReviewRoutes>,
    activity: Arc<Activity>,
    peer_budget: PeerBudget,
    limits: WebhookLimits,
}

impl Connection {
    async fn serve(self, stream: std::net::TcpStream, mut closing: watch::Receiver<()>) {
        let Self { acceptor, reviews, activity, peer_budget, limits } = self;
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        // Responses are small: send them at once instead of waiting for full segments.
        let _ = stream.set_nodelay(true);
        // TLS reads a few kilobytes at a time. With this buffer a review takes one system call.
        let stream = BufReader::with_capacity(READ_BUFFER_BYTES, stream);
        let stream = match timeout(limits.handshake_timeout, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "TLS handshake failed");
                return reviews.observer().on_rejected("handshake");
            }
            Err(_) => return reviews.observer().on_rejected("slow_handshake"),
        };
        let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let request_activity = Arc::clone(&activity);
        let service = service_fn(move |request| {
            let (active_request, reservation) =
                (Arc::clone(&request_activity).begin(), peer_budget.reserve());
            let response = handle(
                request,
                Arc::clone(&reviews),
                limits.body_bytes,
                reservation,
                active_request,
            );
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
            // Detects a client that disappeared, and frees its slot.
            .keep_alive_interval(limits.request_timeout)
            .keep_alive_timeout(limits.handshake_timeout);
        // Serve the protocol that ALPN negotiated, without sniffing the first bytes.
        let builder = if speaks_h2 { builder.http2_only() } else { builder.http1_only() };
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        // Errors on a connection are the client's concern.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = activity.wait_until_idle(limits.request_timeout, limits.idle_timeout) => {}
            _ = closing.changed() => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(limits.drain_timeout, connection).await;
    }
}
