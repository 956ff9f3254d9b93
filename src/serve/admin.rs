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
    answers::{Answers, Exposition, Probes, answer},
    socket::{ServeError, Socket, finish},
};

/// So many may be connected. One more, and the oldest connection is closed: probes are always let in, however many
/// others have come to stay.
const MOST_CONNECTIONS: usize = 64;
/// At shutdown, answers under way have this long.
const TO_FINISH: Duration = Duration::from_secs(3);
/// What is rendered ahead of a reader.
const BUFFER: usize = 64 * 1024;

/// How long a connection may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// A request must have been sent by then. Idle connections are closed after this time as well.
    pub to_ask: Duration,
    /// After this long a connection ends with the answer under way...
    pub to_stay: Duration,
    /// ... which then has this long to be read.
    pub to_leave: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            to_ask: Duration::from_secs(90),
            to_stay: Duration::from_mins(5),
            to_leave: Duration::from_mins(1),
        }
    }
}

/// The listener of a role, bound and not yet answering.
#[derive(Debug)]
pub struct Admin {
    socket: Socket,
    limits: Limits,
}

impl Admin {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 is any free one.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        Ok(Self { socket: Socket::bind(address, "--address").await?, limits: Limits::default() })
    }

    /// The same with other limits.
    #[must_use]
    pub fn with_limits(self, limits: Limits) -> Self {
        Self { limits, ..self }
    }

    /// What it listens on, with the port that was picked.
    pub const fn address(&self) -> SocketAddr {
        self.socket.address()
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
        let answers = Answers::new(exposition, probes);
        let attend = |stream| {
            connections.add(attend(stream, answers.clone(), left.clone(), self.limits));
        };
        self.socket.accept_until(shutdown, attend).await;
        drop(leave);
        finish(connections.tasks, TO_FINISH).await;
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
        if self.oldest_first.len() >= MOST_CONNECTIONS
            && let Some(oldest) = self.oldest_first.pop_front()
        {
            oldest.abort();
        }
        self.oldest_first.push_back(self.tasks.spawn(connection));
    }
}

async fn attend(
    stream: TcpStream,
    answers: Answers,
    mut left: watch::Receiver<()>,
    limits: Limits,
) {
    let service = service_fn(|request| {
        let answers = answers.clone();
        async { Ok::<_, Infallible>(answer(request, answers).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.to_ask)
        .max_buf_size(BUFFER)
        // One chunk is rendered after the other is sent, and not sixteen at once.
        .writev(false)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    // How a connection ends is the business of whoever has opened it.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(limits.to_stay) => {}
        _ = left.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(limits.to_leave, connection).await;
}
