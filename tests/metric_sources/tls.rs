//! Recommenders over TLS: whom they have to be, who we are to them, and that no setting leaks into another.

use std::{fs, path::PathBuf, sync::Arc, time::Duration};

use plimsoll::cluster::{
    metrics_api::source::recommender::{RecommenderClient, RequestLimits},
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

/// Files that settings name.
struct CertificateFiles(TempDir);

impl CertificateFiles {
    fn new() -> Self {
        Self(TempDir::new().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> String {
        fs::write(self.path(name), content).expect("written");
        self.path(name).display().to_string()
    }
}

/// A certificate for these names, under an authority of its own.
fn pair(names: &[&str]) -> IssuedCertificate {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    issue(&CertificateSpec { names, lifetime: Duration::from_hours(1) }, wall_now().into())
        .expect("made")
}

/// A certificate of a client, which signs itself, and its key.
fn identity() -> (String, String) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["client".to_owned()]).expect("a name");
    (params.self_signed(&key).expect("signed").pem(), key.serialize_pem())
}

/// How a server shows a pair; with a certificate, only to those who have that one.
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
    let key = PrivateKeyDer::from_pem_slice(&pair.key).expect("a key");
    builder.with_single_cert(chain, key).expect("a pair")
}

async fn serve(pair: &IssuedCertificate, only: Option<&str>) -> LoopbackServer {
    LoopbackServer::start_tls(shows(pair, only), |_| TestResponse::json(r#"{"targetReplicas": 3}"#))
        .await
}

fn url(server: &LoopbackServer) -> String {
    format!("https://localhost:{}/autoscaling", server.port)
}

fn short_limits() -> RequestLimits {
    let (look, retry) = (Duration::ZERO, Duration::from_millis(300));
    RequestLimits {
        reload_interval: look,
        reload_retry_interval: retry,
        ..RequestLimits::default()
    }
}

fn recommenders() -> RecommenderClient {
    RecommenderClient::new("test", Arc::new(()), short_limits())
}

async fn consult(
    recommenders: &RecommenderClient,
    server: &LoopbackServer,
    own: Option<&TlsConfig>,
    defaults: &TlsConfig,
) -> Result<i32, String> {
    let advice = recommenders.recommend(&url(server), own, defaults, &json!({})).await;
    advice.map(|advice| advice.replicas).map_err(|why| {
        let told = why.to_string();
        assert!(!told.contains('\n'), "{told}");
        told
    })
}

fn trusting(ca_file: &str) -> TlsConfig {
    TlsConfig { ca_file: ca_file.to_owned(), ..TlsConfig::default() }
}

#[tokio::test]
async fn one_objects_authorities_are_not_those_of_another() {
    let (files, shown, other) =
        (CertificateFiles::new(), pair(&["localhost"]), pair(&["localhost"]));
    let server = serve(&shown, None).await;
    let right = trusting(&files.write("right", &shown.authority));
    let wrong = trusting(&files.write("wrong", &other.authority));
    let (all, none) = (recommenders(), TlsConfig::default());
    for _ in 0..3 {
        assert_eq!(consult(&all, &server, Some(&right), &none).await, Ok(3));
        for distrusts in [Some(&wrong), Some(&none), None] {
            let told = consult(&all, &server, distrusts, &none).await.expect_err("not trusted");
            assert!(told.starts_with("error sending request: https://localhost:"), "{told}");
            assert!(told.contains("certificate"), "{told}");
        }
    }
    assert_eq!(consult(&all, &server, None, &right).await, Ok(3), "those of the process");
    assert_eq!(consult(&all, &server, Some(&none), &right).await, Ok(3), "fall back");
    assert!(consult(&all, &server, Some(&wrong), &right).await.is_err(), "the object's own");
}

#[tokio::test]
async fn no_verification_is_what_was_asked_for_and_only_by_whom() {
    let server = serve(&pair(&["elsewhere"]), None).await;
    let careless = TlsConfig { insecure_skip_verify: true, ..TlsConfig::default() };
    let (all, none) = (recommenders(), TlsConfig::default());
    assert_eq!(consult(&all, &server, Some(&careless), &none).await, Ok(3));
    assert_eq!(consult(&all, &server, None, &careless).await, Ok(3));
    assert!(consult(&all, &server, Some(&none), &careless).await.is_err(), "it is not inherited");
}

#[tokio::test]
async fn the_name_of_a_server_is_told_to_it_and_looked_for_in_its_certificate() {
    let (files, shown) = (CertificateFiles::new(), pair(&["recommender.shop.svc", "10.1.2.3"]));
    let server = serve(&shown, None).await;
    let ca_file = files.write("ca", &shown.authority);
    let named = |name: &str| TlsConfig { server_name: name.to_owned(), ..trusting(&ca_file) };
    let (all, none) = (recommenders(), TlsConfig::default());
    for name in ["recommender.shop.svc", "10.1.2.3"] {
        assert_eq!(consult(&all, &server, Some(&named(name)), &none).await, Ok(3), "{name}");
    }
    let host = format!("localhost:{}", server.port);
    assert!(server.requests().iter().all(|asked| asked.header("host") == host), "only there");
    for name in ["", "other.shop.svc", "10.1.2.4"] {
        assert!(consult(&all, &server, Some(&named(name)), &none).await.is_err(), "{name:?}");
    }
    let odd = consult(&all, &server, Some(&named("no name")), &none).await.expect_err("no name");
    assert!(odd.contains("serverName \"no name\" is no name of a server"), "{odd}");
    assert!(consult(&all, &server, None, &named("recommender.shop.svc")).await.is_ok());
    let own = trusting(&ca_file);
    let inherited = consult(&all, &server, Some(&own), &named("recommender.shop.svc")).await;
    assert!(inherited.is_err(), "the name is the object's own affair");
}

#[tokio::test]
async fn a_server_with_many_names_is_told_which_one_is_meant() {
    /// Shows a certificate only to who calls it by its name.
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
    let (files, shown) = (CertificateFiles::new(), pair(&["recommender.shop.svc"]));
    let certified = plimsoll::cluster::server::webhook::certified_key(&shown.chain, &shown.key)
        .expect("a pair");
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(CertificateByServerName(Arc::new(certified))));
    let server =
        LoopbackServer::start_tls(config, |_| TestResponse::json(r#"{"targetReplicas": 3}"#)).await;
    let tls = TlsConfig {
        server_name: "recommender.shop.svc".to_owned(),
        ..trusting(&files.write("ca", &shown.authority))
    };
    let asked = consult(&recommenders(), &server, Some(&tls), &TlsConfig::default()).await;
    assert_eq!(asked, Ok(3));
}

/// Vectors H8 and H9.
#[tokio::test]
async fn certificates_of_ours_are_shown_whether_an_object_or_the_process_names_them() {
    let (files, shown) = (CertificateFiles::new(), pair(&["localhost"]));
    let (certificate, key) = identity();
    let server = serve(&shown, Some(&certificate)).await;
    let ca = trusting(&files.write("ca", &shown.authority));
    let own = TlsConfig {
        cert_file: files.write("cert", certificate.as_bytes()),
        key_file: files.write("key", key.as_bytes()),
        ..ca.clone()
    };
    let (all, none) = (recommenders(), TlsConfig::default());
    assert_eq!(consult(&all, &server, Some(&own), &none).await, Ok(3));
    assert_eq!(consult(&all, &server, None, &own).await, Ok(3));
    let half = TlsConfig { ca_file: String::new(), ..own.clone() };
    assert_eq!(consult(&all, &server, Some(&ca), &half).await, Ok(3), "each file by itself");
    assert!(consult(&all, &server, Some(&ca), &none).await.is_err(), "we have to show something");
    let lone = TlsConfig { key_file: String::new(), ..own };
    let told = consult(&all, &server, Some(&lone), &none).await.expect_err("no key");
    assert!(told.contains("certFile and keyFile are needed together"), "{told}");
    // Who is asked for a certificate and has none goes on without, where that is enough.
    let plain = serve(&shown, None).await;
    assert_eq!(consult(&all, &plain, Some(&ca), &none).await, Ok(3));
}

/// Vector H10, and that it does not last.
#[tokio::test(start_paused = true)]
async fn a_key_of_another_certificate_is_told_and_looked_at_again_later() {
    let (files, shown) = (CertificateFiles::new(), pair(&["localhost"]));
    let ((certificate, key), (_, other)) = (identity(), identity());
    let server = serve(&shown, Some(&certificate)).await;
    let tls = TlsConfig {
        cert_file: files.write("cert", certificate.as_bytes()),
        key_file: files.write("key", other.as_bytes()),
        ..trusting(&files.write("ca", &shown.authority))
    };
    let (all, none) = (recommenders(), TlsConfig::default());
    let told = consult(&all, &server, Some(&tls), &none).await.expect_err("no pair");
    assert!(told.contains("tls: private key does not match public key"), "{told}");
    fs::remove_file(files.path("cert")).expect("removed");
    let again = consult(&all, &server, Some(&tls), &none).await.expect_err("still no pair");
    assert_eq!(again, told, "it is not looked at all the time");
    files.write("cert", certificate.as_bytes());
    files.write("key", key.as_bytes());
    tokio::time::advance(short_limits().reload_retry_interval).await;
    // From here on it is on sockets, whose time is real.
    tokio::time::resume();
    assert_eq!(consult(&all, &server, Some(&tls), &none).await, Ok(3), "it fits now");
}

#[tokio::test]
async fn files_that_change_are_read_again_and_what_is_wrong_with_them_is_told() {
    let (files, one, two) = (CertificateFiles::new(), pair(&["localhost"]), pair(&["localhost"]));
    let (first, second) = (serve(&one, None).await, serve(&two, None).await);
    let tls = trusting(&files.write("ca", &one.authority));
    let (all, none) = (recommenders(), TlsConfig::default());
    assert_eq!(consult(&all, &first, Some(&tls), &none).await, Ok(3));
    assert!(consult(&all, &second, Some(&tls), &none).await.is_err());
    files.write("ca", &two.authority);
    assert_eq!(consult(&all, &second, Some(&tls), &none).await, Ok(3), "the new one is trusted");
    assert!(consult(&all, &first, Some(&tls), &none).await.is_err(), "and the old one is not");
    files.write("ca", b"");
    assert_eq!(consult(&all, &second, Some(&tls), &none).await, Ok(3), "half a change is none");

    let folder = files.0.path().display().to_string();
    for (path, words) in [
        (files.path("missing").display().to_string(), "missing cannot be read: "),
        (folder, "is no file"),
        (files.write("empty", b""), "empty has no PEM certificate"),
        (files.write("large", &vec![b'a'; (1 << 20) + 1]), "large is larger than 1 MiB"),
    ] {
        let told = consult(&all, &first, Some(&trusting(&path)), &none).await.expect_err(words);
        assert!(told.contains("caFile ") && told.contains(words), "{words}: {told}");
    }
}

#[tokio::test]
async fn versions_that_are_not_spoken_are_refused() {
    let (files, shown) = (CertificateFiles::new(), pair(&["localhost"]));
    let server = serve(&shown, None).await;
    let ca_file = files.write("ca", &shown.authority);
    let (all, none) = (recommenders(), TlsConfig::default());
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
        let asked = consult(&all, &server, Some(&tls), &none).await;
        assert_eq!(asked.is_ok(), is_spoken, "{oldest} {newest}: {asked:?}");
    }
}
