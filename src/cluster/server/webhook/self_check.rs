//! Whether the webhook answers: asked of its own port, under the name and the trust of an API server.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, ServerName},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use super::pinned_cert::PinnedCertificateVerifier;

/// Whom the one who calls believes.
#[derive(Clone, Debug)]
pub enum ServerTrust {
    /// Whoever one of these stands for.
    Authorities(RootCertStore),
    /// Who shows this certificate: where the authority is known to others alone.
    PinnedCertificate(CertificateDer<'static>),
}

impl From<RootCertStore> for ServerTrust {
    fn from(roots: RootCertStore) -> Self {
        Self::Authorities(roots)
    }
}

/// Asks nothing: it is answered with nothing, by the same code that answers reviews.
const PROBE_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: plimsoll\r\nConnection: close\r\n\r\n";
const PROBE_RESPONSE: &[u8] = b"HTTP/1.1 200 ";

/// Why nobody gets through.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfCheckError {
    /// Nobody takes the connection.
    #[error("the webhook's own port {0} takes no connection: {1}")]
    Connect(SocketAddr, String),
    /// The certificate is refused, or there is none.
    #[error("TLS fails on the webhook's own port, under the name {0}: {1}")]
    Tls(String, String),
    /// It is taken, and not answered.
    #[error("the webhook does not answer on its own port: {0}")]
    UnexpectedResponse(String),
    /// It took too long.
    #[error("the webhook does not answer on its own port within {0:?}")]
    Timeout(Duration),
}

/// Calls the webhook at this address as an API server would that trusts these and calls it by that name.
pub async fn check_webhook(
    address: SocketAddr,
    name: &str,
    trusted: impl Into<ServerTrust>,
    limit: Duration,
) -> Result<(), SelfCheckError> {
    timeout(limit, probe(address, name, trusted.into()))
        .await
        .map_err(|_| SelfCheckError::Timeout(limit))?
}

async fn probe(
    address: SocketAddr,
    name: &str,
    trusted: ServerTrust,
) -> Result<(), SelfCheckError> {
    let tls = |why: String| SelfCheckError::Tls(name.to_owned(), why);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|why| tls(why.to_string()))?;
    let config = match trusted {
        ServerTrust::Authorities(roots) => config.with_root_certificates(roots),
        ServerTrust::PinnedCertificate(certificate) => {
            config.dangerous().with_custom_certificate_verifier(Arc::new(
                PinnedCertificateVerifier::new(certificate),
            ))
        }
    };
    let config = config.with_no_client_auth();
    let server = ServerName::try_from(name.to_owned())
        .map_err(|_| tls("that is no name of a server".to_owned()))?;
    let address = loopback_address(address);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|why| SelfCheckError::Connect(address, why.to_string()))?;
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(server, stream)
        .await
        .map_err(|why| tls(why.to_string()))?;
    let mut head = [0; PROBE_RESPONSE.len()];
    let asked = async {
        stream.write_all(PROBE_REQUEST).await?;
        stream.read_exact(&mut head).await
    };
    asked.await.map_err(|why| SelfCheckError::UnexpectedResponse(why.to_string()))?;
    if head == PROBE_RESPONSE {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&head).into_owned();
        Err(SelfCheckError::UnexpectedResponse(format!("it says {said:?}")))
    }
}

/// An address that listens everywhere is called on this machine.
fn loopback_address(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        // The socket of IPv6 hears both; where there is no loopback of IPv6, that of IPv4 still is.
        IpAddr::V6(ip) if ip.is_unspecified() => {
            if std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() {
                Ipv6Addr::LOCALHOST.into()
            } else {
                Ipv4Addr::LOCALHOST.into()
            }
        }
        ip => ip,
    };
    SocketAddr::new(host, address.port())
}
