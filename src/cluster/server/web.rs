//! The HTTP server of web pages: plain or over TLS, with client certificates of proxies, connection limits and timeouts.

use std::{convert::Infallible, future::Future, net::IpAddr, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response,
    body::Incoming,
    rt::{Read, Write},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use plimsoll_storage::prometheus::transport::tls::parse_certificates;
use rustls::{
    RootCertStore, ServerConfig,
    crypto::ring,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    version::{TLS12, TLS13},
};
use tokio::{
    net::TcpStream,
    sync::watch,
    time::{sleep, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{
    admin::Connections,
    listener::{Listener, drain_connections},
    webhook::ReloadableCertificate,
};

/// How long requests in progress may take to finish at shutdown.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest request line and headers.
const READ_BUFFER_BYTES: usize = 32 * 1024;
const MAX_HEADERS: usize = 64;
/// Time to receive a request. Idle connections are closed after this time as well.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection of this age is closed gracefully.
const MAX_CONNECTION_AGE: Duration = Duration::from_mins(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WebPeer {
    pub address: IpAddr,
    /// Whether it presented a certificate that a trusted CA signed.
    pub has_certificate: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct WebTlsError(String);

pub trait WebHandler: Send + Sync + 'static {
    fn handle(
        self: Arc<Self>,
        request: Request<Incoming>,
        peer: WebPeer,
    ) -> impl Future<Output = Response<Full<Bytes>>> + Send;
}

/// Serves pages until `shutdown`, then finishes the requests in progress.
pub async fn serve_pages(
    listener: Listener,
    tls: Option<ServerConfig>,
    handler: Arc<impl WebHandler>,
    shutdown: impl Future<Output = ()> + Send,
) {
    let (shutdown_sender, closing) = watch::channel(());
    let acceptor = tls.map(|config| TlsAcceptor::from(Arc::new(config)));
    let mut connections = Connections::default();
    let on_connection = |stream: TcpStream| {
        // A socket without a peer address is already closed.
        let Ok(peer) = stream.peer_addr() else { return };
        let (handler, closing) = (Arc::clone(&handler), closing.clone());
        let acceptor = acceptor.clone();
        connections.add(async move {
            let address = peer.ip().to_canonical();
            let Some(acceptor) = acceptor else {
                let peer = WebPeer { address, has_certificate: false };
                return serve_connection(TokioIo::new(stream), handler, peer, closing).await;
            };
            match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let has_certificate = stream.get_ref().1.peer_certificates().is_some();
                    let peer = WebPeer { address, has_certificate };
                    serve_connection(TokioIo::new(stream), handler, peer, closing).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake timed out"),
            }
        });
    };
    listener.accept_until(shutdown, on_connection).await;
    drop(shutdown_sender);
    drain_connections(connections.tasks, SHUTDOWN_TIMEOUT).await;
}

async fn serve_connection(
    stream: impl Read + Write + Unpin + Send,
    handler: Arc<impl WebHandler>,
    peer: WebPeer,
    mut closing: watch::Receiver<()>,
) {
    let service = service_fn(|request| {
        let handler = Arc::clone(&handler);
        async move { Ok::<_, Infallible>(handler.handle(request, peer).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(REQUEST_TIMEOUT)
        .max_buf_size(READ_BUFFER_BYTES)
        .max_headers(MAX_HEADERS)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    // Errors on a connection are the client's concern.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = sleep(MAX_CONNECTION_AGE) => {}
        _ = closing.changed() => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(SHUTDOWN_TIMEOUT, connection).await;
}

/// The TLS configuration of pages. With certificates of CAs, clients may present a certificate that one of them signed.
pub fn web_tls(
    certificate: Arc<ReloadableCertificate>,
    client_authorities: Option<&[u8]>,
) -> Result<ServerConfig, WebTlsError> {
    let provider = Arc::new(ring::default_provider());
    let failed = |why: &dyn std::fmt::Display| WebTlsError(why.to_string());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13, &TLS12])
        .map_err(|error| failed(&error))?;
    let builder = match client_authorities {
        None => builder.with_no_client_auth(),
        Some(text) => {
            let certificates =
                parse_certificates(text).ok_or_else(|| failed(&"it has no PEM certificate"))?;
            let mut roots = RootCertStore::empty();
            for authority in certificates {
                roots.add(authority).map_err(|error| failed(&error))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                .allow_unauthenticated()
                .build()
                .map_err(|error| failed(&error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // A resumed session would keep trusting a certificate of a CA that is no longer trusted.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}
