//! What a listener listens on: an address as Go writes it, on both versions of IP.

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

/// Why there is no listener.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; pick another one with {flag}")]
    Bind {
        /// As it was given.
        address: String,
        /// The flag that says it.
        flag: &'static str,
        /// What the system says.
        source: io::Error,
    },
}

/// Until the next try when there are no more file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// A socket that listens, or the two that it takes.
#[derive(Debug)]
pub(super) struct Listener {
    primary: TcpListener,
    /// Where one socket does not stand for both versions of IP.
    v4: Option<TcpListener>,
    address: SocketAddr,
}

impl Listener {
    /// Binds an address: `HOST:PORT`, or `:PORT` for all interfaces. Port 0 is any free one. `flag` is what sets it.
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

    /// What it listens on, with the port that was picked.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Hands every connection on until `shutdown`. After that nobody can wait in a queue that is never looked at again.
    pub async fn accept_until(
        self,
        shutdown: impl Future<Output = ()> + Send,
        mut attend: impl FnMut(TcpStream) + Send,
    ) {
        let mut shutdown = pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                biased;
                () = &mut shutdown => return,
                accepted = self.accept() => accepted,
            };
            match accepted {
                Ok(stream) => attend(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
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

/// Gives connections so long to end. What is left after that is ended.
pub(super) async fn drain_connections(mut connections: JoinSet<()>, limit: Duration) {
    let all = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(limit, all).await;
}

async fn bind_all_interfaces(port: &str) -> io::Result<(TcpListener, Option<TcpListener>)> {
    let port: u16 = port.parse().map_err(|_| {
        io::Error::new(ErrorKind::InvalidInput, "what follows the colon is no port")
    })?;
    match TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await {
        Ok(listener) => {
            // On most systems that socket takes IPv4 too, and this one is refused.
            let port = listener.local_addr()?.port();
            let v4 = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await.ok();
            Ok((listener, v4))
        }
        Err(error) if error.kind() == ErrorKind::AddrInUse => Err(error),
        // No IPv6 here.
        Err(_) => Ok((TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await?, None)),
    }
}
