//! Self-check of the webhook: connects to its own port with the server name and CA bundle that an API server uses.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use plimsoll_storage::prometheus::transport::tls::{AcceptedCertificates, CustomVerifier};
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

#[derive(Clone, Debug)]
pub enum ServerTrust {
    Authorities(RootCertStore),
    /// By this exact certificate, where the CA is not known to this process.
    PinnedCertificate(CertificateDer<'static>),
}

impl From<RootCertStore> for ServerTrust {
    fn from(roots: RootCertStore) -> Self {
        Self::Authorities(roots)
    }
}

/// A GET request without a body: the code that handles reviews answers it with an empty 200.
const PROBE_REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: plimsoll\r\nConnection: close\r\n\r\n";
const PROBE_RESPONSE: &[u8] = b"HTTP/1.1 200 ";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelfCheckError {
    #[error("cannot connect to webhook port {0}: {1}")]
    Connect(SocketAddr, String),
    #[error("TLS handshake with the webhook port failed for server name {0}: {1}")]
    Tls(String, String),
    #[error("webhook does not respond on its own port: {0}")]
    UnexpectedResponse(String),
    #[error("webhook does not respond on its own port within {0:?}")]
    Timeout(Duration),
}

/// Connects to the webhook like an API server that trusts `trusted` and uses `name` as the server name.
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
    let tls_error = |error: String| SelfCheckError::Tls(name.to_owned(), error);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| tls_error(error.to_string()))?;
    let config = match trusted {
        ServerTrust::Authorities(roots) => config.with_root_certificates(roots),
        ServerTrust::PinnedCertificate(certificate) => {
            let verifier = CustomVerifier::new(AcceptedCertificates::Only(certificate));
            config.dangerous().with_custom_certificate_verifier(Arc::new(verifier))
        }
    };
    let config = config.with_no_client_auth();
    let server = ServerName::try_from(name.to_owned())
        .map_err(|_| tls_error("not a valid server name".to_owned()))?;
    let address = loopback_address(address);
    let stream = TcpStream::connect(address)
        .await
        .map_err(|error| SelfCheckError::Connect(address, error.to_string()))?;
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(server, stream)
        .await
        .map_err(|error| tls_error(error.to_string()))?;
    let mut head = [0; PROBE_RESPONSE.len()];
    let exchange = async {
        stream.write_all(PROBE_REQUEST).await?;
        stream.read_exact(&mut head).await
    };
    exchange.await.map_err(|error| SelfCheckError::UnexpectedResponse(error.to_string()))?;
    if head == PROBE_RESPONSE {
        Ok(())
    } else {
        let response = String::from_utf8_lossy(&head).into_owned();
        Err(SelfCheckError::UnexpectedResponse(format!("unexpected response {response:?}")))
    }
}

/// Maps an unspecified address to the loopback address.
fn loopback_address(address: SocketAddr) -> SocketAddr {
    let host = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        // The IPv6 socket accepts both. Where IPv6 has no loopback address, use that of IPv4.
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
