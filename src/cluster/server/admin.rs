//! The HTTP server for metrics and probes: connection limits, timeouts and graceful shutdown.

use std::{
    collections::VecDeque, convert::Infallible, future::Future, net::SocketAddr, pin::pin,
    sync::Arc, time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::watch,
    task::{AbortHandle, JoinSet},
    time::{sleep, timeout},
};

use super::{
    listener::{Listener, ServeError, drain_connections},
    routes::{Exposition, Probes, Routes, handle},
};

/// Maximum number of open connections. One more closes the oldest connection, so that probes always get through,
/// however many other connections stay open.
const MAX_CONNECTIONS: usize = 64;
/// How long requests in progress may take to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// Bytes rendered ahead of the reader.
const READ_BUFFER_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminLimits {
    /// Time to receive a request. Idle connections are closed after this time as well.
    pub request_timeout: Duration,
    /// A connection of this age is closed gracefully...
    pub max_connection_age: Duration,
    /// ... and the response in progress has this long to finish.
    pub drain_timeout: Duration,
}

impl Default for AdminLimits {
    fn default() -> Self {
        Self {
            request_timeout: Duration::from_secs(90),
            max_connection_age: Duration::from_mins(5),
            drain_timeout: Duration::from_mins(1),
        }
    }
}

/// A bound server that does not accept connections yet.
#[derive(Debug)]
pub struct AdminServer {
    listener: Listener,
    limits: AdminLimits,
}

impl AdminServer {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 picks a free port.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        Ok(Self {
            listener: Listener::bind(address, "--address").await?,
            limits: AdminLimits::default(),
        })
    }

    #[must_use]
    pub fn with_limits(self, limits: AdminLimits) -> Self {
        Self { limits, ..self }
    }

    /// The bound address, with the actual port.
    pub const fn address(&self) -> SocketAddr {
        self.listener.address
    }

    /// Serves until `shutdown`, then finishes the requests in progress.
    pub async fn serve(
        self,
        exposition: Exposition,
        probes: Arc<dyn Probes>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let (shutdown_sender, closing) = watch::channel(());
        let mut connections = Connections::default();
        let routes = Routes::new(exposition, probes);
        let on_connection = |stream| {
            connections.add(serve_connection(stream, routes.clone(), closing.clone(), self.limits));
        };
        self.listener.accept_until(shutdown, on_connection).await;
        drop(shutdown_sender);
        drain_connections(connections.tasks, SHUTDOWN_TIMEOUT).await;
    }
}

/// Open connections, oldest first.
#[derive(Default)]
pub(super) struct Connections {
    pub tasks: JoinSet<()>,
    oldest_first: VecDeque<AbortHandle>,
}

impl Connections {
    /// Starts a connection. If there are too many, the oldest one is closed.
    pub fn add(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        self.oldest_first.retain(|task| !task.is_finished());
        if self.oldest_first.len() >= MAX_CONNECTIONS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            oldest.abort();
        }
        self.oldest_first.push_back(self.tasks.spawn(connection));
    }
}

async fn serve_connection(
    stream: TcpStream,
    routes: Routes,
    mut closing: watch::Receiver<()>,
    limits: AdminLimits,
) {
    let service = service_fn(|request| {
        let routes = routes.clone();
        async { Ok::<_, Infallible>(handle(request, routes).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_timeout)
        .max_buf_size(READ_BUFFER_BYTES)
        // Render the next chunk only after the previous one was sent, instead of queueing up to sixteen.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // Errors on a connection are the client's concern.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(limits.max_connection_age) => {}
        _ = closing.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.drain_timeout, connection).await;
}
