//! Every authentication failure is one clear line.

use std::time::Duration;

use plimsoll_core::api::scale_target::TlsConfig;
use plimsoll_core::types::Time;
use plimsoll_storage::prometheus::transport::config::{AuthConfig, Header, SecretSource};
use plimsoll_storage::prometheus::transport::{
    HttpTransport, Secret, Transport as _, TransportConfig, WallClock,
};

use super::loopback_server::{LoopbackServer, TestResponse, error_response, ok_response};
use super::{NO_RELOAD, send_query, transport, transport_with_sign_in};

fn bearer() -> AuthConfig {
    AuthConfig::Bearer(Secret::from("hunter2").into())
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_its_target_is_reported() {
    let elsewhere = LoopbackServer::start(|_| ok_response("a page to sign in with")).await;
    let to = format!("{}/login?return=hunter2", elsewhere.address);
    let server = LoopbackServer::start(move |_| TestResponse {
        status: 302,
        location: Some(to.clone()),
        body: String::new(),
    })
    .await;
    let error = send_query(&transport_with_sign_in(&server.address, bearer()))
        .await
        .expect_err("a redirect");
    assert_eq!(
        error.to_string(),
        format!(
            "{} redirects to {}/login (302), and redirects are not followed: configure authentication, or use the final \
             address",
            server.address, elsewhere.address
        )
    );
    assert_eq!(elsewhere.request_count(), 0);
    assert!(!error.is_transient());
}

#[tokio::test]
async fn rejected_credentials_are_named_in_the_error_with_a_remedy() {
    for (status, words) in [
        (401, "rejected this bearer token (401): check the token"),
        (403, "denied access with this bearer token (403): grant permission"),
    ] {
        let server = LoopbackServer::start(move |_| error_response(status)).await;
        let error = send_query(&transport_with_sign_in(&server.address, bearer()))
            .await
            .expect_err("refused");
        assert!(error.to_string().starts_with(&format!("{} {words}", server.address)), "{error}");
        assert_eq!(server.request_count(), 1, "a static token does not change");
    }
    // Other status codes are passed to the caller.
    let server = LoopbackServer::start(|_| error_response(503)).await;
    let http_transport = transport_with_sign_in(&server.address, bearer());
    let response = http_transport.send("/x", &[], Duration::from_secs(30)).await.expect("response");
    assert_eq!(response.status().as_u16(), 503);
}

#[tokio::test]
async fn a_refused_connection_and_a_timeout_are_transient_errors() {
    let server = LoopbackServer::start(|_| ok_response("")).await;
    let address = server.address.clone();
    drop(server);
    let error =
        send_query(&transport_with_sign_in(&address, bearer())).await.expect_err("rejected");
    assert!(error.to_string().starts_with(&format!("{address} cannot be reached: ")), "{error}");
    assert!(error.is_transient());

    let deaf = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", deaf.local_addr().expect("bound"));
    let http_transport = transport_with_sign_in(&address, bearer());
    let error =
        http_transport.send("/x", &[], Duration::from_millis(50)).await.expect_err("no response");
    assert!(
        error.to_string().starts_with(&format!("{address} did not respond within 50ms")),
        "{error}"
    );
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_missing_empty_or_invalid_credential_file_is_named() {
    let folder = tempfile::tempdir().expect("temporary directory");
    let path = folder.path().join("token");
    let http_transport = transport_with_sign_in(
        "http://127.0.0.1:9",
        AuthConfig::Bearer(SecretSource::File(path.clone())),
    );
    let missing = send_query(&http_transport).await.expect_err("no file").to_string();
    let place = path.display();
    assert!(
        missing.starts_with(&format!("failed to read the bearer token from {place}: No such file")),
        "{missing}"
    );
    for (bytes, why) in [(&b" \n"[..], "it is empty"), (&b"\xff\xfe"[..], "it is not UTF-8")] {
        std::fs::write(&path, bytes).expect("the folder is writable");
        let error = send_query(&http_transport).await.expect_err("no token").to_string();
        assert_eq!(
            error,
            format!("the bearer token in {place} is invalid: {why}: replace the file")
        );
    }
    std::fs::write(&path, "hunter2\nhunter3").expect("the folder is writable");
    let error = send_query(&http_transport).await.expect_err("two lines").to_string();
    assert_eq!(
        error,
        "the authorization header is invalid: it contains characters that are not allowed in a header"
    );
}

#[tokio::test]
async fn an_invalid_certificate_file_is_named() {
    let folder = tempfile::tempdir().expect("temporary directory");
    let path = super::write(folder.path(), "ca.crt", "hello").display().to_string();
    let identity =
        TlsConfig { cert_file: path.clone(), key_file: path.clone(), ..TlsConfig::default() };
    for (tls, words) in [
        (TlsConfig { ca_file: path, ..TlsConfig::default() }, "the CA certificate in "),
        (identity, "the client certificate in "),
    ] {
        let address = "https://127.0.0.1:9".to_owned();
        let config = TransportConfig { address, tls, ..TransportConfig::default() };
        let error = send_query(&transport(NO_RELOAD, config))
            .await
            .expect_err("no certificate")
            .to_string();
        assert!(error.starts_with(words), "{error}");
    }
}

#[test]
fn an_invalid_configuration_is_rejected_before_any_request() {
    let header = |name: &str| Header { name: name.into(), value: Secret::from("x").into() };
    let with =
        |address: &str| TransportConfig { address: address.into(), ..TransportConfig::default() };
    for (config, words) in [
        (with("prometheus:9090"), "the Prometheus address is invalid: it does not start with http"),
        (with(""), "the Prometheus address is invalid: "),
        (
            TransportConfig { headers: vec![header("Host")], ..with("http://a") },
            "the header \"Host\" is invalid: it cannot be set",
        ),
        (
            TransportConfig {
                headers: vec![header("authorization")],
                auth: bearer(),
                ..with("http://a")
            },
            "the header Authorization is invalid: authentication already sets it",
        ),
        (
            TransportConfig {
                auth: AuthConfig::Basic { user: "a:b".into(), password: Secret::from("x").into() },
                ..with("http://a")
            },
            "the user name is invalid: it contains a colon",
        ),
    ] {
        let error = HttpTransport::new(config, WallClock::new(|| Time::EPOCH))
            .expect_err("refused")
            .to_string();
        assert!(error.starts_with(words), "{error}");
    }
}
