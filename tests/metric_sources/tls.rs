//! Recommenders over TLS: server verification, client certificates, and that no setting of one affects another.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use plimsoll::cluster::{
    metric_sources::external_recommender::{RecommenderClient, RequestLimits},
    server::certificate::{CaBundle, CertificateSpec, IssuedCertificate, issue},
};
use plimsoll_core::api::scale_target::TlsConfig;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};
use serde_json::json;
use tempfile::TempDir;

use super::loopback_server::{LoopbackServer, TestResponse};
use crate::support::clock::wall_now;

/// The files that TLS settings refer to.
struct CertificateFiles(TempDir);

impl CertificateFiles {
    fn new() -> Self {
        Self(TempDir::new().expect("temporary directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.path(name), content).expect("written");
        self.path(name).display().to_string()
    }
}

/// Issues a certificate for these names, signed by its own CA.
fn pair(names: &[&str]) -> IssuedCertificate {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    issue(&CertificateSpec { names, lifetime: Duration::from_hours(1) }, wall_now().into())
        .expect("created")
}

/// Returns a self-signed client certificate and its key.
fn identity() -> (String, String) {
    let key = KeyPair::generate().expect("valid key");
    let params = CertificateParams::new(vec!["client".to_owned()]).expect("has a name");
    (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
}

/// Returns the TLS configuration of a server with this certificate. With `only`, it requires that client certificate.
fn shows(pair: &IssuedCertificate, only: Option<&str>) -> ServerConfig {
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS12, &TLS13])
        .expect("versions");
    let builder = match only {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let roots = Arc::new(CaBundle::parse(pem.as_bytes()).root_store());
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            builder.with_client_cert_verifier(verifier.expect("roots"))
        }
    };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&pair.chain).flatten().collect();
    let key = PrivateKeyDer::from_pem_slice(&pair.key).expect("valid key");
    builder.with_single_cert(chain, key).expect("valid certificate")
}

