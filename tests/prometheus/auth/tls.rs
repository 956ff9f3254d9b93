//! TLS: server verification and client certificates.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_core::api::scale_target::TlsConfig;
use plimsoll_storage::prometheus::transport::{HttpTransport, TransportConfig, TransportErrorKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

use super::loopback_server::{self, LoopbackServer, ok_response};
use super::{NO_RELOAD, send_query, transport, wait_for_response, write};
use crate::support::certificates::{self, CertificateAuthority};

/// TLS configuration of a server: its certificate is signed by `own`; client certificates are required if `clients` is
/// set.
fn side(own: &CertificateAuthority, clients: Option<&CertificateAuthority>) -> Arc<ServerConfig> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let identity = own.sign("prometheus");
    let certificate = CertificateDer::from_pem_slice(identity.certificate.as_bytes());
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes());
    let builder = match clients {
        None => ServerConfig::builder().with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            let pem = authority.certificate();
            let root = CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
            roots.add(root).expect("an authority");
            let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
            ServerConfig::builder().with_client_cert_verifier(verifier.expect("roots"))
        }
    };
    let mut config = builder
        .with_single_cert(vec![certificate.expect("PEM")], key.expect("PEM"))
        .expect("a pair");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // Without session tickets, every connection does a full handshake.
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

/// Writes a file, and returns its path as TLS settings name it.
fn write_file(folder: &Path, name: &str, text: &str) -> String {
    write(folder, name, text).display().to_string()
}

fn shared(side: Arc<ServerConfig>) -> loopback_server::SharedTlsConfig {
    Arc::new(Mutex::new(side))
}

fn encrypted(server: &LoopbackServer, reload_interval: Duration, tls: TlsConfig) -> HttpTransport {
    transport(
        reload_interval,
        TransportConfig { address: server.address.clone(), tls, ..TransportConfig::default() },
    )
}

#[tokio::test]
async fn a_server_is_trusted_only_by_the_configured_ca() {
    let authority = CertificateAuthority::new("own");
    let server = LoopbackServer::start_tls(shared(side(&authority, None)), |request| {
        assert!(request.header("accept-encoding").contains("gzip"), "compression must be accepted");
        ok_response("in")
    })
    .await;
    let folder = tempfile::tempdir().expect("temporary directory");

    let other_ca =
        write_file(folder.path(), "other.crt", &CertificateAuthority::new("other").certificate());
    let other = TlsConfig { ca_file: other_ca, ..TlsConfig::default() };
    for tls in [TlsConfig::default(), other] {
        let error =
            send_query(&encrypted(&server, NO_RELOAD, tls)).await.expect_err("unknown").to_string();
        assert_eq!(
            error,
            format!(
                "the certificate of {} is not trusted: its issuer is unknown: set a CA file with the certificate of \
                 its issuer",
                server.address
            )
        );
    }
    assert_eq!(server.request_count(), 0);

    let insecure = TlsConfig { insecure_skip_verify: true, ..TlsConfig::default() };
    assert_eq!(
        send_query(&encrypted(&server, NO_RELOAD, insecure)).await.expect("authenticated"),
        "in"
    );
    let known = write_file(folder.path(), "ca.crt", &authority.certificate());
    let known = TlsConfig { ca_file: known, ..TlsConfig::default() };
    assert_eq!(
        send_query(&encrypted(&server, NO_RELOAD, known.clone())).await.expect("authenticated"),
        "in"
    );

    // The certificate is valid only for 127.0.0.1 and localhost.
    let address = server.address.replace("127.0.0.1", "127.0.0.2");
    let config = TransportConfig { address, tls: known, ..TransportConfig::default() };
    let error = send_query(&transport(NO_RELOAD, config)).await.expect_err("connection refused");
    assert_eq!(error.kind, TransportErrorKind::Unreachable, "{error}");
}

#[tokio::test]
async fn a_new_ca_is_trusted_as_soon_as_its_file_has_it() {
    let (old, new) = (CertificateAuthority::new("old"), CertificateAuthority::new("new"));
    let tls = shared(side(&old, None));
    let server = LoopbackServer::start_tls(Arc::clone(&tls), |_| ok_response("in")).await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let file = write_file(folder.path(), "ca.crt", &old.certificate());
    let known = || TlsConfig { ca_file: file.clone(), ..TlsConfig::default() };
    let early = encrypted(&server, NO_RELOAD, known());
    send_query(&early).await.expect("authenticated");

    *tls.lock().expect("no panic") = side(&new, None);
    let late = encrypted(&server, NO_RELOAD, known());
    let error = send_query(&late).await.expect_err("new credentials are rejected");
    assert_eq!(error.kind, TransportErrorKind::Untrusted, "{error}");
    write(folder.path(), "ca.crt", &format!("{}{}", old.certificate(), new.certificate()));
    assert_eq!(send_query(&late).await.expect("authenticated after a reload"), "in");
}

#[tokio::test]
async fn a_server_that_requires_a_client_certificate_gets_the_current_one() {
    let own = CertificateAuthority::new("own");
    let (old, new) =
        (CertificateAuthority::new("old clients"), CertificateAuthority::new("new clients"));
    let tls = shared(side(&own, Some(&old)));
    let server = LoopbackServer::start_tls(Arc::clone(&tls), |_| ok_response("in")).await;
    let folder = tempfile::tempdir().expect("temporary directory");
    let authority = write_file(folder.path(), "ca.crt", &own.certificate());

    let without_certificate = TlsConfig { ca_file: authority.clone(), ..TlsConfig::default() };
    let error = send_query(&encrypted(&server, NO_RELOAD, without_certificate))
        .await
        .expect_err("no certificate");
    assert_eq!(error.kind, TransportErrorKind::ClientCertificate, "{error}");
    assert!(
        error.to_string().ends_with("configure a client certificate that it trusts"),
        "{error}"
    );

    let identity = old.sign("plimsoll");
    let certificate = write_file(folder.path(), "tls.crt", &identity.certificate);
    let key = write_file(folder.path(), "tls.key", &identity.key);
    // Checks its files before every request.
    let http_transport = encrypted(
        &server,
        Duration::ZERO,
        TlsConfig {
            ca_file: authority,
            cert_file: certificate,
            key_file: key,
            ..TlsConfig::default()
        },
    );
    assert_eq!(send_query(&http_transport).await.expect("authenticated"), "in");
    assert_eq!(server.request_count(), 1);

    // A key that does not match its certificate yet is not used.
    write(folder.path(), "tls.key", &certificates::new_key().serialize_pem());
    assert_eq!(send_query(&http_transport).await.expect("old certificate works"), "in");
    *tls.lock().expect("no panic") = side(&own, Some(&new));
    let identity = new.sign("plimsoll");
    write(folder.path(), "tls.crt", &identity.certificate);
    write(folder.path(), "tls.key", &identity.key);
    wait_for_response(&http_transport, "in").await;
}
