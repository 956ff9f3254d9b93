//! TCP listener: addresses in Go's syntax, on IPv4 and IPv6.

use std::{
    io::{self, ErrorKind},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{sleep, timeout},
};

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen on {address}; set another address with {flag}")]
    Bind { address: String, flag: &'static str, source: io::Error },
}

/// Delay before the next accept after an error, such as running out of file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A listening socket, or two if IPv4 needs its own.
#[derive(Debug)]
pub struct Listener {
    primary: TcpListener,
    /// Set where the IPv6 socket does not accept IPv4.
    v4: Option<TcpListener>,
    /// The bound address, with the actual port.
    pub address: SocketAddr,
}

impl Listener {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 picks a free port. Errors name `flag`.
    pub async fn bind(address: &str, flag: &'static str) -> Result<Self, ServeError> {
        let bound = match address.strip_prefix(':') {
            Some(port) => bind_all_interfaces(port).await,
            None => TcpListener::bind(address).await.map(|listener| (listener, None)),
        };
        let bound = bound.and_then(|(listener, v4)| {
            let address = listener.local_addr()?;
            Ok(Self { primary: listener, v4, address })
        });
        bound.map_err(|source| ServeError::Bind { address: address.to_owned(), flag, source })
    }

    /// Passes each accepted connection to `on_connection` until `shutdown`, then closes the socket, so that no client
    /// waits in its backlog.
    pub async fn accept_until(
        self,
        shutdown: impl Future<Output = ()> + Send,
        mut on_connection: impl FnMut(TcpStream) + Send,
    ) {
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => return,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(stream) => on_connection(stream),
                Err(error) => {
                    tracing::warn!(%error, "failed to accept connection");
                    sleep(ACCEPT_RETRY_DELAY).await;
                }
            }
        }
    }

    async fn accept(&self) -> io::Result<TcpStream> {
        let accepted = match &self.v4 {
            None => self.primary.accept().await,
            Some(v4) => tokio::select! {
                accepted = self.primary.accept() => accepted,
                accepted = v4.accept() => accepted,
            },
        };
        accepted.map(|(stream, _)| stream)
    }
}

/// Waits up to `limit` for connections to finish. Dropping the set aborts the rest.
pub(super) async fn drain_connections(mut connections: JoinSet<()>, limit: Duration) {
    let drained = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(limit, drained).await;
}

async fn bind_all_interfaces(port: &str) -> io::Result<(TcpListener, Option<TcpListener>)> {
    let port: u16 = port
        .parse()
        .map_err(|_| io::Error::new(ErrorKind::InvalidInput, "invalid port after the colon"))?;
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => {
            // On most systems that socket accepts IPv4 as well, and this bind fails.
            let port = listener.local_addr()?.port();
            let v4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.ok();
            Ok((listener, v4))
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(error),
        // IPv6 is not available.
        Err(_) => Ok((TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?, None)),
    }
}