async fn serve(pair: &IssuedCertificate, only: Option<&str>) -> LoopbackServer {
    LoopbackServer::start_tls(shows(pair, only), |_| TestResponse::json(r#"{"targetReplicas": 3}"#))
        .await
}

fn url(server: &LoopbackServer) -> String {
    format!("https://localhost:{}/autoscaling", server.port)
}

/// A client that checks its files before every request.
fn recommenders() -> RecommenderClient {
    recommenders_with_interval(Duration::ZERO)
}

fn recommenders_with_interval(reload_interval: Duration) -> RecommenderClient {
    let limits = RequestLimits { reload_interval, ..RequestLimits::default() };
    RecommenderClient::new("test", Arc::new(()), limits)
}

async fn consult(
    recommenders: &RecommenderClient,
    server: &LoopbackServer,
    own: Option<&TlsConfig>,
    defaults: &TlsConfig,
) -> Result<i32, String> {
    let advice = recommenders.recommend(&url(server), own, defaults, &json!({})).await;
    advice.map(|advice| advice.replicas).map_err(|why| {
        let message = why.to_string();
        assert!(!message.contains('\n'), "{message}");
        message
    })
}

fn trusting(ca_file: &str) -> TlsConfig {
    TlsConfig { ca_file: ca_file.to_owned(), ..TlsConfig::default() }
}

#[tokio::test]
async fn the_ca_of_one_object_is_not_used_for_another() {
    let (files, certificate_pair, other) =
        (CertificateFiles::new(), pair(&["localhost"]), pair(&["localhost"]));
    let server = serve(&certificate_pair, None).await;
    let right = trusting(&files.write("right", &certificate_pair.authority));
    let distrusted = trusting(&files.write("wrong", &other.authority));
    let (recommenders, none) = (recommenders(), TlsConfig::default());
    for _ in 0..3 {
        assert_eq!(consult(&recommenders, &server, Some(&right), &none).await, Ok(3));
        for distrusts in [Some(&distrusted), Some(&none), None] {
            let error =
                consult(&recommenders, &server, distrusts, &none).await.expect_err("not trusted");
            assert!(error.starts_with("error sending request: https://localhost:"), "{error}");
            assert!(error.contains("certificate"), "{error}");
        }
    }
    assert_eq!(consult(&recommenders, &server, None, &right).await, Ok(3), "the process's CA");
    assert_eq!(
        consult(&recommenders, &server, Some(&none), &right).await,
        Ok(3),
        "falls back to the process's CA"
    );
    assert!(
        consult(&recommenders, &server, Some(&distrusted), &right).await.is_err(),
        "the object's own"
    );
}

#[tokio::test]
async fn verification_is_skipped_only_for_the_object_or_process_that_sets_it() {
    let server = serve(&pair(&["elsewhere"]), None).await;
    let careless = TlsConfig { insecure_skip_verify: true, ..TlsConfig::default() };
    let (recommenders, none) = (recommenders(), TlsConfig::default());
    assert_eq!(consult(&recommenders, &server, Some(&careless), &none).await, Ok(3));
    assert_eq!(consult(&recommenders, &server, None, &careless).await, Ok(3));
    assert!(
        consult(&recommenders, &server, Some(&none), &careless).await.is_err(),
        "it is not inherited"
    );
}

#[tokio::test]
async fn the_server_name_is_sent_and_verified() {
    let (files, certificate_pair) =
        (CertificateFiles::new(), pair(&["recommender.shop.svc", "10.1.2.3"]));
    let server = serve(&certificate_pair, None).await;
    let ca_file = files.write("ca", &certificate_pair.authority);
    let named = |name: &str| TlsConfig { server_name: name.to_owned(), ..trusting(&ca_file) };
    let (recommenders, none) = (recommenders(), TlsConfig::default());
    for name in ["recommender.shop.svc", "10.1.2.3"] {
        assert_eq!(
            consult(&recommenders, &server, Some(&named(name)), &none).await,
            Ok(3),
            "{name}"
        );
    }
    let host = format!("localhost:{}", server.port);
    assert!(server.requests().iter().all(|request| request.header("host") == host), "only there");
    for name in ["", "other.shop.svc", "10.1.2.4"] {
        assert!(
            consult(&recommenders, &server, Some(&named(name)), &none).await.is_err(),
            "{name:?}"
        );
    }
    let error =
        consult(&recommenders, &server, Some(&named("no name")), &none).await.expect_err("no name");
    assert!(
        error.contains("serverName \"no name\" is invalid: it is not a valid server name"),
        "{error}"
    );
    assert!(consult(&recommenders, &server, None, &named("recommender.shop.svc")).await.is_ok());
    let own = trusting(&ca_file);
    let inherited =
        consult(&recommenders, &server, Some(&own), &named("recommender.shop.svc")).await;
    assert!(inherited.is_err(), "the server name is not inherited");
}

#[tokio::test]
async fn the_server_name_selects_the_certificate_of_a_server_with_several_names() {
    /// Presents a certificate only if the client asks for its name (SNI).
    #[derive(Debug)]
    struct CertificateByServerName(Arc<rustls::sign::CertifiedKey>);
    impl rustls::server::ResolvesServerCert for CertificateByServerName {
        fn resolve(
            &self,
            hello: rustls::server::ClientHello<'_>,
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            (hello.server_name() == Some("recommender.shop.svc")).then(|| Arc::clone(&self.0))
        }
    }
    let (files, certificate_pair) = (CertificateFiles::new(), pair(&["recommender.shop.svc"]));
    let certified = plimsoll::cluster::server::webhook::certified_key(
        &certificate_pair.chain,
        &certificate_pair.key,
    )
    .expect("valid certificate");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(CertificateByServerName(Arc::new(certified))));
    let server =
        LoopbackServer::start_tls(config, |_| TestResponse::json(r#"{"targetReplicas": 3}"#)).await;
    let tls = TlsConfig {
        server_name: "recommender.shop.svc".to_owned(),
        ..trusting(&files.write("ca", &certificate_pair.authority))
    };
    let result = consult(&recommenders(), &server, Some(&tls), &TlsConfig::default()).await;
    assert_eq!(result, Ok(3));
}

/// Vectors H8 and H9.
#[tokio::test]
async fn client_certificates_of_the_object_or_the_process_are_presented() {
    let (files, certificate_pair) = (CertificateFiles::new(), pair(&["localhost"]));
    let (certificate, key) = identity();
    let server = serve(&certificate_pair, Some(&certificate)).await;
    let ca = trusting(&files.write("ca", &certificate_pair.authority));
    let own = TlsConfig {
        cert_file: files.write("cert", certificate.as_bytes()),
        key_file: files.write("key", key.as_bytes()),
        ..ca.clone()
    };
    let (recommenders, none) = (recommenders(), TlsConfig::default());
    assert_eq!(consult(&recommenders, &server, Some(&own), &none).await, Ok(3));
    assert_eq!(consult(&recommenders, &server, None, &own).await, Ok(3));
    let half = TlsConfig { ca_file: String::new(), ..own.clone() };
    assert_eq!(
        consult(&recommenders, &server, Some(&ca), &half).await,
        Ok(3),
        "files are inherited separately"
    );
    assert!(
        consult(&recommenders, &server, Some(&ca), &none).await.is_err(),
        "a client certificate is required"
    );
    let lone = TlsConfig { key_file: String::new(), ..own };
    let error = consult(&recommenders, &server, Some(&lone), &none).await.expect_err("no key");
    assert!(error.contains("certFile and keyFile must be set together"), "{error}");
    // A client without a certificate continues if the certificate is optional.
    let optional = serve(&certificate_pair, None).await;
    assert_eq!(consult(&recommenders, &optional, Some(&ca), &none).await, Ok(3));
}

/// Vector H10, and that the effect is temporary.
#[tokio::test(start_paused = true)]
async fn a_key_of_another_certificate_is_reported_and_checked_again_later() {
    let (files, certificate_pair) = (CertificateFiles::new(), pair(&["localhost"]));
    let ((certificate, key), (_, other)) = (identity(), identity());
    let server = serve(&certificate_pair, Some(&certificate)).await;
    let tls = TlsConfig {
        cert_file: files.write("cert", certificate.as_bytes()),
        key_file: files.write("key", other.as_bytes()),
        ..trusting(&files.write("ca", &certificate_pair.authority))
    };
    let interval = Duration::from_millis(300);
    let (recommenders, none) = (recommenders_with_interval(interval), TlsConfig::default());
    let error = consult(&recommenders, &server, Some(&tls), &none)
        .await
        .expect_err("certificate and key do not match");
    assert!(error.contains("tls: private key does not match public key"), "{error}");
    fs::remove_file(files.path("cert")).expect("removed");
    let again = consult(&recommenders, &server, Some(&tls), &none)
        .await
        .expect_err("certificate and key still do not match");
    assert_eq!(again, error, "the files are not read each time");
    files.write("cert", certificate.as_bytes());
    files.write("key", key.as_bytes());
    tokio::time::advance(interval).await;
    // The rest uses sockets, so it needs real time.
    tokio::time::resume();
    assert_eq!(
        consult(&recommenders, &server, Some(&tls), &none).await,
        Ok(3),
        "certificate and key match now"
    );
}

#[tokio::test]
async fn changed_certificate_files_are_reloaded_and_errors_are_reported() {
    let (files, first_pair, second_pair) =
        (CertificateFiles::new(), pair(&["localhost"]), pair(&["localhost"]));
    let (first, second) = (serve(&first_pair, None).await, serve(&second_pair, None).await);
    let tls = trusting(&files.write("ca", &first_pair.authority));
    let (recommenders, none) = (recommenders(), TlsConfig::default());
    assert_eq!(consult(&recommenders, &first, Some(&tls), &none).await, Ok(3));
    assert!(consult(&recommenders, &second, Some(&tls), &none).await.is_err());
    files.write("ca", &second_pair.authority);
    assert_eq!(
        consult(&recommenders, &second, Some(&tls), &none).await,
        Ok(3),
        "the new one is trusted"
    );
    assert!(
        consult(&recommenders, &first, Some(&tls), &none).await.is_err(),
        "and the old one is not"
    );
    files.write("ca", b"");
    assert_eq!(
        consult(&recommenders, &second, Some(&tls), &none).await,
        Ok(3),
        "a partial file is ignored"
    );

    let folder = files.0.path().display().to_string();
    for (path, expected) in [
        (files.path("missing").display().to_string(), "missing: No such file"),
        (folder, "is not a regular file"),
        (files.write("empty", b""), "empty is invalid: it contains no PEM certificate"),
        (
            files.write("large", &vec![b'a'; (1 << 20) + 1]),
            "large is invalid: it is larger than 1 MiB",
        ),
    ] {
        let error = consult(&recommenders, &first, Some(&trusting(&path)), &none)
            .await
            .expect_err(expected);
        assert!(
            error.contains("the CA certificate ") && error.contains(expected),
            "{expected}: {error}"
        );
    }
}

#[tokio::test]
async fn unsupported_tls_versions_are_rejected() {
    let (files, certificate_pair) = (CertificateFiles::new(), pair(&["localhost"]));
    let server = serve(&certificate_pair, None).await;
    let ca_file = files.write("ca", &certificate_pair.authority);
    let (recommenders, none) = (recommenders(), TlsConfig::default());
    for (oldest, newest, is_spoken) in [
        ("TLS12", "TLS12", true),
        ("TLS13", "", true),
        ("TLS10", "", true),
        ("", "TLS11", false),
        ("TLS13", "TLS12", false),
    ] {
        let tls = TlsConfig {
            min_version: oldest.to_owned(),
            max_version: newest.to_owned(),
            ..trusting(&ca_file)
        };
        let result = consult(&recommenders, &server, Some(&tls), &none).await;
        assert_eq!(result.is_ok(), is_spoken, "{oldest} {newest}: {result:?}");
    }
}
