//! The listener of a role: how many may be connected, for how long, and how it ends.

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

/// So many may be connected. One more, and the oldest connection is closed: probes are always let in, however many
/// others have come to stay.
const MAX_CONNECTIONS: usize = 64;
/// At shutdown, answers under way have this long.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// What is rendered ahead of a reader.
const READ_BUFFER_BYTES: usize = 64 * 1024;

/// How long a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdminLimits {
    /// A request must have been sent by then. Idle connections are closed after this time as well.
    pub request_timeout: Duration,
    /// After this long a connection ends with the answer under way...
    pub max_connection_age: Duration,
    /// ... which then has this long to be read.
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

/// The listener of a role, bound and not yet answering.
#[derive(Debug)]
pub struct AdminServer {
    listener: Listener,
    limits: AdminLimits,
}

impl AdminServer {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 is any free one.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        Ok(Self {
            listener: Listener::bind(address, "--address").await?,
            limits: AdminLimits::default(),
        })
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: AdminLimits) -> Self {
        Self { limits, ..self }
    }

    /// What it listens on, with the port that was picked.
    pub const fn address(&self) -> SocketAddr {
        self.listener.address()
    }

    /// Answers until `shutdown`, and then finishes the answers under way.
    pub async fn serve(
        self,
        exposition: Arc<dyn Exposition>,
        probes: Arc<dyn Probes>,
        shutdown: impl Future<Output = ()> + Send,
    ) {
        let (leave, left) = watch::channel(());
        let mut connections = Connections::default();
        let answers = Routes::new(exposition, probes);
        let attend = |stream| {
            connections.add(serve_connection(stream, answers.clone(), left.clone(), self.limits));
        };
        self.listener.accept_until(shutdown, attend).await;
        drop(leave);
        drain_connections(connections.tasks, SHUTDOWN_TIMEOUT).await;
    }
}

/// Connections in order of age.
#[derive(Default)]
struct Connections {
    tasks: JoinSet<()>,
    oldest_first: VecDeque<AbortHandle>,
}

impl Connections {
    fn add(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
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
    answers: Routes,
    mut left: watch::Receiver<()>,
    limits: AdminLimits,
) {
    let service = service_fn(|request| {
        let answers = answers.clone();
        async { Ok::<_, Infallible>(handle(request, answers).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_timeout)
        .max_buf_size(READ_BUFFER_BYTES)
        // One chunk is rendered after the other is sent, and not sixteen at once.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection ends is the business of whoever has opened it.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(limits.max_connection_age) => {}
        _ = left.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.drain_timeout, connection).await;
}
