//! The webhook's listener: TLS, HTTP/2 and HTTP/1.1, and how much anybody who connects can ask of it.
//!
//! ```text
//!   connection ─ tls ─▶ answer: limits, upstream's answers to bad requests ─▶ Reviewer of the kind ─▶ review
//!       connections: who is busy, who goes                        Observer ◀─┘
//! ```

mod answer;
mod apart;
mod body;
mod budget;
mod connections;
mod exact;
mod loops;
mod observer;
mod parts;
mod reach;
mod reply;
mod review;
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
    answer::answer,
    budget::{BodyTimes, Share},
    connections::{Activity, Connections, Most},
    loops::Loops,
};
use super::socket::{ServeError, Socket, finish};

pub use self::{
    answer::Reviews,
    budget::BodyBudget,
    observer::{Answered, Observer, ReviewStatus},
    reach::{Trust, Unreached, reach},
    review::{GroupVersionKind, GroupVersionResource, Request, Reviewer, Verdict},
    tls::{Ciphers, Keyring, MinVersion, TlsError, certified, server_config},
};

/// What a review may weigh: more than any object that etcd takes, twice, and upstream's limit.
const MOST_BYTES: usize = 5 << 20;

/// How much of a connection is read at once: most reviews are shorter.
const READ_AT_ONCE: usize = 16 << 10;

/// What a peer may send of one request, and of all on its connection, before anybody has read it. Data that nobody has
/// read are not part of the budget of bodies.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 128 << 10;

/// What HTTP/1.1 reads ahead.
const MOST_READ_AHEAD: usize = 64 << 10;

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
    pub handshake: Duration,
    /// The first request, or the head of any other, must be there by then.
    pub to_ask: Duration,
    /// The body of a request must be there by then.
    pub body: Duration,
    /// How long the body may be.
    pub body_bytes: usize,
    /// How many bytes of bodies may be in memory, of all requests together.
    pub body_memory: usize,
    /// How many of them from one address.
    pub body_memory_per_peer: usize,
    /// A body that is still arriving after so long gives its memory to others that wait for some.
    pub slow_body: Duration,
    /// A connection that asks nothing for so long is closed.
    pub idle: Duration,
    /// A connection that is closed has so long for the answers under way.
    pub to_leave: Duration,
}

impl Default for WebhookLimits {
    fn default() -> Self {
        Self {
            // Each API server keeps one or two.
            connections: 512,
            connections_per_peer: 64,
            streams: 64,
            handshake: Duration::from_secs(10),
            to_ask: Duration::from_secs(30),
            body: Duration::from_secs(10),
            body_bytes: MOST_BYTES,
            // Of the 256 MiB that a container has where nobody says otherwise.
            body_memory: 64 << 20,
            body_memory_per_peer: 16 << 20,
            slow_body: Duration::from_secs(1),
            idle: Duration::from_mins(5),
            to_leave: Duration::from_secs(15),
        }
    }
}

/// The webhook, bound and not yet answering.
#[derive(Debug)]
pub struct Webhook {
    socket: Socket,
    limits: WebhookLimits,
    budget: Arc<BodyBudget>,
}

impl Webhook {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 is any free one.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        let socket = Socket::bind(address, "--port").await?;
        let limits = WebhookLimits::default();
        Ok(Self { socket, limits, budget: budget(&limits) })
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
        self.socket.address()
    }

    /// Answers until `shutdown`, and then finishes the answers under way.
    pub async fn serve(
        self,
        tls: ServerConfig,
        reviews: Arc<Reviews>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let (leave, left) = watch::channel(());
        let acceptor = TlsAcceptor::from(Arc::new(tls));
        let most =
            Most { all: self.limits.connections, per_peer: self.limits.connections_per_peer };
        let mut connections = Connections::new(most, self.budget);
        let mut loops = Loops::start();
        let attend = |stream: TcpStream| {
            // It moves from the loop that listens to the one that it will live on.
            let Ok(stream) = stream.into_std() else { return };
            // One that has no address any more is gone already.
            let Ok(peer) = stream.peer_addr().map(|peer| peer.ip().to_canonical()) else { return };
            let Some(share) = connections.make_room(peer) else {
                return reviews.observer().turned_away("crowded");
            };
            let activity = Arc::new(Activity::default());
            let connection = Connection {
                acceptor: acceptor.clone(),
                reviews: Arc::clone(&reviews),
                activity: Arc::clone(&activity),
                share: share.clone(),
                limits: self.limits,
            };
            let task = connection.attend(stream, left.clone());
            connections.add(peer, share, &activity, loops.next(), task);
        };
        self.socket.accept_until(shutdown, attend).await;
        drop(leave);
        finish(connections.tasks, self.limits.to_leave).await;
    }
}

fn budget(limits: &WebhookLimits) -> Arc<BodyBudget> {
    BodyBudget::new(limits.body_memory, limits.body_memory_per_peer)
}

struct Connection {
    acceptor: TlsAcceptor,
    reviews: Arc<Reviews>,
    activity: Arc<Activity>,
    share: Share,
    limits: WebhookLimits,
}

impl Connection {
    async fn attend(self, stream: std::net::TcpStream, mut left: watch::Receiver<()>) {
        let Self { acceptor, reviews, activity, share, limits } = self;
        let Ok(stream) = TcpStream::from_std(stream) else { return };
        // Answers are small, and nobody should wait for them to be filled up.
        let _ = stream.set_nodelay(true);
        // TLS reads a few kilobytes at a time: a review is taken from the kernel in one piece all the same.
        let stream = BufReader::with_capacity(READ_AT_ONCE, stream);
        let stream = match timeout(limits.handshake, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a TLS handshake failed");
                return reviews.observer().turned_away("handshake");
            }
            Err(_) => return reviews.observer().turned_away("slow_handshake"),
        };
        let speaks_h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        let times = BodyTimes { patience: limits.slow_body, limit: limits.body };
        let asked = Arc::clone(&activity);
        let service = service_fn(move |request| {
            let (busy, lease) = (Arc::clone(&asked).begin(), share.lease(times));
            let response = answer(request, Arc::clone(&reviews), limits.body_bytes, lease, busy);
            async { Ok::<_, Infallible>(response.await) }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(limits.to_ask)
            .max_buf_size(MOST_READ_AHEAD);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // A peer that is gone without a word is noticed, and room is made.
            .keep_alive_interval(limits.to_ask)
            .keep_alive_timeout(limits.handshake);
        // What was agreed on is spoken: there is no time in which nobody knows what will come.
        let builder = if speaks_h2 { builder.http2_only() } else { builder.http1_only() };
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        // How a connection ends is the business of whoever has opened it.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = activity.fell_silent(limits.to_ask, limits.idle) => {}
            _ = left.changed() => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = timeout(limits.to_leave, connection).await;
    }
}
